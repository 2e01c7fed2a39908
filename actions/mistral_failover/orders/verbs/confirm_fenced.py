# SPDX-License-Identifier: Apache-2.0
"""The verb ``confirm-fenced``: an operator's confirmation that a lost member no longer writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mistral_failover.model.order import Order
from mistral_failover.model.verbs import Among, Input
from mistral_failover.orders.verbs import Verb

if TYPE_CHECKING:
    from mistral_failover.runtime.request import Request


class ConfirmFenced(Verb):
    """Confirm that a lost member no longer writes, so that its failover continues.

    The failover that was BLOCKED because the proof is missing continues, and is followed to its
    end.

    Be sure that the member's power is off or its host is gone, and stays off until the group
    serves: it shows what Nova, the agent, Ceph and the fence devices say of the member, and asks.
    Your reason is recorded.

    Exit code 1 when the failover fails, 3 when it is BLOCKED again.
    """

    action = "failover.confirm_fenced"
    workflow = "failover.confirm_fenced"
    inputs = {
        "member": Input(
            "the lost member", "MEMBER", among=Among.LOST, required=True, positional=True
        )
    }
    because_words = "how you know that the member is off"
    changes = "lets a BLOCKED failover release what the member has"
    plannable = False
    on_page = False
    asks = True

    def start(self, request: Request, group: str, order: Order, because: str) -> Mapping[str, Any]:
        """Record it; return as :func:`orders.confirm_fenced.confirm_fenced`."""
        from mistral_failover.orders.confirm_fenced import confirm_fenced

        return confirm_fenced(request, group, str(order.member), because)
