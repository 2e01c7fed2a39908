# SPDX-License-Identifier: Apache-2.0
"""Replace members by order: one, or all of them in turn.

A goal contains the replacement of a member as a resource. A healthy member that holds a role first
gives it up by a planned move, which must succeed. That is another goal: if it fails, the group
returns to where it was, and nothing was replaced. A failed member is fenced, its roles move, and it
is replaced, in this order and in one traversal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mistral_failover.convergence.records import JournalKind
from mistral_failover.groups import kept_parts
from mistral_failover.groups.snapshot import GroupSnapshot, group_snapshot
from mistral_failover.model.assignment import MemberFact, assign_roles
from mistral_failover.model.decisions import Decision
from mistral_failover.model.goal import Goal
from mistral_failover.model.order import Order
from mistral_failover.model.replacement import (
    POLICIES,
    Choice,
    choose_member,
    failure,
    next_in_turn,
)
from mistral_failover.orders import failover, operator_order, switchover
from mistral_failover.orders.answers import MemberInTurn, Replacement, RollingStep
from mistral_failover.orders.failover import Derive
from mistral_failover.orders.operator_order import NothingToDo
from mistral_failover.runtime.errors import ActionError, own_stack
from mistral_failover.runtime.request import Request
from mistral_failover.store import incidents
from mistral_failover.store.transaction import ProjectTransaction

LONGEST_PAUSE = 86_400
"""The longest pause between two members in a rolling replacement, in seconds."""


@dataclass(frozen=True)
class ReplaceChoice:
    """The chosen member. ``moves``: the roles that must be moved first, by a planned move."""

    choice: Choice
    fact: MemberFact
    moves: tuple[str, ...]
    failed: bool

    @property
    def sentence(self) -> str:
        """The choice in words, for people."""
        return f"{self.choice.member} is replaced: {self.choice.why}"


def replace_member(request: Request, group: str, wish: Order, cause: str) -> Replacement:
    """Start the replacement of a member's server; once for each execution. ``wish``: its
    ``member`` is a name, ``oldest`` or ``newest``, or None for the group's choice; ``server``: the
    one that must go, None for the present one; ``resource``: replace only this resource of the
    member's own stack.

    Return as :func:`failover.begin`, and ``member``, ``server`` (the one that goes), ``moves``. A
    healthy member first gives up its roles, so nothing was started while there are any ``moves``.
    If the member already has another server, ``traversal`` and ``workflow`` are None.

    Raises UnknownGroup, CloudError; NoEligibleMember if no member can take the roles; ActionError
    UNKNOWN_MEMBER, NOT_COMPLETE if the group is not at rest and the member is healthy.
    """
    try:
        return _ordered(request, group, wish, cause)
    except NothingToDo as done:
        return _idle(group, wish.member, wish.server, (), str(done))


def _ordered(request: Request, group: str, wish: Order, cause: str) -> Replacement:
    snapshot = group_snapshot(request, group)
    known = _ordered_before(request, snapshot)
    if known is None:
        members = failover.read_members(request, snapshot, remember=True)
        chosen = choose(request, snapshot, members, wish)
        name, server = chosen.choice.member, chosen.fact.server_id
        if chosen.moves:
            said = f"{chosen.sentence}; its roles are moved first"
            return _idle(group, name, server, chosen.moves, said)
        cause = f"{cause}: {chosen.sentence}"
        known = replace(wish, member=name, server=server)
    derive = goal_function(request, known, remember=True)
    answer = operator_order.start_order(request, group, derive, known, cause)
    return {**answer, "member": known.member, "server": known.server, "moves": []}


def goal_function(request: Request, wish: Order, *, remember: bool) -> Derive:
    """Return the function that derives the goal of a replacement. ``remember``: record members that
    were replaced.

    Raises as :func:`replace_member`; ActionError MOVE_FIRST if the member is healthy and holds a
    role, NothingToDo if it has another server than the one that must go.
    """

    def derive(snapshot: GroupSnapshot) -> Goal:
        members = failover.read_members(request, snapshot, remember=remember)
        chosen = choose(request, snapshot, members, wish)
        name = chosen.choice.member
        if chosen.moves:
            roles = " and ".join(chosen.moves)
            raise ActionError(
                "MOVE_FIRST",
                f"{name} is healthy and holds {roles}, which must be moved before it is replaced",
                "Plan the switchover; or run failover replace, which does both.",
            )
        properties = {"server_id": chosen.fact.server_id, "resource": wish.resource}
        if wish.resource is not None:
            # Its server may stay the same, and it may be replaced again later.
            properties["order"] = snapshot.state.current_traversal
        # A failed member with resources of the group is fenced before these are removed.
        fenced = chosen.failed and (name in snapshot.roles.values() or name in snapshot.occupied)
        order = replace(wish, lost=(name,) if fenced else ())
        goal = failover.next_goal_or_room(snapshot, order, members, {name: properties})
        failover.refuse_unmovable_new_volumes(request, snapshot, goal)
        return goal

    return derive


def choose(
    request: Request, snapshot: GroupSnapshot, members: Sequence[MemberFact], wish: Order
) -> ReplaceChoice:
    """Choose the member, and check that it can be replaced now. Raises as
    :func:`replace_member`."""
    own_stack(snapshot.group.stack, snapshot.group.name)
    named = () if wish.member in (None, *POLICIES) else (str(wish.member),)
    failover.require_members(snapshot, {each.name for each in members}, "member", named)
    if not members:
        raise ActionError(
            "UNKNOWN_MEMBER",
            f"{snapshot.group.name} has no members",
            "Check its stack: there is no server to replace.",
        )
    lost = snapshot.lost | _declared(request, snapshot)
    choice = choose_member(snapshot.group, members, lost, wish.member)
    name = choice.member
    fact = next(each for each in members if each.name == name)
    if wish.server is not None and wish.server != fact.server_id:
        raise NothingToDo(
            f"{name} was replaced already: it is now server {fact.server_id}, not {wish.server}"
        )
    failed = failure(fact, lost) is not None
    moves = tuple(role for role, holder in snapshot.roles.items() if holder == name and not failed)
    if not failed:
        switchover.refuse_unreached(request, snapshot)
    if moves:
        others = [
            each.ruled_out("it will be replaced") if each.name == name else each for each in members
        ]
        staying = {role: holder for role, holder in snapshot.roles.items() if role not in moves}
        assign_roles(snapshot.group, others, staying, snapshot.lost)
    kept_parts.refuse_marked(request, snapshot, {name} | snapshot.lost)
    return ReplaceChoice(choice, fact, moves, failed)


def _declared(request: Request, snapshot: GroupSnapshot) -> frozenset[str]:
    """Return the members that are lost by the alarms that were admitted and have not begun: Nova
    may show the server of a dead guest as running."""

    def read(tx: ProjectTransaction) -> frozenset[str]:
        waiting = incidents.unstarted_of_group(tx, snapshot.state.id)
        return frozenset(member for each in waiting for member in each.lost)

    return request.store.reading(read)


def _ordered_before(request: Request, snapshot: GroupSnapshot) -> Order | None:
    """Return the order of this execution, if any: a repeat must not choose again.

    The order is recorded before anything is started, so it is valid even if the start was not
    linked to it. An order that was refused and began nothing does not count.
    """
    if request.execution is None:
        return None
    identity = operator_order.order_id(request.project_id, snapshot.state.id, request.execution)
    traversal = failover.traversal_of(snapshot.state.id, identity)

    def read(tx: ProjectTransaction) -> Order | None:
        found = incidents.get(tx, identity)
        if found is None or found.order is None or found.order.verb != "replace":
            return None
        begun = found.traversal_id is not None or tx.traversal(traversal) is not None
        return found.order if begun or found.decision == Decision.ADMITTED else None

    return request.store.reading(read)


def _idle(
    group: str, member: str | None, server: str | None, moves: Sequence[str], sentence: str
) -> Replacement:
    return {
        "group": group,
        "member": member,
        "server": server,
        "moves": list(moves),
        "traversal": None,
        "workflow": None,
        "sentence": sentence,
        "incident": None,
    }


# -- all of them in turn


def next_member(
    request: Request,
    group: str,
    wanted: tuple[str, ...],
    turn: Sequence[MemberInTurn] | None,
    pause: int,
) -> RollingStep:
    """Return the next member when members are replaced one by one.

    The servers to replace are fixed once, when ``turn`` is None: those of all members, or of the
    ``wanted`` ones. From then on a member with another server is done. So it does not matter who
    replaced it, or how often this is called. Before the first there is nothing to wait for.

    Raises UnknownGroup, CloudError, ActionError UNKNOWN_MEMBER, NOT_COMPLETE if the group is not
    at rest.
    """
    snapshot = group_snapshot(request, group)
    members = failover.read_members(request, snapshot, remember=True)
    servers = {fact.name: fact.server_id for fact in members}
    if turn is None:
        failover.require_members(snapshot, servers, "members", wanted)
        turn = [
            {"member": fact.name, "server": str(fact.server_id)}
            for fact in members
            if not wanted or fact.name in wanted
        ]
    waiting = {each["member"] for each in turn if servers.get(each["member"]) == each["server"]}
    choice = next_in_turn(snapshot.group, members, snapshot.lost, snapshot.roles, waiting)
    done = f"{len(turn) - len(waiting)} of {len(turn)} members replaced"
    answer: RollingStep = {
        "group": group,
        "turn": list(turn),
        "outcome": None,
        "member": None,
        "server": None,
        "wait": 0,
        "sentence": f"rolling replacement: {done}",
    }
    if choice is None:
        answer["outcome"] = {
            "status": "COMPLETE",
            "reason": answer["sentence"],
            "roles": dict(snapshot.roles),
        }
    else:
        switchover.refuse_unreached(request, snapshot)
        answer["sentence"] += f"; next is {choice.member}: {choice.why}"
        answer["member"], answer["server"] = choice.member, servers[choice.member]
        answer["wait"] = pause if len(waiting) < len(turn) else 0
    request.store.atomically(
        lambda tx: tx.journal(
            snapshot.state.id,
            answer["sentence"],
            kind=JournalKind.ROLLING,
            traversal_id=snapshot.state.current_traversal,
        )
    )
    return answer
