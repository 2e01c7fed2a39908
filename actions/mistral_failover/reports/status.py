# SPDX-License-Identifier: Apache-2.0
"""The status of a group, of all groups of a project, and of a traversal; and their history."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from shlex import quote
from typing import Any

from mistral_failover.cloud.errors import CloudError
from mistral_failover.convergence.records import (
    GroupState,
    NodeStatus,
    OperationStatus,
    Record,
    TraversalStatus,
)
from mistral_failover.convergence.traversals import goes_back
from mistral_failover.groups import agent_epochs, agent_health
from mistral_failover.groups.agent_health import sends_commands
from mistral_failover.groups.failed_step import FailedStep, failed_step
from mistral_failover.groups.service import JudgedService, judged_services
from mistral_failover.groups.snapshot import GroupSnapshot, group_snapshot, named_snapshot_in
from mistral_failover.mistral.api import mistral_of
from mistral_failover.mistral.client import ENDED
from mistral_failover.model.differences import in_documents
from mistral_failover.model.goal import (
    ATTACHMENT,
    FENCE_TYPE,
    REPLACE_PREFIX,
    VACANT,
    application_roles,
    returns,
)
from mistral_failover.model.group import Group
from mistral_failover.model.observation import (
    Observation,
    Presence,
    needs_of_declared,
)
from mistral_failover.model.observation import ServiceState as Serves
from mistral_failover.model.operation_words import operation_words
from mistral_failover.model.roles import NEVER
from mistral_failover.model.rungs import rung_kind
from mistral_failover.model.stages import at
from mistral_failover.model.types import Verb
from mistral_failover.orders import suspensions, switchover
from mistral_failover.orders.define_group import comparable
from mistral_failover.orders.failover import chain_of
from mistral_failover.orders.suspensions import unless_ended
from mistral_failover.orders.switchover import Ending
from mistral_failover.reports.documents import (
    ChainState,
    Confirmation,
    GroupOverview,
    InForce,
    MemberOfGroup,
    ProjectReport,
    RehearsalState,
    RehearsedMember,
    ReportedIncident,
    ResourceOfGroup,
    Restart,
    ServiceState,
    StatusReport,
    TraversalReport,
    VolumeHolder,
    Work,
)
from mistral_failover.runtime import rights
from mistral_failover.runtime.deadlines import DeadlineGuard, within
from mistral_failover.runtime.errors import ActionError, confirm_command, masked
from mistral_failover.runtime.request import Request
from mistral_failover.runtime.short_ids import find_by_short_id
from mistral_failover.store import (
    defects,
    details,
    groups,
    incidents,
    observations,
    rehearsals,
    rehearsed_roles,
    views,
)
from mistral_failover.store.groups import MemberRow
from mistral_failover.store.incidents import Incident
from mistral_failover.store.rehearsals import RehearsalRow
from mistral_failover.store.transaction import ProjectTransaction
from mistral_failover.store.views import ChainRow, JournalRow, TraversalStep, overview

HOUR = 3600.0
MOST_GROUPS = 500
"""Maximum groups described in one answer; it has the names of all."""
ASK = 3.0
"""Seconds that all agents together may take to answer."""
_INCIDENTS_SHOWN = 10
_BUSY = frozenset({"IN_PROGRESS", "BLOCKED"})
_STOPPED = (TraversalStatus.FAILED, TraversalStatus.BLOCKED)
_LOOK = 0.1  # seconds between two looks for a new row
_WORDS = 500  # characters of a workflow's own text in a sentence


def status(request: Request, name: str, *, agents: bool = False) -> StatusReport:
    """Return the state of a group: which member holds each role and volume, each resource, what is
    in progress or blocked. With ``agents`` also what the members' agents last reported, and how a
    chain ended that the group waits for; each takes up to 3 s."""

    def read(tx: ProjectTransaction) -> tuple[GroupSnapshot, StatusReport, ChainRow | None]:
        snapshot = named_snapshot_in(request, tx, name)
        state = snapshot.state
        current = state.current_traversal
        traversal = views.traversal(tx, current) if current else None
        word = traversal["status"] if traversal else "DEFINED"
        now, records = tx.now(), list(tx.records(snapshot.state.id))
        work = _work(tx, {state: snapshot.group}, now)[state.id]
        suspended = suspensions.current_suspensions(tx, snapshot.state.id)
        unstarted = incidents.unstarted_of_group(tx, snapshot.state.id)
        judged = judged_services(request.runtime, tx, [state.id])[state.id]
        service, seen = _service(tx, snapshot, judged.state, unstarted)
        found: StatusReport = {
            "group": name,
            "stack": snapshot.group.stack,
            "status": word,
            "reason": _reason(tx, traversal) if traversal else _without_goal(state),
            "restored": state.restored,
            "failure": _failure(tx, snapshot, traversal) if traversal else None,
            "roles": dict(snapshot.roles),
            "vacant": list(snapshot.vacant),
            "lost": sorted(snapshot.lost),
            "goal": traversal["goal_version"] if traversal else None,
            "last_complete_goal": snapshot.state.last_complete_goal,
            "goes_back": word == TraversalStatus.FAILED and goes_back(tx, state),
            "in_force": in_force(tx, state),
            "traversal": traversal,
            "pause": suspended["pause"],
            "maintenance": suspended["maintenance"],
            "members": [
                _member(each, seen) for each in groups.members_of(tx, snapshot.state.id).values()
            ],
            "resources": [_resource(record, now, seen) for record in records],
            "remedies": _remedies(tx, name, current, records) if current else [],
            "since": views.status_since(tx, current) if current else None,
            "holders": _holders(tx, snapshot.state.id, records),
            "held": _held(tx, snapshot.state.id),
            "serves_on": judged.serves_on,
            "under_way": work["under_way"],
            "waiting": work["waiting"],
            "deferred": work["deferred"],
            "ready": work["ready"],
            "chain": None,
            "service": service,
            "incidents": [
                _reported(each)
                for each in incidents.of_group(tx, snapshot.state.id, _INCIDENTS_SHOWN)
            ],
            "unstarted": [_reported(each) for each in unstarted],
            "restarts": _restarts(tx, snapshot.state.id, now),
            "rehearsal": _rehearsal(request, tx, snapshot, now),
            "defects": [],
            "agents": {},
            "now": now,
        }
        return snapshot, found, views.chain(tx, current) if current else None

    # Of one moment: an admitted alarm is either unstarted or the cause of the traversal.
    snapshot, found, held = request.store.snapshot(read)
    known = defects.lately(request.store)
    found["defects"] = [each.sentence for each in known]
    if held:
        chain = chain_state(request, snapshot.group, held, ask=agents)
        found["chain"] = chain
        found["reason"] = reason_with(chain, found["status"], found["reason"])
    if agents:
        found["agents"] = _agents(request, snapshot)
    return found


def _without_goal(state: GroupState) -> str:
    """Return why a group has no goal, in words."""
    return agent_epochs.older(state.name) if state.restored else "it has never had a goal"


def in_force(tx: ProjectTransaction, state: GroupState) -> InForce:
    """Return how what is defined differs from what is in force, which failovers move."""
    if state.to_move == state.defined:
        return {"differs": False, "lines": []}
    before, after = (tx.definition(state.id, each) for each in (state.to_move, state.defined))
    changed = in_documents(comparable(before), comparable(after))
    return {"differs": bool(changed), "lines": [str(each) for each in changed]}


def project(request: Request, *, after: str | None = None) -> ProjectReport:
    """Return the project's groups; the rows are those of the first 500 by name, of those behind the
    name ``after``, if it is given."""

    def read(tx: ProjectTransaction) -> ProjectReport:
        now = tx.now()
        total, rows = overview(tx, MOST_GROUPS, after=after)
        busy = [row["state"] for row in rows if row["status"] in _BUSY]
        definitions = {state: request.runtime.definitions.group(tx, state) for state in busy}
        work = _work(tx, definitions, now) if busy else {}
        serves = judged_services(request.runtime, tx, [row["id"] for row in rows])
        return {
            "groups": groups.names(tx),
            "total": total,
            "overview": [
                _group_row(row, serves[row["id"]], work.get(row["id"]) or _idle(), now)
                for row in rows
            ],
            "now": now,
        }

    return request.store.reading(read)


def _group_row(row: dict[str, Any], judged: JudgedService, work: Work, now: float) -> GroupOverview:
    goal = row["goal"] or {"roles": {}, "lost": []}
    return {
        "name": row["name"],
        "stack": row["definition"]["document"].get("stack"),
        "status": row["status"] or "DEFINED",
        "reason": row["reason"] or "",
        "cause": row["cause"] or "",
        "since": row["since"],
        "roles": dict(goal["roles"]),
        "vacant": list(goal.get(VACANT, ())),
        "lost": list(goal["lost"]),
        "pause": row["pause"],
        "maintenance": unless_ended(row["maintenance"], now),
        "held": row["held"],
        "serves_on": judged.serves_on,
        "service": str(judged.state.service),
        "service_since": judged.state.since,
        **work,
    }


def history(
    request: Request,
    name: str | None,
    *,
    after: int,
    limit: int,
    traversal: str | None,
    wait: float = 0.0,
) -> Sequence[JournalRow]:
    """Return the group's journal, one sentence per step; with ``traversal``, an id or its first
    digits, of that traversal alone. Without a name, return that of all groups of the project, each
    row with its ``group``. If there is no row, wait for one, for ``wait`` seconds. Raises
    ActionError BAD_INPUT, UNKNOWN_ID, AMBIGUOUS_ID."""
    until = time.monotonic() + wait
    while True:
        rows = _history(request, name, after=after, limit=limit, traversal=traversal)
        if rows or time.monotonic() >= until:
            return rows
        time.sleep(_LOOK)


def _history(
    request: Request, name: str | None, *, after: int, limit: int, traversal: str | None
) -> Sequence[JournalRow]:
    if name is None:
        if traversal is not None:
            raise ActionError("BAD_INPUT", "traversal: it needs its group", "Give the group too.")
        return request.store.reading(
            lambda tx: views.history_of_project(tx, after=after, limit=limit)
        )
    group_id = group_snapshot(request, name).state.id

    def read(tx: ProjectTransaction) -> list[JournalRow]:
        which = traversal
        # Of one that was forgotten the journal is left, which has its whole id.
        if which is not None and not views.history(tx, group_id, limit=1, traversal_id=which):
            which = find_by_short_id(request, tx, which, name, "traversal").id
        return views.history(tx, group_id, after=after, limit=limit, traversal_id=which)

    return request.store.reading(read)


def report(request: Request, name: str, traversal_id: str) -> TraversalReport:
    """Return what a traversal came to. If the engine itself replaced it, it is the last one that
    counts. For a planned move it is the whole move, the way back included."""
    snapshot = group_snapshot(request, name)

    def read(tx: ProjectTransaction) -> TraversalReport | None:
        first = views.traversal(tx, traversal_id)
        if first is None or first["group_id"] != snapshot.state.id:
            return None
        sequence = views.with_successors(tx, first)
        ended_first = (each for each in sequence if each["status"] != TraversalStatus.SUPERSEDED)
        traversal = next(ended_first, sequence[-1])
        goal = tx.goal(snapshot.state.id, traversal["goal_version"])
        if goal is None:
            return None
        ending: Ending = {
            "status": traversal["status"],
            "reason": _reason(tx, traversal),
            "roles": dict(goal.document["roles"]),
            "lost": list(goal.document["lost"]),
            "ended_at": traversal["ended_at"],
        }
        failure = _failure(tx, snapshot, traversal)
        if returns(goal):
            # Its reason is that of the whole move, not of one step.
            ending, failure = switchover.ending(tx, first), None
        ended = ending["ended_at"]
        return {
            "group": name,
            "traversal": traversal_id,
            "status": ending["status"],
            "reason": ending["reason"],
            "failure": failure,
            "roles": ending["roles"],
            "lost": ending["lost"],
            "seconds": None if ended is None else ended - first["started_at"],
        }

    found = request.store.reading(read)
    if found is None:
        return {"group": name, "traversal": traversal_id, "status": "UNKNOWN", "reason": ""}
    return found


def _reported(incident: Incident) -> ReportedIncident:
    return {
        "id": incident.id,
        "source": incident.source,
        "decision": incident.decision,
        "sentence": incident.sentence,
        "refusal": incident.fact.refusal,
        "duplicates": incident.duplicates,
        "at": incident.first_at,
    }


def _rehearsal(
    request: Request, tx: ProjectTransaction, snapshot: GroupSnapshot, now: float
) -> RehearsalState:
    group_id, schedule = snapshot.state.id, snapshot.group.rehearsal.schedule
    row = rehearsals.last_result(tx, group_id)
    began_at = row["began_at"] if row else None
    missed = None
    if schedule is not None and began_at is not None:
        missed = schedule.missed_since(now, began_at)
    left = rehearsals.unfinished(tx, group_id)
    stopped = (_stopped_cleanup(request, tx, each) for each in left if each["ended_at"])
    return {
        "running": bool(left),
        "failure": next((each for each in stopped if each is not None), None),
        "at": began_at,
        "status": row["outcome"] if row else None,
        "reason": row["reason"] if row else "",
        "on": sorted(set(row["planned"]["roles"].values())) if row else [],
        "to_service": (row["report"] or {}).get("to_service") if row else None,
        "members": _rehearsed_members(tx, snapshot, now),
        "schedule": schedule.words if schedule else None,
        "missed_since": missed,
    }


def _stopped_cleanup(
    request: Request, tx: ProjectTransaction, row: RehearsalRow
) -> FailedStep | None:
    """Return the step at which the cleanup of a rehearsal stopped; None if it did not."""
    own = groups.get(tx, row["id"])
    traversal = tx.traversal(own.current_traversal) if own and own.current_traversal else None
    if own is None or traversal is None or traversal.status not in _STOPPED:
        return None
    return failed_step(tx, request.runtime.definitions.group(tx, own), traversal.id)


def _rehearsed_members(
    tx: ProjectTransaction, snapshot: GroupSnapshot, now: float
) -> list[RehearsedMember]:
    group, holders = snapshot.group, snapshot.roles
    rehearsal = group.rehearsal
    latest = next(iter(rehearsals.of_group(tx, snapshot.state.id, 1)), None)
    left_out = {
        (each["member"], each["role"]): str(each["why"])
        for each in (latest["planned"]["passed_over"] if latest else ())
    }
    known = {
        (each["member"], each["role"]): each
        for each in rehearsed_roles.of_group(tx, snapshot.state.id)
    }
    found: list[RehearsedMember] = []
    turns: list[RehearsedMember] = []
    for member, here in groups.members_of(tx, snapshot.state.id).items():
        able = member not in snapshot.lost and group.members.priority.get(member) != NEVER
        for role in application_roles(group):
            last = known.get((member, role))
            if last is None or last["at"] is None or last["server_id"] != here.server_id:
                last = None
            has_turn = able and rehearsal.each
            if holders.get(role, member) == member or not (last or has_turn):
                continue
            row: RehearsedMember = {
                "member": member,
                "role": role,
                "at": last["at"] if last else None,
                "status": last["outcome"] if last else None,
                "reason": last["reason"] if last else "",
                "to_service": last["to_service"] if last else None,
                "missed_since": None,
                "passed_over": left_out.get((member, role), "") if has_turn else "",
            }
            found.append(row)
            turns += [row] if has_turn else []
    for row in turns:
        if rehearsal.schedule is not None and row["at"] is not None:
            row["missed_since"] = rehearsal.schedule.missed_since(now, row["at"], len(turns))
    return found


def _restarts(tx: ProjectTransaction, group_id: str, now: float) -> list[Restart]:
    """Return the attempts of the last hour to bring members back, oldest first."""
    return [
        {"member": row["name"].removeprefix(REPLACE_PREFIX), "at": row["at"], "found": row["found"]}
        for row in views.brought_back(tx, group_id, now - HOUR)
    ]


def _holders(
    tx: ProjectTransaction, group_id: str, records: Iterable[Record]
) -> list[VolumeHolder]:
    """Return which member has each volume of a group, according to the group's records."""
    volumes = [record for record in records if record.type == ATTACHMENT]
    made = details.made_at(tx, group_id) if volumes else {}
    return [
        {
            "volume": record.name,
            "physical_id": record.physical_id,
            "member": record.member,
            "server": record.attributes.get("server_id"),
            "since": made.get(record.id),
            "status": f"{record.action}_{record.status}",
        }
        for record in volumes
    ]


