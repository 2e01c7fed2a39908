# SPDX-License-Identifier: Apache-2.0
"""Predict a traversal that has not started: its operations and their order. Pure.

The rules that decide what a node needs (``decide``) also predict it. An operation that depends on
the result of another one, or on a running one, is not *certain*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import networkx as nx

from mistral_failover.convergence.decide import decide
from mistral_failover.convergence.graph import TraversalPlan
from mistral_failover.convergence.records import Action, Node, Record, Status
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.references import resolve_attributes
from mistral_failover.model.types import ResourceType, Verb


@dataclass(frozen=True)
class DryRunStep:
    """One predicted operation. ``certain`` False: it may turn out to be unnecessary. ``after``: the
    keys of the nodes whose operations must end before, only the nearest."""

    node: Node
    record: Record
    verb: Verb
    certain: bool
    after: frozenset[str]


def dry_run_steps(
    plan: TraversalPlan,
    types: Mapping[str, ResourceType],
    records: Sequence[Record],
    epochs: Mapping[str, int],
    now: float,
) -> list[list[DryRunStep]]:
    """Return the operations of a traversal in waves: those of one wave wait only for earlier waves.

    ``records``, ``epochs`` and ``now`` (seconds, the database's clock) are those that the plan was
    made from.
    """
    by_id = {record.id: record for record in [*records, *plan.new]}
    coming: dict[str, tuple[Record, Verb, bool]] = {}
    known: dict[str, Mapping[str, Any]] = {}  # the reports of unchanged resources, by name
    for node in plan.in_order():
        record = by_id[node.resource_id]
        # A worker that finds a dead owner's lock breaks it: the record has failed.
        if record.owner is not None and not record.held_at(now):
            record = replace(record, owner=None, status=Status.FAILED)
        verdict = _verdict(plan, node, record, types[record.type], epochs, known, now)
        if verdict is not None:
            coming[node.key] = (record, *verdict)
        elif node.kind == "update":
            known[record.name] = {"id": record.physical_id, "attributes": record.attributes}
    order = nx.transitive_reduction(nx.transitive_closure(plan.graph).subgraph(coming))
    return [
        [
            DryRunStep(Node.parse(key), *coming[key], frozenset(order.predecessors(key)))
            for key in sorted(wave, key=lambda key: (coming[key][0].name, key))
        ]
        for wave in nx.topological_generations(order)
    ]


def _verdict(
    plan: TraversalPlan,
    node: Node,
    record: Record,
    resource_type: ResourceType,
    epochs: Mapping[str, int],
    known: Mapping[str, Mapping[str, Any]],
    now: float,
) -> tuple[Verb, bool] | None:
    """Return a node's operation, and whether it is certain; None: nothing to do."""
    epoch = epochs.get(record.member or "", 0)
    if node.kind == "cleanup":
        found = decide("cleanup", record, resource_type, {}, epoch=epoch)
        certain = not (record.held_at(now) and record.action == Action.DELETE)
        return (Verb.DELETE, certain) if found.action == Verb.DELETE else None
    if record.id in plan.kept and record.held_at(now):
        return _VERBS.get(record.action, Verb.UPDATE), False  # its end is not known yet
    wanted = plan.wanted[record.id].properties
    try:
        properties = resolve_attributes(wanted, known)
    except InvalidDocument:
        properties = None
    if properties is None:
        return _unresolved(record)
    action = decide("update", record, resource_type, properties, epoch=epoch).action
    if action == "none":
        return None
    return (Verb.CREATE, False) if action == "replace" else (action, True)


def _unresolved(record: Record) -> tuple[Verb, bool]:
    """The wanted properties depend on what other nodes will report."""
    if record.properties is None:
        return Verb.CREATE, True
    if record.status != Status.COMPLETE:
        return _VERBS.get(record.action, Verb.UPDATE), True
    return Verb.UPDATE, False


_VERBS: Mapping[Action, Verb] = {Action.CREATE: Verb.CREATE, Action.DELETE: Verb.CREATE}
