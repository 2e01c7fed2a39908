# SPDX-License-Identifier: Apache-2.0
"""When a traversal ended: once, on every database, whatever is reported of it afterwards."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from mistral_failover.convergence.records import TraversalStatus
from mistral_failover.store import views
from mistral_failover.store.tables import traversals
from support.databases import KINDS
from support.samples import sample_resource
from support.simulation import Simulation


@pytest.fixture(params=KINDS)
def simulation(request: pytest.FixtureRequest) -> Simulation:
    found = Simulation(request.param)
    found.define({"web": sample_resource()})
    found.start(found.goal())
    return found


def marked(simulation: Simulation, status: TraversalStatus) -> tuple[str, float | None]:
    """Mark the traversal a second later; its status afterwards, and when it ended."""
    simulation.clock.seconds += 1
    simulation.database.atomically(lambda tx: tx.mark_traversal("traversal-1", status, "it"))
    query = sa.select(traversals.c.status, traversals.c.ended_at)
    row = simulation.database.reading(lambda tx: tx.connection.execute(query).one())
    return row.status, row.ended_at


@pytest.mark.parametrize(
    "status", [TraversalStatus.FAILED, TraversalStatus.COMPLETE, TraversalStatus.SUPERSEDED]
)
def test_what_is_over_has_ended(simulation: Simulation, status: TraversalStatus) -> None:
    assert marked(simulation, status) == (status, simulation.clock.seconds)


@pytest.mark.parametrize("then", [TraversalStatus.FAILED, TraversalStatus.COMPLETE])
def test_what_failed_before_ended_when_it_failed_first(
    simulation: Simulation, then: TraversalStatus
) -> None:
    _, ended = marked(simulation, TraversalStatus.FAILED)

    assert marked(simulation, then) == (then, ended)


def test_what_waits_for_a_person_has_not_ended(simulation: Simulation) -> None:
    assert marked(simulation, TraversalStatus.BLOCKED) == ("BLOCKED", None)
    assert marked(simulation, TraversalStatus.IN_PROGRESS) == ("IN_PROGRESS", None)


def test_what_fails_after_it_waited_for_a_person_ends_then(simulation: Simulation) -> None:
    marked(simulation, TraversalStatus.BLOCKED)

    assert marked(simulation, TraversalStatus.FAILED) == ("FAILED", simulation.clock.seconds)


@pytest.mark.parametrize(
    "status",
    [
        TraversalStatus.IN_PROGRESS,
        TraversalStatus.BLOCKED,
        TraversalStatus.FAILED,
        TraversalStatus.COMPLETE,
    ],
)
def test_the_traversal_that_took_its_place_is_known_unless_it_had_ended(
    simulation: Simulation, status: TraversalStatus
) -> None:
    marked(simulation, status)

    simulation.start(simulation.goal("b"), "traversal-2")

    row = simulation.store.reading(lambda tx: views.traversal(tx, "traversal-1"))
    assert row is not None
    superseded = status in ("IN_PROGRESS", "BLOCKED")
    assert row["superseded_by"] == ("traversal-2" if superseded else None)
    assert row["status"] == ("SUPERSEDED" if superseded else status)
