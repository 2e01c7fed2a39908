# SPDX-License-Identifier: Apache-2.0
"""The view of what runs now in all groups: each step with its limit, each wait, and what
waits for an operator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mistral_failover.cli.base import lasted, when
from mistral_failover.cli.status_screen import LONGEST, its_turn, ready_step
from mistral_failover.convergence.records import OperationStatus, TraversalStatus
from mistral_failover.model.text import counted, first_words
from mistral_failover.ui.group import MOST
from mistral_failover.ui.levels import Level, of_status

if TYPE_CHECKING:  # the page starts without the code of the actions
    from mistral_failover.reports.documents import GroupOverview


@dataclass(frozen=True)
class StoppedGroup:
    """A group that does not continue without an operator."""

    group: str
    level: Level
    status: str
    reason: str
    since: str
    lasting: str


@dataclass(frozen=True)
class WorkRow:
    """A step that runs or waits, of a traversal with this ``cause``. ``limit``: how long it may
    take; ``notes``: what it waits for, and what else is to know. ``step`` is empty for a group in
    which no step runs."""

    group: str
    cause: str
    step: str
    level: Level
    state: str
    since: str
    lasting: str
    limit: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class WorkView:
    """What waits for an operator, the longest first, and what runs, the longest step first."""

    stopped: tuple[StoppedGroup, ...]
    rows: tuple[WorkRow, ...]


def work_view(overview: Iterable[GroupOverview], now: float) -> WorkView:
    """Return the view; ``overview`` are the rows of ``overview`` in failover.status."""
    groups = list(overview)
    stopped = [
        row for row in groups if row["status"] in (TraversalStatus.BLOCKED, TraversalStatus.FAILED)
    ]
    stopped.sort(key=lambda row: row["since"] or now)
    found = [each for row in groups for each in _steps(row, now)]
    found.sort(key=lambda each: each[0])
    return WorkView(tuple(_stopped(row, now) for row in stopped), tuple(row for _, row in found))


def _stopped(row: GroupOverview, now: float) -> StoppedGroup:
    since = row["since"]
    return StoppedGroup(
        group=row["name"],
        level=of_status(row["status"]),
        status=row["status"],
        reason=first_words(row["reason"] or row["cause"], MOST),
        since=when(since),
        lasting=lasted(None if since is None else max(0.0, now - since)),
    )


def _steps(group: GroupOverview, now: float) -> Iterable[tuple[float, WorkRow]]:
    """Yield each step of a group and when it began."""

    def row(
        step: str, level: Level, state: str, since: float, limit: str = "", *notes: str
    ) -> tuple[float, WorkRow]:
        lasting = lasted(max(0.0, now - since))
        whose = group["name"], group["cause"]
        return since, WorkRow(*whose, step, level, state, when(since), lasting, limit, notes)

    waits = {(each["resource"], each["member"]) for each in group["waiting"]}
    for each in group["under_way"]:
        unknown = each["status"] == OperationStatus.UNKNOWN
        if unknown and (each["resource"], each["member"]) in waits:
            continue  # its wait says more
        late = each["limit"] is not None and each["seconds"] > each["limit"]
        notes = [counted(each["attempts"], "attempt")] if each["attempts"] > 1 else []
        notes += ["it takes longer than its limit"] if late else []
        waits_for = each.get("waiting_for")
        notes += [f"for {waits_for} since {when(each['waiting_since'])}"] if waits_for else []
        level = Level.ATTENTION if unknown or late or waits_for else Level.WORKING
        state = "outcome unknown" if unknown else "waits" if waits_for else "running"
        known = each["limit"] is not None and each["limit"] <= LONGEST
        limit = lasted(each["limit"]) if known else ""
        yield row(each["sentence"], level, state, each["started_at"], limit, *notes)
    for wait in group["waiting"]:
        soon = f"next try in {lasted(wait['next_try'])}" if wait["next_try"] else "trying again"
        notes = [f"for {wait['waiting_for']}", soon, counted(wait["tries"], "attempt")]
        yield row(wait["what"], Level.ATTENTION, "waits", wait["since"], "", *notes)
    for defers in group["deferred"]:
        owner = f"for the lock of {defers['deferred_to']}"
        yield row(defers["resource"], Level.ATTENTION, "waits", defers["deferred_at"], "", owner)
    ready = group["ready"]
    for may in ready:
        since, waits_for = group["since"] or now, f"for {its_turn(may)}"
        yield row(ready_step(may), Level.WORKING, "ready", since, "", waits_for)
    nothing = not (group["under_way"] or group["waiting"] or group["deferred"] or ready)
    if nothing and group["status"] == TraversalStatus.IN_PROGRESS:
        yield row("", Level.WORKING, "no step runs", group["since"] or now)
