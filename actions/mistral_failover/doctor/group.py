# SPDX-License-Identifier: Apache-2.0
"""Checks of one group: its status, its stack, its members, its fence, its alarms."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from shlex import quote

from mistral_failover.alarms.admission import HOUR
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.named import ProjectThings
from mistral_failover.cloud.servers import may_be_elsewhere, server_state, system_disk
from mistral_failover.cloud.stacks import stack_map, stack_shown
from mistral_failover.convergence.records import TraversalStatus
from mistral_failover.doctor.checks import ExaminedGroup, Finding, error, ok, warn
from mistral_failover.groups import agent_epochs, candidates, refresh_members
from mistral_failover.groups.snapshot import with_definition
from mistral_failover.model import assignment
from mistral_failover.model.assignment import MemberFact
from mistral_failover.model.observation import Service
from mistral_failover.model.remedies import another_server, command, instead, need
from mistral_failover.model.rungs import rung_kind
from mistral_failover.model.text import format_time
from mistral_failover.orders import suspensions
from mistral_failover.orders.suspensions import CurrentSuspensions
from mistral_failover.recovery import observe
from mistral_failover.reports import advice
from mistral_failover.reports.status import in_force
from mistral_failover.reports.status import status as group_status
from mistral_failover.resources.fence.rung import Examined, FenceRung
from mistral_failover.resources.offered import needs_of, unmet
from mistral_failover.resources.resolution import LIMIT, resolve
from mistral_failover.resources.restart.disks import disks_of
from mistral_failover.resources.restart.evacuate import NAME as EVACUATE
from mistral_failover.resources.restart.evacuate import PROOFS
from mistral_failover.resources.volume_attachment import kept_on_a_dead_host
from mistral_failover.runtime.errors import confirm_command
from mistral_failover.store import details, groups, incidents, views
from mistral_failover.store.transaction import ProjectTransaction


def goal(subject: ExaminedGroup) -> Iterable[Finding]:
    """Check that the group reached its goal, and that it has no lost member and no lock of a dead
    owner."""
    snapshot = subject.snapshot
    current = snapshot.state.current_traversal
    if current is None:
        if snapshot.state.restored:
            sentence = agent_epochs.older(snapshot.group.name)
            yield warn(sentence, subject.advised(need("BEGIN_AGAIN")))
            return
        yield warn("it has never had a goal", subject.advised(need("ACTIVATE")))
        return
    found = subject.examination.reading(lambda tx: views.traversal(tx, current))
    word = found["status"] if found else "UNKNOWN"
    reason = f": {found['reason']}" if found and found["reason"] else ""
    if not snapshot.in_service:
        yield warn("it is out of service", subject.advised(need("ACTIVATE")))
    elif word == TraversalStatus.COMPLETE:
        held = ", ".join(f"{role} on {member}" for role, member in sorted(snapshot.roles.items()))
        yield ok(f"it reached its goal: {held}")
    elif word == TraversalStatus.IN_PROGRESS:
        yield warn(f"a traversal is in progress{reason}", _as_status(subject))
    else:
        yield error(f"its last traversal is {word}{reason}", _as_status(subject))
    if snapshot.lost and not snapshot.reached:
        # No member is recovered before the goal that gave its roles away is reached.
        lost = ", ".join(sorted(snapshot.lost))
        yield warn(f"declared lost and not recovered yet: {lost}", _as_status(subject))
    for lock in subject.examination.reading(lambda tx: details.locks(tx, snapshot.state.id)):
        if (lock["lease_left"] or 0.0) <= 0:
            yield warn(
                f"the lock on {lock['resource']} belongs to a dead owner ({lock['owner']})",
                subject.advised(need("CONTINUE")),
            )


def _as_status(subject: ExaminedGroup) -> str:
    """Return what the group's status advises."""
    found = group_status(subject.examination.request, subject.name)
    return subject.advised(*advice.needs(found))


