# SPDX-License-Identifier: Apache-2.0
"""Operations given up because their lease was lost: nothing fails, nothing is forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mistral_failover.convergence.records import Operation, Ready
from mistral_failover.store.tables import operations
from support.rows import rows
from support.samples import sample_resource, sentences
from support.simulation import LEASE, Simulation

WHY = "its lease was lost"


@pytest.fixture
def ready(simulation: Simulation) -> Ready:
    """The node of the creation of ``a``."""
    simulation.define({"a": sample_resource()})
    (node,) = simulation.start(simulation.goal()).ready
    return node


@pytest.fixture
def operation(simulation: Simulation, ready: Ready) -> Operation:
    """That creation, handed out."""
    return simulation.operation(ready)


def test_what_is_given_up_is_free_unknown_and_triggered_again(
    simulation: Simulation, ready: Ready, operation: Operation
) -> None:
    step = simulation.engine.abandon(operation.ticket, WHY)

    assert (step.sentence, step.ready) == (f"Create a: abandoned, {WHY}", (ready,))
    assert sentences(simulation, "given_up") == [step.sentence]
    (record,) = simulation.records()
    assert (record.owner, record.status, record.reason) == (None, "FAILED", WHY)
    entry = rows(simulation.database, operations, "key")[operation.ticket.key]
    assert entry["status"] == "unknown"
    assert entry["result"]["error"] == {"code": "LEASE_LOST", "message": WHY}
    assert simulation.status() == "IN_PROGRESS"
    again = simulation.operation(ready)
    assert again.unknown
    assert again.ticket.key == operation.ticket.key


def test_the_ledger_says_for_want_of_what_it_was_given_up(
    simulation: Simulation, operation: Operation
) -> None:
    simulation.engine.abandon(operation.ticket, "the token expired", "TOKEN_EXPIRED")

    entry = rows(simulation.database, operations, "key")[operation.ticket.key]
    assert entry["status"] == "unknown"
    assert entry["result"]["error"] == {"code": "TOKEN_EXPIRED", "message": "the token expired"}


def test_what_somebody_else_took_over_can_not_be_given_up(
    simulation: Simulation, ready: Ready, operation: Operation
) -> None:
    simulation.clock.seconds += LEASE
    simulation.operation(ready, "other")
    before = simulation.records()

    step = simulation.engine.abandon(operation.ticket, WHY)

    assert step.sentence == f"Create a: {WHY}; another worker has broken the lock"
    assert step.ready == ()
    assert simulation.records() == before
    entry = rows(simulation.database, operations, "key")[operation.ticket.key]
    assert entry["status"] == "started"


def test_a_ticket_of_nothing_gives_nothing_up(simulation: Simulation, operation: Operation) -> None:
    before = simulation.records()
    node = replace(operation.ticket.node, resource_id="nowhere")

    for wrong in (
        replace(operation.ticket, traversal_id="never"),
        replace(operation.ticket, node=node),
    ):
        step = simulation.engine.abandon(wrong, WHY)
        assert step.sentence == f"{wrong.node.key} has no operation to abandon"

    assert simulation.records() == before
