# SPDX-License-Identifier: Apache-2.0
"""What a sweep looks for in the state store, by the database's own clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.convergence.engine import Engine
from mistral_failover.convergence.records import Outcome, Ready, Record, Ticket
from mistral_failover.store import groups, incidents, lying
from mistral_failover.store.database import Database
from mistral_failover.store.incidents import OPERATOR, Incident
from mistral_failover.store.tables import incidents as incident_rows
from mistral_failover.store.tables import journal, resources
from support.samples import thing
from support.simulation import PROJECT

QUIET = 30.0


@pytest.fixture
def ready(database: Database, define: Callable[..., Any]) -> Ready:
    """The one ready node of a traversal of the group ``g``."""
    identity, goal = define({"thing": thing()})
    engine = Engine(database, lease=60.0)
    (found,) = engine.start(identity, goal, traversal_id="t", expected=None, cause="a test").ready
    return found


def age(database: Database, seconds: float) -> None:
    """Let what the journal says have been said earlier."""
    earlier = journal.update().values(at=journal.c.at - seconds)
    database.atomically(lambda tx: tx.execute(earlier))


def tell(database: Database, ready: Ready, kind: str) -> None:
    """A sentence about the node's resource, now."""
    group = groups.group_id(PROJECT, "g")
    resource = ready.node.resource_id
    database.atomically(
        lambda tx: tx.journal(
            group, "s", kind=kind, traversal_id=ready.traversal_id, resource_id=resource
        )
    )


def take(database: Database, ready: Ready, lease: float, owner: str = "e/a@h:1") -> Ticket:
    """Take the node's operation."""
    operation = Engine(database, lease=lease).check(ready, owner).operation
    assert operation is not None
    return operation.ticket


def ends_in(database: Database, ready: Ready, seconds: float) -> None:
    """Let the lock of the node's record end in so many seconds."""
    moved = resources.update().where(resources.c.id == ready.node.resource_id)
    database.atomically(lambda tx: tx.execute(moved.values(lease_until=tx.clock() + seconds)))


def found(database: Database, quiet: float = QUIET, project: str = PROJECT) -> list[lying.Loose]:
    return database.reading(lambda tx: lying.loose(tx, project, None, quiet))


def record(database: Database, ready: Ready) -> Record:
    return database.reading(lambda tx: tx.record(ready.node.resource_id))


# -- ready nodes


def test_a_node_on_its_way_through_mistral_is_not_left_lying(
    database: Database, ready: Ready
) -> None:
    assert found(database) == []

    age(database, QUIET + 1)

    (node,) = found(database)
    assert (node.ready, node.group, node.resource, node.dead) == (ready, "g", "thing", None)
    assert found(database, project="another") == []


def test_a_node_in_a_traversal_in_which_something_happens_is_not_left_lying(
    database: Database, ready: Ready
) -> None:
    age(database, QUIET + 1)
    tell(database, ready, "done")

    assert found(database) == []


def test_the_end_of_a_lease_needs_no_silence(database: Database, ready: Ready) -> None:
    take(database, ready, 60.0)
    assert found(database, quiet=0.0) == []

    ends_in(database, ready, -0.001)

    assert [node.dead for node in found(database)] == ["e/a@h:1"]


@pytest.mark.parametrize("dead", [True, False])
def test_what_a_sweep_has_just_triggered_is_left_to_it(
    database: Database, ready: Ready, dead: bool
) -> None:
    if dead:
        take(database, ready, 60.0)
        ends_in(database, ready, -0.001)
    age(database, QUIET + 1)
    tell(database, ready, lying.SWEPT)

    assert found(database) == []

    age(database, QUIET + 1)
    assert len(found(database)) == 1


# -- locks and who holds them


def test_only_locks_that_last_longer_than_a_lease_are_long(
    database: Database, ready: Ready
) -> None:
    ticket = take(database, ready, 60.0)

    def long(lease: float, project: str = PROJECT) -> list[lying.LongLock]:
        return database.reading(lambda tx: lying.long_locks(tx, project, None, lease))

    (lock,) = long(30.0)
    assert (lock.resource, lock.group, lock.owner, lock.token) == ("thing", "g", "e/a@h:1", 1)
    assert lock.resource_id == ticket.lock.resource_id
    assert 59 < lock.left <= 60
    assert long(61.0) == long(30.0, "another") == []


def test_a_shortened_lock_ends_within_a_lease_and_its_holder_may_renew_it(
    database: Database, ready: Ready
) -> None:
    lock = take(database, ready, 300.0).lock

    assert database.atomically(lambda tx: tx.shorten(lock.resource_id, lock.owner, 1, 30.0))

    now = database.reading(lambda tx: tx.now())
    assert 29 < (record(database, ready).lease_until or 0) - now <= 30
    assert record(database, ready).token == 1
    assert database.atomically(lambda tx: tx.renew(lock))
    assert (record(database, ready).lease_until or 0) - now > 299


@pytest.mark.parametrize(
    ("owner", "token", "lease"), [("x", 1, 30.0), ("e/a@h:1", 2, 30.0), ("e/a@h:1", 1, 400.0)]
)
def test_no_other_lock_is_shortened_and_none_prolonged(
    database: Database, ready: Ready, owner: str, token: int, lease: float
) -> None:
    lock = take(database, ready, 300.0).lock
    before = record(database, ready)

    assert not database.atomically(lambda tx: tx.shorten(lock.resource_id, owner, token, lease))
    assert record(database, ready) == before


def test_who_holds_a_lock_or_has_just_ended_an_operation_is_at_work(
    database: Database, ready: Ready
) -> None:
    def at_work(within: float = 60.0, project: str = PROJECT) -> set[str]:
        return database.reading(lambda tx: lying.at_work(tx, project, within))

    assert at_work() == set()
    ticket = take(database, ready, 60.0)
    assert at_work() == at_work(-1.0) == {"e/a@h:1"}
    assert at_work(project="another") == set()

    Engine(database, lease=60.0).conclude(ticket, Outcome())

    assert at_work() == {"e/a@h:1"}
    assert at_work(-1.0) == set()


# -- incidents and traversals


@pytest.mark.parametrize(
    ("source", "decision", "traversal", "counts"),
    [
        ("aodh", "ADMITTED", None, True),
        ("aodh", "ADMITTED", "t", False),
        ("aodh", "HELD", None, False),
        (OPERATOR, "ADMITTED", None, False),
    ],
)
def test_an_alarm_that_was_admitted_for_a_while_and_caused_nothing_is_unstarted(
    database: Database, source: str, decision: str, traversal: str | None, counts: bool
) -> None:
    incident = Incident("i", PROJECT, "g", source, {}, {}, decision, "s", traversal_id=traversal)
    database.atomically(lambda tx: incidents.add(tx, incident))

    def unstarted() -> bool:
        return database.reading(lambda tx: lying.unstarted(tx, PROJECT, QUIET))

    assert not unstarted()
    earlier = incident_rows.update().values(decided_at=incident_rows.c.decided_at - QUIET - 1)
    database.atomically(lambda tx: tx.execute(earlier))
    assert unstarted() is counts
    assert not database.reading(lambda tx: lying.unstarted(tx, "another", QUIET))


def test_a_traversal_is_found_within_its_project_only(database: Database, ready: Ready) -> None:
    def group(project: str) -> str | None:
        return database.reading(lambda tx: lying.group_of(tx, project, ready.traversal_id))

    assert group(PROJECT) == groups.group_id(PROJECT, "g")
    assert group("another") is None
