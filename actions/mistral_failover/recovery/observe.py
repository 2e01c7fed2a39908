# SPDX-License-Identifier: Apache-2.0
"""Observe groups: compare their records with what exists.

A group at rest is looked at; one that waits for an operator; and one whose traversal is running, if
everything that serves is there. Nothing of it may have been made since the round began. One round
lists a project's servers, volumes and stacks once, whatever the number of groups. It changes
nothing but what is known: the last observation of each group, and a sentence in its journal when
its service has changed. Any number of rounds may run at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from shlex import quote

from mistral_failover.agent.wire import Address
from mistral_failover.cloud import room
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.event_alarms import WatchingAlarm
from mistral_failover.cloud.volume_holders import UNANSWERED
from mistral_failover.convergence.records import (
    Action,
    GroupState,
    JournalKind,
    Record,
    Status,
    TraversalStatus,
)
from mistral_failover.groups import agent_epochs, unfinished_replacements
from mistral_failover.groups.agent_health import (
    commands_of,
    lacking,
    sends_commands,
    silent,
    unready,
)
from mistral_failover.groups.candidates import asks_nova, plugs_in
from mistral_failover.groups.project_view import REMEMBERED, ProjectView
from mistral_failover.groups.refresh_members import another_stack
from mistral_failover.groups.service import judged_services, standing
from mistral_failover.groups.snapshot import group_snapshot
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.goal import ACTIVATION, ALARM, resource_names, vacant_roles
from mistral_failover.model.group import Group
from mistral_failover.model.heartbeats import SILENT
from mistral_failover.model.observation import (
    Condition,
    Flaw,
    Observation,
    ObservationMemory,
    ObservedMember,
    ObservedPresence,
    ObservedResource,
    Presence,
    Service,
    fresh_for,
    judged,
    keeps_from_roles,
)
from mistral_failover.model.rehearsals import RehearsalOutcome
from mistral_failover.model.remedies import Need, another_server, need
from mistral_failover.recovery.documents import Heal, ObservedGroup, SameGoalInput
from mistral_failover.recovery.service_changes import store_changes
from mistral_failover.resources.modules import observer
from mistral_failover.runtime.errors import DEFECTS
from mistral_failover.runtime.request import Request
from mistral_failover.store import (
    groups,
    incidents,
    observations,
    rehearsed_roles,
    suspensions,
    views,
)
from mistral_failover.store.groups import MemberRow
from mistral_failover.store.rehearsed_roles import RehearsedRole
from mistral_failover.store.services import made_at
from mistral_failover.store.transaction import ProjectTransaction
from mistral_failover.store.views import FailedOperation

LOG = logging.getLogger(__name__)
_KINDS: Mapping[Service, JournalKind] = {
    Service.SERVING: JournalKind.WELL,
    Service.DEGRADED: JournalKind.DEGRADED,
    Service.DOWN: JournalKind.DOWN,
}
"""The kind of the journal's sentence about a service that has become so."""

_FOLLOWS = (
    "(change it where it is defined, or name it in the group file as a resource of type alarm)"
)
"""What to do about an alarm that watches the wrong server."""
_DUE = 0.9
"""The part of the interval after which a group's turn has come: who looks at whole intervals, such
as cron, comes a little early half of the time."""
_KEPT_AFTER = 5.0
"""Seconds of a round after which what was seen so far is kept."""
HOUR = 3600.0
REPAIR_AGAIN = 300.0
"""Seconds after which a repair is asked for again that has changed nothing; what ends again sooner
moves, if the group file says ``heal: failover``."""
REPAIR_WELL = 60.0
"""The same after a repair that helped."""


