# SPDX-License-Identifier: Apache-2.0
"""The verb ``replace``: another server for a member."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mistral_failover.model.order import Order
from mistral_failover.model.verbs import Among, Input
from mistral_failover.orders.verbs import Verb

if TYPE_CHECKING:
    from mistral_failover.orders.failover import Derive
    from mistral_failover.runtime.request import Request


class Replace(Verb):
    """Have Heat make another server for a member, under the same name.

    Without a member it takes one that failed, if there is any, else as the group file chooses. A
    failed member is fenced first, and its roles move to another one; a healthy member gives them up
    by a planned move first. The active member is never replaced while no other can serve. The new
    server may take roles at once: a lost member is healthy again.

    --all replaces every member, one by one, those without a role first. It stops at the first
    failure, and leaves the group in service wherever it is stopped. Cancel it with
    'openstack workflow execution update EXECUTION -s CANCELLED'.

    Check first with --dry-run; see failover member list afterwards.
    """

    action = "failover.replace_member"
    workflow = "failover.replace_member"
    inputs = {
        "member": Input("the member", "MEMBER", among=Among.MEMBERS, positional=True),
        "server": Input("the server that goes (default: the present one)", internal=True),
        "resource": Input(
            "only this resource of the member's own stack (default: the whole member)", "NAME"
        ),
    }
    because = "replaced by hand"
    changes = "replaces a server; fences a failed member, and moves its roles"
    on_page = False
    asks = True

    def derive(self, request: Request, order: Order, *, remember: bool) -> Derive:
        """Raises as :func:`orders.replace.goal_function`."""
        from mistral_failover.orders import replace

        return replace.goal_function(request, order, remember=remember)

    def start(self, request: Request, group: str, order: Order, because: str) -> Mapping[str, Any]:
        """Start it unless roles must move first; return as
        :func:`orders.replace.replace_member`."""
        from mistral_failover.orders import replace

        return replace.replace_member(request, group, order, because)
