# SPDX-License-Identifier: Apache-2.0
"""Derive a group's next goal from facts, and start the traversal to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from shlex import quote
from types import MappingProxyType
from typing import Any, cast

from mistral_failover.agent.channel.interface import Heartbeat
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.cloud.volumes import refuse_unmovable
from mistral_failover.convergence.ports import Transaction
from mistral_failover.convergence.records import GroupState
from mistral_failover.convergence.traversals import goal_of
from mistral_failover.fault_points import reach
from mistral_failover.groups import agent_epochs, candidates
from mistral_failover.groups.refresh_members import depose, members_now, remember_members
from mistral_failover.groups.snapshot import GroupSnapshot, group_snapshot, with_definition
from mistral_failover.model.assignment import MemberFact, assign_roles, passed_over
from mistral_failover.model.errors import NoEligibleMember
from mistral_failover.model.goal import ATTACHMENT, Goal, goal_resources, render_goal
from mistral_failover.model.group import SHIPPED_CHAIN, Group
from mistral_failover.model.ids import derived_id
from mistral_failover.model.order import Order
from mistral_failover.model.replacement import choose_member
from mistral_failover.model.restarts import ANOTHER_SERVER
from mistral_failover.model.stages import Stage
from mistral_failover.model.validation import did_you_mean
from mistral_failover.orders import answered_alarms
from mistral_failover.orders.already_serving import serving_members
from mistral_failover.orders.answers import Started
from mistral_failover.orders.old_goals import forget
from mistral_failover.orders.rehearsal_end import condemn
from mistral_failover.resources.worker import NodeWorker
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import incidents
from mistral_failover.store.transaction import ProjectTransaction

LOG = logging.getLogger(__name__)
_ATTEMPTS = 5


DEFINED = "defined"
"""The value of the input ``definition`` of an order that converges to what the user gave last.
Others: see `definition_of`."""

Replaced = Mapping[str, Mapping[str, Any]]
"""Servers to replace in any case, by member, in the form of ``model.goal.render_goal``."""


_UNSAID = "it counts as lost, because no lost member was named"
"""Why the holder of a role cannot take it, in an order that names no lost member."""


def next_goal(
    snapshot: GroupSnapshot,
    order: Order,
    members: list[MemberFact],
    ordered: Replaced = MappingProxyType({}),
) -> Goal:
    """Return the goal that follows from the group's state, and from the ``to``, ``lost`` and
    ``recovered`` of an order. If that names no lost member, the members that hold a role are lost,
    if the goal that assigned it was reached; otherwise no member is, and the same goal is tried
    again. ``ordered``: the servers that the order replaces.

    Raises NoEligibleMember, InvalidDocument, ActionError UNKNOWN_MEMBER, HOLDER_GONE.
    """
    lost, replaced = _lost_and_replaced(snapshot, order, members, ordered)
    try:
        roles = _assigned(snapshot, order, members, lost, replaced, ordered)
    except NoEligibleMember as refused:
        if order.lost is None:  # these are lost only for this order
            refused.reasons |= dict.fromkeys(
                (lost - snapshot.lost) & refused.reasons.keys(), _UNSAID
            )
        raise
    if not ordered:
        _refuse_gone_holders(snapshot, order, members, roles)
    going = {
        name: wish
        for name, wish in replaced.items()
        if name in ordered or name not in roles.values()
    }
    goal = render_goal(snapshot.group, roles, lost, replaced=going)
    if order.to is not None:
        return goal
    over = passed_over(snapshot.group, members, snapshot.roles, lost, roles)
    return replace(goal, passed_over=over)


def next_goal_or_room(
    snapshot: GroupSnapshot,
    order: Order,
    members: list[MemberFact],
    ordered: Replaced = MappingProxyType({}),
) -> Goal:
    """As :func:`next_goal`; if no member can take a role, the goal that makes room for one
    (``orders.vacant_roles``), where the group or the order wants that. Only an order may begin so:
    what an engine chooses by itself within a failover replaces no further server."""
    try:
        return next_goal(snapshot, order, members, ordered)
    except NoEligibleMember:
        wanted = bool(ordered) or snapshot.group.members.cold
        # Who is only marked by Heat, and not lost, may serve: an order must not end that.
        if any(fact.marked for fact in members if fact.name in ordered.keys() - snapshot.lost):
            raise
        lost, replaced = _lost_and_replaced(snapshot, order, members, ordered)
        room = _room_goal(snapshot, members, lost, replaced) if wanted and not order.to else None
        if room is None:
            raise
        return room


def _lost_and_replaced(
    snapshot: GroupSnapshot, order: Order, members: list[MemberFact], ordered: Replaced
) -> tuple[frozenset[str], dict[str, Mapping[str, Any]]]:
    """Return the lost members of the next goal, and the servers that it replaces. Raises
    ActionError UNKNOWN_MEMBER, BAD_INPUT."""
    # A member that left the stack stays lost until nothing of the group is left on it. A member
    # that is being replaced has left it only for a moment.
    names = {member.name for member in members} | snapshot.occupied | snapshot.replacing.keys()
    require_members(snapshot, names, "lost", order.lost or ())
    require_members(snapshot, names, "recovered", order.recovered)
    newly = _holder(snapshot) if order.lost is None else set(order.lost)
    lost = frozenset(((snapshot.lost | newly) - set(order.recovered)) & names)
    return lost, {**_to_replace(snapshot, order, members, lost), **ordered}


def _room_goal(
    snapshot: GroupSnapshot,
    members: Sequence[MemberFact],
    lost: Set[str],
    replaced: Mapping[str, Mapping[str, Any]],
) -> Goal | None:
    """Return the goal that makes room for the roles that no member can take; None if there is no
    lost member to replace, or if a member that could not be checked may be able to take them.

    ``replaced``: the servers that are to be replaced anyway, as of ``model.goal.render_goal``. If
    none of them is a lost member's, one lost member is chosen, always the same for the same facts:
    rather one whose server need not be deleted for it.
    """
    kept = {
        role: holder
        for role, holder in snapshot.roles.items()
        if holder in {fact.name for fact in members} - lost - replaced.keys()
    }
    vacant = [role for role in snapshot.group.roles if role not in kept]
    there = [fact for fact in members if fact.name in lost and fact.server_id is not None]
    unseen = any(fact.unseen for fact in members if fact.name not in lost)
    if not vacant or unseen:
        return None
    going = {name: wish for name, wish in replaced.items() if name not in kept.values()}
    if not lost & going.keys():
        if not there:
            return None
        first = [fact for fact in there if not fact.deleted_first] or there
        chosen = choose_member(snapshot.group, first, lost, None).member
        going[chosen] = _brought_back(
            snapshot, next(str(fact.server_id) for fact in there if fact.name == chosen)
        )
    return render_goal(snapshot.group, kept, lost, replaced=going, vacant=vacant)


def _refuse_gone_holders(
    snapshot: GroupSnapshot,
    order: Order,
    members: Iterable[MemberFact],
    roles: Mapping[str, str],
) -> None:
    """Refuse an order that moves nothing while the server of a holder does not exist: its goal
    would be reached, and nothing would serve. Raises ActionError HOLDER_GONE.

    An alarm is about another member, and comes through.
    """
    if order.from_alarm or dict(roles) != dict(snapshot.roles):
        return
    gone = {fact.name for fact in members if fact.gone} - snapshot.replacing.keys()
    for role, member in sorted(roles.items()):
        if member in gone:
            name = quote(snapshot.group.name)
            recovered = "".join(f" --recovered {quote(each)}" for each in order.recovered)
            which = f" --definition {DEFINED}" if order.own("definition") else ""
            raise ActionError(
                "HOLDER_GONE",
                f"{role} is on {member}, whose server does not exist, but this order moves no role",
                f"Fail over: failover start {name} --lost {quote(member)}{recovered}{which}",
            )


def _assigned(
    snapshot: GroupSnapshot,
    order: Order,
    members: list[MemberFact],
    lost: Collection[str],
    replaced: Collection[str],
    ordered: Collection[str],
) -> dict[str, str]:
    """Assign the roles while these members are to be ``replaced``.

    Service comes before an earlier replacement that no worker carries out now. If such a member is
    named, or if no other can take a role, it takes the role and keeps its server. Raises as
    :func:`next_goal`.
    """
    named = {order.to} if isinstance(order.to, str) else set((order.to or {}).values())
    left = set(replaced) & snapshot.replacing.keys() - set(ordered) - snapshot.being_replaced
    for spared in (left & named, left):
        going = set(replaced) - spared
        able = [
            fact.ruled_out("its server will be replaced") if fact.name in going else fact
            for fact in members
        ]
        try:
            return assign_roles(snapshot.group, able, snapshot.roles, set(lost), order.to)
        except NoEligibleMember as error:
            refused = error
    if under_way := sorted(going & snapshot.being_replaced - set(lost)):
        refused.remedy += (
            f" Heat is replacing {' and '.join(under_way)}: wait until it has finished. If the "
            "present server is healthy and stays, confirm that: failover start "
            f"{quote(snapshot.group.name)} --recovered {quote(under_way[0])}"
        )
    raise refused


def _to_replace(
    snapshot: GroupSnapshot, order: Order, members: Iterable[MemberFact], lost: Set[str]
) -> dict[str, Mapping[str, Any]]:
    """Return the members that get another server in the next goal: pending replacements, also while
    Heat has no server for the member, unless an operator confirms the present server; and after an
    alarm the newly lost members, if the group wants that."""
    servers = {fact.name: fact.server_id for fact in members if fact.server_id}
    wishes = {
        member: wish for member, wish in snapshot.replacing.items() if member not in order.recovered
    }
    if order.from_alarm and snapshot.group.members.replace == "lost":
        newly = (lost - snapshot.lost) & servers.keys() - wishes.keys()
        wishes |= {member: _brought_back(snapshot, servers[member]) for member in sorted(newly)}
    return wishes


def _brought_back(snapshot: GroupSnapshot, server: str) -> Mapping[str, Any]:
    """Return the wish that a lost member comes back, in the ways of the group; ``server``: the one
    that it has."""
    ways = snapshot.group.members.restart
    if ways == (ANOTHER_SERVER,):
        return {"server_id": server}
    # Its server may stay the same, and be started again later.
    order = snapshot.state.current_traversal
    return {"server_id": server, "restart": list(ways), **({"order": order} if order else {})}


def require_members(
    snapshot: GroupSnapshot, names: Collection[str], key: str, said: Iterable[str]
) -> None:
    """Check that these names are members. Raises ActionError UNKNOWN_MEMBER."""
    for name in said:
        if name not in names:
            raise ActionError(
                "UNKNOWN_MEMBER",
                f"{key}: {name} is not a member of {snapshot.group.name}",
                did_you_mean(name, names),
            )


def _holder(snapshot: GroupSnapshot) -> set[str]:
    """Return the members that are lost if the request does not name any: the holder of the roles,
    or none if the goal that assigned the roles was not reached. Raises ActionError BAD_INPUT if
    several members hold roles."""
    holders = set(snapshot.roles.values()) if snapshot.reached else set()
    if len(holders) > 1:
        held = ", ".join(f"{role} on {member}" for role, member in sorted(snapshot.roles.items()))
        raise ActionError(
            "BAD_INPUT",
            f"lost: several members of {snapshot.group.name} hold roles ({held}), but the request "
            "does not say which of them is lost",
            "Give lost, the list of the lost members; [] if none is lost.",
        )
    return holders


def read_members(
    request: Request,
    snapshot: GroupSnapshot,
    *,
    lost: Iterable[str] = (),
    recovered: Iterable[str] = (),
    remember: bool,
) -> list[MemberFact]:
    """Ask Heat for the members, and return the state of those that may take a role
    (``candidates``). ``lost`` and ``recovered``: according to an order.

    ``remember``: record members that were replaced, which raises their epoch (``refresh_members``),
    and the epochs that their agents know. Raises CloudError, ActionError CONTENDED; RESTORED if
    what is known of the group is older than what its agents know.
    """
    agent_epochs.refuse_restored(snapshot.state)
    cloud = request.cloud(Unguarded())
    if remember:
        seen, replaced = remember_members(
            request, cloud, snapshot, lambda: members_now(cloud, snapshot)
        )
        reach("members.after")
        depose(request, cloud, snapshot, replaced)
    else:
        seen = members_now(cloud, snapshot)
    out = (snapshot.lost | set(lost)) - set(recovered)
    identity = snapshot.state.id

    def settle(heard: Mapping[str, Heartbeat]) -> None:
        if agent_epochs.settle(request, identity, heard):
            agent_epochs.refuse_restored(replace(snapshot.state, restored=True))

    listen = settle if remember and snapshot.occupied else None
    group = snapshot.group
    return candidates.member_facts(request, cloud, group, identity, seen, out, listen=listen)


Derive = Callable[[GroupSnapshot], Goal]
"""Return the next goal from the group's snapshot. It is called again if a newer request won."""


