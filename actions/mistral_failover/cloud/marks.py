# SPDX-License-Identifier: Apache-2.0
"""Members that Heat's next update of a stack would replace, whatever the update is about.

Heat replaces at any update whoever is CHECK_FAILED (a check of the stack, an alarm, or somebody by
hand), and of those that failed otherwise whoever Nova has in ERROR or deleted: its
heat.engine.resource and nova/server.py. A group or a member's own stack that is CHECK_FAILED is
replaced as a whole, unless the stack behind it is CHECK_FAILED too: then a check of the stack did
that, and each resource in it counts (heat.engine.resources.stack_resource).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from shlex import quote

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError, translated
from mistral_failover.cloud.servers import server_state
from mistral_failover.cloud.stacks import SERVER, Link, lineage

MARKED = "CHECK_FAILED"


@dataclass(frozen=True, slots=True)
class Keep:
    """The servers that no update may take away. ``members``: the members' names by server id;
    ``group``: the name of the group whose they are, for the remedy."""

    group: str = ""
    members: Mapping[str, str] = field(default_factory=dict)


def refuse_marked(cloud: Cloud, stack: str, keep: Keep) -> None:
    """Refuse an update of the stack that would replace one of these servers.

    It is asked right before the update is sent; who is marked in between is not known here.

    Raises `CloudError` MEMBER_MARKED with the commands that help, NOT_FOUND for an unknown stack.
    """
    if not keep.members:
        return
    for server_id, links in lineage(cloud, stack, keep.members).items():
        for link in links:
            if _goes(cloud, link):
                raise _marked(keep, server_id, link)


def _goes(cloud: Cloud, link: Link) -> bool:
    """Whether the next update replaces it."""
    one = link.resource
    if one.type == SERVER:
        if one.status == MARKED or one.status.startswith("DELETE"):
            return one.status == MARKED
        if not one.status.endswith("FAILED"):
            return False
        state = server_state(cloud, one.physical_id)
        return state.exists and state.status in ("ERROR", "SOFT_DELETED")
    if one.status != MARKED:
        return False
    with translated(f"read the stack behind {link.name}"):
        nested = cloud.heat.stacks.get(one.physical_id, resolve_outputs=False)
    return bool(nested.stack_status != MARKED)


def _marked(keep: Keep, server_id: str, link: Link) -> CloudError:
    member, status = keep.members[server_id], link.resource.status
    unmark = (
        "; or, where it is sound: openstack stack resource mark unhealthy --reset "
        f"{quote(link.stack)} {quote(link.name)}"
    )
    return CloudError(
        "MEMBER_MARKED",
        f"Heat has {link.name} of stack {link.stack} as {status}, so any update of the stack would "
        f"replace server {server_id} of {member}, which carries something of the group.",
        remedy=f"Have it fenced and replaced first: failover replace {quote(keep.group)} "
        f"{quote(member)}{unmark if status == MARKED else ''}. Then start it again.",
        retryable=False,
    )
