# SPDX-License-Identifier: Apache-2.0
"""One thread in virtual time: tasks of simulated processes, and a seed that decides who runs next.

A task is a greenlet. It runs until it sleeps, waits, or offers a turn (`Scheduler.turn`); only then
another one runs. So a run depends on the seed alone. The clock moves only when no task can run.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import greenlet

BEGIN = 1_800_000_000.0
"""When virtual time begins, in seconds since the epoch."""


@dataclass(eq=False)
class Process:
    """A simulated process. ``globals``: what real processes do not share, by its key."""

    name: str
    pid: int
    alive: bool = True
    frozen_until: float = 0.0
    clock: float = 0.0
    """By how many seconds its host's wall clock is wrong."""
    globals: dict[int, Any] = field(default_factory=dict)
    ends: list[Callable[[], None]] = field(default_factory=list)
    """What happens outside when it is killed, such as the end of its connections."""


@dataclass(eq=False)
class Task:
    """A thread of a process. ``ident``: as of `threading.get_ident`."""

    process: Process
    name: str
    ident: int
    run: greenlet.greenlet = field(init=False)
    woken: bool = False
    ended: bool = False
    parked: int = 0
    """Which of its waits it is in: an alarm of an earlier wait does not end this one."""


class Scheduler:
    """Runs tasks, one at a time."""

    def __init__(self, seed: int) -> None:
        self.now = BEGIN
        self.turns = 0
        self.world = Process("world", 1)
        """What is no process of the product: the cloud, and who plays with it."""
        self.tasks: dict[int, Task] = {}
        self._main = greenlet.getcurrent()
        self._idents = itertools.count(1)
        self._order = itertools.count()
        self._ready: list[Task] = []
        self._timers: list[tuple[float, int, Task, int]] = []
        self._kept: list[greenlet.greenlet] = []  # a dead one must not be unwound: it would run on
        self.current: Task | None = None
        self.pump: Callable[[], float | None] = lambda: None
        """Runs what is due in the cloud; returns when the next thing of it is due."""
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Let everything from now on depend on a seed."""
        self.random = random.Random(seed)

    # -- processes

    @property
    def process(self) -> Process:
        """The process of the task that runs."""
        return self.current.process if self.current is not None else self.world

    def kill(self, process: Process) -> None:
        """End a process where each of its tasks is; nothing of it is unwound."""
        process.alive = False
        self._ready = [each for each in self._ready if each.process is not process]
        for end in process.ends:
            end()
        if self.process is process:
            self._main.switch()

    def freeze(self, process: Process, seconds: float) -> None:
        """Let no task of a process run for so many seconds."""
        process.frozen_until = max(process.frozen_until, self.now + seconds)
        if self.process is process:
            self.turn()

    def wall(self) -> float:
        """Return what the wall clock says that the running task reads."""
        return self.now + self.process.clock

    # -- tasks

    def spawn(self, process: Process, function: Callable[[], object], name: str) -> Task:
        """Begin a task; it runs when its turn comes."""
        task = Task(process, name, next(self._idents))

        def body() -> None:
            try:
                function()
            finally:
                task.ended = True
                self.tasks.pop(task.ident, None)

        task.run = greenlet.greenlet(body, parent=self._main)
        self.tasks[task.ident] = task
        self._kept.append(task.run)
        self._ready.append(task)
        return task

    def turn(self) -> None:
        """Offer that another task runs now."""
        if (task := self.current) is not None:
            self._ready.append(task)
            self._main.switch()

    def park(self, seconds: float | None = None) -> bool:
        """Wait until this task is woken. Return False if the time was over first."""
        task = self.current
        if task is None:
            raise RuntimeError("only a task can wait: the world may not block")
        task.woken = False
        task.parked += 1
        if seconds is not None:
            due = self.now + max(0.0, seconds)
            heapq.heappush(self._timers, (due, next(self._order), task, task.parked))
        self._main.switch()
        return task.woken

    def wake(self, task: Task) -> None:
        """Let a task that waits go on."""
        if task.woken or task.ended or not task.process.alive:
            return
        task.woken = True
        task.parked += 1
        self._ready.append(task)

    def sleep(self, seconds: float) -> None:
        """Let the time of the task pass."""
        self.park(max(0.0, seconds))

    # -- the loop

    def run(self, until: float, done: Callable[[], bool] = lambda: False) -> None:
        """Run tasks until ``done``, or until the clock says ``until``."""
        while not done() and self._step(until):
            pass

    def _step(self, limit: float) -> bool:
        """Run one task, or move the clock; return False at the limit."""
        due_in_cloud = self.pump()
        self._ring()
        able = [n for n, each in enumerate(self._ready) if each.process.frozen_until <= self.now]
        if able:
            chosen = able[0] if len(able) == 1 else self.random.choice(able)
            task = self._ready.pop(chosen)
            self.turns += 1
            self.current = task
            try:
                task.run.switch()
            finally:
                self.current = None
            return True
        times = [self._timers[0][0]] if self._timers else []
        times += [each.process.frozen_until for each in self._ready]
        if due_in_cloud is not None:
            times.append(due_in_cloud)
        following = min(times, default=limit)
        if following >= limit:
            self.now = max(self.now, limit)
            return False
        self.now = max(self.now, following)
        return True

    def _ring(self) -> None:
        """Ready what has waited long enough."""
        while self._timers and self._timers[0][0] <= self.now:
            _, _, task, parked = heapq.heappop(self._timers)
            if task.parked == parked and not task.ended and task.process.alive:
                task.parked += 1
                self._ready.append(task)
