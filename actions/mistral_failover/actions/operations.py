# SPDX-License-Identifier: Apache-2.0
"""One action per operation of the shipped types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from mistral_failover.actions.base import FailoverAction
from mistral_failover.groups import kept_parts
from mistral_failover.mistral.api import mistral_of
from mistral_failover.mistral.operation_documents import OperationDocument
from mistral_failover.model.goal import ACTIVATION
from mistral_failover.resources import (
    activation,
    alarm,
    dns_record,
    floating_ip,
    group_member,
    load_balancer_member,
    ownership,
    port,
    stack_parameters,
    stack_template,
    virtual_ip,
    volume_attachment,
)
from mistral_failover.resources.fence import ladder
from mistral_failover.resources.fence.rung import FenceTarget
from mistral_failover.resources.fence.watch import WatchfulGuard
from mistral_failover.resources.operation_context import OperationContext, sharing
from mistral_failover.runtime.request import Request
from mistral_failover.store import attached_volumes, details, groups
from mistral_failover.store.attached_volumes import AttachedVolume
from mistral_failover.store.transaction import ProjectTransaction


class OperationAction(FailoverAction):
    """Carries out an operation under its lock: every call is guarded by the operation's lease."""

    perform: ClassVar[Callable[[OperationContext, OperationDocument], dict[str, Any]]]

    def __init__(self, operation: Any) -> None:
        super().__init__()
        self.operation = operation

    def answer(self, request: Request) -> Any:
        ticket, operation = ownership.authorized_operation(request, self.operation)
        with request.runtime.leases.hold(ticket.lock) as lease:
            guard = request.runtime.guard(lease, request.project_id, operation["unsettled"])
            guard.permit("GET")  # without a lease, it must not act in the cloud or on a member
            cloud = request.cloud(guard)
            channel = request.channel(cloud, guard)
            mistral = partial(mistral_of, request, guard)
            context = OperationContext(cloud, channel, mistral, request.runtime, request.project_id)
            return self.carry_out(request, context, operation)

    def carry_out(
        self, request: Request, context: OperationContext, operation: OperationDocument
    ) -> dict[str, Any]:
        """Run the operation's function."""
        return type(self).perform(context, operation)


class AttachVolume(OperationAction):
    """Attach a volume to a member."""

    def carry_out(
        self, request: Request, context: OperationContext, operation: OperationDocument
    ) -> dict[str, Any]:
        resource = operation["resource"]

        def read(tx: ProjectTransaction) -> AttachedVolume | None:
            group_id, name = operation["group_id"], resource["name"]
            return attached_volumes.volumes(tx, group_id, resource["type"], name).get(name)

        known = request.store.reading(read)
        return volume_attachment.attach_volume(context, operation, known)


class RemovalOfShared(OperationAction):
    """Remove what two roles may share. If both are on one member it is there once, and stays as
    long as one of them needs it."""

    def carry_out(
        self, request: Request, context: OperationContext, operation: OperationDocument
    ) -> dict[str, Any]:
        """Run the operation's function, unless another resource of the group has the same there."""

        resource = operation["resource"]

        def read(tx: ProjectTransaction) -> list[str]:
            same = tx.records_of(operation["group_id"], resource["type"], resource["physical_id"])
            return sharing(same, operation)

        if names := request.store.reading(read):
            return {"attributes": {"kept_for": ", ".join(names)}}
        return super().carry_out(request, context, operation)


class DetachVolume(RemovalOfShared):
    """Detach a volume and check that it is gone, unless another resource of the group has it there
    too."""

    perform = volume_attachment.detach_volume


class Activate(OperationAction):
    """Start the application on a member."""

    perform = activation.activate


class Reactivate(OperationAction):
    """Restart the application with new arguments."""

    perform = activation.reactivate


class Quiesce(OperationAction):
    """Stop the application on a member, unless it never ran there."""

    perform = activation.quiesce

    def carry_out(
        self, request: Request, context: OperationContext, operation: OperationDocument
    ) -> dict[str, Any]:
        """Run the stop command, unless the agent never knew the start command."""
        record_id = operation["resource"]["id"]
        errors = request.store.reading(lambda tx: details.errors_of_making(tx, record_id))
        if activation.never_ran(errors):
            return {}
        return super().carry_out(request, context, operation)