def goal_function(
    request: Request, order: Order, *, remember: bool = True, group: Group | None = None
) -> Derive:
    """Return the function that derives the goal of a failover. It reads the members from the cloud
    only once. ``remember``: record members that were replaced. ``group``: a definition that is not
    stored; None: the one that the order asks for.

    Raises as :func:`next_goal` and `orders.already_serving.serving_members`, and CloudError;
    ActionError CONTENDED if the order says ``after``
    which traversal it comes, and the group has a newer one.
    """
    seen: list[list[MemberFact]] = []
    after = order.own("after")

    def derive(snapshot: GroupSnapshot) -> Goal:
        if group is not None:
            snapshot = replace(snapshot, group=group)
        else:
            snapshot = with_definition(request, snapshot, definition_of(order, snapshot.state))
        if after not in (None, snapshot.state.current_traversal):
            raise ActionError(
                "CONTENDED",
                f"{snapshot.group.name} got another order before this one",
                f"Check its status: failover status {quote(snapshot.group.name)}",
            )
        if not seen:
            lost, recovered = order.lost or (), order.recovered
            seen.append(
                read_members(request, snapshot, lost=lost, recovered=recovered, remember=remember)
            )
        if found := serving_members(request, snapshot, order, seen[0], remember=remember):
            snapshot = replace(snapshot, roles=found)
        goal = next_goal_or_room(snapshot, order, seen[0])
        refuse_unmovable_new_volumes(request, snapshot, goal)
        return goal

    return derive