def definition(subject: ExaminedGroup) -> Iterable[Finding]:
    """Check whether what is defined is in force, and what is wrong with it if it is not."""
    state, examination = subject.snapshot.state, subject.examination
    found = examination.reading(lambda tx: in_force(tx, state))
    if not found["differs"]:
        return
    yield warn(
        f"what is defined is not in force ({'; '.join(found['lines'])}): failovers move what was "
        "reached last",
        subject.advised(need("APPLY"), need("REDEFINE")),
    )
    defined = with_definition(examination.request, subject.snapshot, state.defined).group
    anew, left = state.in_force is None, min(LIMIT, examination.left)
    resolved = resolve(examination.request, defined, state.id, anew=anew, limit=left)
    for each in resolved.wrong:
        yield warn(f"as defined: {each.path}: {each.message} [{each.code}]", each.remedy)


def service(subject: ExaminedGroup) -> Iterable[Finding]:
    """Check that the group serves and can fail over, as far as the cloud shows."""
    seen = observe.observe_once(subject.examination.request, subject.snapshot.state.id)
    if seen is None or seen.service is Service.OUT_OF_SERVICE:
        return
    sweep = command("CONTINUE", subject.name)
    # What a traversal has not made is known to its status, with what that waits for.
    under_way = "" if subject.snapshot.reached else _as_status(subject)
    if seen.service is Service.SERVING:
        yield ok("it serves and can fail over")
    elif seen.service is Service.DOWN:
        plan = f"failover plan {quote(subject.name)}"
        for flaw in seen.flaws:
            helps = subject.advised(*flaw.needs) or under_way or plan
            yield error(f"it is DOWN: {flaw.words}", helps)
    elif seen.service is Service.DEGRADED:
        for flaw in seen.flaws:
            yield warn(
                f"it is DEGRADED: {flaw.words}",
                subject.advised(*flaw.needs)
                or under_way
                or f"{sweep} looks again, and repairs what heal in the group file allows",
            )
    else:
        for reason in seen.reasons:
            yield warn(
                f"cannot tell whether it serves: {reason}",
                f"Repair the service or the host that it names; {sweep} looks again",
            )


def stack(subject: ExaminedGroup) -> Iterable[Finding]:
    """Check that the stack exists, and that no update is running. Without a stack: that the names
    of the group file still lead to what the group has."""
    if subject.out_of_service:
        return
    name = subject.snapshot.group.stack
    if name is None:
        yield from _named(subject)
        return
    if (ended := subject.ended_stack) is not None:
        yield error(ended.sentence, ended.remedy)
        return
    found = stack_shown(subject.examination.cloud, name)
    status = str(found.stack_status)
    if status.endswith("_COMPLETE") and not status.startswith(("DELETE", "SUSPEND")):
        yield ok(f"stack {name} is {status}")
    elif status.endswith("_IN_PROGRESS"):
        yield warn(
            f"stack {name} is {status}: a PATCH waits for its end, or supersedes it",
            f"openstack stack event list {name} --follow",
        )
    else:
        yield error(
            f"stack {name} is {status}: {found.stack_status_reason}",
            f"See openstack stack failures list {name}. "
            f"{subject.advised(need('UPDATE_STACK', stack=name))}",
        )
    own = stack_map(subject.examination.cloud, name)
    wrong = sorted(n for n, r in own.items() if r.status.endswith("_FAILED"))
    if wrong:
        yield warn(
            f"resources of stack {name} are FAILED: {', '.join(wrong)}",
            f"openstack stack resource list {name} --filter status=FAILED",
        )


