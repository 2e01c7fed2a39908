# SPDX-License-Identifier: Apache-2.0
"""The view of a plan: what an order would do, before anything happens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mistral_failover.cli.base import lasted, when

if TYPE_CHECKING:  # the page starts without the code of the actions
    from mistral_failover.orders.plan.documents import PlanDocument, PlanStep, Risk


@dataclass(frozen=True)
class PlannedStep:
    """A step: what it does, how long it took before, and which steps come first. ``start`` and
    ``end`` are where it is drawn: seconds if the plan is ``timed``, else without a unit."""

    number: int
    what: str
    after: str
    expected: str
    certain: bool
    start: float
    end: float


@dataclass(frozen=True)
class PlanView:
    """A plan; ``id`` is empty if there is nothing to do. ``recovered``: the members that the
    operator confirms as healthy. ``changed``: why it is no longer valid. ``timed``: it is known
    how long each step took before."""

    id: str
    group: str
    sentence: str
    steps: tuple[PlannedStep, ...]
    whole: str
    fences: tuple[str, ...]
    risks: tuple[Risk, ...]
    recovered: tuple[str, ...]
    holds_until: str
    changed: tuple[str, ...]
    command: str
    timed: bool


@dataclass(frozen=True)
class GroupPlan:
    """What would happen to a group; without a ``plan``, why that is not known."""

    group: str
    plan: PlanView | None
    refused: str


def plan_view(plan: PlanDocument) -> PlanView:
    """Return the view of an answer of failover.plan."""
    if not plan["plan"]:
        return PlanView(
            "", plan["group"], plan["sentence"], (), "", (), (), (), "", (), "", timed=False
        )
    return PlanView(
        id=plan["plan"],
        group=plan["group"],
        sentence=plan["sentence"],
        steps=_steps(plan["steps"]),
        whole=lasted(plan["seconds"]),
        fences=tuple(fence["sentence"] for fence in plan["fences"]),
        risks=tuple(plan["risks"]),
        recovered=tuple(plan["inputs"].get("recovered") or ()),
        holds_until=when(plan["expires_at"]),
        changed=tuple(plan["changed"]),
        command=f"failover start --plan {plan['plan']}",
        timed=_timed(plan["steps"]),
    )


def _timed(rows: Iterable[PlanStep]) -> bool:
    return all(row["expected"] is not None for row in rows)


def _steps(rows: Sequence[PlanStep]) -> tuple[PlannedStep, ...]:
    """Return the steps; each is drawn behind those that come first."""
    timed = _timed(rows)
    ends: dict[int, float] = {}
    found = []
    for row in rows:
        start = max((ends.get(number, 0.0) for number in row["after"]), default=0.0)
        ends[row["number"]] = start + ((row["expected"] or 0.0) if timed else 1.0)
        found.append(_step(row, start, ends[row["number"]]))
    return tuple(found)


def _step(row: PlanStep, start: float, end: float) -> PlannedStep:
    return PlannedStep(
        number=row["number"],
        what=row["what"],
        after=", ".join(map(str, row["after"])) or "at once",
        expected=lasted(row["expected"]) or "not known",
        certain=row["certain"],
        start=start,
        end=end,
    )
