# SPDX-License-Identifier: Apache-2.0
"""The goals that a group was given: listed, found, and forgotten when nothing needs them."""

from __future__ import annotations

import pytest

from mistral_failover.convergence.records import Operation, Outcome
from mistral_failover.model.goal import Goal, restored_goal
from mistral_failover.store import goals
from support.databases import KINDS
from support.samples import CHAIN, failing, sample_resource
from support.simulation import Simulation, failure
from support.world import TYPES, type_file

ALWAYS = 0.0  # an older_than that keeps everything
NEVER = 1e12


@pytest.fixture(params=KINDS)
def simulation(request: pytest.FixtureRequest) -> Simulation:
    return Simulation(request.param)


def listed(simulation: Simulation) -> list[goals.StoredGoal]:
    return simulation.store.reading(lambda tx: goals.listed(tx, simulation.group_id))


def prune(simulation: Simulation, keep: int, older_than: float = NEVER) -> int:
    return simulation.store.atomically(
        lambda tx: goals.purge(tx, simulation.group_id, keep=keep, older_than=older_than)
    )


def versions(simulation: Simulation) -> list[str]:
    return [entry.goal.version for entry in listed(simulation)]


def give(simulation: Simulation, goal: Goal) -> str:
    """Converge to a goal, a little later than to the one before."""
    simulation.clock.seconds += 1
    simulation.converge(goal)
    return goal.version


def numbered(simulation: Simulation, number: int) -> Goal:
    simulation.define({"web": sample_resource(value=number)})
    return simulation.goal()


def test_goals_are_listed_the_latest_first_with_what_came_of_them(simulation: Simulation) -> None:
    simulation.define(CHAIN)
    home, away = simulation.goal("a"), simulation.goal("b")
    give(simulation, home)
    simulation.clock.seconds += 1
    simulation.converge(away, failing(simulation, "database"))
    give(simulation, home)

    first, second = listed(simulation)

    assert (first.goal, first.traversals, first.status) == (home, 2, "COMPLETE")
    assert (second.goal, second.traversals, second.status) == (away, 1, "FAILED")
    assert first.reached_at == first.given_at == simulation.clock.seconds
    assert second.reached_at is None


def test_reached_goals_are_told_the_latest_first_each_once(simulation: Simulation) -> None:
    simulation.define(CHAIN)
    home, away = give(simulation, simulation.goal("a")), give(simulation, simulation.goal("b"))
    give(simulation, simulation.goal("a"))

    reached = simulation.database.reading(lambda tx: tx.reached_goals(simulation.group_id))

    assert reached == [home, away]


@pytest.mark.parametrize("step", [0.0, -60.0])
def test_the_latest_goal_is_the_one_that_was_given_last_whatever_the_clock_says(
    simulation: Simulation, step: float
) -> None:
    given = []
    for number in range(3):
        simulation.clock.seconds += step
        goal = numbered(simulation, number)
        simulation.converge(goal)
        given.append(goal.version)

    assert versions(simulation) == given[::-1]
    reached = simulation.database.reading(lambda tx: goals.reached(tx, simulation.group_id))
    assert reached == given[::-1]
    assert prune(simulation, keep=1) == 2
    assert versions(simulation) == given[2:]


def test_a_goal_is_found_by_its_first_digits(simulation: Simulation) -> None:
    version = give(simulation, numbered(simulation, 1))

    def find(prefix: str) -> list[str]:
        return simulation.store.reading(
            lambda tx: goals.beginning_with(tx, simulation.group_id, prefix)
        )

    assert find(version[:7]) == [version]
    assert find("%") == []
    assert find("") == [version]


def test_pruning_keeps_so_many_of_the_latest(simulation: Simulation) -> None:
    given = [give(simulation, numbered(simulation, number)) for number in range(5)]

    assert prune(simulation, keep=2) == 3

    assert versions(simulation) == given[:2:-1]
    assert prune(simulation, keep=2) == 0


