# SPDX-License-Identifier: Apache-2.0
"""Decide what a node must do, from its record and the wanted properties. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mistral_failover.convergence.records import Action, Kind, Record, Status
from mistral_failover.model.changes import compare
from mistral_failover.model.types import ResourceType, Verb


@dataclass(frozen=True)
class Decision:
    """``settle``: as wanted, or made so without a side effect. ``replace``: plan the same goal
    again, with this record condemned for it."""

    action: Verb | Literal["settle", "replace"]
    reason: str


def decide(
    kind: Kind,
    record: Record,
    resource_type: ResourceType,
    properties: Mapping[str, Any],
    *,
    epoch: int = 0,
) -> Decision:
    """Decide for a record whose lock is free. ``properties`` are the wanted ones, resolved;
    ``epoch`` is the current one of the record's member."""
    if kind == "cleanup":
        return _decide_cleanup(record, resource_type)
    if record.epoch < epoch:
        return Decision("replace", f"{record.member} was fenced or replaced")
    if record.going and not revived(record, resource_type):
        return Decision("replace", "it is being deleted, but needed again")
    if record.properties is None:
        return Decision(Verb.CREATE, "it does not exist yet")
    change = compare(resource_type, record.properties, properties)
    if change.action == "replace":
        return Decision("replace", f"{', '.join(change.keys)} cannot change in place")
    if record.going and change.action == "update":
        # What remains of it has not changed: creating it again would change nothing.
        return Decision("replace", f"{', '.join(change.keys)} changed while it was being deleted")
    if record.going:
        return Decision(Verb.CREATE, f"its deletion failed: {record.reason}")
    if record.action == Action.CREATE and record.status != Status.COMPLETE:
        return Decision(Verb.CREATE, f"its creation failed: {record.reason}")
    if record.status != Status.COMPLETE:
        return Decision(Verb.UPDATE, f"its update failed: {record.reason}")
    if change.action == "update":
        return Decision(Verb.UPDATE, f"{', '.join(change.keys)} changed")
    return Decision("settle", "it is as the goal wants it")


def revived(record: Record, resource_type: ResourceType) -> bool:
    """Return whether a record whose deletion failed is restored in place."""
    return (
        resource_type.revive and record.action == Action.DELETE and record.status == Status.FAILED
    )


def _decide_cleanup(record: Record, resource_type: ResourceType) -> Decision:
    if record.gone:
        return Decision("settle", "it is already gone")
    if record.action == Action.INIT:
        return Decision("settle", "it was never created")
    if Verb.DELETE not in resource_type.operations:
        return Decision("settle", "there is nothing to undo")
    return Decision(Verb.DELETE, "the goal does not want it")
