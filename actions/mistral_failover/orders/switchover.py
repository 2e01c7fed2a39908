# SPDX-License-Identifier: Apache-2.0
"""A planned move: a role moves from a healthy member to another one, or back.

No member is declared lost. The goal is that of any failover, and it promises to return: if a step
fails or would wait for an operator, the engine takes the group back to the goal that it reached
last, in the same transaction (``convergence.traversals``). So a crash in between leaves nothing
that the sweep could not continue.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from shlex import quote
from typing import TypedDict

from mistral_failover.cloud.servers import server_state
from mistral_failover.cloud.stacks import stack_shown
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.cloud.volumes import refuse_busy
from mistral_failover.convergence.records import Traversal, TraversalStatus
from mistral_failover.convergence.sentences import where
from mistral_failover.groups import agent_health, kept_parts
from mistral_failover.groups.candidates import plugged_into
from mistral_failover.groups.failed_step import FailedStep, failed_step
from mistral_failover.groups.snapshot import GroupSnapshot
from mistral_failover.model.assignment import MemberFact, as_planned, assign_roles
from mistral_failover.model.errors import NoEligibleMember
from mistral_failover.model.goal import ATTACHMENT, Goal, goal_resources, render_goal
from mistral_failover.model.order import Order
from mistral_failover.model.validation import did_you_mean
from mistral_failover.orders import failover
from mistral_failover.orders.failover import Derive
from mistral_failover.orders.operator_order import AlreadyThere
from mistral_failover.runtime import rights
from mistral_failover.runtime.errors import ActionError, start_command
from mistral_failover.runtime.request import Request
from mistral_failover.store import incidents, views
from mistral_failover.store.transaction import ProjectTransaction
from mistral_failover.store.views import TraversalRow, TraversalStep

_BACK = "or go back: failover rollback {group}"
_REMEDIES = {
    "IN_PROGRESS": (
        "Wait for it: failover watch {group}. If nothing happens: failover sweep {group}"
    ),
    "BLOCKED": "Repair what it waits for first: failover status {group}",
    "FAILED": f"Repair it, then: failover start {{group}} ({_BACK})",
}
STACK_PARAMETERS = "stack_parameters"
STACK_TEMPLATE = "stack_template"
ENDINGS = ("RETURNED", "FAILED", "BLOCKED", "OVERTAKEN")
"""How a planned move ended that did not succeed: codes of the execution's error."""

_NOT_UP = "To activate it: failover group activate {group}"


def goal_function(request: Request, order: Order, *, remember: bool) -> Derive:
    """Return the function that derives the goal of a planned move: ``order.role`` moves to the
    member ``order.to``, or to the group's choice. ``holder`` is the member that gives it up: if
    another one holds the role by then, it keeps it. ``remember``: record members that were
    replaced.

    Raises NoEligibleMember, CloudError, InvalidDocument; AlreadyThere; ActionError BAD_INPUT for an
    unknown role, NOT_COMPLETE, CANNOT_QUIESCE.
    """
    to, role, giver = order.member_to, order.role, order.own("holder")

    def derive(snapshot: GroupSnapshot) -> Goal:
        moved = _role(snapshot, role)
        refuse_unreached(request, snapshot)
        holder = snapshot.roles.get(moved)
        if holder is None:
            raise ActionError(
                "NOT_COMPLETE",
                f"no member holds {moved} yet",
                f"Assign it to a member: {start_command(snapshot.group.name)} --lost ''",
            )
        if to == holder or giver not in (None, holder):
            raise AlreadyThere(snapshot, f"{holder} already holds {moved}")
        members = failover.read_members(request, snapshot, remember=remember)
        refuse_unwell(snapshot, members, holder)
        roles, lost = _assigned(snapshot, members, moved, to)
        return planned_goal(request, snapshot, members, roles, lost)

    return derive


