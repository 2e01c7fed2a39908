# SPDX-License-Identifier: Apache-2.0
"""The budgets of services: when they shrink and grow, and whose turn it is."""

from __future__ import annotations

import logging

import pytest

from mistral_failover.runtime.budgets import (
    BURST,
    GROWTH,
    LONGEST_PAUSE,
    LONGEST_WAIT,
    QUIET,
    Budget,
    Budgets,
    Need,
    Queue,
)


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def end(budget: Budget, times: int) -> None:
    """Have some operations start and end."""
    for _ in range(times):
        budget.take()
        budget.give_back()


# -- one budget


def test_a_budget_has_room_for_its_maximum_and_again_when_an_operation_ends(clock: Clock) -> None:
    budget = Budget(2, clock)
    budget.take()
    assert budget.room()
    budget.take()
    assert not budget.room()
    budget.give_back()
    assert budget.room()


def test_an_overloaded_service_halves_the_budget_once_in_a_burst(clock: Clock) -> None:
    budget = Budget(48, clock)
    assert budget.overloaded() == 0.0
    clock.now += BURST / 2
    assert budget.overloaded() is None
    assert budget.limit == 24
    clock.now += BURST / 2
    budget.overloaded()
    assert budget.limit == 12


@pytest.mark.parametrize(("maximum", "least"), [(48, 6), (3, 1), (1, 1)])
def test_a_budget_is_never_cut_to_nothing(clock: Clock, maximum: int, least: int) -> None:
    budget = Budget(maximum, clock)
    for _ in range(20):
        budget.overloaded()
        clock.now += BURST
    assert budget.limit == least
    assert budget.room()


def test_a_budget_grows_by_one_when_some_operations_have_ended(clock: Clock) -> None:
    budget = Budget(48, clock)
    budget.overloaded()
    end(budget, GROWTH - 1)
    assert budget.limit == 24
    end(budget, 1)
    assert budget.limit == 25


def test_a_service_that_is_overloaded_again_sets_the_growth_back(clock: Clock) -> None:
    budget = Budget(48, clock)
    budget.overloaded()
    end(budget, GROWTH - 1)
    budget.overloaded()  # within the burst, so it cuts nothing
    end(budget, GROWTH - 1)
    assert budget.limit == 24


def test_a_budget_grows_to_its_maximum_and_not_above(clock: Clock) -> None:
    budget = Budget(4, clock)
    budget.overloaded()
    end(budget, 10 * GROWTH)
    assert budget.limit == 4


def test_a_budget_is_whole_again_after_a_quiet_time(clock: Clock) -> None:
    budget = Budget(48, clock)
    budget.overloaded()
    clock.now += QUIET - 1
    assert budget.limit == 24
    clock.now += 1
    assert budget.limit == 48


@pytest.mark.parametrize(
    ("asked", "closed"), [(0.0, 0.0), (5.0, 5.0), (3600.0, LONGEST_PAUSE), (-1.0, 0.0)]
)
def test_nothing_starts_until_the_service_wants_it(
    clock: Clock, asked: float, closed: float
) -> None:
    budget = Budget(48, clock)
    assert budget.overloaded(asked) == closed
    if closed:
        clock.now += closed - 0.1
        assert not budget.room()
    clock.now += 0.1
    assert budget.room()


@pytest.mark.parametrize("later", [BURST / 2, 2 * BURST])
def test_an_answer_without_a_time_does_not_shorten_what_another_asked_for(
    clock: Clock, later: float
) -> None:
    """Of operations that were under way, for example."""
    budget = Budget(48, clock)
    budget.overloaded(30.0)
    clock.now += later
    budget.overloaded()

    assert not budget.room()
    clock.now += 30.0 - later
    assert budget.room()


def test_an_answer_of_the_same_burst_may_ask_for_a_longer_time(clock: Clock) -> None:
    budget = Budget(48, clock)
    budget.overloaded()
    clock.now += BURST / 2

    assert budget.overloaded(30.0) == 30.0

    assert budget.limit == 24
    assert not budget.room()
    clock.now += 30.0
    assert budget.room()


# -- those of all projects and services


def test_each_project_and_service_has_a_budget_of_its_own(clock: Clock) -> None:
    budgets = Budgets({"Nova": 1, "Heat": 2}, 3, clock)
    budgets.take(Need("p1", ("Nova",)))
    assert not budgets.room(Need("p1", ("Nova",)))
    assert budgets.room(Need("p1", ("Heat",)))
    assert budgets.room(Need("p2", ("Nova",)))
    assert budgets.room(Need("p1", ()))
    for _ in range(3):
        assert budgets.room(Need("p1", ("Octavia",)))
        budgets.take(Need("p1", ("Octavia",)))
    assert not budgets.room(Need("p1", ("Octavia",)))


