# SPDX-License-Identifier: Apache-2.0
"""What each page shows: its questions to Mistral, its view models, its template."""

from __future__ import annotations

import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any

from mistral_failover.cli.rehearsals import planned_lines
from mistral_failover.model.text import counted
from mistral_failover.model.verbs import FAILOVER
from mistral_failover.ui.action_client import ActionClient, ActionFailed
from mistral_failover.ui.alarm import alarm_view
from mistral_failover.ui.availability import TIMES, AvailabilityView, availability_view
from mistral_failover.ui.goals import GoalRow, goal_rows
from mistral_failover.ui.group import group_view, held_alarm
from mistral_failover.ui.groups import SORTS, GroupsView, Query, State, groups_view
from mistral_failover.ui.history import episodes, move_rows
from mistral_failover.ui.orders import AT_ONCE, Order
from mistral_failover.ui.plan import GroupPlan, PlanView, on_page, plan_fields, plan_view
from mistral_failover.ui.rehearsals import rehearsal_rows, rehearsal_view
from mistral_failover.ui.timeline import timeline
from mistral_failover.ui.topology import topology, topology_at
from mistral_failover.ui.work import work_view

if TYPE_CHECKING:  # the page starts without the code of the actions
    from mistral_failover.orders.evidence import Evidence
    from mistral_failover.orders.held_alarms import HeldAlarmRow
    from mistral_failover.orders.rehearsal.life import Rehearsal
    from mistral_failover.reports.documents import IncidentDetails, TraversalDetails

HISTORY = 5.0
"""Seconds between two looks at a journal."""
GOALS = 5.0
"""Seconds between two looks at a group's goals."""
AVAILABILITY = 60.0
"""Seconds for which the bars of a day and a month count as the present ones."""
SELDOM = 10.0
"""Seconds between two looks at many groups: that is a lot to send. A new step does not make it
sooner."""
_HELD = 100
_PAGE = 500  # groups in one answer
_PAGES = 20
_LATEST = 1000
_MOVES = 100
_MANY = 200  # groups
_FINISHED = 64
_CHECK = {
    "host": "Check the name: it is the one that Nova shows to administrators.",
    "zone": "Check the name: it is the one that 'openstack server show' prints.",
}
_SIDE_BY_SIDE = 4  # plans that are made at once

Parameters = Mapping[str, str]


@dataclass(frozen=True)
class Page:
    """A page: ``template`` is the part within the frame, ``content`` what it shows. ``live``: how
    many seconds between two looks; None: it does not change. ``trouble``: what kept a part of it
    from being read."""

    template: str
    title: str
    content: Mapping[str, Any]
    live: float | None = None
    trouble: ActionFailed | None = None