class AssociateFloatingIp(OperationAction):
    """Associate a floating IP with a member's port."""

    perform = floating_ip.associate


class DisassociateFloatingIp(OperationAction):
    """Take a floating IP from a member's port."""

    perform = floating_ip.disassociate


class EnablePoolMember(OperationAction):
    """Enable a member in its load balancer's pool."""

    perform = load_balancer_member.enable


class DisablePoolMember(RemovalOfShared):
    """Drain and disable a member in its load balancer's pool, unless another resource of the group
    needs it."""

    perform = load_balancer_member.disable


class PointName(OperationAction):
    """Point a DNS name to a member."""

    perform = dns_record.point


class RemoveName(OperationAction):
    """Delete a DNS name that the group no longer wants."""

    perform = dns_record.remove


class PointAlarm(OperationAction):
    """Let an alarm watch a member's server."""

    def carry_out(
        self, request: Request, context: OperationContext, operation: OperationDocument
    ) -> dict[str, Any]:
        def read(tx: ProjectTransaction) -> groups.MemberRow | None:
            members = groups.members_of(tx, operation["group_id"])
            return members.get(operation["properties"]["server"])

        return alarm.point(context, operation, request.store.reading(read))


class AttachPort(OperationAction):
    """Attach a port to a member."""

    perform = port.attach_port


class DetachPort(OperationAction):
    """Detach a port from a member."""

    perform = port.detach_port


class AllowAddress(OperationAction):
    """Allow an address on a member's port, and announce it."""

    perform = virtual_ip.allow_address


class ForbidAddress(OperationAction):
    """Withdraw an address from a member, and forbid it on the member's port."""

    perform = virtual_ip.forbid_address


class PatchStack(OperationAction):
    """PATCH the stack's parameters."""

    def carry_out(
        self, request: Request, context: OperationContext, operation: OperationDocument
    ) -> dict[str, Any]:
        keep = kept_parts.parts_to_keep(request, operation["group_id"], operation["group"])
        return stack_parameters.patch_stack(context, operation, keep)


class PatchTemplate(OperationAction):
    """PATCH the stack to another template."""

    def carry_out(
        self, request: Request, context: OperationContext, operation: OperationDocument
    ) -> dict[str, Any]:
        keep = kept_parts.parts_to_keep(request, operation["group_id"], operation["group"])
        return stack_template.patch_template(context, operation, keep)


class ReplaceServer(OperationAction):
    """Have Heat create another server for a member."""

    def carry_out(
        self, request: Request, context: OperationContext, operation: OperationDocument
    ) -> dict[str, Any]:
        return group_member.replace_server(request, context, operation)


class Fence(OperationAction):
    """Climb the ladder until it is proven that a member no longer writes."""

    def carry_out(
        self, request: Request, context: OperationContext, operation: OperationDocument
    ) -> dict[str, Any]:
        target = self._suspect(request, operation)
        guard = WatchfulGuard(context.cloud.guard, target.confirmed)
        cloud = request.cloud(guard)
        climbing = replace(context, cloud=cloud, channel=request.channel(cloud, guard))
        return ladder.fence(context, operation, target, climbing)

    def _suspect(self, request: Request, operation: OperationDocument) -> FenceTarget:
        name = operation["properties"]["member"]
        database = request.store

        def member(tx: ProjectTransaction) -> groups.MemberRow:
            return groups.members_of(tx, operation["group_id"])[name]

        def read(tx: ProjectTransaction) -> FenceTarget:
            group_id = operation["group_id"]
            state = groups.get(tx, group_id)
            assert state is not None  # an operation of it is under way
            group = request.runtime.definitions.group(tx, state)
            return ladder.fence_target(
                member(tx),
                tx.records(group_id),
                group.types,
                lambda: database.reading(member).confirmed_because,
                {
                    spec.name: spec.properties
                    for spec in group.resources.values()
                    if spec.type == ACTIVATION
                },
            )

        return database.reading(read)
