# SPDX-License-Identifier: Apache-2.0
"""The verb ``remove``: the group is taken out of service. Its command is ``failover group delete``,
which also forgets the group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mistral_failover.model.order import Order
from mistral_failover.model.verbs import Among, Form, Input
from mistral_failover.orders.verbs import Verb

if TYPE_CHECKING:
    from mistral_failover.orders.failover import Derive
    from mistral_failover.runtime.request import Request


class Remove(Verb):
    """Give a group the goal that asks for nothing.

    Applications are quiesced and volumes are detached. The group's definition and history stay.
    """

    action = "failover.remove"
    workflow = "failover.remove"
    inputs = {
        "lost": Input(
            "a member to fence instead of quiescing it; may be repeated",
            "MEMBER",
            Form.NAMES,
            Among.MEMBERS,
        )
    }
    because = "removed by hand"
    changes = "stops the applications, detaches the volumes, and fences lost members"
    on_page = False

    def derive(self, request: Request, order: Order, *, remember: bool) -> Derive:  # noqa: ARG002
        """Raises ActionError UNKNOWN_MEMBER. It asks the cloud nothing."""
        from mistral_failover.orders import rollback

        return rollback.removal_goal_function(order.lost or ())