class Pages:
    """Makes pages. Every method raises ActionFailed."""

    def __init__(self, client: ActionClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._finished: OrderedDict[str, TraversalDetails] = OrderedDict()
        self._available: OrderedDict[str | None, tuple[float, AvailabilityView]] = OrderedDict()

    def groups(self, given: Parameters) -> Page:
        """All groups, and the held alarms that no group's page shows."""
        view = self._overview(Query.read(given))
        held = self._client.run_action("failover.held", limit=_HELD)["held"]
        content = {
            "view": view,
            "availability": self._availability(None) if view.total else None,
            "states": list(State),
            "sorts": list(SORTS),
            # Host events, and alarms of groups that are not known. The others are on their pages.
            "held": [held_alarm(row) for row in held if row["group"] is None],
        }
        return Page("groups.html", "Groups", content, live=_slow(view))

    def alarm(self, given: Parameters) -> Page:
        """One alarm or order; of a failed host or zone the alarm of each of its groups."""
        found = self._incident(_needed(given, "id"))
        overview = self._overview(Query()) if found["children"] else None
        view = alarm_view(found, overview.rows if overview else ())
        live = _slow(overview) if overview else 3.0
        return Page("alarm.html", view.title, {"alarm": view}, live=live)

    def work(self, given: Parameters) -> Page:  # noqa: ARG002 - as the other pages
        """What runs now in all groups, and what waits for an operator."""
        rows, now = self._rows()
        view = work_view(rows, now)
        at_rest = 3.0 if len(rows) <= _MANY else SELDOM
        live = 1.0 if view.rows and len(rows) <= _MANY else at_rest
        return Page("work.html", "In progress", {"work": view}, live=live)

    def _overview(self, query: Query) -> GroupsView:
        return groups_view(*self._rows(), query)

    def _rows(self) -> tuple[list[Any], float]:
        """Return the rows of all groups, and the time of the answer."""
        rows: list[Any] = []
        now = 0.0
        for _ in range(_PAGES):
            after = rows[-1]["name"] if rows else None
            answer = self._client.run_action("failover.status", after=after)
            rows += answer["overview"]
            now = answer["now"]
            if len(answer["overview"]) < _PAGE:
                break
        return rows, now

    def group(self, given: Parameters) -> Page:
        """One group: what is wrong, who has what, and the present traversal."""
        name = _needed(given, "name")
        status = self._client.run_action("failover.status", group=name)
        if status["chain"] and not status["chain"]["remedy"]:
            # Whether the chain still runs, only Mistral knows. Asking it takes longer.
            status = self._client.run_action("failover.status", group=name, agents=True)
        held = self._held(name) if status["held"] else []
        view = group_view(status, held)
        chart = timeline(self._traversal(view.traversal)) if view.traversal else None
        content = {
            "view": view,
            "availability": self._availability(name),
            "topology": topology(status),
            "timeline": chart,
        }
        running = chart is not None and chart.running
        return Page("group.html", name, content, live=1.0 if running else 3.0)

    def _availability(self, group: str | None) -> AvailabilityView:
        """Return how much of the last day and month a group served, or all groups; at most
        :data:`AVAILABILITY` seconds old."""
        now = time.monotonic()
        with self._lock:
            at, known = self._available.get(group, (float("-inf"), AvailabilityView(())))
            if now - at < AVAILABILITY:
                return known
        try:
            view = availability_view(
                (
                    name,
                    self._client.run_action("failover.availability", group=group, seconds=seconds),
                )
                for name, seconds in TIMES.items()
            )
        except ActionFailed as failure:  # the page has more to show
            view = AvailabilityView((), f"It cannot be shown: {failure}")
        with self._lock:
            self._available[group] = (now, view)
            while len(self._available) > _FINISHED:
                self._available.popitem(last=False)
        return view

    def timeline(self, given: Parameters) -> Page:
        """One traversal, whole or as it was after a step."""
        found = self._traversal(_needed(given, "id"))
        step = given.get("step", "")
        chart = timeline(found, int(step) if step.isdecimal() and len(step) < 9 else None)
        status = self._client.run_action("failover.status", group=found["group"])
        content: dict[str, Any] = {
            "timeline": chart,
            "topology": None,
        }
        if chart.shown is not None:
            at = topology_at(found, status, found["started_at"] + chart.shown.at)
            content["topology"] = at
        live = 1.0 if chart.running and chart.shown is None else None
        return Page("timeline.html", f"{chart.group}: {chart.cause}", content, live=live)

    def plan(self, given: Parameters) -> Page:
        """What an order would do. Without a verb, only the form."""
        group = _needed(given, "group")
        status = self._client.run_action("failover.status", group=group)
        goals = goal_rows(self._client.run_action("failover.goals", group=group))
        said = given.get("verb", "")
        verb = on_page().get(said)
        fields = plan_fields(status, goals, given)
        found: PlanView | None = None
        differences: tuple[str, ...] = ()
        refused: ActionFailed | None = None
        if said and verb is None:
            raise ActionFailed(f"{said} cannot be planned here.", "Use failover plan.", "USAGE")
        if verb:
            taken = {each.name: each.value for each in fields if each.name in verb.given}
            try:
                answer = self._client.run_action("failover.plan", group=group, verb=said, **taken)
                found = plan_view(answer)
            except ActionFailed as trouble:
                refused = trouble  # the form stays, to ask for something else
            if goal := taken.get("goal"):
                differences = self._differences(group, goals, goal)
        content = {
            "group": group,
            "verbs": on_page(),
            "verb": said or FAILOVER,
            "fields": fields,
            "plan": found,
            "differences": differences,
        }
        return Page("plan.html", f"Plan for {group}", content, trouble=refused)

    def goals(self, given: Parameters) -> Page:
        """The goals of a group, and what leads back to each."""
        group = _needed(given, "group")
        rows = goal_rows(self._client.run_action("failover.goals", group=group))
        return Page("goals.html", f"Goals of {group}", {"group": group, "goals": rows}, live=GOALS)

    def _differences(self, group: str, goals: Iterable[GoalRow], goal: str) -> tuple[str, ...]:
        """Return what differs from the present goal, one line each."""
        present = next((row.version for row in goals if row.current), None)
        if present is None:
            return ()
        found = self._client.run_action(
            "failover.compare_goals", group=group, before=present, after=goal
        )
        return tuple(found["lines"])

    def history(self, given: Parameters) -> Page:
        """The journal of a group, or of all."""
        group = given.get("group") or None
        rows = self._client.run_action("failover.history", group=group, limit=_LATEST)
        moves = self._client.run_action("failover.moves", group=group, limit=_MOVES)
        content = {
            "group": group or "",
            "moves": move_rows(moves),
            "episodes": episodes(rows),
            "full": len(rows) >= _LATEST,
        }
        title = f"History of {group}" if group else "History of all groups"
        return Page("history.html", title, content, live=HISTORY)

    def rehearsals(self, given: Parameters) -> Page:
        """The rehearsals of a group: one in full, the latest unless an ``id`` is given."""
        group = _needed(given, "group")
        found: list[Rehearsal] = self._client.run_action("failover.rehearsals", group=group)
        asked = given.get("id")
        place = next((i for i, each in enumerate(found) if each["rehearsal"] == asked), 0)
        if asked and (not found or found[place]["rehearsal"] != asked):
            raise ActionFailed(
                f"There is no rehearsal {asked} of {group}.",
                f"List them: failover rehearsals {quote(group)}",
                "UNKNOWN_ID",
            )
        view = None
        if found:
            moves = self._client.run_action("failover.moves", group=group, limit=_MOVES)
            view = rehearsal_view(found[place], found[place + 1 :], moves)
        content = {
            "group": group,
            "view": view,
            "rows": rehearsal_rows(found, view.id if view else ""),
            "running": any(each["status"] == "RUNNING" for each in found),
            "begin": f"failover rehearse {quote(group)}",
        }
        return Page("rehearsals.html", f"Rehearsals of {group}", content, live=HISTORY)

    def order(self, order: Order, given: Parameters) -> Page:
        """The form of an order: what it is about, and what it would do."""
        if "report" in order.fields:
            return self._report(order, given)
        if order.subject == "place":
            return self._event_order(order, given)
        group = _needed(given, "group")
        content: dict[str, Any] = {"order": order, "given": given, "alarm": "", "plan": None}
        content |= {"plans": [], "members": [], "evidence": None, "facts": ()}
        if order.boxes:
            status = self._client.run_action("failover.status", group=group)
            work = status["maintenance"]
            content["members"] = (
                [row["name"] for row in status["members"]]
                if "minutes" in order.fields
                else list(work["members"] or ())
                if work
                else []
            )
        if "incident" in order.fields:
            alarm = self._alarm(group, _needed(given, "incident"))
            content["alarm"] = held_alarm(alarm).sentence
            if order.name == "admit":
                content["plan"] = self._admitted(alarm)
        if order.name == "start" and given.get("plan"):
            content["plan"] = plan_view(
                self._client.run_action("failover.plan", plan=given["plan"])
            )
        if order.name == "rehearse":
            planned = self._client.run_action("failover.preview_rehearsal", group=group)
            content["facts"] = tuple(planned_lines(planned))
        if order.name == "confirm-fenced":
            member = _needed(given, "member")
            content["plans"] = [self._planned((group, [member]))]
            content["evidence"] = self._evidence(group, member)
        return Page("order.html", f"{order.title}: {group}", content)

    def _evidence(self, group: str, member: str) -> Mapping[str, Any]:
        """What is known of a member that is to be confirmed as fenced. The order can be given
        without it: the member may be gone."""
        try:
            known: Evidence = self._client.run_action(
                "failover.evidence", group=group, member=member
            )
        except ActionFailed as failure:
            nothing = f"Nothing is known of {member}: {failure}"
            return {"member": member, "signs": (), "sentence": nothing, "afterwards": ""}
        return known

    def _event_order(self, order: Order, given: Parameters) -> Page:
        """The form of an order about all held alarms of a host event: with the plan of each
        failover that it would start."""
        view = alarm_view(self._incident(_needed(given, "incident")))
        admitting = order.name == "admit-event"
        if not view.failed or not (view.held if admitting else view.waits):
            raise ActionFailed("No alarm of that event is held.", "Begin at its page.", "NOT_HELD")
        alarms = view.held[:AT_ONCE] if admitting else ()
        said = f"{view.sentence}; {counted(len(view.held), 'alarm')} held"
        return self._about_members(
            order,
            {"place": view.failed, "incident": view.id},
            said,
            [(each.group, list(each.lost)) for each in alarms],
        )

    def _report(self, order: Order, given: Parameters) -> Page:
        """The form that reports a failed host or zone: with the plan of each failover that would
        start."""
        what = order.subject
        name = _needed(given, what)
        where = f"on {name}" if what == "host" else f"in zone {name}"
        found = self._client.run_action("failover.members_on_host", **{what: name})
        rows, unsure = found["groups"], found["unsure"]
        if not rows and not unsure:
            raise ActionFailed(
                f"No group of this project is known to have a member {where}.",
                _CHECK[what],
                f"UNKNOWN_{what.upper()}",
            )
        lost = [f"{row['group']} ({', '.join(row['members'])})" for row in rows]
        said = f"members {where}: {', '.join(lost) or 'none known'}"
        said += f"; some may be missing: {unsure}" if unsure else ""
        if len(rows) > AT_ONCE:
            said += f"; below are the plans of the first {AT_ONCE} groups"
        return self._about_members(
            order,
            {what: name, "report": str(uuid.uuid4())},
            said,
            [(row["group"], row["members"]) for row in rows[:AT_ONCE]],
        )

    def _about_members(
        self, order: Order, given: Parameters, said: str, lost: Sequence[tuple[str, list[str]]]
    ) -> Page:
        """Return the form of an order about many groups; ``lost``: the members that each would
        lose, whose failovers are planned."""
        with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
            plans = list(pool.map(self._planned, lost))
        content = {
            "order": order,
            "given": given,
            "alarm": said,
            "plan": None,
            "plans": plans,
            "evidence": None,
            "members": [],
            "facts": (),
        }
        return Page("order.html", f"{order.title}: {given[order.subject]}", content)

    def _planned(self, losing: tuple[str, list[str]]) -> GroupPlan:
        """Return what the loss of a group's members would start, or why that cannot be planned."""
        group, lost = losing
        try:
            found = plan_view(
                self._client.run_action("failover.plan", group=group, verb="failover", lost=lost)
            )
        except ActionFailed as trouble:
            return GroupPlan(group, None, f"{trouble.message} {trouble.remedy}".strip())
        return GroupPlan(group, found, "")

    def _incident(self, identity: str) -> IncidentDetails:
        found: IncidentDetails = self._shown(identity, "incident", "an alarm")
        return found

    def _shown(self, identity: str, kind: str, named: str) -> Any:
        found = self._client.run_action("failover.show", id=identity, executions=False)
        if found["kind"] != kind:
            what = f"{found['kind']} {found['id']}"
            raise ActionFailed(f"{what} is not {named}.", f"failover show {identity}", "UNKNOWN_ID")
        return found

    def _admitted(self, alarm: Mapping[str, Any]) -> PlanView:
        """Return the plan of what an alarm asks for."""
        if not alarm["lost"]:
            raise ActionFailed("The alarm names no member.", f"Name it: {alarm['admit']}", "USAGE")
        asked = {"group": alarm["group"], "verb": "failover", "lost": alarm["lost"]}
        return plan_view(self._client.run_action("failover.plan", **asked))

    def _alarm(self, group: str, incident: str) -> HeldAlarmRow:
        for row in self._held(group):
            if row["incident"] == incident:
                return row
        raise ActionFailed(
            "That alarm is no longer held.", "Open the group's page again.", "NOT_HELD"
        )

    def _held(self, group: str) -> list[HeldAlarmRow]:
        found: list[HeldAlarmRow] = self._client.run_action(
            "failover.held", group=group, limit=_HELD
        )["held"]
        return found

    def _traversal(self, identity: str) -> TraversalDetails:
        """Return a traversal; one that has ended, with all of its steps, is asked for once."""
        with self._lock:
            if identity in self._finished:
                return self._finished[identity]
        found: TraversalDetails = self._shown(identity, "traversal", "a failover")
        # A superseded traversal ends before its last steps.
        if all(each["ended_at"] is not None for each in (found, *found["operations"])):
            with self._lock:
                self._finished[identity] = found
                while len(self._finished) > _FINISHED:
                    self._finished.popitem(last=False)
        return found


def _slow(view: GroupsView) -> float:
    """Return the seconds between two looks at all groups."""
    return 3.0 if view.total <= _MANY else SELDOM


def _needed(given: Parameters, name: str) -> str:
    if found := given.get(name, ""):
        return found
    raise ActionFailed(f"The address has no {name}.", "Begin at the list of groups.", "USAGE")
