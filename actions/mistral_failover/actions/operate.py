# SPDX-License-Identifier: Apache-2.0
"""One action per operation of the shipped types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from mistral_failover.actions import fencing, operations
from mistral_failover.actions.base import FailoverAction
from mistral_failover.actions.documents import read_ticket
from mistral_failover.actions.errors import ActionError
from mistral_failover.actions.operations import Document, Tools
from mistral_failover.actions.runtime import LeaseGuard, Request
from mistral_failover.convergence.records import Record
from mistral_failover.store import groups

ACTIVATION = "activation"


class OperationAction(FailoverAction):
    """Carries an operation out under its lock: every call is guarded by the operation's lease."""

    perform: ClassVar[Callable[[Tools, Document], dict[str, Any]]]

    def __init__(self, operation: Any) -> None:
        super().__init__()
        self.operation = operation

    def answer(self, request: Request) -> Any:
        if not isinstance(self.operation, dict):
            raise ActionError(
                "BAD_INPUT",
                "operation: a mapping is expected",
                "Hand on the workflow's input as it is.",
            )
        ticket = read_ticket(self.operation.get("ticket"))
        with request.runtime.leases.hold(ticket.lock) as lease:
            cloud = request.cloud(LeaseGuard(lease, request.runtime.settings.lease_margin))
            tools = Tools(cloud, request.channel(cloud))
            return self.carry_out(request, tools)

    def carry_out(self, request: Request, tools: Tools) -> dict[str, Any]:
        """Run the operation's function."""
        return type(self).perform(tools, self.operation)


class AttachVolume(OperationAction):
    """Attach a volume to a member."""

    perform = operations.attach_volume


class DetachVolume(OperationAction):
    """Detach a volume and see it gone."""

    perform = operations.detach_volume


class Activate(OperationAction):
    """Start the application on a member."""

    perform = operations.activate


class Reactivate(OperationAction):
    """Restart the application with new arguments."""

    perform = operations.reactivate


class Quiesce(OperationAction):
    """Stop the application on a member."""

    perform = operations.quiesce


class PatchStack(OperationAction):
    """PATCH the stack's parameters."""

    perform = operations.patch_stack


class Fence(OperationAction):
    """Climb the ladder until it is proven that a member no longer writes."""

    def carry_out(self, request: Request, tools: Tools) -> dict[str, Any]:
        return fencing.fence(tools, self.operation, self._suspect(request))

    def _suspect(self, request: Request) -> fencing.Suspect:
        name = self.operation["properties"]["member"]

        def read(tx: Any) -> fencing.Suspect:
            record = tx.record(self.operation["resource"]["id"])
            member = groups.members_of(tx, record.group_id)[name]
            here = [r for r in tx.records(record.group_id) if _runs_on(r, name)]
            return fencing.Suspect(member, tuple(sorted({r.properties["stop"] for r in here})))

        return request.runtime.database.reading(read)


def _runs_on(record: Record, member: str) -> bool:
    return (
        record.type == ACTIVATION
        and record.member == member
        and record.properties is not None
        and "stop" in record.properties
    )
