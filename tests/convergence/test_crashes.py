# SPDX-License-Identifier: Apache-2.0
"""Owners that die at work, come back late, or meet one another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mistral_failover.convergence.records import Operation, Outcome, Ready
from mistral_failover.store import groups, views
from support.simulation import LEASE, Simulation, failure
from support.world import type_file

ONE = {"a": {"type": "exclusive", "properties": {"value": {"get_param": "active"}}}}


@pytest.fixture
def crashed(simulation: Simulation) -> Operation:
    """The creation of ``a``, handed out to an owner that died since."""
    simulation.define(ONE)
    operation = simulation.operation(simulation.start(simulation.goal()).ready[0], "dead")
    simulation.clock.seconds += LEASE
    return operation


def test_work_of_a_live_owner_is_not_loose(simulation: Simulation) -> None:
    simulation.define(ONE)
    started = simulation.start(simulation.goal())
    assert simulation.sweep() == list(started.ready)
    simulation.operation(started.ready[0])

    assert simulation.sweep() == []
    simulation.clock.seconds += LEASE - 1
    assert simulation.sweep() == []
    simulation.clock.seconds += 1
    assert simulation.sweep() == list(started.ready)


def test_a_workflow_keeps_its_lock_for_one_lease_however_long_it_may_take(
    simulation: Simulation,
) -> None:
    """The worker that waits for the workflow's end renews it."""
    workflow = type_file("house")
    workflow["operations"] = {
        verb: {"workflow": f"house.{verb}", "timeout": 100}
        for verb in ("create", "update", "delete")
    }
    simulation.define({"a": {"type": "house", "properties": {}}}, types=[workflow])
    ready = simulation.start(simulation.goal()).ready
    simulation.operation(ready[0])

    simulation.clock.seconds += LEASE - 1
    assert simulation.sweep() == []
    simulation.clock.seconds += 1
    assert simulation.sweep() == list(ready)


def test_what_failed_and_may_have_taken_effect_is_repeated_under_the_same_key(
    simulation: Simulation,
) -> None:
    """A command that was not answered may have run: its repeat must carry the same id."""
    simulation.define(ONE)
    first = simulation.operation(simulation.start(simulation.goal()).ready[0])
    silence = Outcome(error={"code": "NO_ANSWER", "message": "it is silent"}, unknown=True)
    simulation.engine.conclude(first.ticket, silence)

    again = simulation.operation(simulation.start(simulation.goal()).ready[0])

    assert again.unknown
    assert again.ticket.key == first.ticket.key


def test_a_ticket_closes_no_operation_of_another_resource(simulation: Simulation) -> None:
    simulation.define({**ONE, "b": ONE["a"]})
    ready = simulation.start(simulation.goal()).ready
    mine, other = (simulation.operation(node) for node in ready)

    simulation.engine.conclude(replace(mine.ticket, key=other.ticket.key), Outcome())

    under_way = simulation.store.reading(
        lambda tx: views.running_operations(tx, [simulation.group_id])
    )
    assert other.ticket.key in {row["key"] for row in under_way}


def test_the_sweep_sees_its_own_project_only(simulation: Simulation, crashed: Operation) -> None:
    own, simulation.store = simulation.store, simulation.database.for_project("another-project")
    assert simulation.sweep() == []
    simulation.store = own
    assert simulation.sweep("another-group") == []
    assert len(simulation.sweep(simulation.group_id)) == 1


@pytest.mark.parametrize("took_effect", [True, False])
def test_a_dead_owners_operation_is_handed_out_again_under_the_same_key_as_unknown(
    simulation: Simulation, crashed: Operation, took_effect: bool
) -> None:
    if took_effect:
        simulation.world.operate(crashed)

    again = simulation.operation(simulation.sweep()[0])

    assert not crashed.unknown
    assert again.unknown
    assert again.ticket.key == crashed.ticket.key
    assert again.ticket.lock.token > crashed.ticket.lock.token
    step = simulation.engine.conclude(again.ticket, simulation.world.operate(again))
    assert step.ready == ()
    simulation.audit_at_rest(simulation.goal())


def test_an_unknown_outcome_stays_unknown_to_whatever_is_done_next_for_another_goal(
    simulation: Simulation, crashed: Operation
) -> None:
    goal = simulation.goal("b")

    again = simulation.operation(simulation.start(goal).ready[0])

    assert again.ticket.key != crashed.ticket.key
    assert again.unknown
    simulation.engine.conclude(again.ticket, simulation.world.operate(again))
    simulation.audit_at_rest(goal)
    update = simulation.operation(simulation.start(simulation.goal("c")).ready[0])
    assert not update.unknown


def test_what_may_have_been_undone_meanwhile_is_done_again_under_another_key(
    simulation: Simulation,
) -> None:
    simulation.define(ONE)
    simulation.converge(simulation.goal("a"))
    keys = []
    for active in ("b", "c", "b"):
        operation = simulation.operation(simulation.start(simulation.goal(active)).ready[0])
        keys.append(operation.ticket.key)
        simulation.clock.seconds += LEASE  # it died, with its effect or without

    assert len(set(keys)) == 3


def test_an_unknown_outcome_is_unknown_to_the_deletion_that_follows(
    simulation: Simulation, crashed: Operation
) -> None:
    simulation.world.operate(crashed)

    removal = simulation.operation(simulation.start(simulation.nothing()).ready[0])

    assert removal.ticket.verb == "delete"
    assert removal.unknown
    simulation.engine.conclude(removal.ticket, simulation.world.operate(removal))
    assert simulation.world.things == {}


