# SPDX-License-Identifier: Apache-2.0
"""Stages that are not open yet hold their nodes back; the traversals that follow keep them open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.convergence.errors import UnknownTraversal
from mistral_failover.convergence.records import Operation, Outcome, Ready, Started, Step
from mistral_failover.model.goal import Goal
from mistral_failover.model.stages import Stage, rank
from support.samples import sample_resource
from support.simulation import Simulation, failure
from support.world import TYPES, type_file

ACTIVE = {"get_param": "active"}


def staged(name: str, stage: Stage, **options: Any) -> dict[str, Any]:
    """A type file whose every operation is of one stage."""
    document = type_file(name, **options)
    for spec in document["operations"].values():
        spec["stage"] = stage.value
    return document


STAGED = [
    *TYPES,
    staged("volume", Stage.MOVE_VOLUMES),
    staged("application", Stage.ACTIVATE),
]
RESOURCES = {
    "data": sample_resource("volume", value=ACTIVE),
    "app": sample_resource("application", "data", value=ACTIVE),
    "apart": sample_resource("application", value=ACTIVE),
}


def define(simulation: Simulation, **more: Any) -> None:
    simulation.define(RESOURCES, types=STAGED, **more)


def start(
    simulation: Simulation, goal: Goal, through: Stage | None, identity: str = "t"
) -> Started:
    return simulation.engine.start(
        simulation.group_id,
        goal,
        traversal_id=identity,
        expected=simulation.current,
        cause="a test",
        through=through,
    )


def through(simulation: Simulation, identity: str) -> int | None:
    found = simulation.database.reading(lambda tx: tx.traversal(identity))
    assert found is not None
    return found.through


def test_a_node_of_a_stage_that_is_not_open_is_held(simulation: Simulation) -> None:
    define(simulation)
    started = start(simulation, simulation.goal(), Stage.MOVE_VOLUMES)

    steps = simulation.carry(started.ready)

    assert simulation.world.log == ["create data"]
    held = [step for step in steps if step.held]
    apart, app = simulation.update_of("apart").node, simulation.update_of("app").node
    assert sorted(step.sentence for step in held) == sorted(
        f"{node.key} waits for its stage, activate" for node in (apart, app)
    )
    assert all((step.operation, step.ready, step.retry_at) == (None, (), None) for step in held)
    assert simulation.status() == "IN_PROGRESS"


def test_what_is_opened_is_worked_off(simulation: Simulation) -> None:
    define(simulation)
    goal = simulation.goal()
    simulation.carry(start(simulation, goal, Stage.FENCE).ready)
    assert simulation.world.log == []

    simulation.carry(simulation.engine.open_through("t", Stage.MOVE_VOLUMES))
    assert simulation.world.log == ["create data"]
    simulation.carry(simulation.engine.open_through("t", Stage.ACTIVATE))

    simulation.audit_at_rest(goal)


def test_unless_told_otherwise_every_stage_is_open(simulation: Simulation) -> None:
    define(simulation)
    goal = simulation.goal()

    steps = simulation.converge(goal)

    assert not any(step.held for step in steps)
    simulation.audit_at_rest(goal)


def test_opening_an_earlier_stage_closes_none(simulation: Simulation) -> None:
    define(simulation)
    start(simulation, simulation.goal(), Stage.ACTIVATE)

    ready = simulation.engine.open_through("t", Stage.FENCE)

    assert through(simulation, "t") == rank(Stage.ACTIVATE)
    assert set(ready) == {simulation.update_of("data"), simulation.update_of("apart")}
    simulation.engine.open_through("t", None)
    simulation.engine.open_through("t", Stage.FENCE)
    assert through(simulation, "t") is None


def test_of_a_traversal_that_is_not_current_nothing_becomes_ready(simulation: Simulation) -> None:
    define(simulation)
    start(simulation, simulation.goal(), Stage.FENCE)
    start(simulation, simulation.goal("b"), None, "newer")

    assert simulation.engine.open_through("t", None) == ()
    assert simulation.engine.open_through("never", None) == ()


def test_what_an_order_starts_follows_nothing(simulation: Simulation) -> None:
    define(simulation)
    start(simulation, simulation.goal(), Stage.FENCE)

    start(simulation, simulation.goal("b"), None, "newer")

    assert through(simulation, "newer") is None
    assert simulation.engine.current("t").id == "t"
    assert simulation.engine.current("newer").follows is None


def fail_data(simulation: Simulation) -> Callable[[Operation], Outcome]:
    def operate(operation: Operation) -> Outcome:
        failing = operation.record.name == "data" and operation.properties["value"] == "b"
        return failure() if failing else simulation.world.operate(operation)

    return operate


def test_a_rollback_follows_what_failed_and_has_the_same_stages_open(
    simulation: Simulation,
) -> None:
    define(simulation, on_failure="rollback")
    simulation.converge(simulation.goal())
    away = start(simulation, simulation.goal("b"), Stage.MOVE_VOLUMES)

    simulation.carry(away.ready, fail_data(simulation))

    back = simulation.engine.current("t")
    assert back.id == simulation.current != "t"
    assert (back.follows, back.back) == ("t", True)
    assert back.through == rank(Stage.MOVE_VOLUMES)


def test_the_last_of_several_that_follow_each_other_is_found(simulation: Simulation) -> None:
    """What must be replaced shows when an attribute is known: the same goal once more, twice."""
    late = {
        "low": sample_resource(value=ACTIVE),
        "middle": sample_resource("shared", "low", key={"get_attr": ["low", "echo"]}, value=ACTIVE),
        "high": sample_resource("shared", "middle", key={"get_attr": ["middle", "echo"]}),
    }
    simulation.define(late)
    simulation.converge(simulation.goal())
    goal = simulation.goal("b")

    simulation.carry(start(simulation, goal, None).ready)

    last = simulation.engine.current("t")
    assert last.id == simulation.current
    assert last.follows not in (None, "t")
    assert simulation.engine.current(last.id) == last
    simulation.audit_at_rest(goal)


def test_nothing_follows_what_does_not_exist(simulation: Simulation) -> None:
    with pytest.raises(UnknownTraversal, match="there is no traversal never"):
        simulation.engine.current("never")


def test_a_check_of_a_superseded_traversal_names_the_newer_one(simulation: Simulation) -> None:
    define(simulation)
    (first, *_) = simulation.start(simulation.goal()).ready
    newer = simulation.start(simulation.goal("b")).traversal_id

    step = simulation.engine.check(first, "o")

    assert step == Step(
        f"traversal {first.traversal_id} was superseded by {newer}", superseded_by=newer
    )


def test_a_node_that_a_current_traversal_does_not_have_is_not_one_that_was_superseded(
    simulation: Simulation,
) -> None:
    define(simulation)
    (first, *_) = simulation.start(simulation.goal()).ready
    nowhere = Ready(first.traversal_id, type(first.node)("cleanup", "nowhere"))

    step = simulation.engine.check(nowhere, "o")

    assert step == Step(f"traversal {first.traversal_id} has no node cleanup:nowhere")
