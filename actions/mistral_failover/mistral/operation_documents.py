# SPDX-License-Identifier: Apache-2.0
"""What Mistral carries between actions, as plain JSON: tickets, operations and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypedDict, cast

from mistral_failover.cloud.errors import NO_RIGHTS
from mistral_failover.convergence.records import Lock, Node, Operation, Outcome, Ticket
from mistral_failover.model.goal import Goal
from mistral_failover.model.group import Group
from mistral_failover.model.types import Verb
from mistral_failover.runtime.errors import ActionError, masked
from mistral_failover.store.groups import MemberRow

# The command may have run, or whatever came before the bug or before the rights ended: a repeat
# must carry the same id.
_UNKNOWN = frozenset({"NO_ANSWER", "UNKNOWN_OUTCOME", "UNEXPECTED"}) | NO_RIGHTS


class ResourceDocument(TypedDict):
    """The record of the resource that an operation is about."""

    id: str
    name: str
    type: str
    physical_id: str | None
    attributes: Mapping[str, Any]


class MemberDocument(TypedDict):
    """The member that the resource belongs to."""

    name: str
    server_id: str | None
    epoch: int


class InputDocument(TypedDict):
    """What an operation waited for."""

    id: str | None
    attributes: Mapping[str, Any]


class OperationDocument(TypedDict):
    """The input of every operation's workflow and function."""

    ticket: Mapping[str, Any]
    """The right to carry it out and to conclude it; pass it on as it is."""
    verb: str
    """create, update or delete."""
    key: str
    """The id of the operation, the same at every repeat."""
    group: str
    """The group's name."""
    group_id: str
    stack: str | None
    """The name of the group's stack; None if it has none."""
    resource: ResourceDocument
    member: MemberDocument | None
    properties: Mapping[str, Any]
    """The wanted properties; for a deletion, the last ones."""
    previous: Mapping[str, Any] | None
    """What was last applied successfully. Where ``unknown``, a later attempt may be in effect."""
    wanted: bool
    """Whether the goal has a resource of this name. In a deletion: another one takes its place."""
    written: Mapping[str, Any] | None
    """The properties that the group file states now, unresolved; None if it states none."""
    inputs: Mapping[str, InputDocument]
    """What it waited for, by the resource's name."""
    unknown: bool
    """The outcome of an earlier attempt is not known, so the operation must look first."""
    unsettled: float
    """The seconds for which a request of an earlier attempt may still take effect. The operation
    looks, and requests nothing until then."""
    timeout: float
    """The seconds that it may take."""


def ticket_document(ticket: Ticket) -> dict[str, Any]:
    """A ticket as JSON."""
    return {**asdict(ticket), "node": ticket.node.key}


def read_ticket(document: Any) -> Ticket:
    """Read :func:`ticket_document` back. Raises ActionError BAD_INPUT."""
    try:
        fields = dict(document)
        lock = Lock(**fields.pop("lock"))
        ticket = Ticket(lock=lock, node=Node.parse(fields.pop("node")), **fields)
        if lock.resource_id != ticket.node.resource_id:
            raise ValueError("its lock belongs to another resource")
        return ticket
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ActionError(
            "BAD_INPUT",
            f"the ticket is not valid ({error})",
            "Pass on the operation's ticket as it was received.",
        ) from None


def operation_document(
    operation: Operation,
    goal: Goal | None,
    group: Group,
    members: Mapping[str, MemberRow],
    timeout: float,
) -> OperationDocument:
    """Return an operation in the form for its workflow. ``goal``: that of its
    traversal; without one it is taken for wanted."""
    record = operation.record
    member = members.get(record.member) if record.member else None
    spec = group.resources.get(record.name)
    written = dict(spec.properties) if spec is not None and spec.type == record.type else None
    return {
        "ticket": ticket_document(operation.ticket),
        "verb": operation.ticket.verb,
        "key": operation.ticket.key,
        "group": group.name,
        "group_id": record.group_id,
        "stack": group.stack,
        "resource": {
            "id": record.id,
            "name": record.name,
            "type": record.type,
            "physical_id": record.physical_id,
            "attributes": dict(record.attributes),
        },
        "member": _member_document(member, operation) if member else None,
        "properties": dict(operation.properties),
        "previous": None if operation.previous is None else dict(operation.previous),
        "wanted": goal is None or record.name in goal.document["resources"],
        "written": written,
        "inputs": {
            name: cast(InputDocument, dict(data)) for name, data in operation.inputs.items()
        },
        "unknown": operation.unknown,
        "unsettled": operation.unsettled,
        "timeout": timeout,
    }


def read_operation(document: Any) -> OperationDocument:
    """Return an operation's document after checking its keys. Raises ActionError BAD_INPUT."""
    if not isinstance(document, Mapping):
        wrong = "a mapping is expected"
    elif missing := [key for key in OperationDocument.__annotations__ if key not in document]:
        wrong = f"these keys are missing: {', '.join(missing)}"
    else:
        return cast(OperationDocument, document)
    raise ActionError(
        "BAD_INPUT", f"operation: {wrong}", "Pass on the workflow's input as it was received."
    )


def _member_document(member: MemberRow, operation: Operation) -> MemberDocument:
    """Return a member in the form for operations. Its epoch is the one for which the operation was
    decided: after the member is fenced, it must not take the command any more."""
    epoch = member.epoch if operation.ticket.verb == Verb.DELETE else operation.record.epoch
    return {"name": member.name, "server_id": member.server_id, "epoch": epoch}


def outcome_of(result: Any, error: Any) -> Outcome:
    """Convert the result of an operation's workflow or function to an outcome.

    ``result`` may have physical_id and attributes; ``error`` has code, message, remedy and perhaps
    blocked or transient, or is whatever else a user's workflow returned.
    """
    if error is not None:
        facts = _error_facts(error)
        unknown = facts.get("unknown") is True or facts["code"] in _UNKNOWN
        patience = facts.get("patience")
        return Outcome(
            error=facts,
            blocked=bool(facts.get("blocked")),
            unknown=unknown,
            transient=facts.get("transient") is True,
            patience=float(patience) if isinstance(patience, int | float) else None,
        )
    facts = result if isinstance(result, Mapping) else {}
    physical_id = facts.get("physical_id")
    attributes = facts.get("attributes")
    return Outcome(
        physical_id=None if physical_id is None else _clean(physical_id, 255),
        attributes=dict(attributes) if isinstance(attributes, Mapping) else {},
    )


def _clean(value: Any, length: int) -> str:
    """Return a text from outside in a form that every database can store."""
    return str(value).replace("\x00", "")[:length]


def _error_facts(error: Any) -> Mapping[str, Any]:
    """Find the facts of an error: Mistral wraps a failed sub-workflow's output or an action's error
    in various ways."""
    if isinstance(error, Mapping):
        if isinstance(error.get("code"), str):
            texts = {k: _clean(v, 4000) for k, v in error.items() if isinstance(v, str)}
            return {**error, **texts}
        for key in ("error", "result"):
            if isinstance(error.get(key), Mapping | str):
                return _error_facts(error[key])
    return {
        "code": "OPERATION_FAILED",
        "message": masked(str(error))[:2000] if error else "the operation failed without a message",
        "remedy": "Check the operation's execution in Mistral, and that its workflow exists.",
    }