def planned_goal(
    request: Request,
    snapshot: GroupSnapshot,
    members: list[MemberFact],
    roles: Mapping[str, str],
    lost: Collection[str],
) -> Goal:
    """Return the goal of a planned move to ``roles``, with the promise to return. Refuse it unless
    every member that gives up or takes a role is healthy and its agent reports, and the volumes
    can move now, and so can the stack and the servers that the move changes.

    Raises NoEligibleMember, CloudError, ActionError CANNOT_QUIESCE, STACK_FAILED, SERVER_BUSY.
    """
    moved = [role for role in roles if roles[role] != snapshot.roles.get(role)]
    _refuse_said_lost(request, snapshot, {roles[role] for role in moved})
    holders = sorted({snapshot.roles[role] for role in moved if role in snapshot.roles})
    servers = {fact.name: fact.server_id for fact in members}
    for holder in holders:
        refuse_unwell(snapshot, members, holder)
    commands = agent_health.commands_of(snapshot.group, moved)
    for holder in holders:
        if why := agent_health.why_unreachable(
            request, snapshot, holder, servers.get(holder), commands
        ):
            raise _cannot_quiesce(snapshot, holder, why)
    for target in sorted({roles[role] for role in moved} - set(holders)):
        _refuse_unheard(request, snapshot, target, servers.get(target), commands)
    goal = render_goal(snapshot.group, roles, lost, returns=True)
    types = {resource.type for resource in goal_resources(goal)}
    if STACK_PARAMETERS in types:
        kept_parts.refuse_marked(request, snapshot, snapshot.lost)
    _refuse_busy_servers(request, snapshot, {*holders, *(roles[role] for role in moved)}, servers)
    failover.refuse_unmovable_new_volumes(request, snapshot, goal)
    _refuse_busy_volumes(request, snapshot, goal, {roles[role] for role in moved})
    # After what may be the cause of it.
    if types & {STACK_PARAMETERS, STACK_TEMPLATE}:
        _refuse_failed_stack(request, snapshot)
    return goal


def _refuse_failed_stack(request: Request, snapshot: GroupSnapshot) -> None:
    """Refuse a move that would update a stack whose last update failed: its update carries out the
    failed one, too, and the way back would need another. Raises CloudError, ActionError
    STACK_FAILED."""
    name = snapshot.group.stack
    if name is None:
        return
    stack = stack_shown(request.cloud(Unguarded()), name)
    status = str(stack.stack_status)
    if not status.endswith("_FAILED"):
        return
    raise ActionError(
        "STACK_FAILED",
        f"the move would update stack {name}, which is {status}: {stack.stack_status_reason}",
        f"See openstack stack failures list {quote(name)}, and correct the cause. Then: openstack "
        f"stack update --existing {quote(name)}",
    )


def _refuse_busy_servers(
    request: Request,
    snapshot: GroupSnapshot,
    members: Collection[str],
    servers: Mapping[str, str | None],
) -> None:
    """Refuse members whose servers Nova gives nothing and takes nothing from until a person ends
    that: the move would stop the application and return. Raises CloudError, ActionError
    SERVER_BUSY."""
    plugged = plugged_into(snapshot.group)
    if not plugged:
        return
    cloud = request.cloud(Unguarded())
    for member in sorted(members):
        server = servers.get(member)
        state = server_state(cloud, server) if server else None
        if state is None:
            continue
        by = state.keeping if plugged == {ATTACHMENT} else state.keeping_ports
        if by is not None and by.needs(state.server_id):
            raise ActionError(
                "SERVER_BUSY",
                f"Nova gives {member} nothing, and takes nothing from it, while its server is "
                f"{state}",
                by.sentence(state.server_id),
            )