@dataclass(frozen=True)
class _ObservedGroup:
    """A group to look at. ``status``: of its traversal, which has ended if it is ``at_rest``.
    It is ``interrupted`` if something that serves does not exist by the engine's records.
    ``wanted``: the names of its goal's resources; ``vacant``: the roles for which it makes room.
    ``serving``: the records of what serves now, and ``roles`` where. ``rehearsed``: the roles that
    were rehearsed, with their members. ``down_since``: when what serves went down, if the look
    tells. ``failed``: the step whose failure ended the traversal. ``begun``: when the look began.
    ``fresh``: seconds for which a heartbeat shows that a guest lives: two looks find its agent
    silent before."""

    state: GroupState
    group: Group
    roles: Mapping[str, str]
    lost: frozenset[str]
    status: TraversalStatus
    members: Mapping[str, MemberRow]
    records: tuple[Record, ...]
    wanted: frozenset[str]
    in_maintenance: frozenset[str]
    before: observations.StoredObservation | None
    at_rest: bool
    interrupted: bool
    serving: tuple[Record, ...]
    begun: float
    fresh: float
    vacant: tuple[str, ...] = ()
    rehearsed: Sequence[RehearsedRole] = ()
    down_since: float | None = None
    failed: FailedOperation | None = None

    @property
    def reached(self) -> bool:
        """Whether its goal is reached."""
        return self.status == TraversalStatus.COMPLETE

    @property
    def left(self) -> bool:
        """Whether a member may have left: the group file does not name it, and nothing is there."""
        named = self.group.members.servers
        held = {*named, *(record.member for record in self.records)}
        return self.at_rest and bool(named) and not self.members.keys() <= held

    @property
    def memory(self) -> ObservationMemory:
        """What the look before left for this one."""
        return self.before.memory if self.before is not None else ObservationMemory()


def observe(
    request: Request, group: str | None, *, at_once: bool = False, asked_for: bool = False
) -> list[ObservedGroup]:
    """Look at the project's groups that were not looked at for ``observe_interval``, or at one
    group; ``at_once``: whenever it was looked at last. ``asked_for``: so too, and whenever it was
    repaired last, because an operator names the group.

    Returns the groups that have changed or are to be healed, and if ``asked_for`` each that has a
    flaw, with why nothing is started. Raises UnknownGroup, and CloudError where the request cannot
    be authenticated.
    """
    database = request.store
    group_id = group_snapshot(request, group).state.id if group else None
    interval = 0.0 if at_once or asked_for else request.runtime.settings.observe_interval * _DUE
    # What is listed is as old as the round: nothing that was done since can be judged by it.
    begun, due = database.reading(lambda tx: (tx.now(), observations.due(tx, interval, group_id)))
    if not due:
        return []
    view = ProjectView(request)
    rows: list[ObservedGroup] = []
    as_before: list[_ObservedGroup] = []
    kept_at = time.monotonic()
    looked_at: dict[str, float] = {}
    fresh = fresh_for(request.runtime.settings.observe_interval)

    def keep() -> None:
        known = [(each.state.id, each.before.at) for each in as_before if each.before is not None]
        database.atomically(lambda tx: observations.seen_again(tx, known, begun))
        as_before.clear()

    try:
        for each in due:
            if time.monotonic() - kept_at > _KEPT_AFTER:
                keep()
                kept_at = time.monotonic()
            try:
                found = _observed(request, view, each, begun)
            except InvalidDocument as error:  # it needs a package that is gone
                if group_id is not None:
                    raise
                LOG.warning("Group %s is not observed: %s", each, error)
                continue
            except Exception as error:
                known = request.caught(error, "observing a group")
                if group_id is not None or known["code"] not in DEFECTS:
                    raise
                continue  # a defect that concerns one group must not stop the others
            if found is None or _is_restored(request, view, found[0]):
                continue
            before = found[0].before.at if found[0].before is not None else 0.0
            if begun - before > fresh:  # before the new look hides when the last one was
                store_changes(request, [each], {})
            looked_at[each] = before
            if not asked_for and _is_as_before(*found):
                as_before.append(found[0])
            elif row := database.atomically(partial(_save, request, *found, begun, asked_for)):
                rows.append(row)
    finally:
        keep()  # also if a later group could not be looked at
        store_changes(request, due, looked_at)
    return rows


def _observed(
    request: Request, view: ProjectView, group_id: str, begun: float
) -> tuple[_ObservedGroup, Observation, ObservationMemory] | None:
    """Look at a group; None if it cannot be looked at now."""
    facts = request.store.reading(partial(_facts, request, group_id, begun))
    if facts is None:
        return None
    if facts.left:
        request.store.atomically(lambda tx: groups.leave(tx, group_id))
    view.begin(facts.memory.well, _servers(facts), facts.records)
    alarms = _alarms(view, facts)
    remembered = _with_room(view, facts, begun)
    seen = _look(view, facts, alarms, remembered.room)
    memory = replace(
        remembered,
        well=dict(view.well),
        hosts=_hosts(view, facts),
        zones=_zones(view, facts),
        heard=_heard(view, facts, begun),
        alarmed=facts.memory.alarmed or bool(alarms),
    )
    return replace(facts, down_since=_down_since(view, facts, seen, begun)), seen, memory


