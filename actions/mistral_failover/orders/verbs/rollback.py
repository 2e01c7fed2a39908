# SPDX-License-Identifier: Apache-2.0
"""The verb ``rollback``: the group returns to an earlier goal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mistral_failover.model.order import Order
from mistral_failover.model.verbs import RECOVERED, Among, Input
from mistral_failover.orders.verbs import Verb

if TYPE_CHECKING:
    from mistral_failover.orders.failover import Derive
    from mistral_failover.runtime.request import Request


class Rollback(Verb):
    """Return a group to a goal that it reached before the present one.

    By default to the last one: the same roles, resources and parameters. Followed to its end.

    Lost members stay lost and fenced, unless you confirm them as healthy with --recovered.
    'failover goals' lists the goals, 'failover diff' shows their differences. Check first with
    --dry-run.
    """

    action = "failover.rollback"
    workflow = "failover.rollback"
    inputs = {
        "goal": Input(
            "the goal's version, or at least its first 7 digits (default: the one before)",
            "VERSION",
            among=Among.GOALS,
            label="Goal",
            unsaid="the goal before",
        ),
        "recovered": RECOVERED,
    }
    because = "rolled back by hand"
    changes = "moves roles, and takes resources and parameters back to what they were"
    pins = True

    def derive(self, request: Request, order: Order, *, remember: bool) -> Derive:
        """Raises as :func:`orders.rollback.goal_function`."""
        from mistral_failover.orders import rollback

        return rollback.goal_function(request, order, remember=remember)
