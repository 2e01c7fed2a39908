# SPDX-License-Identifier: Apache-2.0
"""What an operation carries when it is handed out, and what is written down before."""

from __future__ import annotations

import pytest

from mistral_failover.convergence.records import Operation, Outcome, Ready
from mistral_failover.model.goal import Goal
from mistral_failover.model.ids import derived_id
from mistral_failover.store import views
from mistral_failover.store.tables import journal, operations
from support.rows import rows
from support.samples import sample_resource
from support.simulation import LEASE, Simulation, away, failure
from support.world import TYPES, type_file

ACTIVE = {"get_param": "active"}


def handed_out(simulation: Simulation, active: str) -> Operation:
    """The one operation of the goal with this active member."""
    (ready,) = simulation.start(simulation.goal(active)).ready
    return simulation.operation(ready)


def intent(simulation: Simulation, operation: Operation) -> object:
    """What the ledger says that the operation is to do."""
    return rows(simulation.database, operations, "key")[operation.ticket.key]["intent"]


def test_a_creation_carries_what_is_wanted(simulation: Simulation) -> None:
    simulation.define({"a": sample_resource(value=ACTIVE)})

    creation = handed_out(simulation, "a")

    assert (creation.ticket.verb, creation.previous) == ("create", None)
    assert creation.properties == {"value": "a"}
    assert intent(simulation, creation) == {"properties": {"value": "a"}, "previous": None}


def test_an_update_carries_what_was_before_as_well(simulation: Simulation) -> None:
    simulation.define({"a": sample_resource(value=ACTIVE)})
    simulation.converge(simulation.goal("a"))

    update = handed_out(simulation, "b")

    assert update.ticket.verb == "update"
    expected = {"properties": {"value": "b"}, "previous": {"value": "a"}}
    assert {"properties": update.properties, "previous": update.previous} == expected
    assert intent(simulation, update) == expected


def test_an_update_after_one_that_failed_carries_what_was_applied_before_that(
    simulation: Simulation,
) -> None:
    simulation.define({"a": sample_resource(value=ACTIVE)})
    simulation.converge(simulation.goal("a"))
    failed = handed_out(simulation, "b")
    simulation.engine.conclude(failed.ticket, failure())

    update = handed_out(simulation, "c")

    assert (update.properties, update.previous) == ({"value": "c"}, {"value": "a"})
    assert not update.unknown
    assert simulation.by_name()["a"].applied == {"value": "a"}


@pytest.mark.parametrize("how", ["unknown", "its owner died", "given up"])
def test_an_update_after_one_of_which_nothing_is_known_says_so(
    simulation: Simulation, how: str
) -> None:
    """What stands is what was applied last, or what an attempt since was to apply."""
    simulation.define({"a": sample_resource(value=ACTIVE)})
    simulation.converge(simulation.goal("a"))
    unclear = handed_out(simulation, "b")
    if how == "unknown":
        simulation.engine.conclude(unclear.ticket, failure(unknown=True))
    elif how == "given up":
        simulation.engine.abandon(unclear.ticket, "its lease was lost")
    simulation.clock.seconds += LEASE

    update = handed_out(simulation, "c")

    assert (update.previous, update.unknown) == ({"value": "a"}, True)


# -- a request without an answer


def asked(simulation: Simulation, operation: Operation, seconds: float = 60.0) -> None:
    """Its owner sends a request and stops before the answer."""
    lock = operation.ticket.lock
    assert simulation.database.atomically(lambda tx: tx.ask(lock, "DELETE /x", seconds))
    simulation.engine.abandon(operation.ticket, "its process is stopping")


def update_of(simulation: Simulation, goal: Goal) -> Ready:
    """The one node that brings a resource to the goal."""
    (ready,) = [each for each in simulation.start(goal).ready if each.node.kind == "update"]
    return ready


