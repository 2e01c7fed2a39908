# SPDX-License-Identifier: Apache-2.0
"""The verb ``failback``: the roles go home."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mistral_failover.model.order import Order
from mistral_failover.model.verbs import RECOVERED, Among, Input
from mistral_failover.orders.verbs import Verb

if TYPE_CHECKING:
    from mistral_failover.orders.failover import Derive
    from mistral_failover.runtime.request import Request


class Failback(Verb):
    """Move the roles home, to where they would be if all members were healthy.

    Home is the first member that a role prefers in the group file, else the group's choice. No role
    moves home by itself. First check the old member, then confirm it as healthy with --recovered
    (one that was replaced needs no confirmation). Its server must be ACTIVE, its agent must send
    heartbeats, and no operation may run on it. If anything fails on the way, all roles return to
    where they were: exit code 1, RETURNED and the reason. Check first with --dry-run.
    """

    action = "failover.failback"
    workflow = "failover.failback"
    inputs = {
        "to": Input("only the roles whose home is this member", "MEMBER", among=Among.MEMBERS),
        "role": Input("only this role (default: all)", "ROLE", among=Among.ROLES),
        "recovered": RECOVERED,
    }
    because = "failed back by hand"
    changes = "moves roles from healthy members to their homes"
    pins = True

    def derive(self, request: Request, order: Order, *, remember: bool) -> Derive:
        """Raises as :func:`orders.failback.goal_function`."""
        from mistral_failover.orders import failback

        return failback.goal_function(request, order, remember=remember)
