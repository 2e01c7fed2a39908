# SPDX-License-Identifier: Apache-2.0
"""The verb ``failover``: the group's next goal follows from the members that are lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mistral_failover.model.order import Order
from mistral_failover.model.verbs import RECOVERED, Among, Form, Input
from mistral_failover.orders.verbs import Verb

if TYPE_CHECKING:
    from mistral_failover.orders.failover import Derive
    from mistral_failover.runtime.request import Request


class Failover(Verb):
    """Give a group its next goal, as an operator asks for.

    Lost members are fenced, and their roles move.
    """

    action = "failover.begin"
    workflow = "failover.failover"
    inputs = {
        "to": Input(
            "the member that takes over (default: the group's choice)",
            "MEMBER",
            Form.TARGETS,
            Among.MEMBERS,
            "Move to",
            "the group's choice",
        ),
        "lost": Input(
            "a lost member; may be repeated; '' for none (default: none; for a plan: the holder "
            "of a role)",
            "MEMBER",
            Form.NAMES,
            Among.MEMBERS,
            "Lost member",
            "the holder of a role",
        ),
        "recovered": RECOVERED,
        "incident": Input("the id of a held alarm that it admits", internal=True),
        "definition": Input(
            "'defined': the definition that was given last (default: the one in force, or, if no "
            "member is lost, that of the present goal)",
            "WHICH",
            label="Definition",
            unsaid="the one in force",
        ),
        "after": Input(
            "the traversal to which it belongs; if the group has a newer one, nothing starts",
            internal=True,
        ),
    }
    because = "started by hand"
    changes = "fences lost members, and moves their roles"

    def derive(self, request: Request, order: Order, *, remember: bool) -> Derive:
        """Raises as :func:`orders.failover.next_goal`, CloudError, ActionError CONTENDED."""
        from mistral_failover.orders import failover

        return failover.goal_function(request, order, remember=remember)

    def start(self, request: Request, group: str, order: Order, because: str) -> Mapping[str, Any]:
        """Start a failover, or that of a held alarm. Raises also what
        :func:`orders.held_alarms.admit` raises."""
        from mistral_failover.orders import held_alarms

        incident = order.own("incident")
        if incident is None:
            return super().start(request, group, order, because)
        order = replace(order, more=None)
        return held_alarms.admit(request, group, incident, order, because)
