# SPDX-License-Identifier: Apache-2.0
"""The members that a goal brings back, and their progress.

A wish for it is a resource of the goal, ``replace:<member>``, and names the server that was lost. A
repeat finds another server there and replaces nothing. Once it is done, the member is no longer
declared lost: the loss and the fence were about the former server, or about the time before it was
started again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mistral_failover.convergence.records import Action, Record, Status
from mistral_failover.model.goal import REPLACE_TYPE, Goal, goal_resources
from mistral_failover.model.restarts import ANOTHER_SERVER

ReplaceRequests = dict[str, Mapping[str, Any]]
"""By member, in the form that ``model.goal.render_goal`` takes as ``replaced``."""


def unfinished(goal: Goal, records: Iterable[Record]) -> ReplaceRequests:
    """Return the replacements that a goal asks for and that are not finished."""
    return {member: wish for member, wish, record in _asked_for(goal, records) if record is None}


def replaced_lost_members(goal: Goal, records: Sequence[Record]) -> frozenset[str]:
    """Return the members that a goal declares lost but that are back: with another server, or
    started again, and with no resources of the group left on the former one."""
    occupied = {record.member for record in records}
    return frozenset(
        member
        for member, wish, record in _asked_for(goal, records)
        if record is not None
        and record.attributes.get("server") is not None
        and (
            record.attributes["server"] != wish["server_id"]
            or record.attributes.get("by", ANOTHER_SERVER) != ANOTHER_SERVER
        )
        and member not in occupied
    )


def being_replaced(records: Iterable[Record], now: float) -> frozenset[str]:
    """Return the members whose replacement a worker is carrying out at ``now``, by the database's
    clock: Heat may remove their servers at any moment."""
    return frozenset(
        str(record.properties["member"])
        for record in records
        if record.type == REPLACE_TYPE and record.properties and record.held_at(now)
    )


def _asked_for(
    goal: Goal, records: Iterable[Record]
) -> Iterator[tuple[str, Mapping[str, Any], Record | None]]:
    """Yield each replacement of a goal: member, wish, and its record if it is done."""
    done = {
        record.name: record
        for record in records
        if record.type == REPLACE_TYPE
        and (record.action, record.status) == (Action.CREATE, Status.COMPLETE)
    }
    for resource in goal_resources(goal, REPLACE_TYPE):
        wish = {key: value for key, value in resource.properties.items() if key != "member"}
        record = done.get(resource.name)
        same = record is not None and record.properties == resource.properties
        yield str(resource.properties["member"]), wish, record if same else None
