# SPDX-License-Identifier: Apache-2.0
"""What a sweep looks for in the state store, by the database's own clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mistral_failover.convergence.engine import Engine
from mistral_failover.convergence.records import JournalKind, Outcome, Ready, Ticket
from mistral_failover.model.alarm_fact import AlarmFact
from mistral_failover.model.decisions import Decision
from mistral_failover.model.goal import Goal
from mistral_failover.model.ids import group_id
from mistral_failover.model.stages import Stage
from mistral_failover.store import incidents, stalled_work
from mistral_failover.store.database import Database
from mistral_failover.store.incidents import OPERATOR, Incident
from mistral_failover.store.tables import incidents as incident_rows
from mistral_failover.store.tables import journal, nodes, resources
from support.samples import sample_resource
from support.simulation import PROJECT
from support.world import type_file

QUIET = 30.0

Define = Callable[..., tuple[str, Goal]]


@pytest.fixture
def ready(database: Database, define: Define) -> Ready:
    """The one ready node of a traversal of the group ``g``."""
    identity, goal = define({"thing": sample_resource()})
    engine = Engine(database, lease=60.0)
    (found,) = engine.start(identity, goal, traversal_id="t", expected=None, cause="a test").ready
    return found


def age(database: Database, seconds: float) -> None:
    """Let what the journal says have been said earlier."""
    earlier = journal.update().values(at=journal.c.at - seconds)
    database.atomically(lambda tx: tx.execute(earlier))


def tell(database: Database, ready: Ready, kind: JournalKind) -> None:
    """A sentence about the node's resource, now."""
    group = group_id(PROJECT, "g")
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


def found(
    database: Database, quiet: float = QUIET, project: str = PROJECT
) -> list[stalled_work.Stalled]:
    return database.for_project(project).reading(lambda tx: stalled_work.stalled(tx, None, quiet))


# -- traversals without a worker


def test_a_traversal_is_stalled_when_nothing_was_said_in_it_for_long(
    database: Database, ready: Ready
) -> None:
    assert found(database) == []

    age(database, QUIET + 1)

    (stalled,) = found(database)
    assert (stalled.traversal_id, stalled.group_id) == ("t", group_id(PROJECT, "g"))
    assert (stalled.group, stalled.resource, stalled.dead) == ("g", "thing", None)
    assert found(database, project="another") == []


def test_a_traversal_in_which_something_happens_is_not_stalled(
    database: Database, ready: Ready
) -> None:
    age(database, QUIET + 1)
    tell(database, ready, JournalKind.DONE)

    assert found(database) == []


def test_one_whose_node_is_worked_on_is_not_stalled_however_long_that_takes(
    database: Database, ready: Ready
) -> None:
    take(database, ready, 600.0)
    age(database, QUIET + 1)

    assert found(database) == []


def test_the_end_of_a_lease_needs_no_silence(database: Database, ready: Ready) -> None:
    take(database, ready, 60.0)
    assert found(database, quiet=0.0) == []

    ends_in(database, ready, -0.001)

    assert [stalled.dead for stalled in found(database)] == ["e/a@h:1"]


def test_nor_does_work_that_a_stopping_process_gave_back(database: Database, ready: Ready) -> None:
    ticket = take(database, ready, 60.0)
    Engine(database, lease=60.0).abandon(ticket, "its process is stopping", "HANDED_BACK")

    assert [stalled.dead for stalled in found(database)] == [None]

    tell(database, ready, JournalKind.STARTED)
    assert found(database) == [], "somebody took it up since"


@pytest.mark.parametrize("dead", [True, False])
def test_what_a_sweep_has_just_taken_up_is_left_to_it(
    database: Database, ready: Ready, dead: bool
) -> None:
    if dead:
        take(database, ready, 60.0)
        ends_in(database, ready, -0.001)
    age(database, QUIET + 1)
    tell(database, ready, JournalKind.SWEEP)

    assert found(database) == []

    age(database, QUIET + 1)
    assert len(found(database)) == 1


def test_one_that_waits_for_a_service_is_stalled_only_when_its_next_try_is_long_over(
    database: Database, ready: Ready
) -> None:
    ticket = take(database, ready, 60.0)
    away = {"code": "UNREACHABLE", "message": "Nova does not answer"}
    Engine(database, lease=60.0).conclude(ticket, Outcome(error=away, transient=True))
    age(database, QUIET + 1)

    assert found(database) == []

    earlier = nodes.update().where(nodes.c.next_try.is_not(None))
    database.atomically(
        lambda tx: tx.execute(earlier.values(next_try=nodes.c.next_try - QUIET - 2))
    )
    assert len(found(database)) == 1