def test_an_operation_that_needs_two_services_takes_both_or_none(clock: Clock) -> None:
    budgets = Budgets({"Nova": 1, "Cinder": 1}, 1, clock)
    both, one = Need("p", ("Cinder", "Nova")), Need("p", ("Cinder",))
    budgets.take(Need("p", ("Nova",)))
    assert not budgets.room(both)
    assert budgets.room(one), "what is refused has taken nothing"
    budgets.give_back(Need("p", ("Nova",)))
    budgets.take(both)
    assert not budgets.room(one)


def test_an_overloaded_service_is_reported_with_what_remains(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    budgets = Budgets({"Nova": 48}, 1, clock)
    budgets.take(Need("p", ("Nova",)))
    with caplog.at_level(logging.WARNING):
        assert budgets.overloaded("p", "Nova", 0.0) == 0.0
        assert budgets.overloaded("p", "Nova", 0.0) is None
        assert budgets.overloaded("p", "Keystone", 9.0) is None, "no operation has asked for it"
    assert [message for message in caplog.messages if "overloaded" in message] == [
        "Nova is overloaded: at most 24 operations of project p ask it at once, not 48"
    ]


# -- whose turn it is


def started(queue: Queue[str]) -> list[str]:
    """Start everything that may start."""
    found = []
    while (one := queue.start()) is not None:
        found.append(one)
    return found


def queue_of(clock: Clock, nova: int = 100, threads: int = 100) -> Queue[str]:
    return Queue(Budgets({"Nova": nova}, 100, clock), threads, clock)


def test_the_highest_priority_starts_first_then_the_oldest_failover_then_the_first_node(
    clock: Clock,
) -> None:
    queue = queue_of(clock)
    queue.put("low", Need("p", ("Nova",), 0, 1))
    queue.put("young", Need("p", ("Nova",), 5, 3))
    queue.put("old", Need("p", ("Heat",), 5, 2))
    queue.put("old, second", Need("p", ("Nova",), 5, 2))
    assert started(queue) == ["old", "old, second", "young", "low"]


def test_what_finds_no_budget_waits_and_others_go_on(clock: Clock) -> None:
    queue = queue_of(clock, nova=1)
    for name in ("first", "second"):
        queue.put(name, Need("p", ("Nova",)))
    queue.put("stack", Need("p", ("Heat",)))
    assert started(queue) == ["first", "stack"]
    queue.ended(Need("p", ("Nova",)))
    assert started(queue) == ["second"]


def test_what_has_waited_for_long_goes_first(clock: Clock) -> None:
    queue = queue_of(clock)
    queue.put("low", Need("p", ("Nova",), -10, 1))
    clock.now += LONGEST_WAIT
    queue.put("high", Need("p", ("Nova",), 10, 2))
    queue.put("higher", Need("p", ("Heat",), 20, 3))
    assert started(queue) == ["low", "higher", "high"]


def test_a_priority_takes_nothing_from_another_project(clock: Clock) -> None:
    queue = queue_of(clock)
    for number in range(3):
        queue.put(f"greedy {number}", Need("p1", ("Nova",), 1000, number))
    queue.put("modest", Need("p2", ("Nova",), -1000, 9))
    assert started(queue) == ["greedy 0", "modest", "greedy 1", "greedy 2"]


def test_a_queue_that_is_cleared_starts_nothing_more(clock: Clock) -> None:
    queue = queue_of(clock, nova=1)
    for name in ("runs", "waits", "waits, too"):
        queue.put(name, Need("p", ("Nova",)))
    assert started(queue) == ["runs"]
    assert sorted(queue.clear()) == ["waits", "waits, too"]
    queue.ended(Need("p", ("Nova",)))
    assert started(queue) == []


def test_projects_share_the_threads_and_one_that_has_none_finds_one(clock: Clock) -> None:
    queue = queue_of(clock, threads=8)
    for number in range(8):
        for project in "abc":
            queue.put(f"{project}{number}", Need(project))
    assert started(queue) == ["a0", "b0", "c0", "a1", "b1", "c1", "a2"]
    queue.put("d0", Need("d"))
    assert started(queue) == ["d0"]
    queue.ended(Need("a"))
    assert started(queue) == [], "the last one is for a project that has none"
    for _ in range(2):
        queue.ended(Need("b"))
    assert started(queue) == ["b2", "b3"]


def test_what_pauses_gives_its_thread_back_and_keeps_its_budgets(clock: Clock) -> None:
    queue, need = queue_of(clock, nova=1, threads=1), Need("p", ("Nova",))
    for name in ("long", "next"):
        queue.put(name, need)
    queue.put("other", Need("q"))
    assert started(queue) == ["long"]
    queue.pause(need)
    assert started(queue) == ["other"]
    queue.ended(Need("q"))
    assert started(queue) == []
    queue.put("urgent", Need("p", (), 1000))
    queue.put_back("long", need)
    assert started(queue) == ["long"]
    queue.ended(need)
    assert started(queue) == ["urgent"]
    queue.ended(Need("p"))
    assert started(queue) == ["next"]