def test_what_another_goal_wants_waits_until_the_last_request_can_have_no_effect_any_more(
    simulation: Simulation,
) -> None:
    simulation.define({"a": sample_resource(value=ACTIVE)})
    simulation.converge(simulation.goal("a"))
    asked(simulation, handed_out(simulation, "b"))

    ready = update_of(simulation, simulation.goal("c"))
    waits = simulation.engine.check(ready, "o")
    assert waits.operation is None
    (row,) = simulation.database.reading(lambda tx: tx.progress(ready.traversal_id))
    assert row.next_try == waits.retry_at, "a loop comes back then"

    simulation.clock.seconds += 60.001
    assert simulation.operation(ready).unsettled == 0


def test_the_same_operation_continues_at_once_and_knows_how_long_to_look_only(
    simulation: Simulation,
) -> None:
    simulation.define({"a": sample_resource(value=ACTIVE)})
    simulation.converge(simulation.goal("a"))
    asked(simulation, handed_out(simulation, "b"))
    simulation.clock.seconds += 20

    again = handed_out(simulation, "b")

    assert again.unknown
    assert again.unsettled == pytest.approx(40)


def test_where_nothing_was_asked_nothing_is_waited_for(simulation: Simulation) -> None:
    simulation.define({"a": sample_resource(value=ACTIVE)})
    simulation.converge(simulation.goal("a"))
    died = handed_out(simulation, "b")
    simulation.database.atomically(lambda tx: tx.ask(died.ticket.lock, "DELETE /x", 60.0))
    simulation.database.atomically(lambda tx: tx.settle(died.ticket.lock))
    simulation.clock.seconds += LEASE

    update = handed_out(simulation, "c")

    assert (update.unknown, update.unsettled) == (True, 0)


def test_a_record_that_takes_another_one_s_place_waits_for_what_that_one_asked_for(
    simulation: Simulation,
) -> None:
    simulation.define({"a": sample_resource(key=ACTIVE)})
    simulation.converge(simulation.goal("a"))
    former = update_of(simulation, simulation.goal("b"))
    asked(simulation, simulation.operation(former))

    new = update_of(simulation, simulation.goal("c"))

    assert new.node.resource_id != former.node.resource_id
    assert simulation.engine.check(new, "o").retry_at is not None


def test_what_waits_for_a_request_has_all_of_its_patience_afterwards(
    simulation: Simulation,
) -> None:
    simulation.define({"a": sample_resource(value=ACTIVE)}, limits={"patience": 60})
    simulation.converge(simulation.goal("a"))
    asked(simulation, handed_out(simulation, "b"), seconds=70.0)
    ready = update_of(simulation, simulation.goal("c"))
    simulation.engine.check(ready, "o")
    simulation.clock.seconds += 70.001

    step = simulation.engine.conclude(simulation.operation(ready).ticket, away())

    assert step.retry_at is not None, "it is tried again"


def test_a_resource_of_the_stack_waits_for_what_was_asked_under_another_name(
    simulation: Simulation,
) -> None:
    simulation.define({"routing": sample_resource(value=ACTIVE)})
    simulation.converge(simulation.goal("a"))
    asked(simulation, handed_out(simulation, "b"))
    simulation.define({"routes": sample_resource(value=ACTIVE)})

    ready = update_of(simulation, simulation.goal("a"))

    assert simulation.engine.check(ready, "o").retry_at is not None


def test_what_a_replacement_asked_for_is_waited_for_before_its_member_gets_anything(
    simulation: Simulation,
) -> None:
    """A server that is marked unhealthy late goes with the stack's next update."""
    simulation.define({"a": sample_resource("held", member=ACTIVE)})
    simulation.converge(simulation.goal("a"))
    (ready,) = simulation.start(simulation.goal("a", replaced=["b"])).ready
    (replacing,) = simulation.engine.check(ready, "o").ready
    replacement = simulation.operation(replacing)
    assert replacement.record.name == "replace:b"
    asked(simulation, replacement)

    steps = simulation.converge(simulation.goal("b"))

    assert [step.sentence for step in steps if step.retry_at is not None] != []
    assert not [each for each in simulation.world.things.values() if each["name"] == "a"]