def _is_restored(request: Request, view: ProjectView, facts: _ObservedGroup) -> bool:
    """Return whether an agent shows that the store is older than the world: then the group is
    marked so, and is not judged by its records."""
    heard = {
        name: beat
        for name, member in facts.members.items()
        if member.server_id is not None and (beat := view.heard.get(_agent_of(facts, member)))
    }
    return agent_epochs.settle(request, facts.state.id, heard, facts.members)


def _down_since(
    view: ProjectView, facts: _ObservedGroup, seen: Observation, now: float
) -> float | None:
    """Return when the agent on a holder whose server does not run was last heard: the guest lived
    until then. None if the group is not down for that, or that is not known."""
    off = {
        each.name for each in seen.members if each.roles and each.observed.presence is Presence.GONE
    }
    if seen.service is not Service.DOWN or not off or not sends_commands(facts.group):
        return None
    beats = [view.heartbeat(_agent_of(facts, facts.members[name])) for name in sorted(off)]
    return min((now - beat.ago for beat in beats if beat is not None), default=None)


def observe_once(request: Request, group_id: str) -> Observation | None:
    """Look at one group and keep nothing; None where it cannot be looked at now, or has no goal.
    Raises CloudError where the request cannot be authenticated."""
    facts = request.store.reading(lambda tx: _facts(request, group_id, tx.now(), tx))
    if facts is None:
        return None
    view = ProjectView(request)
    view.begin({}, _servers(facts), facts.records)
    return _look(view, facts, _alarms(view, facts), facts.memory.room)


def _facts(
    request: Request, group_id: str, begun: float, tx: ProjectTransaction
) -> _ObservedGroup | None:
    """Return what is known of a group; None if what serves was made or changed after the round
    began, or a running traversal has it on its way."""
    state = groups.get(tx, group_id)
    traversal = tx.traversal(state.current_traversal) if state and state.current_traversal else None
    if state is None or traversal is None:
        return None
    ended = views.ended_at(tx, traversal.id)
    goal = tx.goal(group_id, traversal.goal_version)
    if goal is None or (ended is not None and ended > begun):
        return None
    records = tuple(tx.records(group_id))
    group = request.runtime.definitions.group(tx, state, state.to_move)
    held = standing(group, goal, records)
    if ended is None:
        made = made_at(tx, [group_id])
        young = any(made.get(each.id, 0.0) > begun for each in held.records)
        waits = traversal.status == TraversalStatus.BLOCKED
        moving = held.missing and not waits
        if young or moving or vacant_roles(goal) or not held.roles:
            return None
    work = suspensions.of_group(tx, group_id).get("maintenance")
    busy = work["members"] if work is not None and begun < work["until"] else ()
    return _ObservedGroup(
        state,
        group,
        held.roles,
        frozenset(goal.document["lost"])
        - unfinished_replacements.replaced_lost_members(goal, records),
        traversal.status,
        groups.members_of(tx, group_id),
        records,
        resource_names(goal),
        frozenset(busy),
        observations.of_group(tx, group_id),
        ended is not None,
        bool(held.missing),
        held.records,
        begun,
        SILENT + fresh_for(request.runtime.settings.observe_interval),
        vacant_roles(goal),
        rehearsed_roles.of_group(tx, group_id),
        failed=views.failed_step(tx, traversal.id) if traversal.reason else None,
    )


def _servers(facts: _ObservedGroup) -> dict[str, str | None]:
    """Return the members' present servers."""
    return {member.name: member.server_id for member in facts.members.values()}


def _hosts(view: ProjectView, facts: _ObservedGroup) -> dict[str, list[str]]:
    """Return the hosts of the members' servers, by server id; as last seen if Nova shows none."""
    before = facts.memory.hosts
    found: dict[str, list[str]] = {}
    for member in facts.members.values():
        if member.server_id is None:
            continue
        host = view.host(member.server_id) or before.get(member.server_id)
        if host is not None:
            found[member.server_id] = list(host)
    return found


def _zones(view: ProjectView, facts: _ObservedGroup) -> dict[str, str]:
    """Return the availability zones of the members' servers, by server id; as last seen if Nova
    shows none."""
    before = facts.memory.zones
    return {
        server: zone
        for server in _servers(facts).values()
        if server is not None and (zone := view.zone(server) or before.get(server))
    }


