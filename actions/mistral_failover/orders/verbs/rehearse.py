# SPDX-License-Identifier: Apache-2.0
"""The verb ``rehearse``: a failover is tried on copies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mistral_failover.model.order import Order
from mistral_failover.model.verbs import Among, Input
from mistral_failover.orders.verbs import Verb

if TYPE_CHECKING:
    from mistral_failover.runtime.request import Request


class Rehearse(Verb):
    """Try the failover of a group on copies of its volumes, while it serves.

    On the member that a failover would choose, the application is started on copies, apart from
    everything else there; the checks of the group file run; then all of it is removed. Nothing that
    serves is touched, and a real failover ends the rehearsal at once.

    Exit code 1 when it does not pass, with what failed.
    """

    action = "failover.rehearse"
    workflow = "failover.rehearse"
    inputs = {
        "to": Input(
            "the member to rehearse on (default: the one that a failover would choose, or with "
            "members: each in the group file the one whose turn it is)",
            "MEMBER",
            among=Among.MEMBERS,
        ),
        "member": Input(
            "the member whose loss is rehearsed (default: of those that hold roles, the one whose "
            "turn it is)",
            "MEMBER",
            among=Among.MEMBERS,
        ),
        "role": Input(
            "the role to rehearse, which --to takes; others of the lost member go where a failover "
            "would give them (default: all roles of the lost member)",
            "ROLE",
            among=Among.ROLES,
        ),
    }
    because = "rehearsed by hand"
    changes = "makes snapshots and copies of volumes, starts the application on them, removes them"
    plannable = False
    on_page = False

    def start(self, request: Request, group: str, order: Order, because: str) -> Mapping[str, Any]:
        """Begin it; return and raise as :func:`orders.rehearsal.life.begin`."""
        from mistral_failover.orders.rehearsal import life

        return life.begin(request, group, order, because)
