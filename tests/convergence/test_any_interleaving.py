# SPDX-License-Identifier: Apache-2.0
"""One overall model: everything that can go wrong at any moment, and then it stops.

Messages are reordered, doubled and lost; operations overlap, end out of order, fail, or die with
or without their effect; dead owners come back; new goals start in the middle. Once that stops, the
sweep alone brings the group to its goal (invariant 7), and all along tokens only grow (3), and
nothing takes effect twice (4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mistral_failover.convergence.records import Operation, Outcome, Ready, Step
from mistral_failover.model.goal import Goal
from support.databases import KINDS
from support.simulation import LEASE, Simulation, failure
from support.strategies import group_resources, roles

PLACE = st.integers(0, 1000)
OWNERS = st.sampled_from(["one", "two", "three"])


@dataclass
class Work:
    """An operation that somebody has in hand; nothing of it may take effect after ``until``."""

    operation: Operation
    until: float
    outcome: Outcome | None = None


class Interleaving(RuleBasedStateMachine):
    """The model; ``kind`` names the database."""

    kind = "sqlite"

    def __init__(self) -> None:
        super().__init__()
        self.simulation = Simulation(self.kind)
        self.messages: list[Ready] = []
        self.works: list[Work] = []
        self.goal: Goal | None = None
        self.tokens: dict[str, int] = {}
        self.on_failure = "stop"

    @initialize(resources=group_resources(5), on_failure=st.sampled_from(["stop", "rollback"]))
    def the_group_is_defined(self, resources: dict[str, Any], on_failure: str) -> None:
        self.on_failure = on_failure
        self.simulation.define(resources, on_failure=on_failure)
        self._start("a", ())

    # -- goals

    @rule(where=roles())
    def a_goal_is_set(self, where: tuple[str, tuple[str, ...]]) -> None:
        self._start(*where)

    @rule(resources=group_resources(5), where=roles())
    def the_group_is_changed(
        self, resources: dict[str, Any], where: tuple[str, tuple[str, ...]]
    ) -> None:
        self.simulation.define(resources, on_failure=self.on_failure)
        self._start(*where)

    # -- messages

    @precondition(lambda self: self.messages)
    @rule(place=PLACE, owner=OWNERS)
    def a_message_arrives(self, place: int, owner: str) -> None:
        self._check(self._message(place), owner)

    @precondition(lambda self: self.messages)
    @rule(place=PLACE)
    def a_message_is_doubled(self, place: int) -> None:
        ready = self._message(place)
        self.messages += [ready, ready]

    @precondition(lambda self: self.messages)
    @rule(place=PLACE)
    def a_message_is_lost(self, place: int) -> None:
        self._message(place)

    @rule()
    def the_sweep_looks(self) -> None:
        self.messages += self.simulation.sweep()

    @rule()
    def somebody_resumes(self) -> None:
        self.messages += self.simulation.engine.resume(self.simulation.group_id)

    # -- operations

    @precondition(lambda self: self.works)
    @rule(place=PLACE)
    def an_operation_takes_effect(self, place: int) -> None:
        self._take_effect(self.works[place % len(self.works)])

    @precondition(lambda self: self.works)
    @rule(place=PLACE)
    def an_operation_ends(self, place: int) -> None:
        work = self.works.pop(place % len(self.works))
        self._take_effect(work)
        if work.outcome is not None:
            self._conclude(work, work.outcome)

    @precondition(lambda self: self.works)
    @rule(place=PLACE, blocked=st.booleans())
    def an_operation_fails(self, place: int, blocked: bool) -> None:
        self._conclude(self.works.pop(place % len(self.works)), failure(blocked=blocked))

    @precondition(lambda self: self.works)
    @rule(place=PLACE)
    def an_owner_dies(self, place: int) -> None:
        self.works.pop(place % len(self.works))

    @precondition(lambda self: self.works)
    @rule(place=PLACE)
    def an_owner_renews(self, place: int) -> None:
        work = self.works[place % len(self.works)]
        lock = work.operation.ticket.lock
        if self.simulation.database.atomically(lambda tx: tx.renew(lock)):
            work.until = self.simulation.clock.seconds + LEASE

    @rule(share=st.sampled_from([0.4, 1.0]))
    def time_passes(self, share: float) -> None:
        self.simulation.clock.seconds += LEASE * share

    # -- what always holds

    @invariant()
    def tokens_only_grow(self) -> None:
        if not self.simulation.group_id:
            return
        for record in self.simulation.records():
            assert record.token >= self.tokens.get(record.id, 0)
            self.tokens[record.id] = record.token

    @invariant()
    def nothing_took_effect_twice(self) -> None:
        self.simulation.world.assert_nothing_happened_twice()

    def teardown(self) -> None:
        """The faults stop: what is under way ends, the rest is swept, until nothing is loose."""
        if self.goal is None:
            return
        for work in self.works:
            self._take_effect(work)
            if work.outcome is not None:
                self._conclude(work, work.outcome)
        self.simulation.clock.seconds += LEASE
        self._sweep_until_nothing_is_loose()
        assert self.simulation.status() in ("COMPLETE", "FAILED", "BLOCKED")
        if self.simulation.status() == "BLOCKED":
            self.simulation.carry(self.simulation.engine.resume(self.simulation.group_id))
            self._sweep_until_nothing_is_loose()
        if self.simulation.status() == "FAILED":
            self._start("b", ())
            self._sweep_until_nothing_is_loose()
        reached = self.simulation.current_goal()
        assert reached is not None
        self.simulation.audit_at_rest(reached)

    def _sweep_until_nothing_is_loose(self) -> None:
        for _ in range(20):
            loose = self.simulation.sweep()
            if not loose:
                return
            self.simulation.carry(loose)
        raise AssertionError(f"still loose: {loose}")

    # -- steps

    def _start(self, active: str, lost: tuple[str, ...]) -> None:
        self.goal = self.simulation.goal(active, lost)
        self.messages += self.simulation.start(self.goal).ready

    def _message(self, place: int) -> Ready:
        return self.messages.pop(place % len(self.messages))

    def _check(self, ready: Ready, owner: str) -> None:
        step = self.simulation.engine.check(ready, owner)
        self.messages += step.ready
        if step.operation is not None:
            until = self.simulation.clock.seconds + LEASE
            self.works.append(Work(step.operation, until))

    def _take_effect(self, work: Work) -> None:
        """Whoever carries it out stops by itself when the lease ends, as the fence guard does."""
        if work.outcome is None and self.simulation.clock.seconds < work.until:
            work.outcome = self.simulation.world.operate(work.operation)

    def _conclude(self, work: Work, outcome: Outcome) -> None:
        step: Step = self.simulation.engine.conclude(work.operation.ticket, outcome)
        self.messages += step.ready


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_happens_meanwhile_the_group_comes_to_rest_at_its_goal(kind: str) -> None:
    machine = type("Machine", (Interleaving,), {"kind": kind})
    run_state_machine_as_test(machine, settings=settings())


@pytest.mark.parametrize("kind", KINDS)
@given(
    resources=group_resources(5),
    moves=st.lists(st.tuples(st.sampled_from(["check", "end", "goal"]), PLACE, roles())),
)
def test_without_losses_no_sweep_is_needed(
    kind: str, resources: dict[str, Any], moves: list[tuple[str, int, tuple[str, Any]]]
) -> None:
    """No wake-up is lost, whatever overlaps with whatever."""
    simulation = Simulation(kind)
    simulation.define(resources)
    messages: list[Ready] = list(simulation.start(simulation.goal()).ready)
    works: list[Operation] = []

    def check(place: int) -> None:
        if messages:
            step = simulation.engine.check(messages.pop(place % len(messages)), "o")
            messages.extend(step.ready)
            works.extend([step.operation] if step.operation else [])

    def end(place: int) -> None:
        if works:
            work = works.pop(place % len(works))
            outcome = simulation.world.operate(work)
            messages.extend(simulation.engine.conclude(work.ticket, outcome).ready)

    for move, place, where in moves:
        if move == "goal":
            messages.extend(simulation.start(simulation.goal(*where)).ready)
        else:
            (check if move == "check" else end)(place)
    while messages or works:
        check(0)
        end(0)
    reached = simulation.current_goal()
    assert reached is not None
    simulation.audit_at_rest(reached)