def _named(subject: ExaminedGroup) -> Iterable[Finding]:
    """Compare what the group file names with what was found behind it when it was accepted."""
    group, changed = subject.snapshot.group, False
    things = ProjectThings(subject.examination.cloud)
    for each in group.named:
        known = group.identities[each.path]["id"]
        try:
            now = things.identity(each)["id"]
        except CloudError as problem:
            if problem.code not in ("NOT_FOUND", "BAD_REQUEST"):
                raise
            changed = True
            yield warn(f"{each.path}: {problem.message} The group keeps {known}", problem.remedy)
            continue
        if now != known:
            changed = True
            yield warn(
                f"{each.path}: the {each} is {now} now. The group keeps {known}",
                f"To take it: failover group update FILE --name {quote(subject.name)}. Otherwise "
                "write the id in the group file.",
            )
    if not changed:
        yield ok("all names of its file lead to what it has")


def members(subject: ExaminedGroup) -> Iterable[Finding]:
    """Check that the members exist, and that another member can take over."""
    snapshot, examination = subject.snapshot, subject.examination
    if subject.out_of_service:
        return
    seen = refresh_members.members_now(examination.cloud, snapshot)
    if not seen:
        named = snapshot.group.members.autoscaling_group or "members"
        yield error(
            f"{snapshot.group.place} has no server of {named} now",
            f"See what it has: openstack stack resource list -n 5 "
            f"{quote(str(snapshot.group.stack))}; "
            "then correct members in the group file, or the stack.",
        )
        return
    facts = candidates.member_facts(
        examination.request,
        examination.cloud,
        snapshot.group,
        snapshot.state.id,
        seen,
        snapshot.lost,
        thorough=True,
    )
    why_not = assignment.reasons(snapshot.group, facts, snapshot.lost)
    doubts = assignment.doubts(facts, snapshot.lost)
    holders = set(snapshot.roles.values())
    able = [
        n for n in assignment.eligible(snapshot.group, facts, snapshot.lost) if n not in holders
    ]
    for name in sorted(holders - {m.name for m in seen}):
        yield error(
            f"{name} holds a role but is not a member any more",
            f"failover plan {subject.name}",
        )
    for fact in facts:
        why = why_not.get(fact.name)
        if fact.name in holders:
            if not fact.healthy:
                yield error(f"{fact.name} holds a role, but {fact.why_not}", _moved(subject, fact))
            elif fact.hindered:
                yield warn(
                    f"{fact.name} holds a role, and could not give its volumes away: "
                    f"{fact.hindered}",
                    subject.advised(*fact.needs)
                    or f"End that, then: {command('DIAGNOSE', subject.name)}",
                )
        elif fact.name in snapshot.lost:
            yield _of_lost(subject, fact)
        elif why:
            yield warn(f"{fact.name} cannot take a role: {why}", _remedy(subject, fact))
        elif doubt := doubts.get(fact.name):
            yield warn(f"{fact.name} would be chosen last: {doubt}", _remedy(subject, fact))
    if able:
        yield ok(f"{len(seen)} members; {', '.join(able)} can take over")
    elif holders and len(seen) == 1:
        yield _alone(subject, seen[0].name)
    elif holders:
        ways = [each for fact in facts if fact.name not in holders for each in fact.needs]
        known = subject.advised(*ways) if ways else f"failover member list {quote(subject.name)}"
        yield error("no member can take over", known)
    yield from _shared(subject, {m.server_id: m.name for m in seen})
    yield from _host(subject, [(m.name, m.server_id) for m in seen])
    yield from _evacuated(subject, [(m.name, m.server_id) for m in seen])
    hosts = {f.host for f in facts if f.host}
    if len(facts) > 1 and len(hosts) == 1 and all(f.host for f in facts):
        yield warn(
            "all members are on one host: they protect from the death of a server, not of the host",
            "Give the servers an anti-affinity server group.",
        )


def _alone(subject: ExaminedGroup, name: str) -> Finding:
    """Return what the only member means: it has no standby, and may need none."""
    sentence = f"{name} is the only member"
    if subject.snapshot.group.members.cold:
        return ok(f"{sentence}: if it is lost, it is brought back")
    return error(
        f"{sentence}, so no member can take over",
        "Add a server to members in the group file, or set members.when_no_standby: replace there "
        "(without a stack with members.restart: [start]). Then: failover group update FILE --name "
        f"{quote(subject.name)}",
    )


