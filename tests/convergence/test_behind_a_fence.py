# SPDX-License-Identifier: Apache-2.0
"""Nothing comes to be anywhere before it is proven that the lost member no longer writes: not by a
new record, and not by one that is kept although nothing stands behind it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mistral_failover.convergence.records import Operation, Outcome, Ready
from mistral_failover.model.goal import Goal, render_goal
from support.simulation import Simulation, failure

ONE = {"type": "held", "properties": {"member": {"get_param": "left"}}}
TWO = {"type": "held", "properties": {"member": {"get_param": "right"}}}
ROLES = ["left", "right"]


def goal(simulation: Simulation, left: str, right: str, *lost: str, returns: bool = False) -> Goal:
    assert simulation.group is not None
    return render_goal(simulation.group, {"left": left, "right": right}, lost, returns=returns)


def unproven(simulation: Simulation, ready: Sequence[Ready]) -> list[tuple[str, str]]:
    """Carry a traversal in which no fence finds a proof; what was done all the same."""
    done: list[tuple[str, str]] = []

    def operate(operation: Operation) -> Outcome:
        if operation.record.name.startswith("fence:"):
            return failure(blocked=True)
        done.append((operation.record.name, operation.ticket.verb))
        return simulation.world.operate(operation)

    simulation.carry(ready, operate)
    return done


@pytest.mark.parametrize("stopped", [True, False])
def test_what_a_failed_move_left_is_not_made_again_before_the_proof(
    simulation: Simulation, stopped: bool
) -> None:
    simulation.define({"one": ONE, "two": TWO}, roles=ROLES)
    simulation.converge(goal(simulation, "a", "b"))
    away = simulation.start(goal(simulation, "c", "b", returns=True))
    (removal,) = [
        operation
        for ready in away.ready
        if (operation := simulation.engine.check(ready, "somebody").operation) is not None
    ]
    outcome = simulation.world.operate(removal) if stopped else failure()
    simulation.engine.conclude(removal.ticket, outcome)

    done = unproven(simulation, simulation.start(goal(simulation, "a", "a", "b")).ready)

    assert ("one", "create") not in done


def test_what_was_never_made_is_not_made_before_the_proof_when_the_goal_is_given_again(
    simulation: Simulation,
) -> None:
    simulation.define({"two": TWO}, roles=ROLES)
    simulation.converge(goal(simulation, "a", "b"))
    simulation.define({"one": ONE, "two": TWO}, roles=ROLES)

    for _ in range(2):
        done = unproven(simulation, simulation.start(goal(simulation, "a", "a", "b")).ready)

        assert ("one", "create") not in done