def _held(tx: ProjectTransaction, group_id: str) -> int:
    """Return how many alarms of a group are held."""
    total, _ = incidents.held_alarms(tx, group_id, 1)
    return total


def _agents(request: Request, snapshot: GroupSnapshot) -> dict[str, str]:
    """Return what each member's agent last reported, in words; empty for a group that sends no
    commands."""
    if not sends_commands(snapshot.group):
        return {}
    try:
        rows = within(ASK, lambda: agent_health.agents(request, snapshot.group.name))
    except Exception as error:  # a status is told without the agents as well
        return {"": request.caught(error, "asking the agents for the status")["message"]}
    if rows is None:
        return {"": f"the agents did not answer within {ASK:.0f} s"}
    return {row["member"]: row["sentence"] for row in rows}


def reason_with(chain: ChainState, status: str, reason: str) -> str:
    """Return the reason of a traversal's status: that it waits for its chain, if it is in progress
    and has no other one."""
    if status != TraversalStatus.IN_PROGRESS or reason:
        return reason
    next_step = f"; next: {chain['remedy']}" if chain["remedy"] else ""
    return f"{chain['sentence']}{next_step}"


def chain_state(request: Request, group: Group, held: ChainRow, *, ask: bool) -> ChainState:
    """Return the chain that a traversal waits for. ``ask``: ask Mistral how the chain's last
    execution ended, within :data:`ASK` seconds.
    """
    workflow, execution = chain_of(group), held["execution"]
    stage, sweep = at(held["stage"]).value, f"failover sweep {quote(group.name)}"
    found: ChainState = {
        "workflow": workflow,
        "execution": execution,
        "executions": held["executions"],
        "stage": stage,
        "state": None,
        "task": None,
        "sentence": "",
        "remedy": "",
    }
    if execution is None:
        sentence = (
            f"waits for its chain {workflow}, which has not started, to open the stage {stage}"
        )
        return {**found, "sentence": sentence, "remedy": sweep}
    name = f"its chain {workflow} (execution {execution})"
    found["sentence"] = f"waits for {name} to open the stage {stage}"
    try:
        ended = _ended(request, execution) if ask else None
    except CloudError:  # the status is told without it
        ended = None
    if ended is None:
        return found
    state, task, words = ended
    where = f" in task {task}" if task else ""
    why = f": {words}" if words else ""
    sentence = f"{name} ended with {state}{where} before it opened the stage {stage}{why}"
    return {**found, "state": state, "task": task, "sentence": sentence, "remedy": sweep}


