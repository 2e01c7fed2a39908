# SPDX-License-Identifier: Apache-2.0
"""The standard library on a scheduler: time, threads, locks, randomness, the names of processes.

The product is not changed for a simulation, and has no seam that its code could pass by: what it
and the libraries below it import has the same names and does the same, in virtual time. So this is
installed before anything of them is imported, in a process of its own.
"""

from __future__ import annotations

import _thread
import concurrent.futures
import datetime as calendar
import functools
import itertools
import os
import queue
import random
import socket
import sys
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from simulation.scheduler import Scheduler, Task

_EARLY = ("sqlalchemy", "keystoneauth1", "concurrent.futures.thread", "mistral_failover.settings")
_MAIN = 0  # the identity of what is no task


def install(scheduler: Scheduler) -> None:
    """Replace it. Raises RuntimeError if something that uses it was imported before."""
    if early := [name for name in _EARLY if name in sys.modules]:
        raise RuntimeError(f"imported before the simulated library: {', '.join(early)}")
    _install_time(scheduler)
    _install_threads(scheduler)
    _install_chance(scheduler)


# -- time


def _install_time(scheduler: Scheduler) -> None:
    def now(*_: Any) -> float:
        return scheduler.now

    def read(clock: int) -> float:
        return scheduler.wall() if clock == time.CLOCK_REALTIME else scheduler.now

    parts: Any = time
    parts.time, parts.monotonic, parts.perf_counter = scheduler.wall, now, now
    parts.clock_gettime = read
    for name in ("time", "monotonic", "perf_counter"):
        setattr(time, f"{name}_ns", _nanoseconds(getattr(time, name)))
    parts.sleep = scheduler.sleep
    for name in ("gmtime", "localtime"):
        setattr(time, name, _of_now(getattr(time, name), scheduler.wall))

    real: Any = calendar.datetime

    class _Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, real)

    class datetime(real, metaclass=_Kind):  # type: ignore[misc]  # noqa: N801 - its place
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.fromtimestamp(scheduler.wall(), tz)

        @classmethod
        def utcnow(cls) -> Any:
            return cls.fromtimestamp(scheduler.wall(), calendar.UTC).replace(tzinfo=None)

    calendar.datetime = datetime  # type: ignore[misc]


def _nanoseconds(seconds: Callable[[], float]) -> Callable[[], int]:
    return lambda: int(seconds() * 1e9)


def _of_now(real: Callable[..., Any], now: Callable[[], float]) -> Callable[..., Any]:
    @functools.wraps(real)
    def at(seconds: float | None = None) -> Any:
        return real(now() if seconds is None else seconds)

    return at


# -- threads


class Lock:
    """`threading.Lock`: who waits for it lets others run."""

    scheduler: Scheduler

    def __init__(self) -> None:
        self._holder: Any = None
        self._waiting: deque[Task] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """See `threading.Lock`. The lock of a process that is gone counts as free: it was in its
        memory, or of a connection that ended with it."""
        scheduler = self.scheduler
        until = None if timeout < 0 else scheduler.now + timeout
        while self._holder is not None:
            if not blocking:
                return False
            left = None if until is None else until - scheduler.now
            if left is not None and left <= 0:
                return False
            task = scheduler.current
            if task is None:
                raise RuntimeError("the world would wait for a lock")
            self._waiting.append(task)
            if not scheduler.park(left) and task in self._waiting:
                self._waiting.remove(task)
        self._holder = scheduler.current or scheduler
        return True

    def release(self) -> None:
        """See `threading.Lock`."""
        if self._holder is None:
            raise RuntimeError("release unlocked lock")
        self._holder = None
        while self._waiting:
            task = self._waiting.popleft()
            if task.process.alive and not task.ended:
                self.scheduler.wake(task)
                break

    def held_by(self) -> Any:
        """Return the task that holds it; None if it is free."""
        return self._holder

    def locked(self) -> bool:
        """See `threading.Lock`."""
        return self._holder is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_exc: object) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        """See `threading.Lock`."""
        self._holder = None
        self._waiting.clear()


