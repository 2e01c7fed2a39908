# SPDX-License-Identifier: Apache-2.0
"""Start the failovers that alarms report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from sqlalchemy.exc import SQLAlchemyError

from mistral_failover.alarms import intake
from mistral_failover.alarms.admission import Verdict
from mistral_failover.alarms.alarm import Alarm
from mistral_failover.alarms.evidence import gather
from mistral_failover.alarms.intake import RecordedAlarm
from mistral_failover.alarms.storm import seen_well
from mistral_failover.convergence.records import JournalKind
from mistral_failover.fault_points import reach
from mistral_failover.groups.snapshot import GroupSnapshot
from mistral_failover.model.decisions import AdmissionRule, Decision
from mistral_failover.model.goal import Goal
from mistral_failover.model.order import Order
from mistral_failover.model.verbs import FAILOVER
from mistral_failover.orders import failover
from mistral_failover.orders.answers import AlarmAnswer, AlarmBatch, AlarmBodyAnswer, Started
from mistral_failover.runtime.errors import ActionError, explained
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, incidents
from mistral_failover.store.incidents import OPERATOR, Incident
from mistral_failover.store.transaction import ProjectTransaction

BATCH = 25
"""Failovers that one action starts at most. So the first ones do not wait for the last one, every
executor gets its share, and no task of Mistral has more items: each time one of them ends, Mistral
reads all."""
BY_ALARM = Order(FAILOVER, from_alarm=True)
"""What an alarm asks for."""
LONGEST_REFUSAL = 1_000
"""The maximum number of characters that are kept of why a failover could not be started."""


def on_alarm(request: Request, alarm: Alarm) -> AlarmAnswer:
    """Decide on an alarm and, once, start the failover that it requests.

    Return the result of :func:`failover.begin` and decision, sentence and incident; ``workflow`` is
    None if there is nothing to start.
    """
    reach("admit.before")
    recorded = intake.take(request, alarm)
    reach("admit.after")
    return _begun(request, _of_this_execution(request, recorded[0]))


def on_event(request: Request, alarms: Sequence[Alarm]) -> AlarmBodyAnswer:
    """Decide on every alarm of one body, and then start the failovers that they request.

    All alarms are recorded before the first failover starts, so if the process dies after that, a
    sweep finds all of them. The failure of a host has one decision for the host and one for each
    group with members there. Groups with a higher priority start first.

    The incidents beyond `BATCH` are left to :func:`start_admitted`. One that cannot start does not
    stop the others.
    """
    reach("admit.before")
    recorded: list[RecordedAlarm] = []
    for alarm in alarms:
        recorded += intake.take(request, alarm)
        reach("admit.next")
    reach("admit.after")
    return _start_batch(request, recorded)


def start_admitted(request: Request, identities: Sequence[str]) -> AlarmBatch:
    """Start the traversals of alarms that were admitted elsewhere, those of groups with a higher
    priority first.

    An incident is in none of the lists if another execution has started it, or if it was not
    admitted any more when it was read.
    """

    def read(tx: ProjectTransaction) -> list[Incident]:
        found = (incidents.get(tx, each) for each in identities)
        return [each for each in found if each is not None and _is_to_start(request, each)]

    recorded = [
        RecordedAlarm(Verdict(each.decision, each.sentence, each.rule), each.id, begin=each)
        for each in request.store.reading(read)
    ]
    batch = _start_batch(request, recorded)
    return {"started": batch["started"], "refused": batch["refused"], "left": batch["left"]}


def _start_batch(request: Request, recorded: Sequence[RecordedAlarm]) -> AlarmBodyAnswer:
    """Start the failovers of at most `BATCH` of these decisions, those of groups with a higher
    priority first."""
    order = _by_priority(request, recorded)
    answers: dict[int, AlarmAnswer] = {}
    begun: list[str] = []
    for number in order:
        each = recorded[number]
        if each.begin is not None and each.begin.id in begun:
            each = replace(each, begin=None)  # two alarms report the same fact
        elif each.begin is not None:
            begun.append(each.begin.id)
            if len(begun) > BATCH:
                each = replace(each, begin=None)
        answers[number] = _begun_or_refused(request, each)
    return {
        "admissions": [answers[number] for number in sorted(answers)],
        "started": [answers[number] for number in order if answers[number]["workflow"]],
        "refused": [answers[number] for number in order if "error" in answers[number]],
        "left": begun[BATCH:],
    }


def _is_to_start(request: Request, incident: Incident) -> bool:
    """Return whether this execution starts an incident. If it did so before and its executor died,
    it does so again, and continues the same traversal."""
    if incident.decision != Decision.ADMITTED or incident.source == OPERATOR:
        return False
    if incident.group_id is None:
        return False
    return incident.traversal_id is None or incident.execution == request.execution is not None


def _by_priority(request: Request, recorded: Sequence[RecordedAlarm]) -> Sequence[int]:
    """Return the indexes of these decisions in the order in which their failovers start."""
    if sum(each.begin is not None for each in recorded) < 2:
        return range(len(recorded))
    of = request.store.reading(groups.priorities)

    def priority(number: int) -> int:
        begin = recorded[number].begin
        return of.get(begin.group_id or "", 0) if begin is not None else 0

    return sorted(range(len(recorded)), key=lambda number: -priority(number))


def _of_this_execution(request: Request, recorded: RecordedAlarm) -> RecordedAlarm:
    """Return the decision about an alarm. If this very execution has started its failover before,
    its executor died then, and its task runs again: the alarm is no repeat, and its chain is still
    to be started."""
    known = recorded.incident
    if known is None or recorded.execution is None or recorded.execution != request.execution:
        return recorded
    found = request.store.reading(lambda tx: incidents.get(tx, known))
    if found is None or not _is_to_start(request, found):
        return recorded
    verdict = Verdict(found.decision, found.sentence, found.rule)
    return replace(recorded, verdict=verdict, begin=found)


def _begun(request: Request, recorded: RecordedAlarm) -> AlarmAnswer:
    answer: AlarmAnswer = {
        "decision": recorded.verdict.decision,
        "sentence": recorded.verdict.sentence,
        "incident": recorded.incident,
        "traversal": recorded.traversal,
        "workflow": None,
    }
    if recorded.begin is not None:
        started = start(request, recorded.begin)
        answer["traversal"] = started["traversal"]
        answer["workflow"] = started["workflow"]
        answer["group"] = started["group"]
        answer["goal"] = started["goal"]
        answer["roles"] = started["roles"]
        answer["lost"] = started["lost"]
    return answer


def _begun_or_refused(request: Request, recorded: RecordedAlarm) -> AlarmAnswer:
    try:
        return _begun(request, recorded)
    except Exception as error:  # one group's error must not stop the others
        answer = _begun(request, replace(recorded, begin=None))
        answer["error"] = request.caught(error, "starting the failover of an alarm")
        return answer


def start(request: Request, incident: Incident) -> Started:
    """Start the traversal of an admitted incident, unless it was started before. If that fails, the
    reason is recorded with the incident: operators see it, and a sweep tries again.

    Raises what :func:`failover.begin` raises; ActionError NOT_IN_SERVICE if the group was taken out
    of service after the alarm was admitted, NOT_ADMITTED if the alarm was dismissed or held, also
    by this function: if its source says that it is over, and its members are seen well, or if one
    of its members has another server since.
    """
    if incident.fact.refusal and incident.order is None:
        _dismiss_if_replaced(request, incident)
    try:
        order = incident.order or with_lost(BY_ALARM, incident)
        derive = failover.goal_function(request, order)
        if incident.order is None:  # only an operator may activate the group
            derive = _in_service(derive)
        started = partial(
            begin, request, str(incident.fact.group), derive, incident.id, incident.sentence
        )
        try:
            return started()
        except _Over as over:
            _hold_if_well(request, over.incident)
            return started(looked=over.incident.fact.over)
    except Exception as error:
        refusal = explained(error)[:LONGEST_REFUSAL]

        def keep(tx: ProjectTransaction) -> None:
            if incident.group_id is not None:
                # As everything does that changes the fact.
                tx.lock_group(incident.group_id, shared=False)
            incidents.keep_refusal(tx, incident.id, refusal)

        try:
            request.store.atomically(keep)
        except SQLAlchemyError as not_kept:  # the reason to report is the first error
            request.caught(not_kept, "recording why a failover could not be started")
        raise


class _Over(Exception):
    """An ``incident`` that is to start is over by its source's word."""

    def __init__(self, incident: Incident) -> None:
        super().__init__(incident.fact.over)
        self.incident = incident


