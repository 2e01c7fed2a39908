# SPDX-License-Identifier: Apache-2.0
"""Whatever the goals are: one follows another without a cycle, in any order of the messages."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistral_failover.convergence.records import Ready
from support.databases import KINDS
from support.simulation import Simulation
from support.strategies import group_resources, roles

Goal = tuple[dict[str, Any], tuple[str, tuple[str, ...]]]


def any_of(chance: random.Random):
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
    kind: str, goals: list[Any], seed: int
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
