# SPDX-License-Identifier: Apache-2.0
"""The view of a plan: what an order would do, before anything happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mistral_failover.cli.base import lasted, when
from mistral_failover.ui import words


@dataclass(frozen=True)
class PlannedStep:
    """A step: what it does, how long it took before, and which steps come first."""

    number: int
    what: str
    after: str
    expected: str
    certain: bool


@dataclass(frozen=True)
class Risk:
    """What may go wrong, and what to do about it."""

    code: str
    sentence: str
    remedy: str


@dataclass(frozen=True)
class PlanView:
    """A plan; ``id`` is empty if there is nothing to do. ``recovered``: the members that the
    operator confirms as healthy. ``changed``: why it is no longer valid."""

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


@dataclass(frozen=True)
class GroupPlan:
    """What would happen to a group; without a ``plan``, why that is not known."""

    group: str
    plan: PlanView | None
    refused: str


def plan_view(plan: Mapping[str, Any]) -> PlanView:
    """Return the view of an answer of failover.plan."""
    if not plan["plan"]:
        return PlanView("", plan["group"], plan["sentence"], (), "", (), (), (), "", (), "")
    return PlanView(
        id=plan["plan"],
        group=plan["group"],
        sentence=plan["sentence"],
        steps=tuple(_step(row) for row in plan["steps"]),
        whole=lasted(plan["seconds"]),
        fences=tuple(fence["sentence"] for fence in plan["fences"]),
        risks=tuple(Risk(r["code"], r["sentence"], r["remedy"]) for r in plan["risks"]),
        recovered=tuple(plan["inputs"].get("recovered") or ()),
        holds_until=when(plan["expires_at"]),
        changed=tuple(plan["changed"]),
        command=f"failover start --plan {plan['plan']}",
    )


def _step(row: Mapping[str, Any]) -> PlannedStep:
    return PlannedStep(
        number=row["number"],
        what=words.step(row["verb"], row["type"], row["resource"], row["member"]),
        after=", ".join(map(str, row["after"])) or "at once",
        expected=lasted(row["expected"]) or "not known",
        certain=row["certain"],
    )
