# SPDX-License-Identifier: Apache-2.0
"""The verb ``switchover``: a planned move while all members are healthy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mistral_failover.model.order import Order
from mistral_failover.model.verbs import Among, Input
from mistral_failover.orders.verbs import Verb

if TYPE_CHECKING:
    from mistral_failover.orders.failover import Derive
    from mistral_failover.runtime.request import Request


class Switchover(Verb):
    """Move a role to another member as planned, for example before work on a host.

    No member is declared lost. The agent of the member that holds the role stops the application,
    the volumes follow, and nothing is forced. If anything fails on the way, the group returns to
    where it was; the command then ends with exit code 1, RETURNED and the reason. If the member is
    dead, use failover start instead. Check first with --dry-run, or see failover member list for
    the members that may take a role.
    """

    action = "failover.switchover"
    workflow = "failover.switchover"
    inputs = {
        "to": Input(
            "the member that takes it (default: the group's choice)", "MEMBER", among=Among.MEMBERS
        ),
        "role": Input(
            "the role to move; required if the group has several",
            "ROLE",
            among=Among.ROLES,
            label="Role",
            unsaid="the only one, or all",
        ),
        "holder": Input(
            "the member that gives it up; if another one holds it by then, nothing moves",
            internal=True,
        ),
    }
    because = "switched over by hand"
    changes = "moves a role from a healthy member"

    def derive(self, request: Request, order: Order, *, remember: bool) -> Derive:
        """Raises as :func:`orders.switchover.goal_function`."""
        from mistral_failover.orders import switchover

        return switchover.goal_function(request, order, remember=remember)
