# SPDX-License-Identifier: Apache-2.0
"""The view of a plan: what an order would do, before anything happens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mistral_failover.cli.base import lasted, when
from mistral_failover.model.verbs import Among, Form, VerbKind, plannable
from mistral_failover.ui.goals import GoalRow
from mistral_failover.ui.orders import chosen

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
    ways_back: tuple[str, ...]
    deletes: tuple[str, ...]
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


@dataclass(frozen=True)
class PlanField:
    """A field of the form that asks for a plan: an input of verbs. ``choices``: values and their
    labels; None: a text is typed. ``boxes``: any number of them can be ticked. ``names``: the input
    is a list. ``filled``: what is filled in."""

    name: str
    label: str
    unsaid: str
    choices: Sequence[tuple[str, str]] | None
    boxes: bool
    names: bool
    filled: Sequence[str]

    @property
    def value(self) -> Any:
        """The input for the plan; None if nothing is filled in."""
        if not self.filled:
            return None
        return list(self.filled) if self.names else self.filled[0]


def on_page() -> Mapping[str, VerbKind]:
    """Return the verbs that the page can plan."""
    return {name: verb for name, verb in plannable().items() if verb.on_page}


def plan_fields(
    status: Mapping[str, Any], goals: Iterable[GoalRow], given: Mapping[str, str]
) -> list[PlanField]:
    """Return the fields for the inputs of all verbs that the page can plan."""
    among = {
        Among.MEMBERS: [(row["name"], row["name"]) for row in status["members"]],
        Among.LOST: [(name, name) for name in status["lost"]],
        Among.ROLES: [(name, name) for name in [*status["roles"], *status["vacant"]]],
        Among.GOALS: [(row.version, row.label) for row in goals if row.earlier],
    }
    fields: dict[str, PlanField] = {}
    for verb in on_page().values():
        for name, each in verb.given.items():
            if name in fields:
                continue
            boxes = each.among is Among.LOST
            filled = chosen(given, name) if boxes else [given[name]] if given.get(name) else []
            takers = [kind.name for kind in on_page().values() if name in kind.given]
            fields[name] = PlanField(
                name,
                f"{each.label or name} ({', '.join(takers)})",
                each.unsaid,
                among.get(each.among),
                boxes,
                each.form is Form.NAMES,
                filled,
            )
    return list(fields.values())


def plan_view(plan: PlanDocument) -> PlanView:
    """Return the view of an answer of failover.plan."""
    if not plan["plan"]:
        return PlanView(
            id="",
            group=plan["group"],
            sentence=plan["sentence"],
            steps=(),
            whole="",
            fences=(),
            ways_back=(),
            deletes=(),
            risks=(),
            recovered=(),
            holds_until="",
            changed=(),
            command="",
            timed=False,
        )
    return PlanView(
        id=plan["plan"],
        group=plan["group"],
        sentence=plan["sentence"],
        steps=_steps(plan["steps"]),
        whole=lasted(plan["seconds"]),
        fences=tuple(fence["sentence"] for fence in plan["fences"]),
        ways_back=tuple(row["sentence"] for row in plan["ways_back"]),
        deletes=tuple(row["sentence"] for row in plan["deletes"]),
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