def _moved(subject: ExaminedGroup, holder: MemberFact) -> str:
    """Return what helps where the holder of a role is not well."""
    if holder.unseen or holder.marked:
        return f"failover plan {quote(subject.name)}"
    lost = [holder.name]
    moved = need("MOVE", lost=lost), need("PLAN_MOVE", lost=lost)
    return subject.advised(*holder.needs, *(instead(moved) if holder.needs else moved))


def _remedy(subject: ExaminedGroup, member: MemberFact) -> str:
    if member.apart and not member.silent and not member.lacks:
        return assignment.ZONES
    if member.healthy and member.maintenance:
        return subject.advised(need("END_MAINTENANCE"))
    if member.needs and not member.silent and not member.lacks:
        return subject.advised(*member.needs)
    return f"Repair the cause, or: {_another_server(subject, member.name)}"


def _of_lost(subject: ExaminedGroup, member: MemberFact) -> Finding:
    """Return what helps a lost member: a confirmation that it is healthy again, if it can be, and
    another server otherwise."""
    sentence = f"{member.name} cannot take a role: it is declared lost"
    replaced = _another_server(subject, member.name)
    if not subject.snapshot.reached:  # a confirmation would take the failover back
        return warn(sentence, _as_status(subject))
    try:
        state = server_state(subject.examination.cloud, member.server_id or "")
    except CloudError:
        state = None
    if state is not None and not state.exists:
        return warn(f"{sentence}, and {state.unfit}", replaced)
    unfit = state.unfit if state is not None else None
    ways = (
        *(state.needs if state is not None and unfit else ()),
        need("RECOVER", member=member.name),
    )
    return warn(
        f"{sentence}, and {unfit}" if unfit else sentence,
        f"{subject.advised(*ways)}. If it cannot be repaired: {replaced}",
    )


def _another_server(subject: ExaminedGroup, member: str) -> str:
    return another_server(subject.snapshot.group.stack, member).command(subject.name)


def _shared(subject: ExaminedGroup, servers: Mapping[str, str]) -> Iterable[Finding]:
    """Check that no other group has members with these servers."""
    others: dict[str, list[str]] = {}
    for row in subject.examination.reading(groups.members_in):
        if row.group_id != subject.snapshot.state.id and row.server_id in servers:
            others.setdefault(row.group, []).append(servers[row.server_id])
    for other, shared in others.items():
        yield error(
            f"{', '.join(shared)} belong to the group {other}, too: if one group fences a member, "
            "the other one loses it",
            "Keep one group for these servers, with a role for each thing that moves alone. Before "
            "you delete the other one: that stops and detaches what it has on them, even if this "
            "group uses the same.",
        )


def _host(subject: ExaminedGroup, servers: list[tuple[str, str]]) -> Iterable[Finding]:
    """Check whether Nova shows this user the state of the servers' hosts."""
    name, server_id = servers[0]
    try:
        state = server_state(subject.examination.cloud, server_id)
    except CloudError:
        return  # of each member it was told
    if not state.exists or state.host_status is not None:
        return
    hidden = f"Nova does not show this user the state of {name}'s host"
    ladder = (rung_kind(rung["kind"]) for rung in subject.snapshot.group.fence)
    for_dead = dict.fromkeys(kind.kind for kind in ladder if kind.for_dead_host)
    if for_dead:
        yield ok(f"{hidden}; for a dead host the fence needs {' or '.join(for_dead)}")
    else:
        yield warn(
            f"{hidden}: a dead host is noticed only when a call to it fails, and there the rungs "
            "stop and delete prove nothing",
            "Ask the cloud's administrator for the policy "
            "os_compute_api:servers:show:host_status, or add host_power, storage or a workflow "
            "that switches hosts off to the ladder, or end it with confirm.",
        )


