# SPDX-License-Identifier: Apache-2.0
"""The goal of each verb, derived without doing anything: a plan is made of it.

Every verb has a function that derives its goal from the group's snapshot (``failover.Derive``).
This module has them by name, in the variant that records nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from mistral_failover.model.decisions import OrderVerb
from mistral_failover.orders import failback, failover, replace, rollback, switchover
from mistral_failover.orders.failover import Derive, FailoverRequest, failover_request
from mistral_failover.orders.replace import ReplaceRequest
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.inputs import optional_text
from mistral_failover.runtime.request import Request


@dataclass(frozen=True)
class PlanRequest:
    """The request for a plan: a verb, and the inputs of that verb's own action."""

    verb: OrderVerb = OrderVerb.FAILOVER
    to: str | Mapping[str, str] | None = None
    lost: tuple[str, ...] | None = None
    recovered: tuple[str, ...] = ()
    role: str | None = None
    goal: str | None = None
    member: str | None = None
    resource: str | None = None

    @property
    def inputs(self) -> dict[str, Any]:
        """The given inputs as JSON; :func:`read` reads them back."""
        given = {name: value for name, value in asdict(self).items() if name != "verb"}
        given["recovered"] = self.recovered or None
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in given.items()
            if value is not None  # an empty lost means that no member is lost
        }

    @classmethod
    def read(cls, verb: Any, given: Mapping[str, Any]) -> Self:
        """Read an action's inputs. Raises ActionError BAD_INPUT, also for an input that the verb
        does not have."""
        said = optional_text("verb", verb) or OrderVerb.FAILOVER
        if said not in VERBS:
            raise ActionError(
                "BAD_INPUT", f"verb: {said} is not known", f"Verbs: {', '.join(sorted(VERBS))}."
            )
        verb = OrderVerb(said)
        takes = VERBS[verb].takes
        for name, value in given.items():
            if value not in (None, "", [], ()) and name not in takes:
                raise ActionError(
                    "BAD_INPUT",
                    f"{name}: {verb} has no such input",
                    f"Its inputs: {', '.join(takes)}.",
                )
        read = {name: optional_text(name, given.get(name)) for name in _TEXTS}
        lost = given.get("lost")
        facts = failover_request(given.get("to"), lost, given.get("recovered"))
        return cls(verb=verb, to=facts.to, lost=facts.lost, recovered=facts.recovered, **read)


_TEXTS = ("role", "goal", "member", "resource")


@dataclass(frozen=True)
class PlannableOrder:
    """An operator's verb. ``takes``: its inputs. ``derive`` records nothing."""

    takes: tuple[str, ...]
    derive: Callable[[Request, PlanRequest], Derive]


def _failover(request: Request, asked: PlanRequest) -> Derive:
    facts = FailoverRequest(asked.to, asked.lost, asked.recovered)
    return failover.goal_function(request, facts, remember=False)


def _switchover(request: Request, asked: PlanRequest) -> Derive:
    return switchover.goal_function(request, _one(asked), asked.role, remember=False)


def _failback(request: Request, asked: PlanRequest) -> Derive:
    to = _one(asked)
    return failback.goal_function(request, to, asked.role, asked.recovered, remember=False)


def _one(asked: PlanRequest) -> str | None:
    if isinstance(asked.to, Mapping):
        raise ActionError("BAD_INPUT", "to: one member is expected", "Name the role with role.")
    return asked.to


def _replace(request: Request, asked: PlanRequest) -> Derive:
    wish = ReplaceRequest(member=asked.member, resource=asked.resource)
    return replace.goal_function(request, wish, remember=False)


def _rollback(request: Request, asked: PlanRequest) -> Derive:
    return rollback.goal_function(request, asked.goal, asked.recovered, remember=False)


def _remove(request: Request, asked: PlanRequest) -> Derive:
    return rollback.removal_goal_function(asked.lost or ())


VERBS: Mapping[OrderVerb, PlannableOrder] = {
    OrderVerb.FAILOVER: PlannableOrder(("to", "lost", "recovered"), _failover),
    OrderVerb.SWITCHOVER: PlannableOrder(("to", "role"), _switchover),
    OrderVerb.FAILBACK: PlannableOrder(("to", "role", "recovered"), _failback),
    OrderVerb.REPLACE: PlannableOrder(("member", "resource"), _replace),
    OrderVerb.ROLLBACK: PlannableOrder(("goal", "recovered"), _rollback),
    OrderVerb.REMOVE: PlannableOrder(("lost",), _remove),
}


def derive(request: Request, asked: PlanRequest) -> Derive:
    """Return the function that derives the requested goal. A call of it changes nothing in the
    cloud or in the group's state. It raises what the verb itself raises."""
    return VERBS[asked.verb].derive(request, asked)