def _heard(view: ProjectView, facts: _ObservedGroup, now: float) -> dict[str, float]:
    """Return when the members' agents were last heard, by server id. A broker drops a heartbeat
    after an hour; the silence of the agent counts all the same."""
    before = facts.memory.heard
    found: dict[str, float] = {}
    for member in facts.members.values():
        if member.server_id is None:
            continue
        beat, known = view.heard.get(_agent_of(facts, member)), before.get(member.server_id)
        at = None if beat is None else now - beat.ago
        if at is None or (known is not None and known >= at - REMEMBERED):
            at = known
        if at is not None:
            found[member.server_id] = at
    return found


def _agent_of(facts: _ObservedGroup, member: MemberRow) -> Address:
    return Address(facts.state.id, facts.group.name, member.name, member.server_id or "")


def _is_as_before(facts: _ObservedGroup, seen: Observation, memory: ObservationMemory) -> bool:
    """Return whether a look found what the look before did, and nothing follows from it. That is so
    for most groups, most of the time."""
    if facts.before is None or seen.service in (Service.DEGRADED, Service.DOWN):
        return False
    if not facts.at_rest:
        return False  # the group may have received another goal since
    same = (facts.before.seen, facts.before.memory) == (seen, memory)
    return same and (seen.service not in _KINDS or seen.service == memory.told)


def _look(
    view: ProjectView,
    facts: _ObservedGroup,
    alarms: Sequence[WatchingAlarm] | None,
    no_room: Sequence[str],
) -> Observation:
    members = [_member(view, facts, each) for each in facts.members.values()]
    unguarded = [*([] if alarms is None else _unguarded(view, facts, alarms)), *no_room]
    serving, cold = list(_resources(view, facts)), facts.group.members.cold
    return judged(
        facts.roles,
        members,
        serving,
        unguarded,
        facts.vacant,
        cold=cold,
        stack=facts.group.stack,
        rehearsed=_not_rehearsed(facts),
        **_of_stack(view, facts),
    )


def _not_rehearsed(facts: _ObservedGroup) -> Iterator[Flaw]:
    """Yield that the last rehearsal of a role on a member failed, while the member has the server
    on which it did, and another one holds the role."""
    several = len(facts.group.roles) > 1
    for each in facts.rehearsed:
        role, member, holder = each["role"], each["member"], facts.roles.get(each["role"])
        here = facts.members.get(member)
        failed = each["outcome"] == RehearsalOutcome.FAILED
        if not failed or here is None or here.server_id != each["server_id"]:
            continue
        if holder in (None, member):
            continue
        what = f"the last rehearsal of {role}" if several else "the last rehearsal"
        words = f"{member} failed {what} ({each['reason']})"
        yield Flaw(words, (need("REHEARSE", member=member, role=role),))


def _with_room(view: ProjectView, facts: _ObservedGroup, now: float) -> ObservationMemory:
    """Return the group's memory with why the next server of a member that holds a role could not be
    made: asked anew after an hour, and soon while something is lacking. What the project may not
    see is no flaw."""
    memory, members = facts.memory, facts.group.members
    if not (members.cold and members.makes_servers):
        return replace(memory, room=(), room_at=0.0)
    if now - memory.room_at < (REPAIR_AGAIN if memory.room else HOUR):
        return memory
    found = []
    try:
        for name in sorted(set(facts.roles.values())):
            server = _servers(facts).get(name)
            if server is None or view.server(server).presence is not Presence.PRESENT:
                return memory  # it may be replaced at this moment
            if why := room.lacking(view.cloud, facts.group.stack, server):
                found.append(f"{name} could get no other server: {'; '.join(why)}")
    except CloudError as error:
        if error.code not in room.HIDDEN:
            return memory  # the next look asks again
        found = []
    return replace(memory, room=tuple(found), room_at=now)


def _of_stack(view: ProjectView, facts: _ObservedGroup) -> dict[str, str]:
    """Return that the group's stack was deleted, or deleted and made again, as of
    ``model.observation.judged``; empty if it is there."""
    state, stack = facts.state, facts.group.stack
    if stack is None:
        return {}
    try:
        listed = view.listing.stack(stack)
    except CloudError:
        return {}
    if listed is None:
        return {"stack_gone": f"stack {stack} does not exist any more"}
    if state.stack_id in (None, listed.id) or state.stack_name != stack:
        return {}
    return {"another_stack": another_stack(stack, str(state.stack_id), listed.id)}


