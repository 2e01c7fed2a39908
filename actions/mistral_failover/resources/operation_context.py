# SPDX-License-Identifier: Apache-2.0
"""What the operations of the shipped types share.

Each operation is a plain function in the module of its type (see ``resources.modules``). It gets an
`OperationContext` and the operation's document (see ``mistral.operation_documents``), and returns
``{"physical_id", "attributes"}``. It looks at the cloud before it acts, so a repeat is harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from mistral_failover.agent.channel.interface import Channel
from mistral_failover.cloud import servers
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.stacks import of_stack
from mistral_failover.convergence.records import Action, Record, Status
from mistral_failover.mistral.api import Mistral, mistral_of
from mistral_failover.mistral.operation_documents import MemberDocument, OperationDocument
from mistral_failover.model.goal import fence_name
from mistral_failover.model.remedies import another_server, command, sentence
from mistral_failover.model.rungs import ServerAfter, rung_kind
from mistral_failover.runtime.errors import ActionError, confirm_command, start_command
from mistral_failover.runtime.lease_guard import LeaseGuard
from mistral_failover.runtime.request import Request
from mistral_failover.store.transaction import ProjectTransaction

Resolve = Callable[[Cloud, str | None, str], str]
"""Returns the id for a stack, None if the group has none, and a name in the group file; raises
`CloudError`."""


@dataclass(frozen=True)
class OperationContext:
    """What an operation acts with; every call passes the lease's guard.

    ``request``: on whose behalf, with its project's part of the state store.
    ``mistral``: finds Mistral's own API, None if its address is unknown; raises CloudError.
    """

    request: Request
    cloud: Cloud
    channel: Channel
    mistral: Callable[[], Mistral | None]


def under_lease(request: Request, guard: LeaseGuard) -> OperationContext:
    """Return what an operation acts with under a lease. Raises LeaseLost: without a lease, it must
    not act in the cloud or on a member; CloudError."""
    guard.permit("GET")
    cloud = request.cloud(guard)
    channel = request.channel(cloud, guard)
    return OperationContext(request, cloud, channel, partial(mistral_of, request, guard))


def member_of(operation: OperationDocument) -> MemberDocument:
    """Return the operation's member. Raises ActionError UNKNOWN_MEMBER."""
    member = operation["member"]
    if not member:
        raise no_server("the member", operation)
    return member


def member_server(operation: OperationDocument) -> str:
    """Return the id of the present server of the operation's member. Raises ActionError
    UNKNOWN_MEMBER."""
    member = member_of(operation)
    if not member["server_id"]:
        raise no_server(member["name"], operation)
    return member["server_id"]


def no_server(member: str, operation: OperationDocument) -> ActionError:
    """Return the error for a member that has no server."""
    stack = operation["stack"]
    return ActionError(
        "UNKNOWN_MEMBER",
        f"{member} has no server{of_stack(stack)}",
        "Check the group's members against the stack's resources."
        if stack is not None
        else f"Correct members in the group file: {command('DIAGNOSE', operation['group'])}",
    )


def recorded_server(operation: OperationDocument) -> str:
    """Return the id of the server that the resource was created on, or else of the member's present
    one."""
    recorded = operation["resource"]["attributes"].get("server_id")
    return str(recorded) if recorded else member_server(operation)


def physical_id_of(
    context: OperationContext, operation: OperationDocument, resolve: Resolve, key: str
) -> str | None:
    """Return the id of the volume, port or floating IP that the resource was created with: the
    recorded one, or the one that the property ``key`` names. None if it names none: then nothing
    was created.

    If a creation without a record had succeeded after all, the next one is refused: nothing is
    taken from another server. Raises `CloudError`.
    """
    if (recorded := operation["resource"]["physical_id"]) is not None:
        return str(recorded)
    try:
        return resolve(context.cloud, operation["stack"], operation["properties"][key])
    except CloudError as error:
        if error.code in ("NOT_FOUND", "BAD_REQUEST"):
            return None
        raise