def test_nothing_counts_as_under_way_once_the_repeat_is_concluded(
    simulation: Simulation, crashed: Operation
) -> None:
    again = simulation.operation(simulation.start(simulation.goal("b")).ready[0])
    simulation.engine.conclude(again.ticket, simulation.world.operate(again))

    under_way = simulation.store.reading(
        lambda tx: views.running_operations(tx, [simulation.group_id])
    )

    assert under_way == []


def test_a_late_result_after_the_lock_was_broken_changes_nothing(
    simulation: Simulation, crashed: Operation
) -> None:
    again = simulation.operation(simulation.sweep()[0])
    before = simulation.records()

    late = simulation.engine.conclude(crashed.ticket, failure())

    assert "a late result under an old token was ignored" in late.sentence
    assert late.ready == ()
    assert simulation.records() == before
    assert simulation.status() == "IN_PROGRESS"
    simulation.engine.conclude(again.ticket, simulation.world.operate(again))
    simulation.audit_at_rest(simulation.goal())


def test_a_late_result_counts_until_the_lock_is_broken(
    simulation: Simulation, crashed: Operation
) -> None:
    simulation.engine.conclude(crashed.ticket, simulation.world.operate(crashed))

    simulation.audit_at_rest(simulation.goal())


def test_a_result_that_is_told_twice_counts_once(simulation: Simulation) -> None:
    simulation.define(ONE)
    operation = simulation.operation(simulation.start(simulation.goal()).ready[0])
    outcome = simulation.world.operate(operation)
    simulation.engine.conclude(operation.ticket, outcome)
    before = simulation.records()

    again = simulation.engine.conclude(operation.ticket, outcome)

    assert "ignored" in again.sentence
    assert simulation.records() == before


def test_a_second_slower_thief_loses(simulation: Simulation, crashed: Operation) -> None:
    stale = simulation.record(crashed.record.id)
    assert stale is not None
    again = simulation.operation(simulation.sweep()[0], "first")

    assert not simulation.database.atomically(lambda tx: tx.break_dead_lock(stale, "it died"))

    now = simulation.record(crashed.record.id)
    assert now is not None
    assert (now.owner, now.token) == ("first", again.ticket.lock.token)


def test_a_broken_lock_is_told_to_people(simulation: Simulation, crashed: Operation) -> None:
    simulation.operation(simulation.sweep()[0])

    history = simulation.store.reading(lambda tx: views.history(tx, simulation.group_id))

    stolen = [entry["sentence"] for entry in history if entry["kind"] == "steal"]
    assert stolen == ["a: broke the lock of dead, which is dead"]


def test_a_message_that_comes_twice_is_carried_out_once(simulation: Simulation) -> None:
    simulation.define(ONE)
    ready = simulation.start(simulation.goal()).ready[0]
    operation = simulation.operation(ready)

    during = simulation.engine.check(ready, "other")
    simulation.engine.conclude(operation.ticket, simulation.world.operate(operation))
    after = simulation.engine.check(ready, "other")

    assert during.operation is None
    assert after.operation is None
    assert after.sentence == f"{ready.node.key} is DONE already"


def test_a_message_that_comes_too_early_waits_for_its_predecessors(
    simulation: Simulation,
) -> None:
    simulation.define({**ONE, "b": {"type": "shared", "depends_on": "a", "properties": {}}})
    simulation.start(simulation.goal())

    step = simulation.engine.check(simulation.update_of("b"), "o")

    assert "still waits for 1 others" in step.sentence


def test_an_exception_while_operating_leaves_a_lock_that_the_sweep_breaks(
    simulation: Simulation,
) -> None:
    simulation.define(ONE)

    def die(operation: Operation) -> Outcome:
        raise ConnectionError("the process died")

    with pytest.raises(ConnectionError):
        simulation.converge(simulation.goal(), die)
    simulation.clock.seconds += LEASE
    simulation.carry(simulation.sweep())

    simulation.audit_at_rest(simulation.goal())


# -- owners that notice it themselves


def test_who_gives_up_in_a_superseded_traversal_wakes_its_node_in_the_newer_one(
    simulation: Simulation,
) -> None:
    simulation.define(ONE)
    given_up = simulation.operation(simulation.start(simulation.goal("a")).ready[0])
    newer = simulation.start(simulation.goal("b"))
    seen = [simulation.engine.check(ready, "other") for ready in newer.ready]
    assert all(s.operation is None for s in seen), "its owner is alive"

    step = simulation.engine.abandon(given_up.ticket, "its lease was lost")

    simulation.carry(step.ready)
    simulation.audit_at_rest(simulation.goal("b"))


def test_what_was_begun_on_a_member_that_was_replaced_since_is_made_anew_in_its_new_epoch(
    simulation: Simulation,
) -> None:
    held = {"type": "held", "properties": {"member": {"get_param": "active"}}}
    simulation.define({"a": held})
    (ready,) = simulation.start(simulation.goal()).ready
    begun = simulation.operation(ready)
    new_server = [("a", "server-2", None)]
    simulation.store.atomically(
        lambda tx: groups.record_members(tx, simulation.group_id, new_server)
    )
    assert not simulation.database.atomically(lambda tx: tx.renew(begun.ticket.lock))

    step = simulation.engine.abandon(begun.ticket, "its lease was lost")
    simulation.carry(step.ready)

    simulation.audit_at_rest(simulation.goal())
    (record,) = simulation.records()
    assert record.id != begun.record.id
    assert record.epoch == begun.record.epoch + 1


def conclude(simulation: Simulation, operation: Operation) -> tuple[Ready, ...]:
    """Carry an operation out and conclude it; what became ready."""
    outcome = simulation.world.operate(operation)
    return simulation.engine.conclude(operation.ticket, outcome).ready
