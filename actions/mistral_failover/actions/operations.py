# SPDX-License-Identifier: Apache-2.0
"""The operations of the shipped types, for the workflows of types of users: one action each."""

from __future__ import annotations

from typing import Any, ClassVar

from mistral_failover.actions.base import FailoverAction
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
from mistral_failover.resources.modules import Operate
from mistral_failover.resources.operation_context import under_lease
from mistral_failover.runtime.request import Request


class OperationAction(FailoverAction):
    """Carries out an operation under its lock, on behalf of a workflow that was handed it: every
    call is guarded by the operation's lease."""

    perform: ClassVar[Operate]

    def answer(self, request: Request, operation: Any) -> Any:
        """Call the operation's function with what the state store has of the operation."""
        ticket, known = ownership.authorized_operation(request, operation)
        with request.runtime.leases.hold(ticket.lock) as lease:
            guard = request.runtime.guard(lease, request.project_id, known["unsettled"])
            return type(self).perform(under_lease(request, guard), known)


class AttachVolume(OperationAction):
    """Attach a volume to a member."""

    perform = volume_attachment.attach_volume


class DetachVolume(OperationAction):
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


class AssociateFloatingIp(OperationAction):
    """Associate a floating IP with a member's port."""

    perform = floating_ip.associate_floating_ip


class DisassociateFloatingIp(OperationAction):
    """Take a floating IP from a member's port."""

    perform = floating_ip.disassociate_floating_ip


class EnablePoolMember(OperationAction):
    """Enable a member in its load balancer's pool."""

    perform = load_balancer_member.enable_pool_member


class DisablePoolMember(OperationAction):
    """Drain and disable a member in its load balancer's pool, unless another resource of the group
    needs it."""

    perform = load_balancer_member.disable_pool_member


class PointName(OperationAction):
    """Point a DNS name to a member."""

    perform = dns_record.point_name


class RemoveName(OperationAction):
    """Delete a DNS name that the group no longer wants."""

    perform = dns_record.remove_name


class PointAlarm(OperationAction):
    """Let an alarm watch a member's server."""

    perform = alarm.point_alarm


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

    perform = stack_parameters.patch_stack


class PatchTemplate(OperationAction):
    """PATCH the stack to another template."""

    perform = stack_template.patch_template


class ReplaceServer(OperationAction):
    """Bring a member back: start its server again, or have Heat create another one."""

    perform = group_member.bring_back


class Fence(OperationAction):
    """Climb the ladder until it is proven that a member no longer writes."""

    perform = ladder.fence_member
