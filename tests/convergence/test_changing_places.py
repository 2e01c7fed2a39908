# SPDX-License-Identifier: Apache-2.0
"""Two roles that change places, and whose volumes are one: in no order of events is one of them
left without it."""

from __future__ import annotations

import random

import pytest

from mistral_failover.convergence.records import Operation, Outcome, Ready
from mistral_failover.model.goal import Goal, render_goal
from support.databases import KINDS
from support.samples import sample_resource
from support.simulation import Simulation
from support.world import outcome_of

HERE = {"left": "a", "right": "b"}
THERE = {"left": "b", "right": "a"}


class Shared:
    """A volume that each member has at most once, whichever resource of it asked for that."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.on: set[str | None] = set()

    def operate(self, operation: Operation) -> Outcome:
        """As ``operations.attach_volume`` and ``detach_volume``."""
        member = operation.record.member
        if operation.ticket.verb != "delete":
            self.on.add(member)
        elif not self._is_kept(operation):
            self.on.discard(member)
        return outcome_of(operation)

    def _is_kept(self, operation: Operation) -> bool:
        """As ``operations.sharing``."""
        return any(
            record.id != operation.record.id
            and record.member == operation.record.member
            and (record.action, record.status) == ("CREATE", "COMPLETE")
            for record in self.simulation.records()
        )


def goal_of(simulation: Simulation, roles: dict[str, str]) -> Goal:
    assert simulation.group is not None
    return render_goal(simulation.group, roles, ())


def in_any_order(simulation: Simulation, goal: Goal, volume: Shared, chance: random.Random) -> None:
    """Carry a traversal to its end: each operation is begun, takes effect and is reported of at
    some time after the other."""
    todo: list[Ready | Operation | tuple[Operation, Outcome]] = [*simulation.start(goal).ready]
    while todo:
        it = todo.pop(chance.randrange(len(todo)))
        if isinstance(it, Operation):
            todo.append((it, volume.operate(it)))
            continue
        if isinstance(it, Ready):
            step = simulation.engine.check(it, "o")
            if step.operation is not None:
                todo.append(step.operation)
        else:
            operation, outcome = it
            step = simulation.engine.conclude(operation.ticket, outcome)
        todo += step.ready


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(12))
def test_two_roles_that_change_places_keep_the_volume_that_they_share(kind: str, seed: int) -> None:
    simulation = Simulation(kind)
    simulation.define(
        {name: sample_resource("held", member={"get_param": name}) for name in HERE},
        roles=list(HERE),
    )
    volume, chance = Shared(simulation), random.Random(seed)

    for roles in (HERE, THERE, HERE):
        in_any_order(simulation, goal_of(simulation, roles), volume, chance)

        assert simulation.status() == "COMPLETE", simulation.reason()
        assert volume.on == {"a", "b"}
        assert {r.name: r.member for r in simulation.records()} == roles