def refuse_unmovable_new_volumes(request: Request, snapshot: GroupSnapshot, goal: Goal) -> None:
    """Refuse a goal that attaches a volume for the first time if the volume cannot be moved or
    shared. Nothing has been stopped yet. Raises CloudError."""
    wanted: dict[str, set[str]] = {}
    new = set()
    for resource in goal_resources(goal):
        if resource.type == ATTACHMENT:
            volume = str(resource.properties["volume"])
            wanted.setdefault(volume, set()).add(str(resource.properties["server"]))
            if (resource.name, volume) not in snapshot.attached_volumes:
                new.add(volume)
    if new:
        cloud = request.cloud(Unguarded())
        refuse_unmovable(cloud, snapshot.group.stack, {name: wanted[name] for name in new})


def begin(
    request: Request,
    name: str,
    derive: Derive,
    *,
    incident_id: str,
    cause: str,
    confirm: Callable[[ProjectTransaction], None] | None = None,
) -> Started:
    """Start the traversal that an incident causes, and close the open alarms that it answers
    (``orders.answered_alarms``). Repeated calls start it only once. ``confirm`` is called in the
    transaction that starts it, with the group locked; it raises if that may not start.

    Raises UnknownGroup, ActionError CONTENDED, and what ``derive`` and ``confirm`` raise.
    """
    snapshot = group_snapshot(request, name)
    agent_epochs.refuse_restored(snapshot.state)
    traversal_id = traversal_of(snapshot.state.id, incident_id)
    known, given = request.store.reading(
        lambda tx: _begun(tx, snapshot.state.id, incident_id, traversal_id)
    )
    if known and given is None:
        return _answer(
            snapshot.group,
            traversal_id,
            None,
            f"{cause} (it was completed earlier, and its records were deleted)",
        )
    for _ in range(_ATTEMPTS):
        # A repeat uses the goal that was derived then, because the facts may have changed since.
        goal = given or derive(snapshot)
        moved = group_of(request, snapshot, goal)
        said = "; ".join([cause, *_passed_over(goal)])
        started = request.engine.start(
            snapshot.state.id,
            goal,
            traversal_id=traversal_id,
            expected=snapshot.state.current_traversal,
            cause=said,
            incident_id=incident_id,
            # A group's own chain may put its own tasks between the stages.
            through=None if moved.workflow is None else Stage.FENCE,
            # The engine hands out the store's transactions, and knows less of them.
            confirm=cast(
                Callable[[Transaction], None],
                partial(_confirmed, request, snapshot.state.id, goal, incident_id, said, confirm),
            ),
        )
        if started.won or started.traversal_id == traversal_id:
            reach("link.before")
            request.store.atomically(
                lambda tx: incidents.link(tx, incident_id, traversal_id, request.execution)
            )
            reach("link.after")
            forget(request, snapshot.state.id)
            if request.runtime.eager and moved.workflow is None:
                # Mistral needs some 0.3 s until the first task of the chain. If this process dies
                # in between, that task finds the nodes. A group's own chain decides itself what
                # comes first.
                worker = NodeWorker(request, snapshot.state.id)
                for ready in started.ready:
                    worker.submit(ready)
            sentence = said if started.created else f"{cause} (it was started before)"
            return _answer(moved, traversal_id, goal, sentence)
        # A newer request won. Its facts are also true, so derive the goal from both.
        snapshot = group_snapshot(request, name)
    raise ActionError(
        "CONTENDED",
        f"{name} received new goals {_ATTEMPTS} times while this one was being started",
        f"Check its status before you repeat the order: failover status {quote(name)}",
    )


