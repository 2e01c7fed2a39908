# SPDX-License-Identifier: Apache-2.0
"""A traversal as a chart: its stages and steps over time, the critical path, retries and waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from mistral_failover.cli.base import clock, lasted, when
from mistral_failover.convergence.records import OperationStatus
from mistral_failover.model.stages import Stage
from mistral_failover.model.text import counted
from mistral_failover.ui.levels import Level, of_status

if TYPE_CHECKING:
    from mistral_failover.reports.documents import (
        HistoryEntry,
        OperationOfTraversal,
        TraversalDetails,
    )

_SAME = 0.001  # seconds
_NAMED = 2  # steps for which another one waits; of more it has the number
_MARKED = frozenset({"waiting", "steal", "broken", "failed"})
"""Kinds of journal entries that are marked on the bar of their step: a wait for a service, a lock
that was taken from its owner, a failure."""


class Outcome(StrEnum):
    """What a step came to."""

    DONE = "done"
    RUNNING = "running"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Mark:
    """A moment on a bar, in seconds from the traversal's start, and what happened."""

    at: float
    sentence: str


@dataclass(frozen=True)
class Step:
    """A bar: ``start`` and ``end`` in seconds from the traversal's start, ``end`` is now for one
    that runs. ``lock_wait``: seconds that it waited for a lock before it began."""

    key: str
    label: str
    start: float
    end: float
    outcome: Outcome
    critical: bool
    attempts: int
    result: str
    lock_wait: float
    marks: tuple[Mark, ...]

    @property
    def seconds(self) -> float:
        """How long it took, or runs."""
        return self.end - self.start

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what the bar does not show, in words."""
        found = []
        if self.attempts > 1:
            found.append(counted(self.attempts, "attempt"))
        if self.lock_wait > 0:
            found.append(f"waited {lasted(self.lock_wait)} for a lock")
        return (*found, *(mark.sentence for mark in self.marks))


@dataclass(frozen=True)
class Ahead:
    """A step that has not begun: ``waits_for`` what, in words (may be empty). It is drawn from
    ``start`` to ``end``, which are the same if it is not known how long such steps take."""

    label: str
    start: float
    end: float
    waits_for: str

    @property
    def note(self) -> str:
        """What it waits for, as a clause."""
        return f"waits for {self.waits_for}" if self.waits_for else "may begin"


@dataclass(frozen=True)
class StageBar:
    """A stage with its steps, in the order of their start, and those to come."""

    label: str
    start: float
    end: float
    running: bool
    steps: tuple[Step, ...]
    ahead: tuple[Ahead, ...]


@dataclass(frozen=True)
class Entry:
    """A line of the journal; ``number`` from 1."""

    number: int
    at: float
    time: str
    kind: str
    sentence: str


@dataclass(frozen=True)
class Timeline:
    """A traversal. ``seconds``: how long it took, or has been running; ``last``: how long the
    failover before it took, None if it is not to be compared; ``shown``: where the replay is, None
    for the whole."""

    id: str
    group: str
    cause: str
    status: str
    level: Level
    reason: str
    began: str
    lasted: str
    running: bool
    seconds: float
    last: float | None
    critical: str
    stages: tuple[StageBar, ...]
    entries: tuple[Entry, ...]
    shown: Entry | None


def timeline(traversal: TraversalDetails, step: int | None = None) -> Timeline:
    """Return the chart of a traversal, the answer of failover.show; with ``step`` as it was after
    that entry of its journal (from 1; a number outside of them counts as the nearest)."""
    since = float(traversal["started_at"])
    entries = tuple(_entries(traversal["history"], since))
    shown = entries[min(max(step, 1), len(entries)) - 1] if step is not None and entries else None
    now = since + float(traversal["seconds"])
    moment = now if shown is None else since + shown.at
    critical = {row["key"] for row in traversal["critical_path"]["steps"]}
    locked = [
        (row["resource"], row["at"] + row["seconds"], row["seconds"])
        for row in traversal["deferrals"]
        if row["seconds"] is not None
    ]
    marks = _marks(traversal["history"], since, moment)
    steps: dict[str, list[Step]] = {}
    for row in traversal["operations"]:
        if row["started_at"] <= moment or shown is None:
            found = _step(row, since, moment, row["key"] in critical, locked, marks)
            steps.setdefault(row["stage"], []).append(found)
    ahead = _ahead(traversal, steps) if shown is None else {}
    way = float(traversal["critical_path"]["seconds"])
    running = traversal["ended_at"] is None
    return Timeline(
        id=traversal["id"],
        group=traversal["group"] or "",
        cause=traversal["cause"],
        status=str(traversal["status"]).replace("_", " "),
        level=of_status(traversal["status"]),
        reason=traversal["reason"],
        began=when(since),
        lasted=lasted(float(traversal["seconds"])),
        running=running,
        seconds=max(float(traversal["seconds"]), 0.0),
        last=traversal["last_failover"],
        critical=lasted(way) if way else "",
        stages=tuple(
            _stage(name, steps.get(name, []), ahead.get(name, []))
            for name in Stage
            if name in steps or name in ahead
        ),
        entries=entries,
        shown=shown,
    )


def _entries(history: Iterable[HistoryEntry], since: float) -> Iterable[Entry]:
    for number, row in enumerate(history, 1):
        at = max(0.0, row["at"] - since)
        yield Entry(number, at, clock(row["at"]), row["kind"], row["sentence"])


def _marks(
    history: Iterable[HistoryEntry], since: float, moment: float
) -> Mapping[str, list[Mark]]:
    found: dict[str, list[Mark]] = {}
    for row in history:
        if row["kind"] in _MARKED and row["resource_id"] and row["at"] <= moment:
            mark = Mark(max(0.0, row["at"] - since), row["sentence"])
            found.setdefault(row["resource_id"], []).append(mark)
    return found


def _step(
    row: OperationOfTraversal,
    since: float,
    moment: float,
    critical: bool,
    locked: Sequence[tuple[str, float, float]],
    marks: Mapping[str, Sequence[Mark]],
) -> Step:
    start = max(0.0, row["started_at"] - since)
    ended = row["ended_at"]
    over = ended is not None and ended <= moment
    end = max(start, (moment if ended is None else min(ended, moment)) - since)
    return Step(
        key=row["key"],
        label=row["what"],
        start=start,
        end=end,
        outcome=_OUTCOMES.get(row["status"], Outcome.UNKNOWN) if over else _unfinished(row),
        critical=critical,
        # Until it is over, a replay does not know how many there will be.
        attempts=row["attempts"] if over or ended is None else 1,
        result=row["result"] if over else "in progress",
        lock_wait=next(
            (
                seconds
                for name, began, seconds in locked
                if name == row["resource"] and abs(began - row["started_at"]) < _SAME
            ),
            0.0,
        ),
        # An operation of the same record at another time has its own.
        marks=tuple(m for m in marks.get(row["resource_id"], ()) if start <= m.at <= end),
    )


def _unfinished(row: OperationOfTraversal) -> Outcome:
    doubtful = row["status"] in (OperationStatus.UNKNOWN, OperationStatus.OVERTAKEN)
    return Outcome.UNKNOWN if doubtful and row["ended_at"] is None else Outcome.RUNNING


def _ahead(
    traversal: TraversalDetails, steps: Mapping[str, Sequence[Step]]
) -> dict[str, list[Ahead]]:
    """Return the steps to come by stage, each behind those that it waits for."""
    now = max(float(traversal["seconds"]), 0.0)
    ends = {step.key: step.end for some in steps.values() for step in some}
    found: dict[str, list[Ahead]] = {}
    for row in traversal["ahead"]:
        start = max([now, *(ends.get(each, now) for each in row["after"])])
        ends[row["key"]] = start + (row["expected"] or 0.0)
        label = row["what"] if row["certain"] else f"{row['what']} (if needed)"
        waits_for = _listed(row["waits_for"])
        step = Ahead(label, start, ends[row["key"]], waits_for)
        found.setdefault(row["stage"], []).append(step)
    return found


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    first = ", ".join(names[:_NAMED])
    return f"{first} and {counted(more, 'other')}" if more > 0 else first


def _stage(stage: Stage, steps: Sequence[Step], ahead: Sequence[Ahead]) -> StageBar:
    spans = steps or ahead
    return StageBar(
        label=_STAGES[stage],
        start=min(each.start for each in spans),
        end=max(each.end for each in spans),
        running=any(step.outcome is Outcome.RUNNING for step in steps),
        steps=tuple(sorted(steps, key=lambda step: step.start)),
        ahead=tuple(ahead),
    )


_STAGES = {
    Stage.FENCE: "Fence",
    Stage.QUIESCE: "Quiesce",
    Stage.MOVE_VOLUMES: "Move volumes",
    Stage.ACTIVATE: "Activate",
    Stage.UPDATE_STACK: "Update stack",
    Stage.END: "Finish",
}
_OUTCOMES = {"done": Outcome.DONE, "failed": Outcome.FAILED}
