# SPDX-License-Identifier: Apache-2.0
"""What a rehearsal came to: its steps, its checks, and how long a failover would take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from mistral_failover.convergence.records import OperationStatus
from mistral_failover.model.goal import ATTACHMENT, FENCE_TYPE
from mistral_failover.model.operation_words import operation_words
from mistral_failover.model.rehearsal_goal import CHECK_PREFIX
from mistral_failover.model.rehearsals import APPLICATION, CHECK, COPY_ATTACHMENT, SNAPSHOTS, Place
from mistral_failover.model.types import ResourceType, Verb
from mistral_failover.store.details import LedgerRow
from mistral_failover.store.plans import Durations


class RehearsedStep(TypedDict):
    """A step of a rehearsal. ``what``: in words. ``member``: on which one, None: on none; ``role``:
    that of an application or a check. ``began``: seconds after the first step. ``seconds``: None if
    it did not end. ``error``: why it failed, and what helps; empty if it did not."""

    what: str
    member: str | None
    role: str | None
    began: float
    seconds: float | None
    error: str
    remedy: str


class CheckResult(TypedDict):
    """A check that was run on a member, for the role that it takes. ``output``: the end of what it
    wrote."""

    command: str
    member: str | None
    role: str | None
    passed: bool
    exit_code: int | None
    output: str


class RehearsalReport(TypedDict):
    """What a rehearsal came to.

    ``steps``: in the order in which they began. ``checks``: those that were run. ``to_service``:
    the seconds that a failover would take by it, from the alarm to the service; None if the
    application did not start. ``measured``: the part of it that was measured here, the others are
    those of earlier failovers. ``not_known``: the parts that never happened, in words, which
    ``to_service`` does not contain. ``data_at``: when the first snapshot was requested, in
    seconds since the epoch by Cinder's clock; ``spread``: the seconds within which the snapshots of
    several volumes were taken.
    """

    steps: list[RehearsedStep]
    checks: list[CheckResult]
    to_service: float | None
    measured: float | None
    not_known: list[str]
    data_at: float | None
    spread: float | None


def rehearsal_report(
    rows: Sequence[LedgerRow],
    types: Mapping[str, ResourceType],
    left_out: Mapping[str, str],
    lasted: Durations,
    places: Mapping[str, Place],
) -> RehearsalReport:
    """Return the report of the operations of a rehearsal's traversal. ``left_out``: as of
    `PlannedRehearsal`; ``lasted``: how long the parts of earlier failovers took; ``places``: by
    resource."""
    made = [row for row in rows if row["verb"] == Verb.CREATE]
    taken = _attributes(made, SNAPSHOTS)
    measured = _measured(made)
    first = min((row["started_at"] for row in made), default=0.0)
    needed = {"the fence": (FENCE_TYPE, Verb.CREATE)}
    if any(row["type"] == COPY_ATTACHMENT for row in made):
        needed["the detach"] = (ATTACHMENT, Verb.DELETE)
    routes = {f"a {kind}": (kind, Verb.CREATE) for kind in sorted(set(left_out.values()))}
    known = {what: lasted[each] for what, each in needed.items() if each in lasted}
    ways = [lasted[each] for each in routes.values() if each in lasted]
    total = None
    if measured is not None:
        total = measured + sum(known.values()) + max(ways, default=0.0)
    return {
        "steps": [_step(row, types, places, first) for row in made],
        "checks": [_check(row, places) for row in made if row["type"] == CHECK and row["ended_at"]],
        "to_service": total,
        "measured": measured,
        "not_known": [what for what, each in {**needed, **routes}.items() if each not in lasted],
        "data_at": taken.get("taken_at"),
        "spread": taken.get("spread"),
    }


def _measured(made: Iterable[LedgerRow]) -> float | None:
    """Return the seconds from the first attachment to the last application's start."""
    rows = [row for row in made if row["type"] in (COPY_ATTACHMENT, APPLICATION)]
    ends = [row["ended_at"] for row in rows if row["status"] == OperationStatus.DONE]
    if not rows or len(ends) < len(rows) or None in ends:
        return None
    return max(end for end in ends if end is not None) - min(row["started_at"] for row in rows)


def failed_places(report: RehearsalReport) -> list[Place]:
    """Return where the steps that failed were carried out."""
    return [Place(step["member"], step["role"]) for step in report["steps"] if step["error"]]


def _step(
    row: LedgerRow,
    types: Mapping[str, ResourceType],
    places: Mapping[str, Place],
    first: float,
) -> RehearsedStep:
    error = (row["result"] or {}).get("error") or {}
    ended, place = row["ended_at"], places.get(row["resource"], Place())
    return {
        "what": operation_words(row["verb"], row["resource"], row["member"], types[row["type"]]),
        "member": place.member,
        "role": place.role,
        "began": row["started_at"] - first,
        "seconds": None if ended is None else max(0.0, ended - row["started_at"]),
        "error": str(error.get("message", "")),
        "remedy": str(error.get("remedy", "")),
    }


def _check(row: LedgerRow, places: Mapping[str, Place]) -> CheckResult:
    place = places.get(row["resource"], Place())
    result = row["result"] or {}
    attributes = result.get("attributes") or {}
    error = result.get("error") or {}
    return {
        "command": row["resource"].removeprefix(CHECK_PREFIX),
        "member": place.member,
        "role": place.role,
        "passed": row["status"] == OperationStatus.DONE,
        "exit_code": attributes.get("exit_code"),
        "output": str(attributes.get("output", error.get("message", ""))),
    }


def _attributes(made: Iterable[LedgerRow], kind: str) -> Mapping[str, Any]:
    found = ((row["result"] or {}).get("attributes") for row in made if row["type"] == kind)
    return next((each for each in found if each), {})