def _alarms(view: ProjectView, facts: _ObservedGroup) -> Sequence[WatchingAlarm] | None:
    """Return Aodh's alarms that signal the group's stack; None if Aodh cannot be asked."""
    try:
        return view.listing.alarms(facts.group.stack)
    except CloudError:
        return None


def _unguarded(
    view: ProjectView, facts: _ObservedGroup, alarms: Sequence[WatchingAlarm]
) -> list[str]:
    """Return why these alarms would not notice the loss of the member that serves. An alarm that
    names no server watches all of them. A group that never had an alarm may be watched by other
    means."""
    if not alarms and facts.memory.alarmed:
        return [
            f"no alarm in Aodh signals stack {facts.group.stack} any more (if it is to have none: "
            "failover group update FILE)"
        ]
    alarms = _as_declared(facts, alarms)
    try:
        strangers = {
            server: each.name
            for each in alarms
            for server in each.servers - {row.server_id for row in facts.members.values()}
            if not view.listing.server(server).exists
        }
    except CloudError:
        return []
    wrong = [
        f"alarm {name} watches server {server}, which does not exist"
        for server, name in sorted(strangers.items())
    ]
    if alarms and all(each.servers for each in alarms):
        watched = frozenset().union(*(each.servers for each in alarms))
        wrong += [
            f"no alarm watches the server of {row.name}"
            for row in facts.members.values()
            if row.server_id not in watched and row.name in facts.roles.values()
        ]
    return [*wrong[:-1], f"{wrong[-1]} {_FOLLOWS}"] if wrong else []


def _as_declared(facts: _ObservedGroup, alarms: Iterable[WatchingAlarm]) -> list[WatchingAlarm]:
    """Return the alarms, with those that the group file names as if they watched what they should:
    if they do not, their resources say so."""
    servers = _servers(facts)
    wanted: dict[str | None, str | None] = {}
    for record in facts.records:
        if record.type == ALARM and record.name in facts.wanted and not record.gone:
            declared = record.properties or {}
            server = servers.get(str(declared.get("server")))
            wanted |= {record.physical_id: server, declared.get("alarm"): server}
    return [
        replace(each, servers=frozenset({server}))
        if each.servers and (server := wanted.get(each.id) or wanted.get(each.name))
        else each
        for each in alarms
    ]


def _member(view: ProjectView, facts: _ObservedGroup, member: MemberRow) -> ObservedMember:
    roles = tuple(sorted(role for role, name in facts.roles.items() if name == member.name))
    look, (condition, _) = view.server(member.server_id), view.condition(member.server_id)
    quiet, unseen = "", False
    if look.presence is Presence.PRESENT and sends_commands(facts.group):
        beat = view.heartbeat(_agent_of(facts, member))
        forgotten = _long_silent(view, facts, member) if beat is None else ""
        condition = Condition.HUNG if silent(beat) or forgotten else condition
        quiet = unready(beat) or lacking(beat, commands_of(facts.group, roles or None)) or forgotten
        unseen = bool(forgotten) or (beat is not None and beat.ago > facts.fresh)
    said = keeps_from_roles(member.name, facts.lost, facts.in_maintenance)
    kept, needs = view.kept_busy(member.server_id)
    asked = asks_nova(facts.group) if roles else plugs_in(facts.group)
    if kept := kept if asked and look.presence is Presence.PRESENT else "":
        kept = f"a failover would wait for it: {kept}"
    why_not = said or look.why or quiet or kept or None
    if unseen and roles:
        # Nova goes on to show a server as running after its host has died.
        observed = ObservedPresence(Presence.UNKNOWN, f"{quiet}: its server may have died")
    elif kept and roles:
        observed = replace(look, why="; ".join(filter(None, (kept, quiet))), needs=needs)
    else:
        of_server = needs if roles and look.presence is Presence.GONE else ()
        observed = replace(look, why=look.why or quiet, needs=of_server)
    return ObservedMember(
        member.name,
        roles,
        observed,
        why_not,
        condition,
        _able(view, facts, member, look, condition, needs if kept else ()),
    )


def _long_silent(view: ProjectView, facts: _ObservedGroup, member: MemberRow) -> str:
    """Return, in words, that an agent was heard once, and not for so long that its last heartbeat
    was dropped; empty for others, and if the channel could not be asked."""
    at = facts.memory.heard.get(member.server_id or "")
    if at is None or _agent_of(facts, member) not in view.heard or facts.begun - at <= HOUR:
        return ""
    return "its agent has sent no heartbeat for more than an hour"