def sharing(records: Iterable[Record], operation: OperationDocument) -> list[str]:
    """Return the names of the group's other resources of the same type that have the same thing, a
    volume for example, on the same server."""
    resource, server_id = operation["resource"], recorded_server(operation)
    return sorted(
        record.name
        for record in records
        if record.id != resource["id"]
        and record.type == resource["type"]
        and record.physical_id is not None
        and record.physical_id == resource["physical_id"]
        and record.attributes.get("server_id") == server_id
        and record.action in (Action.CREATE, Action.UPDATE)
        and record.status == Status.COMPLETE
    )


def kept_for(context: OperationContext, operation: OperationDocument) -> dict[str, Any] | None:
    """Return the result of a removal that must not be made, because another resource of the group
    has the same thing there: what two roles share is there once if both are on one member, and
    stays as long as one of them needs it. None if it is to be removed."""
    resource = operation["resource"]

    def read(tx: ProjectTransaction) -> list[str]:
        same = tx.records_of(operation["group_id"], resource["type"], resource["physical_id"])
        return sharing(same, operation)

    names = context.request.store.reading(read)
    return {"attributes": {"kept_for": ", ".join(names)}} if names else None


def fence_proof(operation: OperationDocument) -> Mapping[str, Any] | None:
    """Return the rung and the sentence that prove this resource's member fenced, if its fence came
    before this operation."""
    member = operation["member"]
    fence = operation["inputs"].get(fence_name(member["name"])) if member else None
    return fence["attributes"] if fence else None


@contextmanager
def says_how_to_leave_a_dead_host(
    operation: OperationDocument, *unless_confirmed: ServerAfter
) -> Iterator[None]:
    """Let an error about a host that is down name the command that fences the member; or that
    confirms that its guest is off, if the fence left ``unless_confirmed`` behind."""
    try:
        yield
    except CloudError as error:
        if error.code == "HOST_DOWN":
            group, member = operation["group"], member_of(operation)["name"]
            proof = fence_proof(operation)
            if proof is None:
                fenced = start_command(group, lost=member)
                error.remedy += f" Or, only if {member} is lost: {fenced}, which fences it first."
            elif rung_kind(proof["rung"]).server_after in unless_confirmed:
                error.remedy += (
                    f" Or make sure that the guest is off, then: {confirm_command(group, member)}."
                )
        raise


def say_how_to_go_on(operation: OperationDocument, error: CloudError, *, gone: bool) -> None:
    """Let an error about a server that can take nothing name the commands that help."""
    member = member_of(operation)["name"]
    if not gone:
        fenced = start_command(operation["group"], lost=member)
        error.remedy += f" Or, only if {member} is lost: {fenced}, which fences it first."
        return
    another = another_server(operation["stack"], member)
    error.remedy = f"{sentence([another], operation['group'])}."
    error.needs = (another,)
    error.detail = f"{error.detail}. {error.remedy}"


def refuse_started(
    context: OperationContext, operation: OperationDocument, server_id: str, member: str = ""
) -> None:
    """Refuse if the server was started again while the operation waited for an operator: Nova shows
    it ACTIVE, or has evacuated it since from a host where it ran. ``member``: the one it belongs
    to, unless that is the operation's."""
    if servers.server_state(context.cloud, server_id).status == "ACTIVE":
        why = "has been started again"
    elif (left := servers.left_behind(context.cloud, server_id)) is not None:
        why = left
    else:
        return
    member = member or member_of(operation)["name"]
    raise ActionError(
        "FENCE_UNPROVEN",
        f"server {server_id} was stopped for the fence of {member}, but {why}",
        f"To fence it again: {start_command(operation['group'], lost=member)}",
    )


def refuse_unproven(
    context: OperationContext, operation: OperationDocument, server_id: str
) -> None:
    """Refuse if the server is gone, or off, without a proof. What was attached to it is free, at
    once if its host was dead; then its guest may still run with it, and only a fence can tell. So
    it may after an evacuation that left the server off."""
    state = servers.server_state(context.cloud, server_id)
    if not state.exists:
        evidence = servers.deletion_proof(context.cloud, server_id)
    elif state.off and (left := servers.left_behind(context.cloud, server_id)) is not None:
        evidence = servers.Evidence(False, "stop", f"server {server_id} is {state}, but {left}")
    else:
        return
    if not evidence.proven:
        member = member_of(operation)["name"]
        raise ActionError(
            "FENCE_UNPROVEN",
            evidence.observed.rstrip("."),
            f"To fence it: {start_command(operation['group'], lost=member)}",
        )