def _confirmed(
    request: Request,
    group_id: str,
    goal: Goal,
    incident_id: str,
    said: str,
    confirm: Callable[[ProjectTransaction], None] | None,
    tx: ProjectTransaction,
) -> None:
    if confirm is not None:
        confirm(tx)
    condemn(request, tx, group_id, said)
    if (cause := incidents.get(tx, incident_id)) is not None:
        answered_alarms.close(request, tx, group_id, goal, cause)


def definition_of(order: Order, state: GroupState) -> str:
    """Return the version of the definition from which the goal of an order is derived, a rollback's
    apart. An order that declares no member lost goes on with the definition of the present goal,
    so it continues an update; a failover moves what is in force. Raises ActionError BAD_INPUT."""
    asked = order.own("definition")
    if asked not in (None, DEFINED):
        raise ActionError(
            "BAD_INPUT",
            f"definition: {asked!r} is not known",
            f"Give {DEFINED}, or leave it out.",
        )
    if asked == DEFINED:
        return state.defined
    return state.to_move if order.lost else state.definition_version


def group_of(request: Request, snapshot: GroupSnapshot, goal: Goal) -> Group:
    """Return the definition that a goal is derived from: its chain carries the goal out."""
    version = goal.definition or snapshot.group.version
    return with_definition(request, snapshot, version).group