def _able(
    view: ProjectView,
    facts: _ObservedGroup,
    member: MemberRow,
    look: ObservedPresence,
    condition: Condition,
    freeing: tuple[Need, ...],
) -> tuple[Need, ...]:
    """Return what a person does so that a member may take a role, in order. ``freeing``: what ends
    the state of its server in which Nova plugs nothing in."""
    if condition is Condition.DELETED:
        return (another_server(facts.group.stack, member.name),)
    ways = view.needs(member.server_id) if look.presence is Presence.GONE else freeing
    if condition is Condition.HUNG:
        ways = (*ways, need("REBOOT_SERVER", server=str(member.server_id)))
    if member.name in facts.lost:
        return (*ways, need("RECOVER", member=member.name))
    if member.name in facts.in_maintenance:
        return (*ways, need("END_MAINTENANCE"))
    return ways


def _resources(view: ProjectView, facts: _ObservedGroup) -> Iterable[ObservedResource]:
    there = {each.id for each in facts.serving}
    served = {each.name for each in facts.serving}
    for record in facts.records:
        how, of_type = observer(record.type), facts.group.types.get(record.type)
        if how is None or of_type is None or record.name not in facts.wanted:
            continue
        serves = of_type.provides is not None
        if serves and record.name in served:
            if record.id not in there:
                continue  # what it replaces serves still, or what replaces it serves already
        elif record.replaced_by or record.gone:
            continue
        if (
            record.action == Action.DELETE
            or record.status != Status.COMPLETE
            or record.action == Action.INIT
        ):
            words = (
                "it does not exist"
                if record.action == Action.INIT
                else _undone(record, facts.failed)
            )
            look = ObservedPresence(Presence.GONE if serves else Presence.CHANGED, words)
        else:
            look = how(view, record, facts.group.name)
        yield ObservedResource(record.name, record.type, record.member, serves, look)


def _undone(record: Record, failed: FailedOperation | None) -> str:
    """Return what was not done, and why; of the failed step without what helps, which is said with
    it."""
    words = f"its {record.action.lower()} is {record.status}"
    is_failed = failed is not None and failed["resource_id"] == record.id
    why = failed["error"]["message"] if failed is not None and is_failed else record.reason
    return f"{words}: {why.rstrip('.')}" if why else words


def _save(
    request: Request,
    facts: _ObservedGroup,
    seen: Observation,
    memory: ObservationMemory,
    begun: float,
    asked_for: bool,
    tx: ProjectTransaction,
) -> ObservedGroup | None:
    """Keep what was seen, unless the group got another goal: then it may be inconsistent. Nor does
    it replace what was seen later."""
    known = facts.state
    state = tx.lock_group(known.id, shared=False)
    if state is None or state.current_traversal != known.current_traversal:
        return None
    if not facts.at_rest and not _serves_as_before(facts, tx):
        return None
    before = observations.of_group(tx, known.id)
    if before is not None and before.at > begun:
        return None  # another process looked later, while this one was frozen
    news = before is None or before.seen.service is not seen.service
    lately = ObservationMemory() if before is None else before.memory
    if facts.memory.alarmed and not lately.alarmed:
        return None  # the group file was stored in the meantime: the next look judges by it
    memory = replace(memory, told=lately.told, repair_after=lately.repair_after)
    reasons = "; ".join(seen.reasons)
    sentence = f"{known.name} is {seen.service}" + (f": {reasons}" if reasons else "")
    # What a traversal does itself, or waits for, is no news of the group's health.
    moves = facts.status == TraversalStatus.IN_PROGRESS
    moves |= facts.interrupted and not facts.at_rest
    kind = None if moves else _KINDS.get(seen.service)
    changed = kind is not None and seen.service != memory.told
    if kind is not None and changed:
        tx.journal(known.id, sentence, kind=kind, traversal_id=state.current_traversal)
        memory = replace(memory, told=seen.service)
    heal, why_not, memory = _heal(facts, seen, memory, asked_for, tx)
    since = _shown_since(request, known.id, seen, tx) if news else None
    observations.save(tx, known.id, seen, memory, begun, facts.down_since or since)
    if asked_for and seen.service not in (Service.SERVING, Service.OUT_OF_SERVICE):
        follows = f"{heal['workflow']} is started" if heal else f"nothing is started: {why_not}"
        sentence = f"{sentence}; {follows}"
    elif heal is None and not changed:
        return None
    return {
        "group": known.name,
        "service": str(seen.service),
        "sentence": sentence,
        "heal": heal,
    }