def _hold_if_well(request: Request, incident: Incident) -> None:
    """Hold an admitted alarm that its source has called over if each of its members is seen well:
    Nova and the agents decide. Raises ActionError NOT_ADMITTED then, or if another process decided
    at the same time."""
    keys = [(str(incident.group_id), member) for member in incident.lost]
    evidence = gather(request, keys)
    age = request.store.reading(lambda tx: tx.now()) - incident.last_at
    if not keys or not all(seen_well(evidence.of(key), age) for key in keys):
        return
    lost = " and ".join(incident.lost)
    why = (
        f"its source says that it is over ({incident.fact.over}), and {lost} "
        f"{'is' if len(keys) == 1 else 'are'} seen well"
    )

    def hold(tx: ProjectTransaction) -> None:
        tx.lock_group(str(incident.group_id), shared=False)
        found = incidents.get(tx, incident.id)
        if found is None or (found.decision, found.said) != (incident.decision, incident.said):
            return
        if found.traversal_id is not None:
            return
        sentence = f"{found.fact.reported}: {why}"
        incidents.decide(tx, found.id, Decision.HELD, sentence, rule=AdmissionRule.OVER)
        tx.journal(
            str(found.group_id), f"HELD: {sentence}", kind=JournalKind.HELD, incident_id=found.id
        )

    request.store.atomically(hold)
    raise ActionError(
        "NOT_ADMITTED",
        f"its failover was not started: {why}",
        f"To see the reason: failover show {incident.id}",
    )