def restart(subject: ExaminedGroup) -> Iterable[Finding]:
    """Check whether the group's user may have the way ``evacuate``, as far as Nova shows that, and
    whether the ladder fits it."""
    snapshot = subject.snapshot
    if EVACUATE not in snapshot.group.members.restart or subject.out_of_service:
        return
    kinds = [str(rung["kind"]) for rung in snapshot.group.fence]
    before = list(itertools.takewhile(lambda kind: kind not in PROOFS, kinds))
    if "delete" in before or len(before) == len(kinds):
        yield warn(
            f"members.restart: {EVACUATE} will not be tried: the ladder ({', '.join(kinds)}) "
            "proves no host off while the server exists",
            "Put host_power, storage or confirm into it, before delete.",
        )
    elif "stop" in before:
        yield warn(
            f"members.restart: {EVACUATE} will not be tried: the ladder asks Nova to stop a server "
            "before its host is proven off, and a host that comes back would carry that out",
            "Leave stop out of the ladder, or put it behind.",
        )
    of_disks = [kind for kind in kinds if rung_kind(kind).of_disks]
    for each in refresh_members.members_now(subject.examination.cloud, snapshot):
        state = server_state(subject.examination.cloud, each.server_id)
        made = system_disk(each.server_id)
        if (
            state.exists
            and of_disks
            and made in disks_of(subject.examination.cloud, each.server_id)
        ):
            yield warn(
                f"members.restart: {EVACUATE} will be tried after {' or '.join(of_disks)} only if "
                f"the operator's Ceph has the disk {made}: {each.name} boots from no volume",
                "Boot it from a volume, or put host_power first. Or ask the operator: Nova with "
                "images_type = rbd, and its pool in ceph.pools of the fence devices.",
            )
        if state.exists and state.host_status is None:
            yield warn(
                f"members.restart: {EVACUATE} will not be tried: Nova does not show this user the "
                f"state of {each.name}'s host",
                "Ask the cloud's administrator for the policies os_compute_api:os-evacuate and "
                "os_compute_api:servers:show:host_status, or leave it out.",
            )
            return


def _evacuated(subject: ExaminedGroup, servers: list[tuple[str, str]]) -> Iterable[Finding]:
    """Check that ``stop`` and ``delete`` can prove something about each server."""
    ladder = {str(rung["kind"]) for rung in subject.snapshot.group.fence}
    rungs = " and ".join(kind for kind in ("stop", "delete") if kind in ladder)
    for name, server_id in servers if rungs else ():
        try:
            elsewhere = may_be_elsewhere(subject.examination.cloud, server_id)
        except CloudError:
            continue  # of each member it was told
        if elsewhere is not None:
            replaced = _another_server(subject, name)
            yield warn(
                f"{rungs} will prove nothing about {name}, server {server_id}: {elsewhere}",
                "A new server has no such past, once that guest is off: "
                f"{replaced}. Or confirm its fence when it fails.",
            )


def chain(subject: ExaminedGroup) -> Iterable[Finding]:
    """Check that Mistral has the group's own workflows: its chain, and the one for its events."""
    group, remedy = subject.snapshot.group, "failover workflows install FILE"
    hook = group.on_event.workflow if group.on_event else None
    lacking = _lacking(subject, [group.workflow, hook])
    if lacking is None:
        return
    if group.workflow in lacking:
        yield error(
            f"Mistral does not show its chain {group.workflow} to this project: no failover of "
            "the group can start",
            remedy,
        )
    elif group.workflow:
        yield ok(f"its chain is {group.workflow}")
    if hook in lacking:
        yield error(
            f"Mistral does not show {hook}, the workflow for its events, to this project",
            remedy,
        )


