# SPDX-License-Identifier: Apache-2.0
"""A planned move promises to return: whatever fails or would wait for a person takes it back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mistral_failover.convergence.records import Operation, Outcome, Ready
from mistral_failover.convergence.waiting import TARGET_DOWN
from mistral_failover.model.goal import Goal, render_goal, restored_goal, returns
from support.samples import CHAIN, failing, sentences
from support.simulation import Simulation, failure


def planned(simulation: Simulation, active: str) -> Goal:
    """The goal of a planned move."""
    assert simulation.group is not None
    return render_goal(simulation.group, {"active": active}, (), returns=True)


@pytest.fixture
def home(simulation: Simulation) -> Goal:
    """A group that is up on a, and stops at failures by its own file."""
    simulation.define(CHAIN)
    goal = simulation.goal("a")
    simulation.converge(goal)
    return goal


def stumbling(
    simulation: Simulation,
    verb: str,
    name: str,
    member: str | None = None,
    *,
    blocked: bool = False,
) -> Callable[[Operation], Outcome]:
    """The world, in which one operation always comes to nothing."""

    def operate(operation: Operation) -> Outcome:
        record = operation.record
        if (operation.ticket.verb, record.name) == (verb, name) and record.member == member:
            return failure(blocked=blocked)
        return simulation.world.operate(operation)

    return operate


def test_a_move_that_arrives_stays(simulation: Simulation, home: Goal) -> None:
    there = planned(simulation, "b")

    simulation.converge(there)

    simulation.audit_at_rest(there)


@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.parametrize(
    ("verb", "name", "member"),
    [
        ("delete", "database", "a"),
        ("delete", "data", "a"),
        ("create", "data", "b"),
        ("create", "database", "b"),
    ],
)
def test_whatever_fails_or_would_wait_for_a_person_takes_the_group_back(
    simulation: Simulation, home: Goal, verb: str, name: str, member: str, blocked: bool
) -> None:
    away = simulation.start(planned(simulation, "b"))

    simulation.carry(away.ready, stumbling(simulation, verb, name, member, blocked=blocked))

    simulation.audit_at_rest(home)
    assert simulation.status(away.traversal_id) == "FAILED"
    told = sentences(simulation, "traversal")[-1]
    assert told.startswith("rolling back to the last reached goal (active on a): ")


DOWN = Outcome(
    error={"code": TARGET_DOWN, "message": "server 4 is down", "remedy": "Repair it."},
    transient=True,
    unknown=True,
)


def test_a_move_that_can_go_back_does_not_wait_for_a_target_that_is_down(
    simulation: Simulation, home: Goal
) -> None:
    def operate(operation: Operation) -> Outcome:
        created_on_b = (operation.ticket.verb, operation.record.member) == ("create", "b")
        return DOWN if created_on_b else simulation.world.operate(operation)

    simulation.carry(simulation.start(planned(simulation, "b")).ready, operate)

    simulation.audit_at_rest(home)
    assert simulation.world.log.count("delete data") == 2, "on b as well: it may still arrive"


def test_a_failover_that_has_nowhere_to_go_back_waits_for_a_target_that_is_down(
    simulation: Simulation,
) -> None:
    simulation.define(CHAIN)
    (ready,) = simulation.start(planned(simulation, "b")).ready

    step = simulation.engine.conclude(simulation.operation(ready).ticket, DOWN)

    assert step.retry_at is not None
    assert simulation.status() == "IN_PROGRESS"


def test_of_a_move_that_came_back_only_the_step_says_what_helps(
    simulation: Simulation, home: Goal
) -> None:
    away = simulation.start(planned(simulation, "b"))

    simulation.carry(away.ready, stumbling(simulation, "create", "database", "b"))

    assert simulation.reason(away.traversal_id).endswith("database on b: it broke. [BROKEN]")
    assert any("it broke. Repair it. [BROKEN]" in said for said in sentences(simulation, "failed"))


def test_what_could_not_be_stopped_is_brought_back_where_it_is_and_not_stopped_again(
    simulation: Simulation, home: Goal
) -> None:
    before = simulation.by_name()["database"]
    simulation.converge(planned(simulation, "b"), stumbling(simulation, "delete", "database", "a"))

    after = simulation.by_name()["database"]
    assert after.id == before.id
    assert after.generation > before.generation, "its start has a key of its own"
    assert simulation.world.log.count("delete database") == 0


def test_what_was_stopped_without_an_answer_is_started_again(
    simulation: Simulation, home: Goal
) -> None:
    def lost_word(operation: Operation) -> Outcome:
        outcome = simulation.world.operate(operation)
        deletes = (operation.ticket.verb, operation.record.name) == ("delete", "database")
        return failure("NO_ANSWER", unknown=True) if deletes else outcome

    simulation.converge(planned(simulation, "b"), lost_word)

    simulation.audit_at_rest(home)
    assert simulation.world.log[-2:] == ["delete database", "create database"]


def test_a_way_back_that_fails_goes_nowhere_else(simulation: Simulation, home: Goal) -> None:
    simulation.converge(planned(simulation, "b"), failing(simulation, "database"))

    assert simulation.status() == "FAILED"
    assert len(sentences(simulation, "traversal")) == 3


def test_a_way_back_that_needs_a_person_waits_for_them(simulation: Simulation, home: Goal) -> None:
    simulation.converge(planned(simulation, "b"), failing(simulation, "data", blocked=True))
    assert simulation.status() == "BLOCKED"

    simulation.carry(simulation.engine.resume(simulation.group_id))

    simulation.audit_at_rest(home)


def test_a_move_from_where_a_move_led_comes_back_there_and_promises_nothing_more(
    simulation: Simulation, home: Goal
) -> None:
    there = planned(simulation, "b")
    simulation.converge(there)

    simulation.converge(planned(simulation, "c"), stumbling(simulation, "create", "database", "c"))

    simulation.audit_at_rest(simulation.goal("b"))
    assert simulation.current_goal() == restored_goal(there, home)
    assert not returns(restored_goal(there, home))


def test_another_goal_in_the_middle_of_a_move_wins(simulation: Simulation, home: Goal) -> None:
    moving = simulation.operation(simulation.start(planned(simulation, "b")).ready[0])
    newer = simulation.start(simulation.goal("c"))

    step = simulation.engine.conclude(moving.ticket, failure())

    simulation.carry([*newer.ready, *step.ready])
    simulation.audit_at_rest(simulation.goal("c"))


def test_without_a_goal_that_was_reached_there_is_nowhere_to_return_to(
    simulation: Simulation,
) -> None:
    simulation.define(CHAIN)

    simulation.converge(planned(simulation, "b"), failing(simulation, "data"))

    assert simulation.status() == "FAILED"
    assert len(sentences(simulation, "traversal")) == 1


TWO_BELOW = {
    "data": {"type": "held", "properties": {"member": {"get_param": "active"}}},
    "logs": {"type": "held", "properties": {"member": {"get_param": "active"}}},
    "database": {
        "type": "held",
        "depends_on": ["data", "logs"],
        "properties": {"member": {"get_param": "active"}},
    },
}


@pytest.mark.parametrize("blocked", [False, True])
def test_of_two_removals_that_fail_beside_each_other_neither_is_tried_again_on_the_way_back(
    simulation: Simulation, blocked: bool
) -> None:
    simulation.define(TWO_BELOW)
    home = simulation.goal("a")
    simulation.converge(home)
    quiesce = simulation.operation(simulation.start(planned(simulation, "b")).ready[0])
    below = simulation.engine.conclude(quiesce.ticket, simulation.world.operate(quiesce)).ready
    detached = [simulation.operation(ready) for ready in below]
    assert [operation.ticket.verb for operation in detached] == ["delete", "delete"]
    asked: list[str] = []

    def operate(operation: Operation) -> Outcome:
        if operation.ticket.verb == "delete" and operation.record.member == "a":
            asked.append(operation.record.name)
            return failure(blocked=blocked)
        return simulation.world.operate(operation)

    ready: list[Ready] = []
    for operation in detached:
        step = simulation.engine.conclude(operation.ticket, failure(blocked=blocked))
        ready += step.ready
    simulation.carry(ready, operate)

    simulation.audit_at_rest(home)
    assert asked == []
