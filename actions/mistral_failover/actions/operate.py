# SPDX-License-Identifier: Apache-2.0
"""One action per operation of the shipped types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from mistral_failover.actions import fencing, operations, ownership
from mistral_failover.actions.base import FailoverAction
from mistral_failover.actions.documents import read_operation, read_ticket
from mistral_failover.actions.errors import ActionError
from mistral_failover.actions.operations import Document, Tools
from mistral_failover.actions.runtime import LeaseGuard, Request
from mistral_failover.store import groups


class OperationAction(FailoverAction):
    """Carries an operation out under its lock: every call is guarded by the operation's lease."""

    perform: ClassVar[Callable[[Tools, Document], dict[str, Any]]]

    def __init__(self, operation: Any) -> None:
        super().__init__()
        self.operation = operation

    def answer(self, request: Request) -> Any:
        ticket = read_ticket(read_operation(self.operation)["ticket"])
        if not ownership.owns(request, ticket.traversal_id, ticket.node.resource_id):
            raise ActionError(
                "UNKNOWN_OPERATION",
                f"this project has no operation {ticket.key}",
                "Hand on the workflow's input as it was received.",
            )
        with request.runtime.leases.hold(ticket.lock) as lease:
            settings = request.runtime.settings
            guard = LeaseGuard(lease, settings.lease_margin, settings.lease)
            guard.permit("GET")  # whose lease is lost has nothing to do here, nor on a member
            cloud = request.cloud(guard)
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
        resource = read_ticket(self.operation["ticket"]).node.resource_id
        database = request.runtime.database

        def member(tx: Any) -> groups.MemberRow:
            return groups.members_of(tx, tx.record(resource).group_id)[name]

        def read(tx: Any) -> fencing.Suspect:
            return fencing.suspect_of(
                member(tx),
                tx.records(tx.record(resource).group_id),
                lambda: database.reading(member).confirmed_because,
            )

        return database.reading(read)