class Local:
    """`threading.local`: what each task has of its own."""

    scheduler: Scheduler

    def __new__(cls, *args: Any, **options: Any) -> Local:
        self = object.__new__(cls)
        object.__setattr__(self, "_failover_given", (args, options))
        object.__setattr__(self, "_failover_known", {})
        return self

    def __getattribute__(self, name: str) -> Any:
        if name in ("__class__", "__init__"):
            return object.__getattribute__(self, name)
        own = _own(self)
        if name == "__dict__":
            return own
        if name in own:
            return own[name]
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _own(self)[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del _own(self)[name]
        except KeyError:
            raise AttributeError(name) from None


def _own(local: Local) -> dict[str, Any]:
    known = object.__getattribute__(local, "_failover_known")
    task = Local.scheduler.current
    ident = task.ident if task is not None else _MAIN
    found: dict[str, Any] | None = known.get(ident)
    if found is None:
        found = known[ident] = {}
        args, options = object.__getattribute__(local, "_failover_given")
        type(local).__init__(local, *args, **options)
    return found


def _install_threads(scheduler: Scheduler) -> None:
    Lock.scheduler = Local.scheduler = scheduler
    parts: Any = threading
    begun: weakref.WeakKeyDictionary[threading.Thread, Task] = weakref.WeakKeyDictionary()

    def ident() -> int:
        return scheduler.current.ident if scheduler.current is not None else _MAIN

    def start(self: Any) -> None:
        if self._started.is_set():
            raise RuntimeError("threads can only be started once")

        def body() -> None:
            self._ident = ident()
            threading._active[self._ident] = self  # type: ignore[attr-defined]
            self._started.set()
            try:
                self.run()
            except Exception:  # noqa: BLE001 - as threading does
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), self)))
            finally:
                threading._active.pop(self._ident, None)  # type: ignore[attr-defined]
                self._is_stopped = True
                self._failover_over.set()

        self._failover_over = threading.Event()
        begun[self] = scheduler.spawn(scheduler.process, body, self.name)
        self._started.set()

    def join(self: Any, timeout: float | None = None) -> None:
        self._failover_over.wait(timeout)

    def is_alive(self: Any) -> bool:
        return bool(self._started.is_set() and not self._is_stopped)

    parts.Lock = parts._allocate_lock = parts._CRLock = Lock
    parts.RLock = parts._RLock
    parts._CRLock = None
    parts.get_ident = parts.get_native_id = ident
    parts._time = time.monotonic
    parts.local = Local
    parts.Thread.start, parts.Thread.join, parts.Thread.is_alive = start, join, is_alive
    parts._register_atexit = lambda *_args, **_options: None
    queues: Any = queue
    queues.SimpleQueue, queues.time = queues._PySimpleQueue, time.monotonic
    numbers = itertools.count(1)

    def number(self: Any) -> int:
        """Where the object is in memory differs from run to run, and with it the order of a set."""
        found: int | None = self.__dict__.get("_failover_number")
        if found is None:
            found = self.__dict__["_failover_number"] = next(numbers)
        return found

    parts.Thread.__hash__ = number
    futures: Any = concurrent.futures.Future
    futures.__hash__ = number
    main: Any = threading.main_thread()
    threading._active[_MAIN] = main  # type: ignore[attr-defined]
    _thread.get_ident = ident
    _thread.allocate_lock = Lock  # type: ignore[assignment]


# -- chance, and names


def _install_chance(scheduler: Scheduler) -> None:
    """Let what is random, and what a process is called, depend on the seed and the process."""

    def urandom(count: int) -> bytes:
        return scheduler.random.randbytes(count)

    os.urandom = urandom
    random._urandom = urandom  # type: ignore[attr-defined]
    for name in ("random", "uniform", "choice", "shuffle", "sample", "randrange", "randint"):
        setattr(random, name, _drawn(scheduler, name))
    uuid.uuid4 = lambda: uuid.UUID(int=scheduler.random.getrandbits(128), version=4)
    numbers = itertools.count(1)
    uuid.uuid1 = lambda *_args, **_options: uuid.UUID(int=next(numbers), version=1)
    os.getpid = lambda: scheduler.process.pid
    socket.gethostname = lambda: scheduler.process.name


def _drawn(scheduler: Scheduler, name: str) -> Callable[..., Any]:
    def draw(*args: Any, **options: Any) -> Any:
        return getattr(scheduler.random, name)(*args, **options)

    return draw
