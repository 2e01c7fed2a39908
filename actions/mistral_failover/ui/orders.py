# SPDX-License-Identifier: Apache-2.0
"""The orders that a page can give. They are the command line's: the same actions and workflows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote_plus, urlencode

from mistral_failover.model.text import counted
from mistral_failover.ui.action_client import ActionFailed, CachingActionClient

Fields = Mapping[str, str]
AT_ONCE = 10
"""Held alarms of a host event that one order admits at most."""


@dataclass(frozen=True)
class OrderResult:
    """What was done: a sentence, and the incident that it became, if that has a page."""

    said: str
    incident: str = ""


@dataclass(frozen=True)
class Order:
    """An order. ``subject``: what it is about, the field of the form with its name: a ``group``, a
    ``host``, a ``zone``, or a ``place``, which is the host or the zone of a host event.
    ``dangerous``: the operator types this name. ``fields``: what the form has besides the subject
    and the reason; ``asked``: those of them that the operator fills in. ``reason``: whether one is
    required. ``boxes``: what the members are for that the operator may tick, empty if it is about
    none. ``shown_at``: the page of the group that shows what comes of it."""

    name: str
    title: str
    explanation: str
    carry_out: Callable[[CachingActionClient, Fields], OrderResult]
    dangerous: bool = False
    reason: bool = True
    fields: tuple[str, ...] = ()
    subject: str = "group"
    asked: Mapping[str, str] = field(default_factory=dict)
    boxes: str = ""
    shown_at: str = "/group?name="

    @property
    def called(self) -> str:
        """Return what the subject is called in a sentence."""
        return "host or zone" if self.subject == "place" else self.subject

    def page(self, fields: Fields, done: OrderResult) -> str:
        """Return the address of the page that shows what comes of the order."""
        if self.subject == "group":
            return f"{self.shown_at}{quote_plus(fields['group'])}"
        incident = done.incident or fields.get("incident")
        return f"/alarm?{urlencode({'id': incident})}" if incident else "/"


def carry_out(order: Order, ordering: CachingActionClient, fields: Fields) -> OrderResult:
    """Carry out an order; return what was done. Raises ActionFailed, also for a form that is not
    complete: then nothing was done."""
    name = fields.get(order.subject, "")
    if not name:
        raise ActionFailed(
            f"The form names no {order.called}.", "Open it again from the page before it.", "USAGE"
        )
    if order.dangerous and fields.get("typed", "").strip() != name:
        raise ActionFailed(
            f"The name that you typed is not that of the {order.called}. Nothing was done.",
            f"Type {name} to confirm.",
            "NOT_SURE",
        )
    if order.reason and not fields.get("because", "").strip():
        raise ActionFailed("Give a reason, for the record. Nothing was done.", "", "USAGE")
    for name in order.fields:
        if not fields.get(name, "").strip():
            raise ActionFailed(
                f"The form has no {name}. Nothing was done.", "Open it again.", "USAGE"
            )
    return order.carry_out(ordering, fields)


def _pause(ordering: CachingActionClient, fields: Fields) -> OrderResult:
    return _said(ordering.order("failover.pause", **_of(fields, "group", "because")))


def _resume(ordering: CachingActionClient, fields: Fields) -> OrderResult:
    inputs = _of(fields, "group", "because")
    return _said(ordering.order("failover.resume", only="pause", **inputs))


def _maintain(ordering: CachingActionClient, fields: Fields) -> OrderResult:
    if not fields["minutes"].strip().isdecimal():
        raise ActionFailed(
            "The minutes are not a number. Nothing was done.", "Give a number.", "USAGE"
        )
    inputs = {"minutes": int(fields["minutes"]), "members": chosen(fields, "members") or None}
    return _said(
        ordering.order("failover.maintenance", **_of(fields, "group", "because"), **inputs)
    )


def _end_maintenance(ordering: CachingActionClient, fields: Fields) -> OrderResult:
    inputs = {**_of(fields, "group", "because"), "members": chosen(fields, "members") or None}
    return _said(ordering.order("failover.resume", only="maintenance", **inputs))


def _dismiss(ordering: CachingActionClient, fields: Fields) -> OrderResult:
    inputs = {"incident": [fields["incident"]], "because": fields["because"]}
    rows = ordering.order("failover.dismiss", **inputs)["dismissed"]
    return OrderResult("; ".join(str(row["sentence"]) for row in rows))


def _admit(ordering: CachingActionClient, fields: Fields) -> OrderResult:
    inputs = _of(fields, "group", "incident", "because")
    return _begun(ordering.start("failover.failover", **inputs))


def _admit_event(ordering: CachingActionClient, fields: Fields) -> OrderResult:
    """Admit held alarms of a host event as ``failover admit`` does: what is left stays held."""
    inputs = _of(fields, "incident", "because")
    answer = ordering.order("failover.admit_held", limit=AT_ONCE, **inputs)
    admitted = ", ".join(row["group"] for row in answer["admitted"])
    said = [f"Admitted: {admitted or 'none'}", *_refused(answer["refused"], "group")]
    said += _continued(ordering, answer["admitted"])
    if answer["left"]:
        said.append(f"{counted(answer['left'], 'alarm')} left: admit again")
    return OrderResult(". ".join(said))


def _report_lost(what: str, ordering: CachingActionClient, fields: Fields) -> OrderResult:
    """Report the failure of a host or a zone as ``failover host-lost`` and ``zone-lost`` do.
    ``report`` is the form's own: one that is sent twice is one report."""
    body = {what: fields[what], "id": fields["report"]}
    inputs = {"kind": "signal", **_of(fields, "because")}
    answer = ordering.order("failover.admit_event", body=body, **inputs)
    event = answer["admissions"][0]
    said = [str(event["sentence"]), *_refused(answer["refused"], "sentence")]
    said += _continued(ordering, answer["started"])
    left = answer["left"]
    if left and not _is_started(ordering, "failover.start_admitted", incidents=left):
        said.append(f"Mistral did not answer; the next sweep starts {len(left)} more")
    return OrderResult(". ".join(said), event["incident"] or "")


