# SPDX-License-Identifier: Apache-2.0
"""One play: a seed, its moves, and what came of it.

A play runs in a child of the process that built the world, and ends with it: nothing is left of
one play in the next.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from mistral_lib.actions import Result

from mistral_failover.actions import reports as report_actions
from mistral_failover.lab.drill import audit
from mistral_failover.store.database import Database
from simulation import moves, people
from simulation.moves import LASTS, MOVES, Play
from simulation.oracle import NEIGHBOUR, Oracle
from simulation.scheduler import BEGIN
from simulation.world import GROUP, SWEEP_EVERY, Project, World

BOUND = 420.0
"""Seconds within which a group serves again, or says why a person is needed, once the world is
healthy: a lease, a request's `repeat_after`, a step's patience, and sweeps between them."""
_LOOK = 20.0  # seconds between two looks of a person at status
_COMES_AFTER = 60.0  # seconds after which a person comes, if a group waits for one
_CALLS = 6  # how often a person does what status says
_GOES_ON = (2.0, 15.0, 40.0)
"""Seconds after the last move within which what was laid out may still be met."""
_FIRST = (
    *("ordered", "guest_fails", "host_fails", "false_alarm"),
    *("late_and_overtaken", "lost_in_mid_move"),
)
"""With what a play begins: what goes wrong afterwards meets a failover."""


@dataclass(frozen=True)
class Plan:
    """What is played. ``kept``: the numbers of the moves that are made; None: all. ``named``: what
    the moves are, in the order of their numbers; None: as the seed says by the present `MOVES`."""

    seed: int
    kept: tuple[int, ...] | None = None
    named: tuple[str, ...] | None = None

    @property
    def moves(self) -> list[tuple[float, int, str]]:
        """When, number and name of each move, in their order."""
        random = Random(f"{self.seed} moves")
        names, weights = list(MOVES), [weight for _, weight in MOVES.values()]
        lasts = random.choice((3.0, 6.0, 12.0, 40.0, LASTS))
        drawn = [(0.0, 0, random.choice(_FIRST))]
        drawn += [
            (random.uniform(0.0, lasts), number, random.choices(names, weights)[0])
            for number in range(1, random.randint(2, 10))
        ]
        if self.named is not None:
            drawn = [(at, number, self.named[number]) for at, number, _ in drawn]
        return sorted(each for each in drawn if self.kept is None or each[1] in self.kept)

    @classmethod
    def read(cls, text: str, kept: tuple[int, ...] | None = None) -> Plan:
        """Return the plan that :meth:`__str__` wrote; the seed is enough."""
        seed, _, named = text.partition(":")
        return cls(int(seed), kept, tuple(named.split("/")) if named else None)

    def __str__(self) -> str:
        """Return it with the names of all moves, so that it stays what it is when moves are added;
        what is ``kept`` is left out."""
        moves = sorted(Plan(self.seed, None, self.named).moves, key=lambda each: each[1])
        return f"{self.seed}:{'/'.join(name for _, _, name in moves)}"


@dataclass
class Outcome:
    """What came of a play. ``journal``: its hash, empty if the play did not come to its end.
    ``state``: what the group came to. ``moves``, ``troubles``: how many there were of each.
    ``lines``: the journal, or why there is none."""

    seed: int
    broken: list[str] = field(default_factory=list)
    journal: str = ""
    state: str = ""
    failovers: int = 0
    turns: int = 0
    moves: dict[str, int] = field(default_factory=dict)
    troubles: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)


def play(world: World, plan: Plan) -> Outcome:
    """Play in this process, and leave the world as it then is."""
    world.scheduler.seed(plan.seed)
    world.journal.clear()
    world.wire.met.clear()
    show = Play(world, Oracle(world))
    show.oracle.look()
    ((before,),) = world.store.rows("select count(*) from failover_traversals")
    done: Counter[str] = Counter()
    _play_moves(show, plan, done)
    moves.heal(show)
    state = _come_to_rest(show)
    if any(audit.ended(_state(world))):  # what is no group's own, such as a rehearsal's cleanup
        _until(show, world.scheduler.now + BOUND, world.scheduler.now, math.inf, Random("end"))
    show.oracle.look()
    for violation in _audited(world):
        show.oracle.breaks(f"audit: {violation}")
    outcome = Outcome(plan.seed, show.oracle.broken, state=state)
    ((after,),) = world.store.rows("select count(*) from failover_traversals")
    outcome.failovers = after - before
    rows = world.store.rows("select at, sentence from failover_journal order by id")
    world.journal.extend(f"{at - BEGIN:10.3f} journal {sentence}" for at, sentence in rows)
    outcome.journal = hashlib.sha256("\n".join(world.journal).encode()).hexdigest()
    outcome.turns = world.scheduler.turns
    outcome.moves = dict(done)
    outcome.troubles = dict(Counter(each.name for each in world.wire.met))
    outcome.lines = world.journal
    return outcome


def _audited(world: World) -> Iterator[audit.Violation]:
    """What the audit of drills says, as a second opinion that reads the engine's state as well.
    What it concludes from the cloud's own violations is left to the oracle, which knows what people
    did. A request that the network kept back was sent in time."""
    events, state = world.emulation.audit.since(0), _state(world)
    yield from audit.tokens_grow(state)
    in_time = [
        each
        for each in events
        if (each.get("request_id"), each.get("method"), each.get("path")) not in world.wire.late
    ]
    yield from audit.calls_under_lease(in_time, state)
    yield from audit.one_traversal_per_incident(state)
    yield from audit.ended(state)
    yield from audit.at_rest(events, state)
    yield from audit.no_old_epoch(events)


def _state(world: World) -> audit.State:
    database = Database(f"sqlite:///{world.store.file}")
    try:
        return audit.read_state(database)
    finally:
        database.close()


def _play_moves(show: Play, plan: Plan, done: Counter[str]) -> None:
    world, begun = show.world, show.world.scheduler.now
    next_sweep = begun + SWEEP_EVERY * 0.3
    next_look = begun + _LOOK
    random = Random(f"{plan.seed} world")
    for after, number, name in plan.moves:
        next_sweep, next_look = _until(show, begun + after, next_sweep, next_look, random)
        world.tell(f"move {number}: {name}")
        done[name] += 1
        MOVES[name][0](show, Random(f"{plan.seed} {number}"))
    heals_at = max(show.heals_at, world.scheduler.now + random.choice(_GOES_ON))
    _until(show, heals_at, next_sweep, next_look, random)


def _until(
    show: Play, until: float, next_sweep: float, next_look: float, random: Random
) -> tuple[float, float]:
    scheduler = show.world.scheduler
    while scheduler.now < until:
        scheduler.run(min(until, next_sweep, next_look))
        show.oracle.look()
        if scheduler.now >= next_sweep:
            next_sweep += SWEEP_EVERY
            sweeps = scheduler.now >= show.sweeps_at
            if sweeps and (executor := show.executor(random)) is not None:
                executor.begin("sweep", show.world.sweep)
                if round(next_sweep / SWEEP_EVERY) % NEIGHBOUR == 0:
                    executor.of(show.world.neighbour).begin("sweep", show.world.sweep)
        if scheduler.now >= next_look:
            next_look += _LOOK
            _status(show, random)
            if round(next_look / _LOOK) % NEIGHBOUR == 0:
                _status(show, random, show.world.neighbour)
    return next_sweep, next_look


def _status(show: Play, random: Random, project: Project | None = None) -> Mapping[str, Any] | None:
    """Ask for status, as a person of a project does; None without an answer at once."""
    found: list[Mapping[str, Any]] = []
    if (executor := show.executor(random)) is None:
        return None
    executor = executor.of(project or show.world.mine)

    def ask(each: Any) -> None:
        asked_at = show.world.scheduler.now
        answer = each.run(report_actions.Status(GROUP))
        if not isinstance(answer, Result):
            show.oracle.told(each.project, json.dumps(answer, default=str))
            show.oracle.said(each.project, answer, asked_at)
            found.append(answer)

    executor.begin("status", ask)
    scheduler = show.world.scheduler
    scheduler.run(scheduler.now + 0.5, lambda: bool(found))
    return found[0] if found else None


def _come_to_rest(show: Play) -> str:
    """Wait until each group serves; a person of its project does what status says if it waits for
    one. Return what the play's group came to, and what was done for it."""
    random, times = Random("rest"), (show.world.scheduler.now + 1.0, math.inf)
    came_to = ""
    for project in (show.world.mine, show.world.neighbour):
        times, word = _comes_to_rest(show, project, times, random)
        came_to = came_to or word
    return came_to