def _refuse_busy_volumes(
    request: Request, snapshot: GroupSnapshot, goal: Goal, targets: Collection[str]
) -> None:
    """Refuse a move of volumes that cannot move now: it would stop the application and return."""
    names = {
        str(resource.properties["volume"])
        for resource in goal_resources(goal)
        if resource.type == ATTACHMENT and resource.properties["server"] in targets
    }
    if names:
        refuse_busy(request.cloud(Unguarded()), snapshot.group.stack, names)


def known_role(snapshot: GroupSnapshot, role: str) -> str:
    """Return a role of the group. Raises ActionError BAD_INPUT if the group does not have it."""
    if role not in snapshot.group.roles:
        meant = did_you_mean(role, snapshot.group.roles)
        raise ActionError("BAD_INPUT", f"role: {role} is not one of its roles", meant)
    return role


def _role(snapshot: GroupSnapshot, role: str | None) -> str:
    roles = snapshot.group.roles
    if role is not None:
        return known_role(snapshot, role)
    if len(roles) == 1:
        return roles[0]
    known = f"Roles: {', '.join(roles)}."
    raise ActionError("BAD_INPUT", "role: the group has several roles; name the one to move", known)


def refuse_unreached(request: Request, snapshot: GroupSnapshot) -> None:
    """Refuse unless the goal was reached and roles are held: otherwise there is nothing to move
    from and return to. Raises ActionError NOT_COMPLETE."""
    if snapshot.reached and snapshot.roles:
        return
    current, name = snapshot.state.current_traversal, snapshot.group.name

    def read(tx: ProjectTransaction) -> tuple[Traversal | None, FailedStep | None]:
        if current is None:
            return None, None
        return tx.traversal(current), failed_step(tx, snapshot.group, current)

    traversal, step = request.store.reading(read)
    if not traversal or snapshot.reached:
        raise ActionError(
            "NOT_COMPLETE", f"{name} is not in service", _NOT_UP.format(group=quote(name))
        )
    why = traversal.reason or traversal.cause
    remedy = _REMEDIES.get(traversal.status, _REMEDIES["IN_PROGRESS"]).format(group=quote(name))
    ended = traversal.status in (TraversalStatus.FAILED, TraversalStatus.BLOCKED)
    if ended and step is not None:  # the reason of the traversal has its remedy, too
        why = f"{step['what']}: {step['message']}"
        if step["remedy"]:
            back = f" ({_BACK})".format(group=quote(name))
            remedy = step["remedy"] + (back if traversal.status == TraversalStatus.FAILED else "")
    raise ActionError(
        "NOT_COMPLETE",
        f"{name} is {traversal.status}, so a planned move could not be taken back: {why}",
        remedy,
    )


def refuse_unwell(snapshot: GroupSnapshot, members: list[MemberFact], holder: str) -> None:
    """Refuse a holder that certainly cannot answer, while the application may still run. A planned
    move begins with a confirmation of the holder's own agent, and tries no further rung of the
    ladder. Raises ActionError CANNOT_QUIESCE."""
    found = next((fact for fact in members if fact.name == holder), None)
    if found is not None and found.healthy:
        return
    why = "it is no longer a member of the stack" if found is None else found.why_not
    raise _cannot_quiesce(snapshot, holder, why or "Nova does not report it as healthy")


def _refuse_said_lost(request: Request, snapshot: GroupSnapshot, targets: Collection[str]) -> None:
    """Refuse targets that an admitted alarm declares lost. Its failover may not have begun, so the
    member is not lost in a goal yet."""
    waiting = request.store.reading(lambda tx: incidents.unstarted_of_group(tx, snapshot.state.id))
    said = {
        member: f"incident {incident.id} reports it as lost, but its failover has not started"
        for incident in waiting
        for member in incident.lost
        if member in targets
    }
    if said:
        raise NoEligibleMember(
            f"{' and '.join(sorted(said))} may be lost",
            "Wait for that failover (if nothing happens, run failover sweep), or name another "
            "member.",
            said,
        )


