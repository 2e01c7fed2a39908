# SPDX-License-Identifier: Apache-2.0
"""The orders that a page can give. They are the command line's: the same actions and workflows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from mistral_failover.ui.asking import Trouble

Fields = Mapping[str, str]


class Ordering(Protocol):
    """What an order needs of Mistral; see ``asking``."""

    def order(self, action: str, **inputs: Any) -> Any:
        """Run an action that changes something. Raises Trouble."""

    def start(self, workflow: str, **inputs: Any) -> str:
        """Start a workflow; return the execution's id. Raises Trouble."""


@dataclass(frozen=True)
class Order:
    """An order. ``dangerous``: the operator types the group's name. ``fields``: what the form has
    besides the group and the reason. ``reason``: whether one is required."""

    name: str
    title: str
    explanation: str
    carry_out: Callable[[Ordering, Fields], str]
    dangerous: bool = False
    reason: bool = True
    fields: tuple[str, ...] = ()


def carry_out(order: Order, ordering: Ordering, fields: Fields) -> str:
    """Carry out an order; return what was done, in a sentence. Raises Trouble, also for a form that
    is not complete: then nothing was done."""
    group = fields.get("group", "")
    if not group:
        raise Trouble("The form names no group.", "Open it again from the group's page.", "USAGE")
    if order.dangerous and fields.get("typed", "").strip() != group:
        raise Trouble(
            "The name that you typed is not the group's. Nothing was done.",
            f"Type {group} to confirm.",
            "NOT_SURE",
        )
    if order.reason and not fields.get("because", "").strip():
        raise Trouble("Give a reason, for the record. Nothing was done.", "", "USAGE")
    for name in order.fields:
        if not fields.get(name, "").strip():
            raise Trouble(f"The form has no {name}. Nothing was done.", "Open it again.", "USAGE")
    return order.carry_out(ordering, fields)


def _pause(ordering: Ordering, fields: Fields) -> str:
    return _said(ordering.order("failover.pause", **_of(fields, "group", "because")))


def _resume(ordering: Ordering, fields: Fields) -> str:
    inputs = _of(fields, "group", "because")
    return _said(ordering.order("failover.resume", only="pause", **inputs))


def _dismiss(ordering: Ordering, fields: Fields) -> str:
    inputs = {"incident": [fields["incident"]], "because": fields["because"]}
    rows = ordering.order("failover.dismiss", **inputs)["dismissed"]
    return "; ".join(str(row["sentence"]) for row in rows)


def _admit(ordering: Ordering, fields: Fields) -> str:
    inputs = _of(fields, "group", "incident", "because")
    return _begun(ordering.start("failover.failover", **inputs))


def _start_plan(ordering: Ordering, fields: Fields) -> str:
    inputs = {"plan": fields["plan"], "because": fields.get("because") or None}
    return _begun(ordering.start("failover.start_plan", **inputs))


def _confirm(ordering: Ordering, fields: Fields) -> str:
    inputs = _of(fields, "group", "member", "because")
    return _begun(ordering.start("failover.confirm_fenced", **inputs))


def _of(fields: Fields, *names: str) -> dict[str, str]:
    return {name: fields[name] for name in names}


def _said(answer: Mapping[str, Any]) -> str:
    return str(answer["sentence"])


def _begun(execution: str) -> str:
    return f"Started as execution {execution}; the page follows it."


ORDERS: Mapping[str, Order] = {
    order.name: order
    for order in (
        Order(
            "pause",
            "Pause",
            "Holds every alarm of the group until you resume it. Orders and a running failover "
            "continue.",
            _pause,
        ),
        Order(
            "resume",
            "Resume",
            "Ends the pause. This starts nothing: alarms that are held stay held.",
            _resume,
        ),
        Order(
            "dismiss",
            "Dismiss the alarm",
            "Removes the alarm from the list of held alarms. This starts nothing.",
            _dismiss,
            fields=("incident",),
        ),
        Order(
            "admit",
            "Admit the alarm",
            "Starts the failover that the alarm asks for, regardless of the rules of admission.",
            _admit,
            dangerous=True,
            fields=("incident",),
        ),
        Order(
            "start",
            "Start this plan",
            "Starts exactly what the plan shows. It is refused if anything has changed since.",
            _start_plan,
            dangerous=True,
            reason=False,
            fields=("plan",),
        ),
        Order(
            "confirm-fenced",
            "Confirm that the member is off",
            "Says that the member no longer writes: its power is off, or its host is gone. If you "
            "are wrong, two servers write to one volume.",
            _confirm,
            dangerous=True,
            fields=("member",),
        ),
    )
}
"""The orders by their name in the address."""
