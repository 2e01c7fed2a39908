# SPDX-License-Identifier: Apache-2.0
"""Which remedies a group needs, and their commands as every answer shows them: status, command
line, page, doctor.

This module sends no requests. Commands load it, so it needs nothing of the actions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from mistral_failover.model.observation import Condition, Service
from mistral_failover.model.remedies import (
    STACK_GONE,
    Advice,
    Need,
    NeedDocument,
    another_server,
    commands,
    instead,
    need,
)

if TYPE_CHECKING:  # a command starts without the code of the actions
    from mistral_failover.reports.documents import GroupReport, StatusReport


def advice(status: StatusReport) -> list[Advice]:
    """Return the commands that help a group, in the order in which they are typed."""
    return commands(needs(status), status["group"])


def in_service(status: GroupReport) -> bool:
    """Return whether the group is to serve, even if no member can take its roles at present."""
    return bool(status["roles"] or status["vacant"])


def needs(status: StatusReport) -> list[Need]:
    """Return the remedies that a group needs, in the order in which they are carried out."""
    found = list(dict.fromkeys(_needs(status)))
    if status["status"] == "COMPLETE":
        return [*found, *_of_rehearsal(status)]
    if status["failure"] and status["failure"]["code"] == "COPIES_LEFT":
        return [*_of_rehearsal(status), *found]
    return found  # first the group: a standby that is stopped for a copy cannot take over


def _of_rehearsal(status: StatusReport) -> list[Need]:
    """Return what a rehearsal needs that could not be cleaned up."""
    failure = status["rehearsal"]["failure"]
    return [*read(failure["needs"]), need("CLEAN_UP")] if failure else []


def _needs(status: StatusReport) -> Iterable[Need]:
    service = status["service"]
    if in_service(status) and status["traversal"] and status["traversal"]["ended_at"] is not None:
        # Without its stack nothing else helps, whatever the last traversal came to.
        if service["another_stack"]:
            return [need("ADOPT_STACK")]
        if service["stack_gone"]:
            return list(STACK_GONE)
    match status["status"]:
        case "BLOCKED":
            found = _unblocking(status) or _then(status, need("SWEEP"))
            return [*found, *_decisions(status)]
        case "FAILED" if not in_service(status):
            known = [each for each in _of_failure(status) if not each.instead]  # those serve again
            return [*known, need("DELETE"), need("ACTIVATE_INSTEAD")]
        case "FAILED":
            again = [*_then(status, need("START")), *_decisions(status)]
            # Whether an earlier goal needs a member that is lost now, only the rollback finds out.
            back = status["goes_back"] and not status["lost"]
            return [*again, need("ROLLBACK")] if back else again
        case "IN_PROGRESS":
            waits = status["chain"]["remedy"] if status["chain"] else status["reason"]
            return [need("CONTINUE"), need("WATCH")] if waits else [need("WATCH")]
        case "DEFINED" if status["restored"]:
            return [need("BEGIN_AGAIN")]
        case "DEFINED":
            return [need("ACTIVATE")]
    if not in_service(status):
        return [need("ACTIVATE")]
    if status["held"] and service["status"] != Service.DOWN:
        # An alarm waits, which is why it is not known to serve.
        return [*_undoing(status), *_serving_again(status), *_into_force(status)]
    return [*_serving_again(status), *_undoing(status), *_into_force(status)]


def read(rows: Iterable[NeedDocument]) -> list[Need]:
    """Return remedies from an answer."""
    return [Need.read(each) for each in rows]


def _of_failure(status: StatusReport) -> list[Need]:
    """Return what ends the cause of the failed step, as far as that is known."""
    return read(status["failure"]["needs"]) if status["failure"] else []


def _then(status: StatusReport, continues: Need) -> list[Need]:
    """Return what ends the cause of the failed step, what continues after that, and then what is
    another way than both."""
    known = _of_failure(status)
    others = [each for each in known if each.instead]
    return [*(each for each in known if not each.instead), continues, *others]


def _decisions(status: StatusReport) -> list[Need]:
    """Return the look at alarms that are held: one may tell why the group does not go on."""
    return [need("DECIDE_ALARMS")] if status["held"] else []


def _serving_again(status: StatusReport) -> Iterator[Need]:
    """Yield what a group needs that reached its goal, and does not serve as it should."""
    service = status["service"]
    known = read(service["needs"])
    if status["unstarted"]:
        # The alarm says more than the look: who is lost, it decides. Who is well again, a person.
        yield from (each for each in known if each.code not in _MOVES)
        yield need("START_OF_ALARM")
        if not known or not service["explained"]:
            yield need("DIAGNOSE")
        return
    if service["status"] not in (Service.DOWN, Service.UNKNOWN, Service.DEGRADED):
        return
    yield from known
    looked = service["seen_at"] is not None
    if service["status"] == Service.DEGRADED and (looked or status["lost"]):
        if not service["explained"] and looked:
            yield need("DIAGNOSE")
        return
    if not known or not service["explained"]:
        yield need("DIAGNOSE")


_MOVES = frozenset({"BRING_BACK", "MOVE", "MOVE_SILENT", "PLAN_MOVE"})


def _undoing(status: StatusReport) -> Iterator[Need]:
    """Yield what ends that members or alarms are kept away."""
    rows = {row["name"]: row for row in status["members"]}
    moved = {
        member
        for each in read(status["service"]["needs"])
        for member in each.value("recovered")
        if status["service"]["status"] == Service.DOWN
    }
    for member in status["lost"]:
        row = rows.get(member)
        if member in moved:
            continue
        if row is not None and row["needs"]:
            yield from read(row["needs"])
        elif row is not None and row["condition"] == Condition.DELETED:
            yield another_server(status["stack"], member)
        else:
            yield need("RECOVER", member=member)
    if status["pause"]:
        yield need("RESUME")
    if status["maintenance"]:
        yield need("END_MAINTENANCE")
    yield from _decisions(status)


def _into_force(status: StatusReport) -> list[Need]:
    """Return what ends a difference between what is defined and what is in force."""
    return [need("APPLY"), need("REDEFINE")] if status["in_force"]["differs"] else []


def _unblocking(status: StatusReport) -> list[Need]:
    """Return what an operator can do about fences without a proof: first what needs no
    confirmation, unless nothing else helps."""
    rows = status["remedies"]
    sure = [need("CONFIRM_FENCED", member=row["member"]) for row in rows]
    other = instead(sure)
    if sure and (refused := _of_failure(status)):  # Nova does what it refused, once that is done
        return [*refused, need("SWEEP"), *other]
    if all(row["only_by_confirmation"] for row in rows):
        return sure
    members = sorted({row["member"] for row in rows})
    code = "FENCE_AGAIN" if in_service(status) else "FENCE_AND_DELETE"
    return [need(code, lost=members, answering=answering(members)), *other]


def answering(members: Sequence[str]) -> str:
    """Return in words that these members, or their hosts, answer."""
    whose = "its host answers" if len(members) == 1 else "their hosts answer"
    return f"{' and '.join(members)} or {whose}"