def _shown_since(
    request: Request, group_id: str, seen: Observation, tx: ProjectTransaction
) -> float | None:
    """Return since when the service that a look found is shown without it, as after the engine's
    work; None if another one is shown."""
    shown = judged_services(request.runtime, tx, [group_id])[group_id].state
    return shown.since if shown.service is seen.service else None


def _serves_as_before(facts: _ObservedGroup, tx: ProjectTransaction) -> bool:
    """Return whether nothing of what serves was touched while the group was looked at."""
    now = {each.id: each for each in tx.records(facts.state.id)}
    return all(now.get(each.id) == each for each in facts.serving)


# -- healing


def _heal(
    facts: _ObservedGroup,
    seen: Observation,
    memory: ObservationMemory,
    asked_for: bool,
    tx: ProjectTransaction,
) -> tuple[Heal | None, str, ObservationMemory]:
    """Return the workflow that the group's policy asks for, else why there is none, and the memory:
    the pause after a repair begins with it. Each look asks for it as long as the flaw is there."""
    name, policy = quote(facts.state.name), facts.group.heal
    if not facts.at_rest:
        return None, "its last order is not carried out yet", memory
    if policy == "report" and not asked_for:
        return None, "the group file says heal: report", memory
    if suspensions.is_suspended(tx, facts.state.id):
        pause = "pause" in suspensions.of_group(tx, facts.state.id)
        ends = f"failover resume {name}" if pause else f"failover maintenance off {name}"
        kind = "pause" if pause else "maintenance"
        return None, f"a {kind} holds it back (it ends with {ends})", memory
    may = asked_for or tx.now() >= memory.repair_after
    again, why = None, f"nothing of this is repaired by itself (see failover doctor {name})"
    if not facts.reached:
        again = _continuation(facts, seen, tx) if may else None
        if again is None and may and not facts.lost & set(facts.roles.values()):
            again = _repair(facts, seen, tx)
        why = f"the last failover did not end well (see failover status {name})"
    elif seen.service in (Service.DEGRADED, Service.DOWN):
        again = _repair(facts, seen, tx) if may else None
    elif seen.service is Service.UNKNOWN:
        why = "what cannot be checked is not repaired"
    if again is not None:
        return again, "", replace(memory, repair_after=tx.now() + REPAIR_AGAIN)
    if seen.service is Service.SERVING and policy != "failover":
        soon = min(memory.repair_after, tx.now() + REPAIR_WELL)
        return None, why, replace(memory, repair_after=soon)
    if seen.service is not Service.DOWN:
        return None, why, memory
    if policy == "failover":
        repaired = {} if may else made_at(tx, [facts.state.id])
        since = memory.repair_after - REPAIR_AGAIN
        again_started = {each for each, at in repaired.items() if at >= since}
        return _loss(facts, seen, again_started), why, memory
    if facts.reached:
        why = f"the group file says heal: {policy}, which starts no failover"
    return None, why, memory


def _loss(facts: _ObservedGroup, seen: Observation, again_started: Collection[str]) -> Heal | None:
    """Return an alarm about an active member whose server is gone, or whose application ended and
    could not be started again there, or ended again after the last repair has: ``again_started``
    has the resources that it made. Admission judges it as any other."""
    state = facts.state
    for member in seen.members:
        if not member.roles:
            continue
        gone = member.observed.presence is Presence.GONE
        why = member.observed.why if gone else _could_not_start(facts, member.name)
        if not why:
            why = _ended_again(facts, seen, member.name, again_started)
        if not why:
            continue
        server = facts.members[member.name].server_id
        body = {
            "group": state.name,
            "member": member.name,
            # One occasion, however many looks and processes see it.
            "id": f"observed/{state.current_traversal}/{member.name}/{server}",
            "reason": f"observed: {why}",
        }
        return {"workflow": "failover.on_event", "input": {"body": body, "kind": "signal"}}
    return None