def test_a_traversal_with_several_ready_nodes_is_found_once(
    database: Database, define: Define
) -> None:
    identity, goal = define({"one": sample_resource(), "two": sample_resource()})
    Engine(database, lease=60.0).start(
        identity, goal, traversal_id="t", expected=None, cause="a test"
    )
    age(database, QUIET + 1)

    (stalled,) = found(database)

    assert stalled.resource in ("one", "two")


# -- traversals that wait for their chain


@pytest.fixture
def behind_a_gate(database: Database, define: Define) -> None:
    """A traversal whose one ready node is of a later stage than those that are open; the execution
    ``x1`` drives it."""
    late = type_file("shared")
    late["operations"] = {
        verb: {"workflow": f"test.{verb}", "stage": "activate"}
        for verb in ("create", "update", "delete")
    }
    identity, goal = define({"thing": sample_resource()}, types=[late])
    Engine(database, lease=60.0).start(
        identity, goal, traversal_id="t", expected=None, cause="a test", through=Stage.FENCE
    )
    database.atomically(lambda tx: tx.driven_by("t", "x1"))


def held(database: Database, project: str = PROJECT) -> list[stalled_work.ChainWait]:
    return database.for_project(project).reading(
        lambda tx: stalled_work.chain_waits(tx, None, QUIET)
    )


@pytest.mark.usefixtures("behind_a_gate")
def test_a_traversal_that_waits_for_its_chain_is_told_with_the_execution_that_drives_it(
    database: Database,
) -> None:
    assert held(database) == []

    age(database, QUIET + 1)

    (waits,) = held(database)
    assert (waits.traversal_id, waits.group, waits.chain, waits.chains) == ("t", "g", "x1", 1)
    assert held(database, "another") == []
    assert found(database) == [], "no worker may take it, so none is missing"


@pytest.mark.usefixtures("behind_a_gate")
def test_each_execution_that_drives_a_traversal_is_counted_once(database: Database) -> None:
    for execution in ("x1", "x2", "x2"):
        database.atomically(lambda tx: tx.driven_by("t", execution))  # noqa: B023
    age(database, QUIET + 1)

    (waits,) = held(database)

    assert (waits.chain, waits.chains) == ("x2", 2)


@pytest.mark.usefixtures("behind_a_gate")
def test_a_traversal_whose_stage_was_opened_waits_for_its_chain_no_more(
    database: Database,
) -> None:
    Engine(database, lease=60.0).open_through("t", None)
    age(database, QUIET + 1)

    assert held(database) == []
    assert len(found(database)) == 1


# -- who holds locks


def test_who_holds_a_lock_or_has_just_ended_an_operation_is_at_work(
    database: Database, ready: Ready
) -> None:
    def at_work(within: float = 60.0, project: str = PROJECT) -> set[str]:
        return database.for_project(project).reading(
            lambda tx: stalled_work.active_owners(tx, within)
        )

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
        ("aodh", Decision.ADMITTED, None, True),
        ("aodh", Decision.ADMITTED, "t", False),
        ("aodh", Decision.HELD, None, False),
        (OPERATOR, Decision.ADMITTED, None, False),
    ],
)
def test_an_alarm_that_was_admitted_for_a_while_and_caused_nothing_is_unstarted(
    database: Database, source: str, decision: Decision, traversal: str | None, counts: bool
) -> None:
    incident = Incident(
        "i", PROJECT, "g", source, AlarmFact(), {}, decision, "s", traversal_id=traversal
    )
    database.for_project(PROJECT).atomically(lambda tx: incidents.add(tx, incident))

    def unstarted() -> bool:
        return database.for_project(PROJECT).reading(lambda tx: stalled_work.unstarted(tx, QUIET))

    assert not unstarted()
    earlier = incident_rows.update().values(decided_at=incident_rows.c.decided_at - QUIET - 1)
    database.atomically(lambda tx: tx.execute(earlier))
    assert unstarted() is counts
    assert not database.for_project("another").reading(lambda tx: stalled_work.unstarted(tx, QUIET))
