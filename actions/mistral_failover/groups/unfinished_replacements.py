# SPDX-License-Identifier: Apache-2.0
"""The replacements that a goal asks for, and how far they have come.

The wish is a resource of the goal, ``replace:<member>``, and names the server that is to go. So
whoever repeats it finds another server there and replaces nothing; and once it is done, whoever was
declared lost is so no more: that, and its fence, were about the former server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mistral_failover.convergence.records import Record
from mistral_failover.model.goal import REPLACE_TYPE, Goal, goal_resources

ReplaceRequests = dict[str, Mapping[str, Any]]
"""By member: what ``model.goal.render_goal`` takes as ``replaced``."""


def unfinished(goal: Goal, records: Iterable[Record]) -> ReplaceRequests:
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
