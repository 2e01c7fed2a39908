# SPDX-License-Identifier: Apache-2.0
"""One thread in virtual time, whose order a seed decides."""

from __future__ import annotations

from simulation.scheduler import BEGIN, Process, Scheduler


def _order(seed: int) -> list[str]:
    scheduler, seen = Scheduler(seed), []
    process = Process("a", 2)
    for name in "abcdef":

        def work(name: str = name) -> None:
            for _ in range(3):
                seen.append(name)
                scheduler.turn()

        scheduler.spawn(process, work, name)
    scheduler.run(BEGIN + 1)
    return seen


def test_the_seed_decides_the_order_and_nothing_else_does() -> None:
    assert _order(1) == _order(1)
    assert len({tuple(_order(seed)) for seed in range(5)}) > 1


def test_the_clock_moves_only_when_no_task_can_run() -> None:
    scheduler, at = Scheduler(0), []
    process = Process("a", 2)

    def sleeper() -> None:
        scheduler.sleep(5.0)
        at.append(("slept", scheduler.now - BEGIN))

    def worker() -> None:
        for _ in range(100):
            scheduler.turn()
        at.append(("worked", scheduler.now - BEGIN))

    scheduler.spawn(process, sleeper, "sleeper")
    scheduler.spawn(process, worker, "worker")
    scheduler.run(BEGIN + 60)
    assert at == [("worked", 0.0), ("slept", 5.0)]
    assert scheduler.now == BEGIN + 60


def test_a_wait_ends_when_it_is_woken_or_when_its_time_is_over() -> None:
    scheduler, ends = Scheduler(0), []
    process = Process("a", 2)
    woken = scheduler.spawn(process, lambda: ends.append(scheduler.park(9.0)), "woken")
    scheduler.spawn(process, lambda: ends.append(scheduler.park(2.0)), "left")

    def wake() -> None:
        scheduler.sleep(1.0)
        scheduler.wake(woken)

    scheduler.spawn(process, wake, "wakes")
    scheduler.run(BEGIN + 60)
    assert ends == [True, False]


def test_an_alarm_of_an_earlier_wait_does_not_end_a_later_one() -> None:
    scheduler, ends = Scheduler(0), []
    process = Process("a", 2)

    def waits() -> None:
        scheduler.park(2.0)
        ends.append((scheduler.park(10.0), scheduler.now - BEGIN))

    task = scheduler.spawn(process, waits, "waits")

    def wake() -> None:
        scheduler.sleep(1.0)
        scheduler.wake(task)

    scheduler.spawn(process, wake, "wakes")
    scheduler.run(BEGIN + 60)
    assert ends == [(False, 11.0)]


def test_nothing_of_a_killed_process_runs_on_not_even_what_tidies_up() -> None:
    scheduler, seen = Scheduler(0), []
    process = Process("a", 2)
    process.ends.append(lambda: seen.append("its connections end"))

    def work() -> None:
        try:
            scheduler.sleep(10.0)
        finally:
            seen.append("tidied up")

    scheduler.spawn(process, work, "work")
    scheduler.run(BEGIN + 1)
    scheduler.kill(process)
    scheduler.run(BEGIN + 60)
    assert seen == ["its connections end"]


def test_a_process_may_die_at_its_own_hand() -> None:
    scheduler, seen = Scheduler(0), []
    process = Process("a", 2)

    def work() -> None:
        scheduler.kill(process)
        seen.append("ran on")

    scheduler.spawn(process, work, "work")
    scheduler.run(BEGIN + 1)
    assert seen == []


def test_a_frozen_process_finds_that_time_has_passed() -> None:
    scheduler, at = Scheduler(0), []
    process, other = Process("a", 2), Process("b", 3)

    def work(name: str) -> None:
        for _ in range(3):
            scheduler.sleep(1.0)
            at.append((name, scheduler.now - BEGIN))

    scheduler.spawn(process, lambda: work("a"), "work")
    scheduler.spawn(other, lambda: work("b"), "work")
    scheduler.run(BEGIN + 1.5)
    scheduler.freeze(process, 30.0)
    scheduler.run(BEGIN + 60)
    assert [each for each in at if each[0] == "b"] == [("b", 1.0), ("b", 2.0), ("b", 3.0)]
    assert [each for each in at if each[0] == "a"] == [("a", 1.0), ("a", 31.5), ("a", 32.5)]