def _ended_again(
    facts: _ObservedGroup, seen: Observation, member: str, again_started: Collection[str]
) -> str:
    """Return, in words, that an application which was started again has ended; empty if not."""
    made = {
        record.name
        for record in facts.records
        if record.status == Status.COMPLETE and record.id in again_started
    }
    for each in seen.resources:
        ended = each.observed.presence is Presence.GONE and each.serves
        if each.type == ACTIVATION and each.member == member and ended and each.name in made:
            return f"{each.name}: it ended again soon after it was started: {each.observed.why}"
    return ""


def _could_not_start(facts: _ObservedGroup, member: str) -> str:
    """Return, in words, that an application which ran on the member's server could not be started
    again there; empty if not, or if that was not tried yet."""
    if facts.reached:
        return ""
    for record in facts.records:
        ran_on = record.attributes.get("server_id")
        if (
            (record.type, record.member) == (ACTIVATION, member)
            and (record.action, record.status) == (Action.CREATE, Status.FAILED)
            and ran_on == facts.members[member].server_id is not None
        ):
            return f"{record.name}: it has ended, and could not be started again"
    return ""


def _repair(facts: _ObservedGroup, seen: Observation, tx: ProjectTransaction) -> Heal | None:
    """Converge to the same goal, with what has drifted to be updated, and what is gone to be made
    again. Nothing moves: the holders of the roles are named. So no limit of moves counts."""
    drifted = {each.name: each for each in _repairable(facts, seen)}
    is_new = False
    for record in tx.records(facts.state.id):
        each = drifted.get(record.name)
        if (
            each is not None
            and (record.type, record.member) == (each.type, each.member)
            and record.status == Status.COMPLETE
            and record.action in (Action.CREATE, Action.UPDATE)
        ):
            gone = each.observed.presence is Presence.GONE
            action = Action.CREATE if gone else Action.UPDATE
            tx.amend(record, action=action, status=Status.FAILED, reason=each.observed.why)
            is_new = True
    if not drifted or not (is_new or facts.reached):
        return None  # a step that failed is tried again by sweeps
    said = "; ".join(f"{name}: {each.observed.why}" for name, each in sorted(drifted.items()))
    return _same_goal(facts, f"drift observed, to be repaired: {said}", stay=True)


def _repairable(facts: _ObservedGroup, seen: Observation) -> Iterator[ObservedResource]:
    """Yield what a look found not as recorded and may be repaired by itself: what has drifted, and
    of what serves also what is gone, if its member runs and all else that serves there is well."""
    if seen.another_stack or seen.stack_gone:
        return  # no order begins before the group has its stack
    types = {name for name, each in facts.group.types.items() if each.repairable}
    able = {each.name for each in seen.members if each.condition is Condition.RUNS}
    able -= {
        each.member
        for each in seen.resources
        if each.serves and each.type not in types and each.observed.presence is not Presence.PRESENT
    }
    for each in seen.resources:
        if each.type not in types:
            continue
        presence = each.observed.presence
        if presence is Presence.CHANGED or (
            presence is Presence.GONE and each.serves and each.member in able
        ):
            yield each


def _continuation(facts: _ObservedGroup, seen: Observation, tx: ProjectTransaction) -> Heal | None:
    """Continue a failover that failed because its target was down, once the target is well.

    If no order named the target, another one may be chosen when it goes down again. Not if only the
    requests showed that it was down, because then an observation cannot see that it is well.
    """
    traversal = tx.traversal(facts.state.current_traversal or "")
    step = views.failed_step(tx, traversal.id) if traversal else None
    target = step["error"].get("target") if step else None
    if traversal is None or step is None or target is None or target["evidence"] == UNANSWERED:
        return None
    waited = next((each for each in facts.records if each.id == step["resource_id"]), None)
    well = {each.name for each in seen.members if each.why_not is None}
    if waited is None or waited.member not in well:
        return None
    if views.traversals_since(tx, facts.state.id, tx.now() - HOUR) >= facts.group.limits.per_hour:
        return None
    return _same_goal(
        facts,
        f"observed: {waited.member} can take {waited.name} now",
        stay=incidents.is_pinned(tx, traversal.incident_id),
    )


def _same_goal(facts: _ObservedGroup, because: str, *, stay: bool) -> Heal:
    """Return the workflow that converges to the same goal again, unless another order comes first.
    ``stay``: each role stays where it is."""
    order: SameGoalInput = {
        "group": facts.state.name,
        "lost": [],
        "because": because,
        "after": facts.state.current_traversal,
    }
    if stay:
        order["to"] = dict(facts.roles)
    return {"workflow": "failover.failover", "input": order}