def _comes_to_rest(
    show: Play, project: Project, times: tuple[float, float], random: Random
) -> tuple[tuple[float, float], str]:
    scheduler, of = show.world.scheduler, people.OnCall(show, project, random)
    helped: list[str] = []
    end, waits_since = scheduler.now + BOUND, scheduler.now
    calls, wrong, word = 0, "no status was had", "?"
    while scheduler.now < end:
        times = _until(show, scheduler.now + 10.0, *times, random)
        if (status := _status(show, random, project)) is None:
            continue
        word, found = status["status"], _why_not(show, project, status)
        if found is None:
            return times, " ".join(["SERVING", *helped])
        wrong = found
        if not _waits(status):
            waits_since = scheduler.now
            continue
        if scheduler.now - waits_since < _COMES_AFTER or calls == _CALLS:
            continue
        if tried := people.follow(of, status, otherwise=calls % 2 == 1):
            calls, helped = calls + 1, [*helped, *tried]
            end, waits_since = scheduler.now + BOUND, scheduler.now
    whose = "" if project is show.world.mine else "of the neighbour "
    show.oracle.breaks(f"liveness: {whose}{wrong}, after {helped or 'no help'}")
    return times, str(word)


def _waits(status: Mapping[str, Any]) -> bool:
    """Return whether a group waits for a person."""
    stopped = status["status"] in ("BLOCKED", "FAILED") or status["rehearsal"]["failure"]
    return bool(stopped or status["service"]["needs"])