def _dismiss_if_replaced(request: Request, incident: Incident) -> None:
    """Dismiss an admitted alarm that waits if each of its members has another server since it was
    admitted: what it says is true of the former ones. Raises ActionError NOT_ADMITTED then."""

    def dismiss(tx: ProjectTransaction) -> str | None:
        group_id = str(incident.group_id)
        tx.lock_group(group_id, shared=False)
        found, rows = incidents.get(tx, incident.id), groups.members_of(tx, group_id)
        if found is None or found.decision != Decision.ADMITTED or found.traversal_id is not None:
            return None
        former = dict(zip(found.fact.lost, found.fact.servers, strict=False))
        now = {name: rows[name].server_id for name in former if name in rows}
        others = [name for name in now if former[name] and now[name] not in (None, former[name])]
        if not now or len(others) < len(now):
            return None
        why = f"{' and '.join(now)} {'has' if len(now) == 1 else 'have'} another server since"
        sentence = f"{found.fact.reported}: {why}"
        fact = replace(found.fact, refusal="")
        incidents.decide(tx, found.id, Decision.DISMISSED, sentence, fact, found.order)
        kind = JournalKind.DISMISSED
        tx.journal(group_id, f"DISMISSED: {sentence}", kind=kind, incident_id=found.id)
        return why

    if (why := request.store.atomically(dismiss)) is not None:
        raise ActionError(
            "NOT_ADMITTED",
            f"its failover was not started: {why}",
            f"To see the reason: failover show {incident.id}",
        )


def with_lost(order: Order, incident: Incident) -> Order:
    """Return an order with the members that are lost: if it names none, those that the alarm
    reports. Raises ActionError BAD_INPUT if that reports none either."""
    if order.lost is not None:
        return order
    if not incident.fact.lost:
        raise ActionError(
            "BAD_INPUT",
            f"lost: incident {incident.id} does not say which member is lost",
            "Give lost, the list of the lost members.",
        )
    return replace(order, lost=incident.fact.lost)


def begin(
    request: Request,
    group: str,
    derive: failover.Derive,
    incident_id: str,
    cause: str,
    *,
    looked: str = "",
) -> Started:
    """Start the traversal of an alarm if it is still admitted at that moment: since it was read, a
    sweep may have dismissed or held it, or its source may have called it over. ``looked``: in which
    words it did so, if its members have been looked at since. Raises as :func:`start`."""

    def confirm(tx: ProjectTransaction) -> None:
        found = incidents.get(tx, incident_id)
        if found is None or found.decision != Decision.ADMITTED:
            now = f"is now {found.decision}" if found else "does not exist any more"
            raise ActionError(
                "NOT_ADMITTED",
                f"its failover was not started: alarm {incident_id} {now}",
                f"To see the reason: failover show {incident_id}"
                if found
                else "To list the held alarms: failover alarms.",
            )
        by_operator = found.order is not None or found.fact.because
        if found.fact.over not in ("", looked) and not by_operator:
            raise _Over(found)

    return failover.begin(
        request, group, derive, incident_id=incident_id, cause=cause, confirm=confirm
    )


def _in_service(derive: failover.Derive) -> failover.Derive:
    """Derive only if the group has a goal that assigns roles. Admission checked this, but some time
    ago, and the goal is derived again whenever another one was given in between."""

    def checked(snapshot: GroupSnapshot) -> Goal:
        if not snapshot.in_service:
            raise ActionError(
                "NOT_IN_SERVICE",
                f"{snapshot.group.name} was taken out of service",
                "To activate it again: failover group activate",
            )
        return derive(snapshot)

    return checked
