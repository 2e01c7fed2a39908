# SPDX-License-Identifier: Apache-2.0
"""Every interleaving of several engines on one small group, one transaction after the other.

A state is the content of the database, the messages that were not taken yet, what each engine has
in hand, the world, and how much may still go wrong. From each state every move is made; states met
before are not gone into again. The search goes in breadth, so the path to what went wrong is a
shortest one.

Left out, because it makes no difference: an engine that has to repeat a check puts its message
back (somebody else may take it); messages that can not do anything any more are dropped once the
core was seen to ignore them; engines have no names.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from typing import Any

from mistral_failover.convergence.records import Ready
from mistral_failover.model.goal import Goal
from support.exploration_moves import MoveNarrator
from support.numbered_worlds import NumberedWorlds
from support.simulation import Simulation
from support.states import (
    ChosenGoal,
    Explored,
    Label,
    Move,
    RemainingEvents,
    RunningOperation,
    State,
    Violation,
    with_one,
    without,
)
from support.store_states import Doing, StepEffects, StoreStates


class Explorer:
    """One scenario: the goals in order, and what may go wrong."""

    def __init__(
        self,
        *wishes: ChosenGoal,
        faults: RemainingEvents = RemainingEvents(),  # noqa: B008 - a tuple
        engines: int = 2,
        on_failure: str = "stop",
        reached: int = 0,
    ) -> None:
        """``faults``: how often things may happen; ``reached``: how many of the goals are reached
        undisturbed before the exploration begins."""
        self._wishes = wishes
        self._engines = engines
        self._on_failure = on_failure
        self._simulation = Simulation("memory")
        self._goals: dict[int, Goal] = {}
        self._faults = faults._replace(goals=len(wishes) - reached)
        for number in range(reached):
            self._simulation.carry(self._begin(number))
            goal = self._simulation.current_goal()
            assert goal is not None
            self._simulation.audit_at_rest(goal)
        self._simulation.world.log.clear()
        if not reached:
            self._define(0)
        self._contents = StoreStates(self._simulation)
        self._worlds = NumberedWorlds(self._contents)
        self._teller = MoveNarrator(self._contents, wishes)
        self._trying: Label = ("nothing", None)
        self._audited: set[tuple[int, int, bool]] = set()
        self._states: dict[State, int] = {}
        self._ways: list[tuple[int, Label]] = []  # how each state was reached first

    def explore(self, most: int = 500_000) -> Explored:
        """Visit every state; raises Violation, also after ``most`` states."""
        begun = time.perf_counter()
        first = State(0, self._worlds.number(self._simulation.world), (), (), self._faults)
        self._states[first], queue = 0, [first]
        self._ways.append((-1, ("nothing", None)))
        sources, targets, rests = array("I"), array("I"), bytearray()
        for number, state in enumerate(queue):  # which grows meanwhile
            rests.append(False)
            self._trying = ("it rests", None)
            try:
                rests[number] = self._at_rest(state)
                for label, following in self._moves(state):
                    target = self._states.setdefault(following, len(queue))
                    if target == len(queue):
                        queue.append(following)
                        self._ways.append((number, label))
                    sources.append(number)
                    targets.append(target)
            except Exception as error:
                raise Violation(
                    self._way_to(number, f"{type(error).__name__}: {error}", last=self._trying)
                ) from error
            assert len(queue) <= most, f"more than {most} states"
        self._assert_an_end(sources, targets, rests)
        return Explored(
            len(queue),
            len(sources),
            self._contents.ran,
            len(self._contents.facts),
            sum(rests),
            time.perf_counter() - begun,
        )

    # -- moves

    def _moves(self, state: State) -> Iterator[Move]:
        left = state.left
        if left.goals:
            yield self._start(state)
        if self._contents.facts[state.content].blocked:
            label = self._try("somebody resumes")
            yield label, self._after(state, self._contents.resume(state.content))
        at_work = _at_work(state)
        if len(at_work) < self._engines:
            for message in dict.fromkeys(state.messages):
                yield from self._deliver(state, message)
        if left.losses:
            for message in dict.fromkeys(state.messages):
                kept = state._replace(messages=without(state.messages, message))
                yield self._try("is lost", message), kept._replace(left=left.less("losses"))
        if left.strays and len(at_work) < self._engines:
            for message in self._contents.waiting(state.content):
                label = self._try("is looked at by somebody", message)
                done = self._contents.do(state.content, ("check", message))
                yield label, self._after(state._replace(left=left.less("strays")), done)
        for work in dict.fromkeys(state.works):
            yield from self._go_on(state, work)
        if left.overlaps:
            yield from self._overlap(state)
        for number in dict.fromkeys(state.under_way):
            yield from self._end(state, number)
        orphans = self._orphans(state)
        for record_id in orphans:
            label = self._try("its lease ends", record_id)
            content = self._contents.end_lease(state.content, record_id)
            yield label, state._replace(content=content)
        if not (state.messages or at_work or orphans):
            yield from self._sweep(state)

    def _start(self, state: State) -> Move:
        number = len(self._wishes) - state.left.goals
        label = self._try("goal", number)
        done = self._contents.start(state.content, number, lambda: self._begin(number))
        return label, self._after(state._replace(left=state.left.less("goals")), done)

    def _deliver(self, state: State, message: int) -> Iterator[Move]:
        label = self._try("is taken", message)
        done = self._contents.do(state.content, ("check", message))
        assert not done.again or done.content != state.content, "it is repeated in vain"
        kept = state.messages if done.again else without(state.messages, message)
        yield label, self._after(state._replace(messages=kept), done)
        if state.left.doubles:
            label = self._try("is taken, and comes again", message)
            doubled = state._replace(left=state.left.less("doubles"))
            yield label, self._after(doubled, done)

    def _go_on(self, state: State, work: RunningOperation) -> Iterator[Move]:
        """What may become of an operation."""
        number, left = work.operation, state.left
        idle = state._replace(works=without(state.works, work))
        if work.effected:
            label = self._try("is concluded", number)
            done = self._contents.do(state.content, ("conclude", number))
            yield label, self._after(idle, done)
        if work.frozen:
            # It made no call any more. A worker that knows that its lease is lost says nothing; a
            # workflow may say that it failed, which counts for nothing once the lock was broken.
            label = self._try("wakes up and gives up", number)
            if not work.effected and not self._contents.owns(state.content, number):
                self._contents.do(state.content, ("fail", number))
            yield label, idle
            return
        if not work.effected and self._may_act(state, number):
            label = self._try("takes effect", number)
            world = self._worlds.after(state.world, (("operate", number),))
            effected = with_one(idle.works, work._replace(effected=True))
            yield label, idle._replace(world=world, works=effected)
        yield from self._fail(idle, work)
        if left.lates and not work.effected and not self._is_under_way(state, number):
            yield from self._give_up(idle, number)
        if left.crashes:
            yield self._try("dies", number), idle._replace(left=left.less("crashes"))
        if left.freezes:
            label = self._try("freezes, its lease ends", number)
            record_id = self._contents.operations[number].record.id
            frozen = idle._replace(
                content=self._contents.end_lease(state.content, record_id),
                works=with_one(idle.works, work._replace(frozen=True)),
                left=left.less("freezes"),
            )
            yield label, frozen

    def _give_up(self, idle: State, number: int) -> Iterator[Move]:
        """Its request has no answer when its owner dies, or releases it."""
        asked = self._contents.ask(idle.content, number)
        late = idle._replace(
            content=asked,
            under_way=with_one(idle.under_way, number),
            left=idle.left.less("lates"),
        )
        yield self._try("dies, its request is under way", number), late
        label = self._try("is released, its request is under way", number)
        yield label, self._after(late, self._contents.do(asked, ("abandon", number)))

    def _end(self, state: State, number: int) -> Iterator[Move]:
        """What becomes of a request that was given up."""
        settled = state._replace(
            content=self._contents.settle(state.content, number),
            under_way=without(state.under_way, number),
        )
        yield self._try("can have no effect any more", number), settled
        label = self._try("takes effect late", number)
        world = self._worlds.after(state.world, (("operate", number),))
        yield label, settled._replace(world=world)

    def _may_act(self, state: State, number: int) -> bool:
        """While an earlier request may take effect, an operation only looks."""
        if not self._is_under_way(state, number):
            return True
        operation = self._contents.operations[number]
        return self._worlds.world(state.world).is_as_wanted(operation)

    def _is_under_way(self, state: State, number: int) -> bool:
        record_id = self._contents.operations[number].record.id
        operations = self._contents.operations
        return any(operations[each].record.id == record_id for each in state.under_way)

    def _fail(self, idle: State, work: RunningOperation) -> Iterator[Move]:
        """One that took effect may have failed to say so."""
        number, left = work.operation, idle.left
        if left.failures:
            how = "leave unclear" if work.effected else "fail"
            label = self._try("fails, or seems to", number)
            done = self._contents.do(idle.content, (how, number))
            yield label, self._after(idle._replace(left=left.less("failures")), done)
        if left.blocks and not work.effected:
            label = self._try("is blocked", number)
            done = self._contents.do(idle.content, ("block", number))
            yield label, self._after(idle._replace(left=left.less("blocks")), done)

    def _overlap(self, state: State) -> Iterator[Move]:
        """One engine's step happens in the middle of another one's."""
        less = state.left.less("overlaps")
        for outer, kept in self._doings(state, "check"):
            doubled = state.left.doubles and outer[0] == "check"
            for inner, taken in self._doings(kept, "check", "carry"):
                yield from self._both(outer, inner, state, taken._replace(left=less))
            if doubled:
                left = less.less("doubles")
                for kind in ("check", "carry"):
                    inner = (kind, outer[1])
                    yield from self._both(outer, inner, state, kept._replace(left=left))

    def _doings(self, state: State, *checks: str) -> Iterator[tuple[Doing, State]]:
        """What somebody may do with a message or an operation, and what is left of the state."""
        for message in dict.fromkeys(state.messages):
            kept = state._replace(messages=without(state.messages, message))
            yield from (((check, message), kept) for check in checks)
        for work in dict.fromkeys(state.works):
            if work.effected:
                yield (
                    ("conclude", work.operation),
                    state._replace(works=without(state.works, work)),
                )

    def _both(self, outer: Doing, inner: Doing, state: State, taken: State) -> Iterator[Move]:
        checks = (outer[0] == "check") + (inner[0] in ("check", "carry"))
        if checks + len(_at_work(taken)) > self._engines:
            return
        label = self._try("overlap", (inner, outer))
        done = self._contents.do_both(state.content, outer, inner)
        if done is not None:
            if done.again:
                taken = taken._replace(messages=with_one(taken.messages, outer[1]))
            yield label, self._after(taken, done)

    def _sweep(self, state: State) -> Iterator[Move]:
        """Only what a fault left lying may be in need of it."""
        self._try("the sweep looks")
        done = self._contents.sweep(state.content)
        if done.ready:
            excuses = ("crashes", "freezes", "losses", "lates")
            excused = any(getattr(self._faults, e) > getattr(state.left, e) for e in excuses)
            assert excused, f"a wake-up was lost: {self._teller.messages(done.ready)}"
            yield self._try("the sweep looks"), self._after(state, done)

    def _after(self, state: State, done: StepEffects) -> State:
        """The state after a step, whose own message or work ``state`` has no more."""
        messages = sorted((*state.messages, *done.ready))
        works = sorted((*state.works, *(RunningOperation(number) for number in done.operations)))
        after = state._replace(
            content=done.content,
            world=self._worlds.after(state.world, done.happenings),
            messages=tuple(m for m in messages if not self._in_vain(done.content, m)),
            works=tuple(works),
        )
        self._assert_no_live_engine_lost_a_lock(after)
        return after

    def _in_vain(self, content: int, message: int) -> bool:
        """Whether a message can not do anything any more."""
        ready = self._contents.messages[message]
        if (ready.traversal_id, ready.node.key) in self._contents.facts[content].waiting:
            return False
        done = self._contents.do(content, ("check", message))
        assert (done.content, done.ready, done.operations) == (content, (), ()), (
            f"{self._teller.messages([message])} was no message for anybody"
        )
        return True

    # -- what always holds

    def _assert_no_live_engine_lost_a_lock(self, state: State) -> None:
        for work in _at_work(state):
            operation = self._contents.operations[work.operation]
            lock = operation.ticket.lock
            held = self._contents.facts[state.content].held.get(lock.resource_id)
            assert held == (lock.owner, lock.token), f"{operation.record.name} has two owners"

    def _orphans(self, state: State) -> list[str]:
        """The records whose lock's owner died and whose lease lasts."""
        held = dict(self._contents.facts[state.content].held)
        for work in _at_work(state):
            held.pop(self._contents.operations[work.operation].record.id, None)
        return list(held)

    def _at_rest(self, state: State) -> bool:
        """Whether nothing will happen by itself any more; then the audit must hold."""
        if state.messages or state.works or state.under_way or self._orphans(state):
            return False
        if self._contents.facts[state.content].blocked or self._contents.sweep(state.content).ready:
            return False
        started = len(self._wishes) - state.left.goals
        if started:
            self._audit(state, started)
        return True

    def _audit(self, state: State, started: int) -> None:
        failed = state.left.failures < self._faults.failures
        key = (state.content, state.world, failed)
        if key in self._audited:
            return
        self._audited.add(key)
        self._contents.load(state.content)
        simulation = self._simulation
        simulation.world = self._worlds.world(state.world)
        goal = simulation.current_goal()
        assert goal is not None
        if not failed:
            assert goal.version == self._goals[started - 1].version, "it rests at an older goal"
        if failed and simulation.status() == "FAILED":
            assert self._on_failure != "rollback" or not self._could_roll_back(goal)
            simulation.carry(simulation.start(goal, "the same again").ready)
            self._contents.forget_loaded()
        simulation.audit_at_rest(goal)

    def _could_roll_back(self, goal: Goal) -> bool:
        state = self._simulation.database.reading(
            lambda tx: tx.lock_group(self._simulation.group_id, shared=True)
        )
        assert state is not None
        return state.last_complete_goal not in (None, goal.version)

    def _assert_an_end(self, sources: Any, targets: Any, rests: bytearray) -> None:
        """From everywhere a state of rest can be reached."""
        before: list[list[int]] = [[] for _ in rests]
        for source, target in zip(sources, targets, strict=True):
            before[target].append(source)
        found = [number for number, rest in enumerate(rests) if rest]
        ends = bytearray(rests)
        for number in found:  # which grows meanwhile
            for source in before[number]:
                if not ends[source]:
                    ends[source] = True
                    found.append(source)
        if len(found) < len(ends):
            raise Violation(self._way_to(ends.index(False), "from here it never comes to rest"))

    # -- goals and the world

    def _define(self, number: int) -> Goal:
        wish, simulation = self._wishes[number], self._simulation
        if wish.resources is None:
            return simulation.nothing()
        simulation.define(wish.resources, on_failure=self._on_failure)
        return simulation.goal(wish.active, wish.lost)

    def _begin(self, number: int) -> tuple[Ready, ...]:
        goal = self._define(number)
        self._goals[number] = goal
        self._simulation.clock.seconds += 1
        return self._simulation.start(goal, f"traversal-{number}").ready

    # -- telling

    def _try(self, what: str, of: Any = None) -> Label:
        """The label of the move that is made next."""
        self._trying = (what, of)
        return self._trying

    def _way_to(self, number: int, problem: str, last: Label | None = None) -> str:
        labels = [last] if last else []
        while number > 0:
            number, label = self._ways[number]
            labels.append(label)
        steps = [self._teller.told(label) for label in reversed(labels)]
        return "\n".join([problem, *(f"{i}. {step}" for i, step in enumerate(steps, 1))])


def _at_work(state: State) -> list[RunningOperation]:
    """What those do that are not frozen."""
    return [work for work in state.works if not work.frozen]