def _ended(request: Request, execution: str) -> tuple[str, str | None, str] | None:
    """Return how an execution ended: its state, the task that failed, and its error message; None
    while it runs, or if Mistral does not know it. Raises CloudError."""
    mistral = mistral_of(request, DeadlineGuard(time.monotonic() + ASK, ASK))
    found = mistral.outcome(execution) if mistral else None
    if mistral is None or found is None or found.state not in ENDED:
        return None
    failure = mistral.failure(execution)
    error = found.output.get("error")
    if isinstance(error, Mapping):
        words = str(error.get("message") or "")
    else:
        words = failure.said if failure else found.said
    return found.state, failure.task if failure else None, masked(words)[:_WORDS]


def _idle() -> Work:
    return {"under_way": [], "waiting": [], "deferred": [], "ready": []}


def _work(
    tx: ProjectTransaction, groups: Mapping[GroupState, Group], now: float
) -> dict[str, Work]:
    """Return by group id what these groups do and wait for now."""
    definitions = {state.id: group for state, group in groups.items()}
    group_of = {state.current_traversal: state.id for state in groups if state.current_traversal}
    found = {identity: _idle() for identity in definitions}
    for row in views.running_operations(tx, list(definitions)):
        of_type = definitions[row["group_id"]].types.get(row["type"])
        spec = of_type.operations.get(row["verb"]) if of_type else None
        alive = row["status"] == OperationStatus.STARTED  # else the wait is that of its last try
        found[row["group_id"]]["under_way"].append(
            {
                "key": row["key"],
                "resource_id": row["resource_id"],
                "resource": row["resource"],
                "member": row["member"],
                "verb": row["verb"],
                "status": row["status"],
                "attempts": row["attempts"],
                "owner": row["owner"],
                "started_at": row["started_at"],
                "sentence": operation_words(row["verb"], row["resource"], row["member"], of_type),
                "seconds": now - row["started_at"],
                "limit": spec.timeout if spec else None,
                "waiting_for": row["waiting_for"] if alive else None,
                "waiting_since": row["waiting_since"] if alive else None,
            }
        )
    for waits in views.waiting(tx, list(group_of)):
        identity = group_of[waits["traversal_id"]]
        of_type, verb = definitions[identity].types.get(waits["type"]), _verb(waits["verb"])
        found[identity]["waiting"].append(
            {
                "resource": waits["resource"],
                "member": waits["member"],
                "verb": verb,
                "what": operation_words(verb, waits["resource"], waits["member"], of_type),
                "waiting_for": waits["waiting_for"],
                "since": waits["since"],
                "next_try": max(0.0, waits["next_try"] - now),
                "tries": waits["tries"],
            }
        )
    for defers in views.deferred(tx, list(group_of)):
        found[group_of[defers["traversal_id"]]]["deferred"].append(
            {
                "node": defers["node"],
                "resource": defers["resource"],
                "deferred_to": defers["deferred_to"],
                "deferred_at": defers["deferred_at"],
            }
        )
    for may in views.ready(tx, list(group_of)):
        identity = group_of[may["traversal_id"]]
        of_type = definitions[identity].types.get(may["type"])
        found[identity]["ready"].append(
            {
                "node": may["node"],
                "resource": may["resource"],
                "member": may["member"],
                "services": list(of_type.services) if of_type else [],
            }
        )
    return found


