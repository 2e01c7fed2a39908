# SPDX-License-Identifier: Apache-2.0
"""What was last seen of each group, and whose turn it is to be looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from mistral_failover.convergence.records import TraversalStatus
from mistral_failover.model.goal import Goal
from mistral_failover.model.observation import Observation, ObservationMemory, Service
from mistral_failover.store import observations, services
from mistral_failover.store.database import Database
from mistral_failover.store.tables import groups, traversals
from mistral_failover.store.tables import observations as table
from mistral_failover.store.transaction import ProjectTransaction, SqlTransaction
from support.simulation import PROJECT


def age(database: Database, group_id: str, seconds: float) -> None:
    """Have it seen that much earlier."""
    older = table.update().where(table.c.group_id == group_id).values(at=table.c.at - seconds)
    database.atomically(lambda tx: tx.execute(older))


def save(database: Database, group_id: str, service: str = "SERVING") -> None:
    database.for_project(PROJECT).atomically(
        lambda tx: observations.save(
            tx, group_id, Observation(Service(service)), ObservationMemory(), tx.now()
        )
    )


@pytest.fixture
def rests(database: Database, define: Callable[..., tuple[str, Goal]]) -> Callable[..., str]:
    """Make a group whose traversal stands so; returns its id."""

    def make(name: str = "payments", status: TraversalStatus = TraversalStatus.COMPLETE) -> str:
        identity, goal = define({}, name)
        traversal = f"walk-{name}"

        def walk(tx: SqlTransaction) -> None:
            tx.insert(
                traversals,
                id=traversal,
                group_id=identity,
                goal_version=goal.version,
                definition_version="v",
                status=status,
                reason="",
                cause="",
                graph={},
                number=tx.number(),
                started_at=tx.clock(),
                ended_at=None if status == "IN_PROGRESS" else tx.clock(),
            )
            current = groups.update().where(groups.c.id == identity)
            tx.execute(current.values(current_traversal=traversal))

        database.atomically(walk)
        return identity

    return make


@pytest.fixture
def due(database: Database) -> Callable[..., Sequence[str]]:
    """Whose turn it is, after so many seconds."""
    return lambda interval, project=PROJECT: database.for_project(project).reading(
        lambda tx: observations.due(tx, interval)
    )


def test_a_group_at_rest_is_due_until_it_was_looked_at(
    database: Database, rests: Callable[..., str], due: Callable[..., Sequence[str]]
) -> None:
    group = rests()
    assert due(60.0) == [group]

    save(database, group)
    assert due(60.0) == []

    age(database, group, 0.5)
    assert due(0.4) == [group]


def test_a_group_is_due_again_after_each_traversal(
    database: Database, rests: Callable[..., str], due: Callable[..., Sequence[str]]
) -> None:
    group = rests()
    save(database, group)
    age(database, group, 10.0)
    assert due(60.0) == [group]


def test_while_a_goal_is_being_reached_it_is_as_well(
    rests: Callable[..., str], due: Callable[..., Sequence[str]]
) -> None:
    group = rests("payments", TraversalStatus.IN_PROGRESS)
    assert due(0.0) == [group]


def test_the_longest_unseen_comes_first_and_other_projects_do_not(
    database: Database, rests: Callable[..., str], due: Callable[..., Sequence[str]]
) -> None:
    one, two, three = rests("one"), rests("two"), rests("three")
    save(database, one)
    save(database, two)
    age(database, one, 100.0)
    age(database, two, 200.0)

    assert due(60.0) == [three, two, one]
    assert due(60.0, "another-project") == []


def test_since_when_a_service_is_so_outlives_the_looks_that_see_no_change(
    database: Database, rests: Callable[..., str]
) -> None:
    group = rests()
    own = database.for_project(PROJECT)

    def kept() -> observations.StoredObservation:
        found = own.reading(lambda tx: observations.of_group(tx, group))
        assert found is not None
        return found

    save(database, group, "DOWN")
    first = kept()
    save(database, group, "DOWN")
    assert kept().since == first.since
    assert kept().at >= first.at

    save(database, group, "SERVING")
    assert kept().since >= kept().at - 1.0
    assert kept().seen.service == "SERVING"


def test_a_word_that_is_read_is_the_one_that_was_written(
    database: Database, rests: Callable[..., str]
) -> None:
    """The code compares words by identity: text that only equals one took other branches."""
    group = rests()
    save(database, group, "DOWN")
    (row,) = database.reading(lambda tx: services.rows(tx, [group]))

    assert row.look is not None
    assert row.look.service is Service.DOWN


def test_what_is_seen_again_only_gets_a_later_time(
    database: Database, rests: Callable[..., str], due: Callable[..., Sequence[str]]
) -> None:
    group = rests()
    own = database.for_project(PROJECT)
    save(database, group, "SERVING")
    age(database, group, 100.0)
    before = own.reading(lambda tx: observations.of_group(tx, group))
    now = database.reading(lambda tx: tx.now())
    assert before is not None
    for at in (now, now - 50.0):
        known = [(group, before.at)]
        own.atomically(lambda tx: observations.seen_again(tx, known, at))  # noqa: B023

    after = own.reading(lambda tx: observations.of_group(tx, group))
    assert after is not None
    assert after.at == now
    assert (after.since, after.seen) == (before.since, before.seen)
    assert due(60.0) == []


@pytest.mark.parametrize(
    ("said", "since"), [(None, 100.0), (70.0, 70.0), (10.0, 50.0), (130.0, 100.0)]
)
def test_a_service_is_so_since_what_the_look_tells_but_not_longer_than_it_was_otherwise(
    database: Database, rests: Callable[..., str], said: float | None, since: float
) -> None:
    group = rests()

    def looks(tx: ProjectTransaction) -> None:
        well, down = Observation(Service.SERVING), Observation(Service.DOWN)
        observations.save(tx, group, well, ObservationMemory(), 50.0)
        observations.save(tx, group, down, ObservationMemory(), 100.0, said)
        observations.save(tx, group, down, ObservationMemory(), 110.0, 105.0)

    database.for_project(PROJECT).atomically(looks)
    found = database.for_project(PROJECT).reading(lambda tx: observations.of_group(tx, group))
    assert found is not None
    assert (found.at, found.since) == (110.0, since)
