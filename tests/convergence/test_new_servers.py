# SPDX-License-Identifier: Apache-2.0
"""A member's server is replaced last of all, when nothing of the group is left on it; service never
waits for that, and nothing is made on a member while its server may be going away."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistral_failover.convergence.records import Operation, Outcome, Ready
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.goal import restored_goal
from support.databases import KINDS
from support.samples import CHAIN, failing
from support.simulation import Simulation
from support.strategies import MEMBERS, group_resources, roles

FEWER = settings(max_examples=max(settings().max_examples // 3, 1))
Wishes = tuple[str, tuple[str, ...], tuple[str, ...]]
LAST = ["create data", "create database", "update routing", "create replace:a"]


@st.composite
def wishes(draw: st.DrawFn) -> Wishes:
    """Who is active, who is lost, and whose server is replaced."""
    active, lost = draw(roles())
    others = [member for member in MEMBERS if member != active]
    return active, lost, tuple(draw(st.lists(st.sampled_from(others), unique=True)))


def order(simulation: Simulation) -> list[str]:
    """What was done since last asked."""
    done = list(simulation.world.log)
    simulation.world.log.clear()
    return done


def test_a_lost_member_is_fenced_and_what_it_did_serves_elsewhere_before_it_is_replaced(
    simulation: Simulation,
) -> None:
    simulation.define(CHAIN)
    simulation.converge(simulation.goal("a"))
    order(simulation)

    goal = simulation.goal("b", ("a",), ["a"])
    simulation.converge(goal)

    done = order(simulation)
    assert done[:3] == ["create fence:a", "delete database", "delete data"]
    assert done[3:] == LAST
    simulation.audit_at_rest(goal)


def test_a_standby_is_replaced_and_nothing_else_is_touched(simulation: Simulation) -> None:
    simulation.define(CHAIN)
    simulation.converge(simulation.goal("a"))
    order(simulation)

    simulation.converge(simulation.goal("a", (), ["b"]))
    simulation.converge(simulation.goal("a", (), ["b"]))
    simulation.converge(simulation.goal("a"))

    assert order(simulation) == ["create replace:b"]


def test_two_are_replaced_one_after_the_other(simulation: Simulation) -> None:
    simulation.define(CHAIN)
    simulation.converge(simulation.goal("a"))
    order(simulation)
    under_way: list[str] = []

    def operate(operation: Operation) -> Outcome:
        under_way.append(operation.record.name)
        waiting = [r.name for r in simulation.records() if r.action == "INIT"]
        assert operation.record.name != "replace:b" or waiting == ["replace:c"]
        return simulation.world.operate(operation)

    simulation.converge(simulation.goal("a", (), ["c", "b"]), operate)

    assert under_way == ["replace:b", "replace:c"]


@pytest.mark.parametrize("name", ["data", "fence:a"])
def test_no_member_is_replaced_while_the_group_does_not_serve(
    simulation: Simulation, name: str
) -> None:
    simulation.define(CHAIN)
    simulation.converge(simulation.goal("a"))
    order(simulation)

    goal = simulation.goal("b", ("a",), ["a"])
    simulation.converge(goal, failing(simulation, name))

    assert "create replace:a" not in order(simulation)


def test_a_role_that_comes_to_a_member_waits_until_its_replacement_has_ended(
    simulation: Simulation,
) -> None:
    simulation.define(CHAIN)
    simulation.converge(simulation.goal("a"))
    queue, operation = deque(simulation.start(simulation.goal("a", (), ["b"])).ready), None
    while operation is None:
        step = simulation.engine.check(queue.popleft(), "heat")
        operation = step.operation
        queue.extend(step.ready)
    assert operation.record.name == "replace:b"
    order(simulation)

    simulation.converge(simulation.goal("b", ("a",)))
    assert not [line for line in order(simulation) if line.startswith("create data")]

    outcome = simulation.world.operate(operation)
    simulation.carry(simulation.engine.conclude(operation.ticket, outcome).ready)
    assert simulation.status() == "COMPLETE"
    assert order(simulation)[0] == "create replace:b"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.deep
@FEWER
@given(
    goals=st.lists(st.tuples(group_resources(most=5), wishes()), min_size=2, max_size=3),
    seed=st.integers(0, 2**16),
)
def test_a_replaced_member_is_free_of_the_group_whatever_the_goals_are(
    kind: str, goals: list[tuple[dict[str, Any], Wishes]], seed: int
) -> None:
    simulation = Simulation(kind)
    chance = random.Random(seed)

    def take(queue: deque[Ready]) -> Ready:
        queue.rotate(chance.randrange(len(queue)))
        return queue.popleft()

    for resources, (active, lost, replaced) in goals:
        simulation.define(resources)
        goal = simulation.goal(active, lost, replaced)
        simulation.converge(goal, take=take)
        simulation.audit_at_rest(goal)
    simulation.converge(simulation.nothing(), take=take)
    assert simulation.world.things == {}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.deep
@FEWER
@given(
    goals=st.lists(
        st.tuples(group_resources(most=5), wishes(), st.integers(0, 20)), min_size=2, max_size=4
    ),
    seed=st.integers(0, 2**16),
)
def test_so_it_is_when_goals_are_given_up_half_way(
    kind: str, goals: list[tuple[dict[str, Any], Wishes, int]], seed: int
) -> None:
    simulation = Simulation(kind)
    chance = random.Random(seed)
    goal = None
    for resources, (active, lost, replaced), messages in goals:
        simulation.define(resources)
        goal = simulation.goal(active, lost, replaced)
        queue = deque(simulation.start(goal).ready)
        while queue and messages:
            messages -= 1
            queue.rotate(chance.randrange(len(queue)))
            step = simulation.engine.check(queue.popleft(), "o")
            queue.extend(step.ready)
            if step.operation is not None:
                outcome = simulation.world.operate(step.operation)
                queue.extend(simulation.engine.conclude(step.operation.ticket, outcome).ready)
    assert goal is not None
    simulation.carry(simulation.sweep())
    simulation.audit_at_rest(goal)


def test_a_member_that_is_replaced_can_have_no_role(simulation: Simulation) -> None:
    simulation.define(CHAIN)

    with pytest.raises(InvalidDocument, match='"a" will be replaced'):
        simulation.goal("a", (), ["a"])


def test_returning_replaces_only_members_that_are_lost_now(simulation: Simulation) -> None:
    simulation.define(CHAIN)
    before = simulation.goal("a", (), ["b"])
    now = simulation.goal("a", ("c",), ["b", "c"])

    resources = restored_goal(before, now).document["resources"]

    assert [name for name in resources if ":" in name] == ["fence:c", "replace:c"]