def _verb(action: str) -> Verb:
    """Return the verb of a record's action. Of one on which nothing was tried yet, create."""
    return Verb(action) if action in list(Verb) else Verb.CREATE


def _service(
    tx: ProjectTransaction, snapshot: GroupSnapshot, found: Serves, unstarted: Sequence[Incident]
) -> tuple[ServiceState, Observation | None]:
    """Return whether the group serves, and the last look, if it was after the engine's last
    work. ``found``: the same in short; ``unstarted``: its admitted alarms that have not begun."""
    state = snapshot.state
    kept = observations.of_group(tx, state.id) if found.seen_at is not None else None
    needed = list(kept.seen.needs if kept else ())
    if kept and unstarted:
        lost = {member for each in unstarted for member in each.lost}
        needed += needs_of_declared(
            kept.seen, lost, snapshot.group.stack, cold=snapshot.group.members.cold
        )
    state_now: ServiceState = {
        "status": str(found.service),
        "since": found.since,
        "reasons": list(found.reasons),
        "seen_at": found.seen_at,
        "gone": sorted(
            each.name
            for each in (kept.seen.members if kept else ())
            if each.observed.presence is Presence.GONE and each.roles
        ),
        "standbys": sorted(
            each.name
            for each in (kept.seen.members if kept else ())
            if not each.roles and each.why_not is None
        ),
        "cold": snapshot.group.members.cold,
        "another_stack": kept is not None and kept.seen.another_stack,
        "stack_gone": kept is not None and kept.seen.stack_gone,
        "needs": [each.document() for each in dict.fromkeys(needed)],
        "explained": kept is not None and kept.seen.explained,
    }
    return state_now, kept.seen if kept else None