def test_pruning_keeps_so_many_of_those_that_were_reached(simulation: Simulation) -> None:
    reached = [give(simulation, numbered(simulation, number)) for number in range(3)]
    for number in range(3, 8):
        simulation.clock.seconds += 1
        simulation.converge(numbered(simulation, number), failing(simulation, "web"))

    prune(simulation, keep=2)

    assert [v for v in versions(simulation) if v in reached] == reached[:0:-1]


def test_pruning_keeps_what_was_given_since(simulation: Simulation) -> None:
    given = [give(simulation, numbered(simulation, number)) for number in range(5)]

    prune(simulation, keep=1, older_than=simulation.clock.seconds - 2)

    assert versions(simulation) == given[:1:-1]


def test_the_goal_that_a_rollback_needs_is_kept_however_old_it_is(simulation: Simulation) -> None:
    simulation.define({"web": sample_resource(value=0)}, on_failure="rollback")
    home = simulation.goal()
    give(simulation, home)
    for number in range(1, 6):
        simulation.define({"web": sample_resource(value=number)})
        simulation.clock.seconds += 1
        simulation.converge(simulation.goal(), failing(simulation, "web"))

    prune(simulation, keep=0)

    assert home.version in versions(simulation)
    simulation.converge(restored_goal(home, simulation.goal()))
    simulation.audit_at_rest(home)


def test_the_goal_of_a_record_that_is_still_there_is_kept(simulation: Simulation) -> None:
    simulation.define({"web": sample_resource(key=1)})
    home = simulation.goal()
    give(simulation, home)
    simulation.define({"web": sample_resource(key=2)})
    for _ in range(3):
        simulation.clock.seconds += 1
        simulation.converge(simulation.goal(), failing(simulation, "web"))

    prune(simulation, keep=0)

    carried = {record.goal_version for record in simulation.records()}
    assert carried <= set(versions(simulation))


def test_with_a_goal_go_its_traversals_operations_and_gone_records(simulation: Simulation) -> None:
    simulation.define({"web": sample_resource(key=1)})
    give(simulation, simulation.goal())
    first = simulation.current
    old = simulation.by_name()["web"]
    for key in (2, 3, 4):
        simulation.define({"web": sample_resource(key=key)})
        give(simulation, simulation.goal())
    assert simulation.record(old.id) is not None

    prune(simulation, keep=1)

    assert simulation.record(old.id) is None
    assert simulation.status(first) == "none"
    simulation.audit_at_rest(simulation.goal())


def test_what_stood_behind_a_resource_last_is_known_until_it_has_something_new(
    simulation: Simulation,
) -> None:
    simulation.define({"web": sample_resource("exclusive", key=1)})
    give(simulation, simulation.goal())
    first = simulation.by_name()["web"]

    def never_made(operation: Operation) -> Outcome:
        made = operation.ticket.verb != "delete"
        return failure() if made else simulation.world.operate(operation)

    for key in (2, 3, 4):
        simulation.define({"web": sample_resource("exclusive", key=key)})
        simulation.clock.seconds += 1
        simulation.converge(simulation.goal(), never_made)
    gone = simulation.record(first.id)
    assert gone is not None
    assert gone.gone

    prune(simulation, keep=0)

    known = simulation.record(first.id)
    assert known is not None
    assert known.physical_id == first.physical_id


def test_what_a_pruned_goal_made_and_is_still_there_goes_on_as_before(
    simulation: Simulation,
) -> None:
    simulation.define({"web": sample_resource(value=1), "keep": sample_resource()})
    give(simulation, simulation.goal())
    for value in range(2, 6):
        simulation.define({"web": sample_resource(value=value), "keep": sample_resource()})
        give(simulation, simulation.goal())

    prune(simulation, keep=1)
    give(simulation, numbered(simulation, 9))

    simulation.audit_at_rest(simulation.goal())


def test_the_types_of_kept_goals_outlive_a_new_definition(simulation: Simulation) -> None:
    extra = type_file("extra")
    simulation.define({"x": sample_resource("extra")}, types=[*TYPES, extra])
    home = simulation.goal()
    give(simulation, home)
    simulation.define({})
    give(simulation, simulation.goal())
    simulation.define({})

    simulation.converge(restored_goal(home, simulation.goal()))

    simulation.audit_at_rest(home)
