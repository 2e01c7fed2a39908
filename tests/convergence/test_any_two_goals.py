# SPDX-License-Identifier: Apache-2.0
"""Whatever the goals are: one follows another without a cycle, in any order of the messages."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistral_failover.convergence.records import Operation, Outcome, Ready, Record
from mistral_failover.model.goal import Goal as ModelGoal
from mistral_failover.model.goal import goal_resources
from mistral_failover.model.references import resolve_attributes
from support.databases import KINDS
from support.simulation import Simulation
from support.strategies import changed, group_resources, roles

pytestmark = pytest.mark.deep

Roles = tuple[str, tuple[str, ...]]
Goal = tuple[dict[str, Any], Roles]


def any_of(chance: random.Random) -> Callable[[deque[Ready]], Ready]:
    """Whichever message comes first."""

    def take(queue: deque[Ready]) -> Ready:
        queue.rotate(chance.randrange(len(queue)))
        return queue.popleft()

    return take


@pytest.mark.parametrize("kind", KINDS)
@given(
    goals=st.lists(st.tuples(group_resources(), roles()), min_size=2, max_size=3),
    seed=st.integers(0, 2**16),
)
def test_from_any_goal_that_was_reached_any_other_is_reached(
    kind: str, goals: list[Goal], seed: int
) -> None:
    simulation = Simulation(kind)
    chance = random.Random(seed)
    for resources, (active, lost) in goals:
        simulation.define(resources)
        goal = simulation.goal(active, lost)
        simulation.converge(goal, take=any_of(chance))
        simulation.audit_at_rest(goal)
    simulation.converge(simulation.nothing(), take=any_of(chance))
    assert simulation.records() == []
    assert simulation.world.things == {}


@pytest.mark.parametrize("kind", KINDS)
@given(
    goals=st.lists(
        st.tuples(group_resources(), roles(), st.integers(0, 20)), min_size=2, max_size=5
    ),
    seed=st.integers(0, 2**16),
)
def test_from_any_goal_that_was_given_up_half_way_any_other_is_reached(
    kind: str, goals: list[tuple[dict[str, Any], Roles, int]], seed: int
) -> None:
    simulation = Simulation(kind)
    chance = random.Random(seed)
    goal = None
    for resources, (active, lost), messages in goals:
        simulation.define(resources)
        goal = simulation.goal(active, lost)
        queue = deque(simulation.start(goal).ready)
        while queue and messages:
            messages -= 1
            simulation_step(simulation, queue, any_of(chance)(queue))
    assert goal is not None
    simulation.carry(simulation.sweep(), take=any_of(chance))
    simulation.audit_at_rest(goal)


def simulation_step(simulation: Simulation, queue: deque[Ready], ready: Ready) -> None:
    step = simulation.engine.check(ready, "o")
    queue.extend(step.ready)
    if step.operation is not None:
        outcome = simulation.world.operate(step.operation)
        queue.extend(simulation.engine.conclude(step.operation.ticket, outcome).ready)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), where=st.tuples(roles(), roles()), seed=st.integers(0, 2**16))
def test_what_is_under_way_when_the_group_file_changes_loses_nothing_that_it_uses(
    kind: str, data: st.DataObject, where: tuple[Roles, Roles], seed: int
) -> None:
    """The world refuses whatever is taken away under somebody."""
    simulation, chance = Simulation(kind), random.Random(seed)
    resources = data.draw(group_resources(6))
    simulation.define(resources)
    works = overlapping(simulation, simulation.start(simulation.goal(*where[0])).ready, chance)
    simulation.define(data.draw(changed(resources)))
    goal = simulation.goal(*where[1])

    started = simulation.start(goal).ready
    overlapping(simulation, started, chance, works, steps=None)

    simulation.audit_at_rest(goal)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), where=st.tuples(roles(), roles()), seed=st.integers(0, 2**16))
def test_what_stands_as_wanted_upon_what_stands_as_wanted_is_left_alone(
    kind: str, data: st.DataObject, where: tuple[Roles, Roles], seed: int
) -> None:
    """Also on the way back from a goal that was given up half way."""
    simulation, chance = Simulation(kind), random.Random(seed)
    resources = data.draw(group_resources(6))
    simulation.define(resources)
    home = simulation.goal(*where[0])
    simulation.converge(home)
    simulation.define(data.draw(changed(resources)))
    away = simulation.goal(*where[1])
    queue = deque(simulation.start(away).ready)
    for _ in range(chance.randrange(12)):
        if queue:
            simulation_step(simulation, queue, any_of(chance)(queue))
    goal = data.draw(st.sampled_from([home, away]))
    started = simulation.start(goal)
    left_alone = as_wanted(simulation, goal)
    touched: list[str] = []

    def operate(operation: Operation) -> Outcome:
        touched.append(operation.record.id)
        return simulation.world.operate(operation)

    simulation.carry(started.ready, operate, take=any_of(chance))

    simulation.audit_at_rest(goal)
    assert left_alone.isdisjoint(touched)
    assert left_alone <= {r.id for r in simulation.records()}


def overlapping(
    simulation: Simulation,
    ready: Iterable[Ready],
    chance: random.Random,
    works: Iterable[Operation] = (),
    steps: int | None = 12,
) -> list[Operation]:
    """Take so many steps (None: to the end), operations being handed out beside each other; returns
    those that are still under way."""
    todo: list[Ready | Operation] = [*ready, *works]
    while todo and steps != 0:
        steps = None if steps is None else steps - 1
        it = todo.pop(chance.randrange(len(todo)))
        if isinstance(it, Ready):
            step = simulation.engine.check(it, "o")
            todo += [step.operation] if step.operation else []
        else:
            step = simulation.engine.conclude(it.ticket, simulation.world.operate(it))
        todo += step.ready
    return [it for it in todo if isinstance(it, Operation)]


def as_wanted(simulation: Simulation, goal: ModelGoal) -> set[str]:
    """The ids of the records that are what a goal wants, and so is all that they require."""
    records = [r for r in simulation.records() if r.owner is None and r.status == "COMPLETE"]
    epochs = simulation.database.reading(lambda tx: tx.epochs(simulation.group_id))
    standing: dict[str, Record] = {}
    wanted = {w.name: w for w in goal_resources(goal) if not w.name.startswith("fence:")}
    for _ in wanted:
        for name, resource in wanted.items():
            if not standing.keys() >= set(resource.requires):
                continue
            inputs = {
                required: {
                    "id": standing[required].physical_id,
                    "attributes": standing[required].attributes,
                }
                for required in resource.requires
            }
            properties = resolve_attributes(resource.properties, inputs)
            requires = {standing[required].id for required in resource.requires}
            for record in records:
                if (
                    (record.name, record.type, record.properties)
                    == (name, resource.type, properties)
                    and record.action in ("CREATE", "UPDATE")
                    and set(record.requires) == requires
                    and record.epoch >= epochs.get(record.member or "", 0)
                ):
                    standing[name] = record
    return {record.id for record in standing.values()}
