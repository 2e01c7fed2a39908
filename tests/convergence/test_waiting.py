# SPDX-License-Identifier: Apache-2.0
"""Operations that fail of what passes by itself: they are tried again, and nothing fails by it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mistral_failover.convergence.engine import Engine
from mistral_failover.convergence.records import NodeState, Operation, Outcome, Ready, Step
from mistral_failover.convergence.waiting import backoff
from mistral_failover.store import views
from mistral_failover.store.tables import operations
from support.rows import rows
from support.samples import sample_resource, sentences
from support.simulation import LEASE, Simulation, away, failure


def begin(simulation: Simulation, **limits: Any) -> Ready:
    """The node of the creation of ``data`` on b, in a group with these limits."""
    more: dict[str, Any] = {"limits": limits} if limits else {}
    simulation.define({"data": sample_resource("held", member={"get_param": "active"})}, **more)
    (ready,) = simulation.start(simulation.goal("b")).ready
    return ready


def fail_once(simulation: Simulation, ready: Ready, outcome: Outcome | None = None) -> Step:
    """Hand the operation out and let it find the service away."""
    return simulation.engine.conclude(simulation.operation(ready).ticket, outcome or away())


def node_of(simulation: Simulation, ready: Ready) -> NodeState:
    state = simulation.node(ready)
    assert state is not None
    return state


@pytest.fixture
def ready(simulation: Simulation) -> Ready:
    return begin(simulation)


def test_the_pauses_between_two_tries_grow_up_to_ten_seconds() -> None:
    assert [backoff(tries) for tries in range(1, 9)] == [1, 2, 4, 8, 10, 10, 10, 10]
    assert backoff(100_000) == 10


def test_what_found_a_service_away_says_what_it_waits_for_and_when_it_goes_on(
    simulation: Simulation, ready: Ready
) -> None:
    now = simulation.clock.seconds

    step = fail_once(simulation, ready)

    assert step.sentence == "Create data on b: waiting for Cinder: connection refused"
    assert (step.ready, step.operation, step.retry_at) == ((), None, now + 1)
    state = node_of(simulation, ready)
    assert (state.status, state.tries) == ("WAITING", 1)
    assert (state.waiting_for, state.waiting_since, state.next_try) == (
        "Cinder: connection refused",
        now,
        now + 1,
    )
    assert simulation.status() == "IN_PROGRESS"
    (record,) = simulation.records()
    assert (record.owner, record.status) == (None, "FAILED")
    assert record.reason == "Cinder did not answer. Wait. [UNREACHABLE]"


def test_before_the_next_try_is_due_nothing_is_handed_out(
    simulation: Simulation, ready: Ready
) -> None:
    fail_once(simulation, ready)
    simulation.clock.seconds += 1
    at = fail_once(simulation, ready).retry_at
    assert at == simulation.clock.seconds + 2

    step = simulation.engine.check(ready, "o")

    assert step == Step(
        f"{ready.node.key} waits for Cinder: connection refused, next try in 2 s", retry_at=at
    )
    simulation.clock.seconds = at
    assert simulation.engine.check(ready, "o").operation is not None


def test_each_try_is_the_same_operation_whose_outcome_is_not_known(
    simulation: Simulation, ready: Ready
) -> None:
    first = simulation.operation(ready)
    simulation.engine.conclude(first.ticket, away())
    assert rows(simulation.database, operations, "key")[first.ticket.key]["status"] == "unknown"
    simulation.clock.seconds += 1

    again = simulation.operation(ready)

    assert (again.ticket.key, again.unknown) == (first.ticket.key, True)


def test_a_wait_that_ends_well_ends_in_the_goal_and_is_told_at_both_ends(
    simulation: Simulation, ready: Ready
) -> None:
    goal = simulation.current_goal()
    assert goal is not None
    since = simulation.clock.seconds
    for pause in (1, 2, 4):
        fail_once(simulation, ready)
        simulation.clock.seconds += pause
    assert node_of(simulation, ready).waiting_since == since

    simulation.carry([ready])

    simulation.audit_at_rest(goal)
    state = node_of(simulation, ready)
    assert (state.status, state.waiting_for, state.waiting_since) == ("DONE", None, None)
    assert (state.next_try, state.tries) == (None, 0)
    assert sentences(simulation)[1:] == [
        "Create data on b: started",
        "Create data on b: waiting for Cinder: connection refused",
        "Create data on b: done",
        "Done: b is active",
    ]


def test_people_see_what_the_last_try_waits_for(simulation: Simulation, ready: Ready) -> None:
    fail_once(simulation, ready)
    simulation.clock.seconds += 1

    fail_once(simulation, ready, away("Nova", "503 Service Unavailable"))

    assert node_of(simulation, ready).waiting_for == "Nova: 503 Service Unavailable"
    assert len(sentences(simulation, "waiting")) == 1


@pytest.mark.parametrize(
    ("error", "waiting_for"),
    [
        ({"service": "Cinder", "detail": "connection refused"}, "Cinder: connection refused"),
        ({"service": "Cinder"}, "Cinder"),
        ({"message": "no answer from Cinder."}, "no answer from Cinder"),
        ({}, "a service"),
    ],
)
def test_an_error_that_names_no_service_is_waited_out_by_its_message(
    simulation: Simulation, ready: Ready, error: dict[str, str], waiting_for: str
) -> None:
    fail_once(simulation, ready, Outcome(error={"code": "X", **error}, transient=True))

    assert node_of(simulation, ready).waiting_for == waiting_for


def test_once_the_group_s_patience_is_over_the_operation_has_failed(
    simulation: Simulation,
) -> None:
    ready = begin(simulation, patience=3)
    fail_once(simulation, ready)
    simulation.clock.seconds += 2.9
    assert fail_once(simulation, ready).retry_at is not None
    simulation.clock.seconds += 2

    step = fail_once(simulation, ready)

    assert step.retry_at is None
    assert simulation.status() == "FAILED"
    assert step.sentence == simulation.reason()
    assert step.sentence == "Create data on b: Cinder did not answer. Wait. [UNREACHABLE]"
    state = node_of(simulation, ready)
    assert (state.status, state.waiting_for, state.next_try) == ("FAILED", None, None)


def test_a_group_without_patience_does_not_wait(simulation: Simulation) -> None:
    fail_once(simulation, begin(simulation, patience=0))

    assert simulation.status() == "FAILED"
    assert sentences(simulation, "waiting") == []


def test_what_was_given_up_after_waiting_stays_unknown(simulation: Simulation) -> None:
    """An earlier try may have got further than the last one."""
    ready = begin(simulation, patience=0)
    first = simulation.operation(ready)
    simulation.engine.conclude(first.ticket, away())

    again = simulation.operation(simulation.start(simulation.goal("b")).ready[0])

    assert (again.ticket.key, again.unknown) == (first.ticket.key, True)


def test_any_other_failure_ends_the_wait_as_a_failure(simulation: Simulation, ready: Ready) -> None:
    fail_once(simulation, ready)
    simulation.clock.seconds += 1

    fail_once(simulation, ready, failure())

    assert simulation.status() == "FAILED"
    assert node_of(simulation, ready).tries == 0


def test_what_would_need_a_person_waits_for_the_service_first(simulation: Simulation) -> None:
    ready = begin(simulation, patience=3)
    fence = replace(away(), blocked=True)
    fail_once(simulation, ready, fence)
    assert simulation.status() == "IN_PROGRESS"
    simulation.clock.seconds += 3

    fail_once(simulation, ready, fence)

    assert simulation.status() == "BLOCKED"


def test_tries_that_last_for_minutes_do_not_delay_the_call_for_a_person(
    simulation: Simulation,
) -> None:
    """A fence waits in each try for that of another group."""
    ready = begin(simulation, patience=600)
    began, fence = simulation.clock.seconds, replace(away(), blocked=True)
    while simulation.status() == "IN_PROGRESS":
        again = simulation.operation(ready)
        simulation.clock.seconds += 180
        simulation.engine.conclude(again.ticket, fence)
        simulation.clock.seconds = node_of(simulation, ready).next_try or simulation.clock.seconds

    assert simulation.status() == "BLOCKED"
    assert simulation.clock.seconds - began < 1000


def test_what_is_worth_a_shorter_wait_than_the_group_allows_waits_so_long(
    simulation: Simulation,
) -> None:
    ready = begin(simulation, patience=100)
    host_down = replace(away(), blocked=True, patience=3)
    fail_once(simulation, ready, host_down)
    simulation.clock.seconds += 2.9
    assert fail_once(simulation, ready, host_down).retry_at is not None
    simulation.clock.seconds += 2

    fail_once(simulation, ready, host_down)

    assert simulation.status() == "BLOCKED"


def test_no_wait_is_longer_than_the_group_allows(simulation: Simulation) -> None:
    ready = begin(simulation, patience=3)
    fail_once(simulation, ready, replace(away(), patience=100))
    simulation.clock.seconds += 3

    fail_once(simulation, ready, replace(away(), patience=100))

    assert simulation.status() == "FAILED"


def test_an_error_with_a_patience_of_its_own_has_all_of_it_after_others(
    simulation: Simulation,
) -> None:
    """Cinder was away for longer than that; then the host is found down for the first time."""
    ready = begin(simulation, patience=3600)
    for _ in range(70):
        fail_once(simulation, ready)
        simulation.clock.seconds += 10
    host_down = replace(away(), blocked=True, patience=600)

    assert fail_once(simulation, ready, host_down).retry_at is not None
    for _ in range(59):
        simulation.clock.seconds += 10
        assert fail_once(simulation, ready, host_down).retry_at is not None
    simulation.clock.seconds += 10
    fail_once(simulation, ready, host_down)

    assert simulation.status() == "BLOCKED"


def test_errors_that_alternate_end_with_the_patience_of_the_group(simulation: Simulation) -> None:
    ready = begin(simulation, patience=100)
    for error in (away(), replace(away("Nova"), patience=60)) * 5:
        assert fail_once(simulation, ready, error).retry_at is not None
        simulation.clock.seconds += 10

    fail_once(simulation, ready)

    assert simulation.status() == "FAILED"


def test_the_time_in_which_a_try_worked_does_not_count(simulation: Simulation) -> None:
    ready = begin(simulation, patience=3600)
    fail_once(simulation, ready)
    simulation.clock.seconds += 1
    again = simulation.operation(ready)
    simulation.clock.seconds += 3700

    step = simulation.engine.conclude(again.ticket, away())

    assert step.retry_at is not None
    now = simulation.clock.seconds
    assert node_of(simulation, ready).waiting_since == now - 1, "the pause before it counts"


def test_failures_with_work_between_them_come_to_an_end(simulation: Simulation) -> None:
    ready = begin(simulation, patience=100)
    tries = 0
    while simulation.status() == "IN_PROGRESS":
        tries += 1
        assert tries < 20
        again = simulation.operation(ready)
        simulation.clock.seconds += 120
        simulation.engine.conclude(again.ticket, away())
        simulation.clock.seconds = node_of(simulation, ready).next_try or 0.0

    assert tries > 10


def test_a_try_that_itself_waits_for_the_service_does_not_work_meanwhile(
    simulation: Simulation,
) -> None:
    ready = begin(simulation, patience=500)
    fail_once(simulation, ready)
    since = simulation.clock.seconds
    simulation.clock.seconds += 1
    ticket = simulation.operation(ready).ticket
    simulation.database.atomically(lambda tx: tx.waits_for(ticket.lock, "Cinder: HTTP 503"))
    simulation.clock.seconds += 300

    simulation.engine.conclude(ticket, away())

    assert node_of(simulation, ready).waiting_since == since


def test_the_wait_of_the_first_try_counts(simulation: Simulation, ready: Ready) -> None:
    operation = simulation.operation(ready)
    lock = operation.ticket.lock
    simulation.database.atomically(lambda tx: tx.waits_for(lock, "Cinder: connection refused"))
    since = simulation.clock.seconds
    simulation.clock.seconds += 20

    simulation.engine.conclude(operation.ticket, away())

    assert node_of(simulation, ready).waiting_since == since


def test_a_word_of_a_person_ends_the_pause_between_two_tries(
    simulation: Simulation, ready: Ready
) -> None:
    for _ in range(3):
        fail_once(simulation, ready)
        simulation.clock.seconds = node_of(simulation, ready).next_try or 0.0
    fail_once(simulation, ready)

    simulation.engine.resume(simulation.group_id)

    assert simulation.engine.check(ready, "o").operation is not None


def test_a_blocked_node_that_goes_on_has_all_of_its_patience_again(simulation: Simulation) -> None:
    ready = begin(simulation, patience=3)
    fail_once(simulation, ready)
    simulation.clock.seconds += 2
    fail_once(simulation, ready, failure(blocked=True))
    simulation.clock.seconds += 100

    simulation.engine.resume(simulation.group_id)

    assert fail_once(simulation, ready).retry_at == simulation.clock.seconds + 1


def test_in_a_superseded_traversal_it_wakes_its_node_in_the_newer_one(
    simulation: Simulation, ready: Ready
) -> None:
    operation = simulation.operation(ready)
    newer = simulation.start(simulation.goal("b"))

    step = simulation.engine.conclude(operation.ticket, away())

    woken = Ready(newer.traversal_id, ready.node)
    assert (step.ready, step.retry_at) == ((woken,), None)
    assert node_of(simulation, woken).waiting_for is None
    assert simulation.engine.check(woken, "o").operation is not None


def test_a_newer_traversal_waits_for_nothing_that_the_older_one_did(
    simulation: Simulation, ready: Ready
) -> None:
    fail_once(simulation, ready)

    (again,) = simulation.start(simulation.goal("b")).ready

    assert simulation.engine.check(again, "o").operation is not None


def test_a_try_whose_owner_died_is_taken_up_and_the_wait_goes_on(
    simulation: Simulation, ready: Ready
) -> None:
    since = simulation.clock.seconds
    fail_once(simulation, ready)
    simulation.clock.seconds += 1
    simulation.operation(ready, "dead")
    simulation.clock.seconds += LEASE

    fail_once(simulation, ready)

    state = node_of(simulation, ready)
    assert (state.waiting_since, state.tries) == (since, 2)
    assert len(sentences(simulation, "waiting")) == 1


def test_what_does_not_depend_on_the_service_goes_on_meanwhile(simulation: Simulation) -> None:
    simulation.define(
        {"a": sample_resource(), "on_a": sample_resource("shared", "a"), "apart": sample_resource()}
    )
    goal = simulation.goal()

    def operate(operation: Operation) -> Outcome:
        if operation.record.name == "a" and simulation.clock.seconds < over:
            return away()
        return simulation.world.operate(operation)

    over = simulation.clock.seconds + 1
    simulation.converge(goal, operate)
    assert simulation.world.log == ["create apart"]
    assert simulation.sweep() == []

    simulation.clock.seconds = over
    simulation.carry(simulation.sweep(), operate)

    simulation.audit_at_rest(goal)


def test_the_status_shows_what_waits_since_when_and_for_what(
    simulation: Simulation, ready: Ready
) -> None:
    since = simulation.clock.seconds
    fail_once(simulation, ready)

    assert simulation.store.reading(lambda tx: views.waiting(tx, [ready.traversal_id])) == [
        {
            "traversal_id": ready.traversal_id,
            "resource": "data",
            "type": "held",
            "member": "b",
            "verb": "create",
            "waiting_for": "Cinder: connection refused",
            "since": since,
            "next_try": since + 1,
            "tries": 1,
        }
    ]


def test_a_lost_result_of_a_try_counts_for_nothing(simulation: Simulation, ready: Ready) -> None:
    frozen = simulation.operation(ready)
    simulation.clock.seconds += LEASE
    simulation.carry([ready])

    step = simulation.engine.conclude(frozen.ticket, away())

    assert step.retry_at is None
    assert simulation.status() == "COMPLETE"
    assert node_of(simulation, ready).waiting_for is None


def test_what_is_handed_back_is_told_as_that(simulation: Simulation, ready: Ready) -> None:
    ticket = simulation.operation(ready).ticket

    step = simulation.engine.abandon(ticket, "this process ends", "HANDED_BACK")

    assert step.sentence == "Create data on b: released, this process ends"
    assert sentences(simulation, "handed_back") == [step.sentence]
    assert sentences(simulation, "given_up") == []
    assert step.ready == (ready,)


def test_what_is_handed_back_in_the_middle_of_a_wait_waits_on(
    simulation: Simulation, ready: Ready
) -> None:
    since = simulation.clock.seconds
    fail_once(simulation, ready)
    simulation.clock.seconds += 1

    simulation.engine.abandon(simulation.operation(ready).ticket, "this ends", "HANDED_BACK")

    state = node_of(simulation, ready)
    assert (state.waiting_since, state.tries) == (since, 1)
    other = Engine(simulation.database, lease=LEASE)
    assert other.check(ready, "other").operation is not None


# -- what cannot come

NEVER = {"code": "TARGET_DOWN", "message": "server 4 is gone", "remedy": "Make another one."}


def test_a_wait_for_what_cannot_come_ends_at_once(simulation: Simulation, ready: Ready) -> None:
    fail_once(simulation, ready)

    step = simulation.engine.stop_waiting(ready, NEVER)

    assert step.sentence == "Create data on b: server 4 is gone. Make another one. [TARGET_DOWN]"
    assert (simulation.status(), simulation.reason()) == ("FAILED", step.sentence)
    state = node_of(simulation, ready)
    assert (state.status, state.waiting_for) == ("FAILED", None)
    assert sentences(simulation, "failed") == [step.sentence]


def test_a_node_that_does_not_wait_is_left_alone(simulation: Simulation, ready: Ready) -> None:
    def stop() -> None:
        assert simulation.engine.stop_waiting(ready, NEVER).ready == ()
        assert simulation.status(ready.traversal_id) != "FAILED"

    stop()
    fail_once(simulation, ready)
    simulation.clock.seconds += 1
    again = simulation.operation(ready)
    stop()  # a worker tries it again
    simulation.engine.conclude(again.ticket, away())
    simulation.start(simulation.goal("a"))
    stop()  # another goal came


@pytest.mark.parametrize("holds", [True, False])
def test_another_goal_is_given_only_if_its_reason_still_holds(
    simulation: Simulation, ready: Ready, holds: bool
) -> None:
    """Who chose it may have been frozen while the service was tried again, and succeeded."""
    fail_once(simulation, ready)

    started = simulation.engine.redirect(
        ready.traversal_id,
        simulation.goal("a"),
        why="not server 4",
        cause="b is passed over",
        holds=lambda tx: holds,
    )

    assert started.won is holds
    now = simulation.engine.current(ready.traversal_id).id
    assert (now != ready.traversal_id) is holds