def _refused(rows: Iterable[Mapping[str, Any]], of: str) -> list[str]:
    """Return which failovers could not start; ``of``: what of a row says which it is."""
    return [
        f"{row[of]}: could not start, the sweep tries again: {row['error']['message']}"
        for row in rows
    ]


def _continued(ordering: CachingActionClient, started: Iterable[Mapping[str, Any]]) -> list[str]:
    """Start the chains of failovers that have begun; return which of them a sweep has to start."""
    late = [
        row["group"]
        for row in started
        if not _is_started(ordering, row["workflow"], traversal=row["traversal"])
    ]
    return [f"Mistral did not answer; the next sweep continues {', '.join(late)}"] if late else []


def _is_started(ordering: CachingActionClient, workflow: str, **inputs: Any) -> bool:
    try:
        ordering.start(workflow, **inputs)
    except ActionFailed:
        return False
    return True


def _start_plan(ordering: CachingActionClient, fields: Fields) -> OrderResult:
    inputs = {"plan": fields["plan"], "because": fields.get("because") or None}
    return _begun(ordering.start("failover.start_plan", **inputs))


def _confirm(ordering: CachingActionClient, fields: Fields) -> OrderResult:
    inputs = _of(fields, "group", "member", "because")
    return _begun(ordering.start("failover.confirm_fenced", **inputs))


def _rehearse(ordering: CachingActionClient, fields: Fields) -> OrderResult:
    return _begun(ordering.start("failover.rehearse", **_of(fields, "group", "because")))


def chosen(fields: Fields, of: str) -> list[str]:
    """Return the names whose boxes were ticked: the box for ``db_a`` is called ``of.db_a``."""
    return [name.removeprefix(f"{of}.") for name in fields if name.startswith(f"{of}.")]


def _of(fields: Fields, *names: str) -> dict[str, str]:
    return {name: fields[name] for name in names}


def _said(answer: Mapping[str, Any]) -> OrderResult:
    return OrderResult(str(answer["sentence"]))


def _begun(execution: str) -> OrderResult:
    return OrderResult(f"Started as execution {execution}; the page follows it.")


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
            "maintenance",
            "Begin a maintenance",
            "Holds the alarms of the group, or those about the members that you tick, until the "
            "time is over. Until then these members are not chosen to take over a role. It ends "
            "by itself, and replaces a maintenance that exists: tick all members you work on.",
            _maintain,
            fields=("minutes",),
            asked={"minutes": "Minutes, from now"},
            boxes="Members that you work on (none ticked: all)",
        ),
        Order(
            "end-maintenance",
            "End the maintenance",
            "Ends the maintenance before its time, or removes the members from it that you tick. "
            "This starts nothing: alarms that are held stay held, and a pause stays.",
            _end_maintenance,
            boxes="Members that are done (none ticked: all)",
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
            "admit-event",
            "Admit the alarms of the event",
            "Starts the failovers that the held alarms of the event's groups ask for, regardless "
            f"of the rules of admission: at most {AT_ONCE} at once, groups with a higher priority "
            "first. The others stay held. Admit them when these have moved.",
            _admit_event,
            dangerous=True,
            fields=("incident",),
            subject="place",
        ),
        *(
            Order(
                f"{what}-lost",
                f"Report that the {what} failed",
                f"Says that the {what} failed, with every server there. Each group with a member "
                "there has an alarm: its failover starts, unless a rule of admission holds it.",
                partial(_report_lost, what),
                dangerous=True,
                fields=("report",),
                subject=what,
            )
            for what in ("host", "zone")
        ),
        Order(
            "dismiss-event",
            "Dismiss the alarms of the event",
            "Removes every held alarm of the event's groups from the list of held alarms. This "
            "starts nothing.",
            _dismiss,
            dangerous=True,
            fields=("incident",),
            subject="place",
        ),
        Order(
            "rehearse",
            "Rehearse the failover",
            "Makes copies of the volumes, starts the application on them on the standby, runs the "
            "checks, and removes all of it. Nothing that serves is touched, and a real failover "
            "ends it at once.",
            _rehearse,
            shown_at="/rehearsals?group=",
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
