# SPDX-License-Identifier: Apache-2.0
"""Actions about rehearsals. The one that begins a rehearsal is the action of its verb."""

from __future__ import annotations

from typing import Any

from mistral_failover.actions.base import FailoverAction
from mistral_failover.model.order import Order
from mistral_failover.orders.rehearsal import life, planning
from mistral_failover.runtime.inputs import OptionalText, Text
from mistral_failover.runtime.request import Request


class PreviewRehearsal(FailoverAction):
    """Show what a rehearsal of a group's failover would do, without changing anything."""

    def answer(
        self,
        request: Request,
        group: Text,
        to: OptionalText = None,
        member: OptionalText = None,
        role: OptionalText = None,
    ) -> Any:
        order = Order("rehearse", to=to, member=member, role=role)
        return planning.draft(request, group, order).planned


class EndRehearsal(FailoverAction):
    """Record what a rehearsal came to and begin its cleanup; then record that it is clean."""

    def answer(self, request: Request, rehearsal: Text, because: OptionalText = None) -> Any:
        return life.end(request, rehearsal, because or "")


class Rehearsals(FailoverAction):
    """Show a group's rehearsals, the latest first."""

    def answer(self, request: Request, group: Text) -> Any:
        return life.of_group(request, group)