def _why_not(show: Play, project: Project, status: Mapping[str, Any]) -> str | None:
    if status["status"] != "COMPLETE":
        return f"it is {status['status']}: {status['reason']}"
    return show.oracle.at_rest(project, status) or show.oracle.left()


def in_child(world: World, plan: Plan, *, lines: bool = False, keep: Path | None = None) -> Outcome:
    """Play in a child process, and return what came of it. ``keep``: a folder for the store and the
    cloud's ledger as the play left them, as a drill keeps its own."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.close(reading)
            try:
                world.fork()
                since = world.scheduler.now
                outcome = play(world, plan)
                if keep is not None:
                    world.save(keep, since)
            except BaseException as error:  # noqa: BLE001 - the parent tells
                trace = "".join(traceback.format_exception(error)[-6:])
                outcome = Outcome(plan.seed, [f"the simulation raised {error!r}"], lines=[trace])
            if outcome.journal and not lines:
                outcome.lines = []
            with os.fdopen(writing, "w") as pipe:
                json.dump(asdict(outcome), pipe)
            world.store.remove()
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    if not text:
        return Outcome(plan.seed, ["the child ended without an outcome"])
    return Outcome(**json.loads(text))


def shrink(world: World, plan: Plan, broken: Sequence[str]) -> Plan:
    """Return the plan with as few moves as break the same kind of promise."""
    kinds = {kind_of(each) for each in broken}
    kept = [number for _, number, _ in plan.moves]
    again = True
    while again:
        again = False
        for number in list(kept):
            fewer = tuple(each for each in kept if each != number)
            outcome = in_child(world, replace(plan, kept=fewer))
            if kinds & {kind_of(each) for each in outcome.broken}:
                kept.remove(number)
                again = True
    return replace(plan, kept=tuple(sorted(kept)))


def kind_of(broken: str) -> str:
    """Return which promise a sentence of the oracle is about."""
    words = broken.partition(": ")[2] if broken[:1].isdigit() else broken
    return words.partition(":")[0].partition(" was said")[0]
