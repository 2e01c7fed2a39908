# SPDX-License-Identifier: Apache-2.0
"""The goal of each verb, derived without doing anything: a plan is made of it.

Every verb has a function that derives its goal from the group's snapshot (``failover.Derive``).
This module has them by name, in the variant that records nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mistral_failover.model.decisions import OrderVerb
from mistral_failover.model.order import Order
from mistral_failover.orders import failback, failover, replace, rollback, switchover
from mistral_failover.orders.failover import Derive
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.inputs import optional_text
from mistral_failover.runtime.request import Request

_TEXTS = ("role", "goal", "member", "resource")


def read_order(verb: Any, given: Mapping[str, Any]) -> Order:
    """Return the order of an action's inputs; no ``verb``: a failover. Raises ActionError
    BAD_INPUT, also for an input that the verb does not have."""
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
    order = failover.failover_order(given.get("to"), given.get("lost"), given.get("recovered"))
    texts = {name: optional_text(name, given.get(name)) for name in _TEXTS}
    return Order.read({**order.document(), "verb": verb, **texts})


@dataclass(frozen=True)
class PlannableOrder:
    """An operator's verb. ``takes``: its inputs. ``derive`` records nothing."""

    takes: tuple[str, ...]
    derive: Callable[[Request, Order], Derive]


def _failover(request: Request, order: Order) -> Derive:
    return failover.goal_function(request, order, remember=False)


def _switchover(request: Request, order: Order) -> Derive:
    return switchover.goal_function(request, _one(order), order.role, remember=False)


def _failback(request: Request, order: Order) -> Derive:
    to = _one(order)
    return failback.goal_function(request, to, order.role, order.recovered, remember=False)


def _one(order: Order) -> str | None:
    if isinstance(order.to, Mapping):
        raise ActionError("BAD_INPUT", "to: one member is expected", "Name the role with role.")
    return order.to


def _replace(request: Request, order: Order) -> Derive:
    return replace.goal_function(request, order, remember=False)


def _rollback(request: Request, order: Order) -> Derive:
    return rollback.goal_function(request, order.goal, order.recovered, remember=False)


def _remove(request: Request, order: Order) -> Derive:
    return rollback.removal_goal_function(order.lost or ())


VERBS: Mapping[OrderVerb, PlannableOrder] = {
    OrderVerb.FAILOVER: PlannableOrder(("to", "lost", "recovered"), _failover),
    OrderVerb.SWITCHOVER: PlannableOrder(("to", "role"), _switchover),
    OrderVerb.FAILBACK: PlannableOrder(("to", "role", "recovered"), _failback),
    OrderVerb.REPLACE: PlannableOrder(("member", "resource"), _replace),
    OrderVerb.ROLLBACK: PlannableOrder(("goal", "recovered"), _rollback),
    OrderVerb.REMOVE: PlannableOrder(("lost",), _remove),
}


def derive(request: Request, order: Order) -> Derive:
    """Return the function that derives the goal of an order. A call of it changes nothing in the
    cloud or in the group's state. It raises what the verb itself raises."""
    return VERBS[order.verb].derive(request, order)
