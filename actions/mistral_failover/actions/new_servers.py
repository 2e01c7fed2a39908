# SPDX-License-Identifier: Apache-2.0
"""Members that get another server: whose turn it is, and what comes of it.

The wish is a resource of the goal, ``replace:<member>``, and names the server that is to go. So
whoever repeats it finds another server there and replaces nothing; and once it is done, whoever was
declared lost is so no more: that, and its fence, were about the former server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from shlex import quote
from typing import TYPE_CHECKING, Any

from mistral_failover.actions.noticing import notice
from mistral_failover.actions.operations import Document, Tools
from mistral_failover.actions.runtime import Request
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.replacements import Replacement
from mistral_failover.cloud.replacements import replace_member as replace_by_heat
from mistral_failover.convergence.records import Record
from mistral_failover.fault_points import reach
from mistral_failover.model.assignment import MemberFact
from mistral_failover.model.goal import REPLACE_TYPE, Goal, goal_resources
from mistral_failover.store import groups
from mistral_failover.store.leases import elapsed

if TYPE_CHECKING:
    from mistral_failover.actions.starting import Facts, Standing

Wishes = dict[str, Mapping[str, Any]]
"""By member: what ``model.goal.render_goal`` takes as ``replaced``."""


def unfinished(goal: Goal, records: Iterable[Record]) -> Wishes:
    """The replacements that a goal asks for and that have not come to their end."""
    return {member: wish for member, wish, record in _asked_for(goal, records) if record is None}


def healed(goal: Goal, records: Sequence[Record]) -> frozenset[str]:
    """The members that a goal declares lost and that are other servers by now, with nothing of the
    group on them."""
    occupied = {record.member for record in records}
    return frozenset(
        member
        for member, wish, record in _asked_for(goal, records)
        if record is not None
        and record.attributes.get("server") not in (None, wish["server_id"])
        and member not in occupied
    )


def striking(records: Iterable[Record], now: float) -> frozenset[str]:
    """The members whose replacement somebody is carrying out at ``now``, by the database's clock:
    Heat may take their servers at any moment."""
    return frozenset(
        str(record.properties["member"])
        for record in records
        if record.type == REPLACE_TYPE and record.properties and record.held_at(now)
    )


def to_replace(
    stands: Standing, facts: Facts, members: Iterable[MemberFact], lost: Set[str]
) -> Wishes:
    """Who gets another server in the next goal: whoever was about to, also while Heat has no server
    for it, unless somebody vouches for the present one; by an alarm who is lost now, if the group
    wants that; and whom ``facts`` say.
    """
    servers = {fact.name: fact.server_id for fact in members if fact.server_id}
    wishes = {
        member: wish for member, wish in stands.replacing.items() if member not in facts.recovered
    }
    if facts.heal and stands.group.members.replace == "lost":
        newly = (lost - stands.lost) & servers.keys() - wishes.keys()
        wishes |= {member: {"server_id": servers[member]} for member in sorted(newly)}
    return {**wishes, **facts.replaced}


def _asked_for(
    goal: Goal, records: Iterable[Record]
) -> Iterator[tuple[str, Mapping[str, Any], Record | None]]:
    """Each replacement of a goal: member, wish, and the record of it if it is done."""
    done = {
        record.name: record
        for record in records
        if record.type == REPLACE_TYPE and (record.action, record.status) == ("CREATE", "COMPLETE")
    }
    for resource in goal_resources(goal):
        if resource.type != REPLACE_TYPE:
            continue
        wish = {key: value for key, value in resource.properties.items() if key != "member"}
        record = done.get(resource.name)
        same = record is not None and record.properties == resource.properties
        yield str(resource.properties["member"]), wish, record if same else None


def replace_server(request: Request, tools: Tools, operation: Document) -> dict[str, Any]:
    """Have Heat make another server for a member; then see it, which begins the member's next
    epoch, and tell the agent of the former one that it is deposed.

    Safe to repeat at any point: the server that is to go is named. Raises CloudError, LeaseLost.
    """
    from mistral_failover.actions import keeping, starting

    began = elapsed()
    stands = starting.standing(request, operation["group"])
    wish = operation["properties"]
    member, old = str(wish["member"]), str(wish["server_id"])
    try:
        found: Replacement = replace_by_heat(
            tools.cloud,
            operation["stack"],
            member,
            autoscaling_group=stands.group.members.autoscaling_group,
            resource=wish.get("resource"),
            server_id=old,
            # Heat shows it, and by it a repeat knows its own mark.
            reason=f"replaced by mistral-failover, operation {operation['key']}",
            limit=float(operation["timeout"]),
            keep=keeping.carried(request, operation["group_id"], operation["group"]),
        )
    except CloudError as error:
        if error.code == "NOT_FOUND":
            error.remedy += (
                " If the member has left the stack for good: failover start "
                f"{quote(operation['group'])} --lost '' --recovered {quote(member)}"
            )
        raise
    reach("replaced.before")
    _see(request, tools, stands, member, old)
    return {
        "physical_id": found.server,
        "attributes": {
            "old_server": old,
            "server": found.server,
            "seconds": round(elapsed() - began, 1),
        },
    }


def _see(request: Request, tools: Tools, stands: Standing, member: str, old: str) -> None:
    """Notice who the members are by now. The former server is told again by every repeat: whoever
    died in between had raised the epoch, and nobody would know any more that it was to be told."""
    from mistral_failover.actions import starting

    _, others = notice(
        request, stands.state.id, lambda: starting.members_now(tools.cloud, stands.group)
    )
    rows = request.runtime.database.reading(lambda tx: groups.members_of(tx, stands.state.id))
    told = [one for one in others if one.name != member]
    if (now := rows.get(member)) is not None and now.server_id != old:
        told.insert(0, groups.Replaced(member, old, now.epoch))
    starting.depose(request, tools.cloud, stands, told)