def _refuse_unheard(
    request: Request,
    snapshot: GroupSnapshot,
    target: str,
    server: str | None,
    commands: Collection[str],
) -> None:
    """Refuse a target whose agent is silent or lacks one of the commands. Nova's ACTIVE says
    nothing about agents, and the way back would also wait for this agent."""
    if why := agent_health.why_unreachable(request, snapshot, target, server, commands):
        raise NoEligibleMember(
            f"{target} cannot take over: its agent is silent or lacks a command",
            f"On {target}: systemctl status failover-agent; a missing command belongs in "
            "/etc/failover-agent.yaml. Or name another member with --to.",
            {target: why},
        )


def _cannot_quiesce(snapshot: GroupSnapshot, holder: str, why: str) -> ActionError:
    return ActionError(
        "CANNOT_QUIESCE",
        f"{holder} cannot be told to stop: {why}",
        f"Repair that. Or, only if {holder} is lost, have it fenced: "
        + start_command(snapshot.group.name, lost=holder),
    )


def _assigned(
    snapshot: GroupSnapshot, members: list[MemberFact], role: str, to: str | None
) -> tuple[Mapping[str, str], frozenset[str]]:
    """Return the holders of the roles after the move, and the members that stay lost."""
    lost = snapshot.lost & ({fact.name for fact in members} | snapshot.occupied)
    if to is not None:
        return assign_roles(snapshot.group, members, snapshot.roles, lost, {role: to}), lost
    holder = snapshot.roles[role]
    why = f"it is giving up {role}"
    others = [fact.ruled_out(why) if fact.name == holder else fact for fact in as_planned(members)]
    staying = {name: member for name, member in snapshot.roles.items() if name != role}
    return assign_roles(snapshot.group, others, staying, lost), lost


# -- the outcome


class Ending(TypedDict):
    """How a traversal, or a planned move, ended. ``status`` of a move: COMPLETE (it moved),
    RETURNED, FAILED and BLOCKED (the way back failed, or waits for an operator), OVERTAKEN (the
    group was given another goal), IN_PROGRESS. ``roles`` and ``lost``: of the final goal."""

    status: str
    reason: str
    roles: dict[str, str]
    lost: list[str]
    ended_at: float | None


def ending(tx: ProjectTransaction, first: TraversalRow) -> Ending:
    """Return how a planned move ended. Its ``first`` traversal may have been followed by others: to
    the same goal, and on the way back."""
    sequence = views.with_successors(tx, first)
    last = sequence[-1]
    goal = tx.goal(first["group_id"], last["goal_version"])
    assert goal is not None  # kept as long as a traversal refers to it
    there = [each for each in sequence if each["goal_version"] == first["goal_version"]]
    came_back = len(there) < len(sequence)
    status, reason = last["status"], last["reason"]
    if status == TraversalStatus.IN_PROGRESS:
        reason = rights.waiting(tx.records(first["group_id"]))
    elif status == TraversalStatus.SUPERSEDED:
        status = "OVERTAKEN"
        reason = f"the group received another goal: {_cause_of(tx, last) or reason}"
    elif status == TraversalStatus.COMPLETE and not came_back:
        reason = f"moved: {where(goal)}"
    elif status == TraversalStatus.COMPLETE:
        status = "RETURNED"
        reason = f"it returned ({where(goal)}) and serves again. What failed: {there[-1]['reason']}"
    elif came_back:
        why = there[-1]["reason"]
        reason = f"the move failed: {why} The way back ({where(goal)}) is {status}: {reason}"
    return {
        "status": status,
        "reason": reason,
        "roles": dict(goal.document["roles"]),
        "lost": list(goal.document["lost"]),
        "ended_at": last["ended_at"],
    }


def _cause_of(tx: ProjectTransaction, superseded: TraversalStep) -> str:
    """Return the cause of the traversal that superseded another one."""
    by = superseded["superseded_by"]
    found = tx.traversal(by) if by else None
    return found.cause if found else ""