def _remedies(
    tx: ProjectTransaction, group: str, traversal_id: str, records: list[Record]
) -> list[Confirmation]:
    """Return the commands by which an operator releases blocked fences once the members are
    certainly off."""
    stopped = tx.stopped_nodes(traversal_id)
    blocked = {each.node.resource_id for each in stopped if each.status == NodeStatus.BLOCKED}
    return [
        {
            "resource": record.name,
            "member": record.properties["member"],
            "reason": record.reason,
            "command": confirm_command(group, record.properties["member"]),
            "only_by_confirmation": all(
                rung_kind(rung["kind"]).asks_operator for rung in record.properties["ladder"]
            ),
        }
        for record in records
        if record.id in blocked and record.type == FENCE_TYPE and record.properties
    ]


def _reason(tx: ProjectTransaction, traversal: TraversalStep) -> str:
    """Return the reason of a traversal's status; while it is in progress, why it waits for new
    credentials, or an empty text."""
    if traversal["status"] != TraversalStatus.IN_PROGRESS:
        return str(traversal["reason"])
    return rights.waiting(tx.records(traversal["group_id"]))


def _failure(
    tx: ProjectTransaction, snapshot: GroupSnapshot, traversal: TraversalStep
) -> FailedStep | None:
    """Return the step whose failure is the reason of a traversal's status. None if no operation
    failed."""
    if traversal["status"] not in _STOPPED:
        return None
    return failed_step(tx, snapshot.group, traversal["id"])


def _member(member: MemberRow, seen: Observation | None) -> MemberOfGroup:
    look = next((m for m in seen.members if m.name == member.name), None) if seen else None
    return {
        "name": member.name,
        "server": member.server_id,
        "epoch": member.epoch,
        "condition": str(look.condition) if look else None,
        "why": look.observed.why if look else "",
        "needs": [each.document() for each in (look.able if look else ())],
    }


def _resource(record: Record, now: float, seen: Observation | None) -> ResourceOfGroup:
    of = (record.name, record.member)
    rows = seen.resources if seen else ()
    look = next((each for each in rows if (each.name, each.member) == of), None)
    return {
        "name": record.name,
        "type": record.type,
        "member": record.member,
        "status": f"{record.action}_{record.status}",
        "reason": record.reason,
        "physical_id": record.physical_id,
        "attributes": dict(record.attributes),
        "goal": record.goal_version,
        "owner": record.owner,
        "token": record.token,
        "lease_left": None if record.lease_until is None else record.lease_until - now,
        "id": record.id,
        "presence": str(look.observed.presence) if look else None,
        "why": look.observed.why if look else "",
    }
