# SPDX-License-Identifier: Apache-2.0
"""What a check and a conclusion answer, word by word, and what they leave for people to see."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mistral_failover.convergence.records import Outcome, Ready
from mistral_failover.store.tables import nodes
from support.rows import rows
from support.samples import sample_resource, sentences
from support.simulation import LEASE, Simulation, failure
from support.world import type_file

WANTED = {"get_attr": ["a", "echo"]}


def reason_of(simulation: Simulation, ready: Ready) -> str | None:
    """Why a node has its status."""
    found = rows(simulation.database, nodes, "traversal_id", "node")
    reason: str | None = found[ready.traversal_id, ready.node.key]["reason"]
    return reason


def test_a_check_that_finds_the_lock_held_reports_its_owner_and_for_how_long(
    simulation: Simulation,
) -> None:
    simulation.define({"a": sample_resource()})
    (ready,) = simulation.start(simulation.goal()).ready
    simulation.operation(ready, "slow")
    simulation.clock.seconds += 10

    step = simulation.engine.check(ready, "other")

    assert step.sentence == (
        f"slow is working on a (lease: {LEASE - 10:.0f} s left); when it is done, this is "
        "triggered again"
    )


def test_a_lease_that_ends_while_it_is_looked_at_is_broken_and_not_waited_for(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation.define({"a": sample_resource()})
    (ready,) = simulation.start(simulation.goal()).ready
    simulation.operation(ready, "dead")
    over = simulation.clock.seconds + LEASE
    readings = [over - 1]
    monkeypatch.setattr(simulation.database, "_clock", lambda: readings.pop() if readings else over)

    step = simulation.engine.check(ready, "other")

    assert step.operation is not None
    assert step.operation.unknown


def test_what_can_not_be_had_is_rolled_back_like_a_failure(simulation: Simulation) -> None:
    simulation.define({"a": sample_resource()}, on_failure="rollback")
    home = simulation.goal()
    simulation.converge(home)
    more = {"b": sample_resource(), "c": sample_resource(value={"get_attr": ["b", "echo"]})}
    simulation.define({"a": sample_resource(), **more}, on_failure="rollback")
    simulation.carry(
        [r for r in simulation.start(simulation.goal()).ready if r != simulation.update_of("b")]
    )
    first = simulation.operation(simulation.update_of("b"))
    (ready,) = simulation.engine.conclude(first.ticket, Outcome(physical_id="x")).ready

    step = simulation.engine.check(ready, "o")

    assert set(step.ready) == set(simulation.sweep()) != set()
    simulation.carry(step.ready)
    simulation.audit_at_rest(home)


def test_a_node_without_what_it_needs_fails_with_the_reason_of_its_traversal(
    simulation: Simulation,
) -> None:
    simulation.define({"a": sample_resource(), "b": sample_resource(value=WANTED)})
    started = simulation.start(simulation.goal())
    first = simulation.operation(started.ready[0])
    (ready,) = simulation.engine.conclude(first.ticket, Outcome(physical_id="x")).ready

    step = simulation.engine.check(ready, "o")

    assert step.sentence == simulation.reason() == reason_of(simulation, ready)
    assert "UNRESOLVED_REFERENCE" in step.sentence
    assert sentences(simulation, "failed") == [step.sentence]
    assert (step.operation, step.ready) == (None, ())


def test_a_failed_node_keeps_the_reason(simulation: Simulation) -> None:
    simulation.define({"a": sample_resource()})
    (ready,) = simulation.start(simulation.goal()).ready

    step = simulation.engine.conclude(simulation.operation(ready).ticket, failure())

    assert step.sentence == "Create a: it broke. Repair it. [BROKEN]"
    assert reason_of(simulation, ready) == step.sentence
    assert sentences(simulation, "failed") == [step.sentence]


def test_what_waits_for_a_person_is_not_rolled_back(simulation: Simulation) -> None:
    simulation.define({"a": sample_resource(value={"get_param": "active"})}, on_failure="rollback")
    simulation.converge(simulation.goal("a"))
    away = simulation.start(simulation.goal("b"))

    simulation.carry(away.ready, lambda operation: failure(blocked=True))

    assert simulation.current == away.traversal_id
    assert simulation.status() == "BLOCKED"


def test_a_record_that_must_be_replaced_is_named_with_what_can_not_change(
    simulation: Simulation,
) -> None:
    both = {"a": sample_resource(value=1), "b": sample_resource(key=WANTED)}
    simulation.define(both)
    simulation.converge(simulation.goal())
    simulation.define({**both, "a": sample_resource(value=2)})

    steps = simulation.converge(simulation.goal())

    assert "b must be replaced: key cannot change in place" in [step.sentence for step in steps]


def test_a_ticket_of_a_traversal_that_never_was_concludes_nothing(simulation: Simulation) -> None:
    simulation.define({"a": sample_resource()})
    operation = simulation.operation(simulation.start(simulation.goal()).ready[0])
    before = simulation.records()

    step = simulation.engine.conclude(replace(operation.ticket, traversal_id="never"), Outcome())

    assert step.sentence == f"{operation.ticket.node.key} has no operation to conclude"
    assert simulation.records() == before


def test_a_late_result_is_told_as_one(simulation: Simulation) -> None:
    simulation.define({"a": sample_resource()})
    operation = simulation.operation(simulation.start(simulation.goal()).ready[0])
    simulation.engine.conclude(operation.ticket, simulation.world.operate(operation))

    step = simulation.engine.conclude(operation.ticket, failure())

    assert sentences(simulation, "late") == [step.sentence]


def test_an_operation_is_told_in_the_words_of_its_type(simulation: Simulation) -> None:
    house = type_file("house")
    house["operations"] = {
        "create": {"workflow": "house.set_up"},
        "update": {"workflow": "house.repair"},
    }
    house["words"] = {"create": "Set up {name}"}
    simulation.define({"a": {"type": "house", "properties": {}}}, types=[house])
    (ready,) = simulation.start(simulation.goal()).ready

    handed_out = simulation.engine.check(ready, "o")
    assert handed_out.operation is not None
    done = simulation.engine.conclude(handed_out.operation.ticket, Outcome())

    assert handed_out.sentence == "Set up a"
    assert done.sentence == "Set up a: done"
    assert sentences(simulation, "started") == ["Set up a: started"]
    assert sentences(simulation, "done") == ["Set up a: done"]


def test_what_is_taken_up_again_is_told_as_such(simulation: Simulation) -> None:
    simulation.define({"a": sample_resource()})
    (ready,) = simulation.start(simulation.goal()).ready
    simulation.operation(ready, "dead")
    simulation.clock.seconds += LEASE

    simulation.operation(ready)

    assert sentences(simulation, "started") == ["Create a: started", "Create a: continued"]


def test_what_never_came_to_be_is_gone_without_an_operation(simulation: Simulation) -> None:
    simulation.define({"a": sample_resource()})
    planned = simulation.start(simulation.goal()).ready[0].node.resource_id
    nothing = simulation.nothing()
    (cleanup,) = simulation.start(nothing).ready

    step = simulation.engine.check(cleanup, "o")

    assert (step.sentence, step.operation, step.unchanged) == ("a is gone", None, True)
    record = simulation.record(planned)
    assert record is not None
    assert record.gone
    assert (record.reason, record.goal_version) == ("", nothing.version)
    assert simulation.status() == "COMPLETE"


def test_a_step_says_whether_its_node_came_to_its_end_without_an_operation(
    simulation: Simulation,
) -> None:
    simulation.define({"a": sample_resource()})
    (ready,) = simulation.start(simulation.goal()).ready
    made = simulation.engine.check(ready, "o")
    met = simulation.engine.check(ready, "another")
    assert made.operation is not None
    done = simulation.engine.conclude(
        made.operation.ticket, simulation.world.operate(made.operation)
    )
    again = simulation.engine.check(ready, "o")
    (ready,) = simulation.start(simulation.goal()).ready
    as_wanted = simulation.engine.check(ready, "o")

    assert [step.unchanged for step in (made, met, done, again, as_wanted)] == [False] * 4 + [True]


def test_an_operation_that_certainly_ended_is_never_mistaken_for_the_next_one(
    simulation: Simulation,
) -> None:
    """A key that came twice would meet the recorded result of the first attempt on the node."""
    simulation.define({"a": sample_resource()})
    first = simulation.operation(simulation.start(simulation.goal()).ready[0])
    simulation.engine.conclude(first.ticket, failure())
    (record,) = simulation.records()
    assert record.generation == first.record.generation + 1
    assert record.reason == "it broke. Repair it. [BROKEN]"

    second = simulation.operation(simulation.start(simulation.goal()).ready[0])

    assert not second.unknown
    assert second.ticket.key != first.ticket.key
    simulation.engine.conclude(second.ticket, simulation.world.operate(second))
    (record,) = simulation.records()
    assert record.generation == second.record.generation + 1
    assert record.reason == ""


def test_the_end_of_a_superseded_operation_is_told_as_any_other(simulation: Simulation) -> None:
    simulation.define({"a": sample_resource()})
    operation = simulation.operation(simulation.start(simulation.goal()).ready[0])
    simulation.start(simulation.nothing())

    step = simulation.engine.conclude(operation.ticket, simulation.world.operate(operation))

    assert step.sentence == "Create a: done"
