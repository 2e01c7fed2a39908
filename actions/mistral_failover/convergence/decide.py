# SPDX-License-Identifier: Apache-2.0
"""Decide what a node must do, from its record and the wanted properties. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mistral_failover.convergence.records import Action, Kind, Record, Status
from mistral_failover.model.types import ResourceType, Verb, compare


@dataclass(frozen=True)
class NodeDecision:
    """``none``: as wanted, or made so without a side effect. ``replace``: plan the same goal
    again, with this record condemned for it."""

    action: Verb | Literal["none", "replace"]
    reason: str


def decide(
    kind: Kind,
    record: Record,
    resource_type: ResourceType,
    properties: Mapping[str, Any],
    *,
    epoch: int = 0,
) -> NodeDecision:
    """Decide for a record whose lock is free. ``properties`` are the wanted ones, resolved;
    ``epoch`` is the current one of the record's member."""
    if kind == "cleanup":
        return _decide_cleanup(record, resource_type)
    if record.epoch < epoch:
        return NodeDecision("replace", f"{record.member} was fenced or replaced")
    if record.being_deleted and not revived(record, resource_type):
        return NodeDecision("replace", "it is being deleted, but needed again")
    if record.properties is None:
        return NodeDecision(Verb.CREATE, "it does not exist yet")
    change = compare(resource_type, record.properties, properties)
    if change.action == "replace":
        return NodeDecision("replace", f"{', '.join(change.keys)} cannot change in place")
    if record.being_deleted and change.action == "update":
        # What remains of it has not changed: creating it again would change nothing.
        return NodeDecision(
            "replace", f"{', '.join(change.keys)} changed while it was being deleted"
        )
    if record.being_deleted:
        return NodeDecision(Verb.CREATE, f"its deletion failed: {record.reason}")
    if record.action == Action.CREATE and record.status != Status.COMPLETE:
        return NodeDecision(Verb.CREATE, f"its creation failed: {record.reason}")
    if record.status != Status.COMPLETE:
        return NodeDecision(Verb.UPDATE, f"its update failed: {record.reason}")
    if change.action == "update":
        return NodeDecision(Verb.UPDATE, f"{', '.join(change.keys)} changed")
    return NodeDecision("none", "it is as the goal wants it")


def revived(record: Record, resource_type: ResourceType) -> bool:
    """Return whether a record whose deletion failed is restored in place."""
    return (
        resource_type.revive and record.action == Action.DELETE and record.status == Status.FAILED
    )


def _decide_cleanup(record: Record, resource_type: ResourceType) -> NodeDecision:
    if record.gone:
        return NodeDecision("none", "it is already gone")
    if record.action == Action.INIT:
        return NodeDecision("none", "it was never created")
    if Verb.DELETE not in resource_type.operations:
        return NodeDecision("none", "there is nothing to undo")
    return NodeDecision(Verb.DELETE, "the goal does not want it")