def fence(subject: ExaminedGroup) -> Iterable[Finding]:
    """Check that the ladder can yield a proof, whatever is wrong with a member."""
    group = subject.snapshot.group

    def lacks_workflow(name: str) -> bool:
        return name in (_lacking(subject, [name]) or ())

    project = subject.examination.request.project_id
    examined = Examined(group, subject.examination.settings, lacks_workflow, project)
    kinds = [rung_kind(rung["kind"]) for rung in group.fence]
    said = ", ".join(kind.name(rung) for kind, rung in zip(kinds, group.fence, strict=True))
    for kind, rung in zip(kinds, group.fence, strict=True):
        if isinstance(kind, FenceRung):
            for sentence, remedy in kind.missing(rung, examined):
                yield error(sentence, remedy)
    then = f"; {waits}" if (waits := kept_on_a_dead_host(group)) else ""
    for_dead_host = [kind for kind in kinds if kind.for_dead_host]
    if not for_dead_host:
        yield warn(
            f"the ladder ({said}) has no rung for a dead host: the failover will be BLOCKED there",
            "End the ladder with confirm, or with a workflow that switches the host off; an "
            "operator can confirm the fence in any case: "
            f"{confirm_command(subject.name, 'MEMBER')}",
        )
    elif all(kind.asks_operator for kind in for_dead_host):
        yield ok(f"ladder: {said}; for a dead host an operator must confirm{then}")
    else:
        yield ok(f"ladder: {said}{then}")


def offered(subject: ExaminedGroup) -> Iterable[Finding]:
    """Check that Nova and Cinder offer what the group's rungs and volumes need."""
    for each in unmet(subject.examination.cloud, needs_of(subject.snapshot.group)):
        yield error(f"{each.path}: {each.sentence}", each.remedy)


def _lacking(subject: ExaminedGroup, names: Iterable[str | None]) -> set[str] | None:
    """Return those of these workflows that Mistral does not show; None if it cannot be asked."""
    wanted = {name for name in names if name}
    mistral = subject.examination.mistral if wanted else None
    if not wanted:
        return set()
    if mistral is None or subject.examination.without_mistral:
        return None
    return mistral.lacking(wanted)


def alarms(subject: ExaminedGroup) -> Iterable[Finding]:
    """Check that the group's alarms will start a failover."""
    snapshot = subject.snapshot
    identity = snapshot.state.id

    def read(tx: ProjectTransaction) -> tuple[CurrentSuspensions, int, list[float], float]:
        now = tx.now()
        total, _ = incidents.held_alarms(tx, identity, 1)
        since = incidents.admitted_alarms_since(tx, identity, now - HOUR)
        return suspensions.current_suspensions(tx, identity), total, list(since), now

    suspended, total, admitted, now = subject.examination.reading(read)
    if pause := suspended["pause"]:
        yield warn(
            f"paused by {pause['by']}: {pause['because']}; all alarms are held",
            subject.advised(need("RESUME")),
        )
    if work := suspended["maintenance"]:
        until = format_time(work["until"])
        yield warn(
            f"in maintenance until {until}: {work['because']}",
            subject.advised(need("END_MAINTENANCE")),
        )
    if total:
        yield warn(
            f"{total} alarms are held and wait for an operator",
            subject.advised(need("DECIDE_ALARMS")),
        )
    limits = snapshot.group.limits
    if len(admitted) >= limits.per_hour:
        yield warn(
            f"{len(admitted)} alarms were admitted within the last hour, which is the limit "
            f"({limits.per_hour}): the next one is held",
            "Find out why it fails so often; an operator can admit a held alarm: failover admit",
        )
    elif admitted and now - admitted[-1] < limits.cooldown:
        left = limits.cooldown - (now - admitted[-1])
        yield warn(f"its cooldown lasts {left:.0f} s more: a new alarm is held", "Wait.")
    if not (suspended["pause"] or suspended["maintenance"] or total):
        yield ok(
            f"{len(admitted)} of {limits.per_hour} alarms were admitted within the last hour; the "
            f"cooldown is {limits.cooldown:.0f} s"
        )