def test_a_fence_waits_for_no_request(simulation: Simulation) -> None:
    simulation.define({"a": sample_resource("held", member=ACTIVE)})
    goals = [simulation.goal("b", lost=("a",)), simulation.goal("c", lost=("a", "b"))]
    for goal in goals:
        handed = map(simulation.operation, simulation.start(goal).ready)
        (fence,) = [each for each in handed if each.record.name == "fence:a"]
        asked(simulation, fence)


def test_what_a_fence_asked_for_is_waited_for_before_its_member_gets_anything(
    simulation: Simulation,
) -> None:
    """A stop that comes late would hit what was started since."""
    simulation.define({"a": sample_resource("held", member=ACTIVE)})
    handed = map(simulation.operation, simulation.start(simulation.goal("b", lost=("a",))).ready)
    (fence,) = [each for each in handed if each.record.name == "fence:a"]
    asked(simulation, fence)
    simulation.converge(simulation.nothing())

    back = update_of(simulation, simulation.goal("a"))

    assert simulation.engine.check(back, "o").retry_at is not None


def test_what_was_applied_is_what_succeeded_last(simulation: Simulation) -> None:
    simulation.define({"a": sample_resource(value=ACTIVE)})
    simulation.converge(simulation.goal("a"), lambda operation: failure())
    assert simulation.by_name()["a"].applied is None

    for active in ("a", "b"):
        simulation.converge(simulation.goal(active))
        assert simulation.by_name()["a"].applied == {"value": active}


def test_a_deletion_carries_what_was_applied_last(simulation: Simulation) -> None:
    simulation.define({"a": sample_resource(value=ACTIVE)})
    simulation.converge(simulation.goal("a"))

    (ready,) = simulation.start(simulation.nothing()).ready
    deletion = simulation.operation(ready)

    assert (deletion.ticket.verb, deletion.properties) == ("delete", {"value": "a"})
    assert intent(simulation, deletion) == {
        "properties": {"value": "a"},
        "previous": {"value": "a"},
    }


def test_the_key_of_an_operation_is_derived_from_what_it_is(simulation: Simulation) -> None:
    simulation.define({"a": sample_resource()})

    ticket = handed_out(simulation, "a").ticket

    version = simulation.goal("a").version
    assert ticket.goal_version == version
    assert ticket.key == derived_id(ticket.node.resource_id, version, "create", "0")


def test_a_record_says_what_is_being_done_to_it(simulation: Simulation) -> None:
    simulation.define({"a": sample_resource()})
    creation = handed_out(simulation, "a")
    (record,) = simulation.records()

    assert (record.action, record.status, record.reason) == ("CREATE", "IN_PROGRESS", "")
    assert record.token == creation.ticket.lock.token


def test_the_journal_says_of_what_and_in_which_traversal(simulation: Simulation) -> None:
    simulation.define({"a": sample_resource()})
    creation = handed_out(simulation, "a")
    simulation.engine.conclude(creation.ticket, Outcome())

    here = simulation.store.reading(
        lambda tx: views.history(tx, simulation.group_id, traversal_id=simulation.current)
    )
    assert [e["kind"] for e in here] == ["traversal", "started", "done", "complete"]
    written = rows(simulation.database, journal, "id").values()
    about = {row["kind"]: row["resource_id"] for row in written}
    identity = creation.record.id
    assert about == {"traversal": None, "started": identity, "done": identity, "complete": None}


def test_a_value_that_does_not_fit_is_refused_with_the_place_where_it_was_asked_for(
    simulation: Simulation,
) -> None:
    strict = type_file("strict")
    strict["properties"]["value"] = {"type": "string"}
    strange = {"type": "strict", "properties": {"value": {"get_attr": ["a", "echo"]}}}
    simulation.define({"a": sample_resource(value=7), "b": strange}, types=[*TYPES, strict])

    simulation.converge(simulation.goal())

    assert simulation.status() == "FAILED"
    assert "resources.b.properties" in simulation.reason()