def _passed_over(goal: Goal) -> list[str]:
    return [f"{member} is passed over: {why}" for member, why in goal.passed_over.items()]


def traversal_of(group_id: str, incident_id: str) -> str:
    """Return the id of the traversal that an incident causes, even if it is not begun."""
    return derived_id(group_id, "incident", incident_id)


def chain_of(group: Group) -> str:
    """Return the name of the workflow that carries out a group's traversals."""
    return group.workflow or SHIPPED_CHAIN


def _answer(group: Group, traversal_id: str, goal: Goal | None, sentence: str) -> Started:
    return {
        "group": group.name,
        "traversal": traversal_id,
        "goal": goal.version if goal else None,
        "roles": dict(goal.document["roles"]) if goal else {},
        "lost": list(goal.document["lost"]) if goal else [],
        "workflow": chain_of(group),
        "sentence": sentence,
    }


def _begun(
    tx: ProjectTransaction, group_id: str, incident_id: str, traversal_id: str
) -> tuple[bool, Goal | None]:
    """Return whether an incident's traversal was begun before, and its goal, unless the goal was
    deleted since (``store.goals.purge``)."""
    traversal = tx.traversal(traversal_id)
    if traversal is not None:
        return True, goal_of(tx, traversal)
    incident = incidents.get(tx, incident_id)
    return incident is not None and incident.traversal_id == traversal_id, None
