# SPDX-License-Identifier: Apache-2.0
"""One overall model: everything that can go wrong at any moment, and then it stops.

Several engines work on one group, each with leases of its own. Messages are reordered, doubled and
lost; operations overlap, end out of order, fail, find a service away, or die with or without their
effect; frozen owners wake up when their locks are broken; new goals start in the middle, the target
is lost, the group is removed, and it flips back while things are being deleted. Once that stops,
the sweep alone brings the group to its newest goal, or back to the last one that was reached
(invariant 7), and all along tokens only grow, no late result is recorded (3), and nothing takes
effect twice (4).
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

from mistral_failover.convergence.records import Operation, Outcome, Ready
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.goal import Goal, render_goal, restored_goal, returns
from support.databases import KINDS
from support.simulation import LEASE, Simulation, away, failure
from support.strategies import MEMBERS, group_resources, roles

pytestmark = pytest.mark.deep

PLACE = st.integers(0, 1000)
LEASES = {"one": LEASE, "two": LEASE / 2, "three": LEASE * 2}  # of each engine, by its name
PATIENT = {"patience": 86_400}  # longer than any example lasts
ENGINES = st.sampled_from(sorted(LEASES))


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
        self.engines = {
            name: self.simulation.another_engine(name, lease) for name, lease in LEASES.items()
        }
        self.messages: list[Ready] = []
        self.works: list[Work] = []
        self.goals: list[Goal] = []  # that were asked for; the last one is the newest
        self.tokens: dict[str, int] = {}
        self.on_failure = "stop"
        self.something_failed = False

    @initialize(resources=group_resources(5), on_failure=st.sampled_from(["stop", "rollback"]))
    def the_group_is_defined(self, resources: dict[str, Any], on_failure: str) -> None:
        self.on_failure = on_failure
        self.simulation.define(resources, on_failure=on_failure, limits=PATIENT)
        self._start(self.simulation.goal("a"))

    # -- goals

    @rule(where=roles())
    def a_goal_is_set(self, where: tuple[str, tuple[str, ...]]) -> None:
        self._start(self.simulation.goal(*where))

    @rule(resources=group_resources(5), where=roles())
    def the_group_is_changed(
        self, resources: dict[str, Any], where: tuple[str, tuple[str, ...]]
    ) -> None:
        self.simulation.define(resources, on_failure=self.on_failure, limits=PATIENT)
        self._start(self.simulation.goal(*where))

    @rule()
    def the_group_is_removed(self) -> None:
        self._start(self.simulation.nothing())

    @precondition(lambda self: self._active() and len(self._lost()) < len(MEMBERS) - 1)
    @rule(place=PLACE)
    def the_target_is_lost(self, place: int) -> None:
        active = self._active()
        assert active is not None
        lost = (*self._lost(), active)
        left = [member for member in MEMBERS if member not in lost]
        self._start(self.simulation.goal(left[place % len(left)], lost))

    @precondition(lambda self: self.goals)
    @rule(place=PLACE)
    def it_is_moved_as_planned(self, place: int) -> None:
        """Whatever fails on the way takes it back."""
        left = [member for member in MEMBERS if member not in self._lost()]
        assert self.simulation.group is not None
        active = {"active": left[place % len(left)]}
        self._start(render_goal(self.simulation.group, active, self._lost(), returns=True))

    @precondition(lambda self: self._deletions() and len(self.goals) > 1)
    @rule()
    def it_flips_back_while_something_is_being_deleted(self) -> None:
        self._start(self.goals[-2])

    @precondition(lambda self: self.goals)
    @rule(place=PLACE)
    def somebody_rolls_back(self, place: int) -> None:
        """To a goal of the past, while what is lost now stays lost."""
        try:
            goal = restored_goal(self.goals[place % len(self.goals)], self.goals[-1])
        except InvalidDocument:
            return
        self._start(goal)

    # -- messages

    @precondition(lambda self: self.messages)
    @rule(place=PLACE, engine=ENGINES)
    def a_message_arrives(self, place: int, engine: str) -> None:
        self._check(self._message(place), engine)

    @precondition(lambda self: self.messages)
    @rule(place=PLACE)
    def a_message_is_doubled(self, place: int) -> None:
        ready = self._message(place)
        self.messages += [ready, ready]

    @precondition(lambda self: self.messages)
    @rule(place=PLACE)
    def a_message_is_lost(self, place: int) -> None:
        self._message(place)

    @precondition(lambda self: self.messages and not self._deletions())
    @rule(engine=ENGINES)
    def things_go_on_until_something_is_being_deleted(self, engine: str) -> None:
        for _ in range(20):
            if not self.messages or self._deletions():
                return
            before = len(self.works)
            self._check(self._message(0), engine)
            for work in self.works[before:]:
                if work.operation.ticket.verb != "delete":
                    self._end(work)

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
        self._take_effect(self._work(place))

    @precondition(lambda self: self.works)
    @rule(place=PLACE)
    def an_operation_ends(self, place: int) -> None:
        self._end(self._work(place))

    @precondition(lambda self: self.works)
    @rule(place=PLACE, blocked=st.booleans())
    def an_operation_fails(self, place: int, blocked: bool) -> None:
        """One that took effect may seem to have failed."""
        work = self._work(place)
        unclear = work.outcome is not None
        outcome = failure(blocked=blocked and not unclear, unknown=unclear)
        self.something_failed |= not outcome.blocked or returns(self.goals[-1])
        self._conclude(work, outcome)

    @precondition(lambda self: self.works)
    @rule(place=PLACE)
    def an_operation_finds_a_service_away(self, place: int) -> None:
        """Whether or not it took effect before: it is tried again, and nothing fails by it."""
        work = self._work(place)
        status = self.simulation.status()
        self._conclude(work, away())
        assert self.simulation.status() == status

    @precondition(lambda self: self.works)
    @rule(place=PLACE)
    def an_owner_dies(self, place: int) -> None:
        self.works.remove(self._work(place))

    @precondition(lambda self: self.works)
    @rule(place=PLACE)
    def an_owner_renews(self, place: int) -> None:
        self._renew(self._work(place))

    @precondition(lambda self: self.works)
    @rule(place=PLACE, engine=ENGINES, effective=st.booleans())
    def an_owner_freezes_and_its_lock_is_broken(
        self, place: int, engine: str, effective: bool
    ) -> None:
        """A frozen worker has no effect any more, and concludes whenever it wakes up."""
        frozen = self._work(place)
        if effective:
            self._take_effect(frozen)
        while self.simulation.clock.seconds < frozen.until:
            for work in self.works:
                if work is not frozen:
                    self._renew(work)
            self.simulation.clock.seconds += min(LEASES.values()) / 2
        record_id = frozen.operation.record.id
        for ready in self.simulation.sweep():
            if ready.node.resource_id == record_id:
                self._check(ready, engine)

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
    def a_lock_whose_owner_lives_is_its_owners(self) -> None:
        for work in self.works:
            if self.simulation.clock.seconds < work.until:
                assert self._owns(work)

    @invariant()
    def nothing_took_effect_twice(self) -> None:
        self.simulation.world.assert_nothing_happened_twice()

    def teardown(self) -> None:
        """The faults stop: what is under way ends, the rest is swept, until nothing is loose."""
        if not self.goals:
            return
        for work in list(self.works):
            self._end(work)
        self.simulation.clock.seconds += max(LEASES.values())  # and every next try is due
        self._sweep_until_nothing_is_loose()
        assert self.simulation.status() in ("COMPLETE", "FAILED", "BLOCKED")
        if self.simulation.status() == "BLOCKED":
            self.simulation.carry(self.simulation.engine.resume(self.simulation.group_id))
            self._sweep_until_nothing_is_loose()
        if self.simulation.status() == "FAILED":
            assert self.something_failed, self.simulation.reason()
            self._start(self.goals[-1])
            self._sweep_until_nothing_is_loose()
        reached = self.simulation.current_goal()
        assert reached is not None
        if reached.version != self.goals[-1].version:
            assert self.something_failed
            assert self.on_failure == "rollback" or returns(self.goals[-1]), "at an older goal"
        self.simulation.audit_at_rest(reached)

    def _sweep_until_nothing_is_loose(self) -> None:
        for _ in range(20):
            loose = self.simulation.sweep()
            if not loose:
                return
            self.simulation.carry(loose)
        raise AssertionError(f"still loose: {loose}")

    # -- steps

    def _start(self, goal: Goal) -> None:
        self.goals.append(goal)
        self.messages += self.simulation.start(goal).ready

    def _active(self) -> str | None:
        return self.goals[-1].document["roles"].get("active") if self.goals else None

    def _lost(self) -> tuple[str, ...]:
        return tuple(self.goals[-1].document["lost"])

    def _deletions(self) -> list[Work]:
        return [work for work in self.works if work.operation.ticket.verb == "delete"]

    def _message(self, place: int) -> Ready:
        return self.messages.pop(place % len(self.messages))

    def _work(self, place: int) -> Work:
        return self.works[place % len(self.works)]

    def _check(self, ready: Ready, engine: str) -> None:
        step = self.engines[engine].check(ready, engine)
        self.messages += step.ready
        if step.operation is not None:
            until = self.simulation.clock.seconds + step.operation.ticket.lock.lease
            self.works.append(Work(step.operation, until))

    def _renew(self, work: Work) -> None:
        lock = work.operation.ticket.lock
        if self.simulation.database.atomically(lambda tx: tx.renew(lock)):
            work.until = self.simulation.clock.seconds + lock.lease

    def _take_effect(self, work: Work) -> None:
        """The worker stops by itself when the lease ends, as the fence guard does."""
        if work.outcome is None and self.simulation.clock.seconds < work.until:
            work.outcome = self.simulation.world.operate(work.operation)

    def _end(self, work: Work) -> None:
        """One that could not take effect has nothing to conclude."""
        self._take_effect(work)
        if work.outcome is None:
            self.works.remove(work)
        else:
            self._conclude(work, work.outcome)

    def _conclude(self, work: Work, outcome: Outcome) -> None:
        """Under an old token it changes nothing."""
        self.works.remove(work)
        owned, before = self._owns(work), self.simulation.records()
        engine = self.engines[work.operation.ticket.lock.owner]
        step = engine.conclude(work.operation.ticket, outcome)
        self.messages += step.ready
        if not owned:
            assert step.ready == ()
            assert self.simulation.records() == before

    def _owns(self, work: Work) -> bool:
        lock = work.operation.ticket.lock
        record = self.simulation.record(lock.resource_id)
        return record is not None and (record.owner, record.token) == (lock.owner, lock.token)


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
