# SPDX-License-Identifier: Apache-2.0
"""The chart of a traversal: stages, steps, the critical path, retries, waits."""

from __future__ import annotations

from mistral_failover.ui.timeline import Mark, Outcome, Step, timeline
from support.ui_answers import (
    NOW,
    OPERATIONS,
    TRAVERSAL,
    operation,
    step_ahead,
    traversal,
)


def steps(**more: object) -> dict[str, Step]:
    found = timeline(traversal(**more))
    return {step.label: step for stage in found.stages for step in stage.steps}


def test_stages_are_in_the_order_of_a_failover_and_have_their_steps() -> None:
    found = timeline(traversal())

    assert [(stage.label, stage.start, stage.end) for stage in found.stages] == [
        ("Fence", 0, 4),
        ("Move volumes", 4, 7),
        ("Activate", 7, 8),
    ]
    assert [step.label for stage in found.stages for step in stage.steps] == [
        "Fence db_a",
        "Detach data from db_a",
        "Attach data to db_b",
        "Start database on db_b",
    ]


def test_the_steps_of_the_critical_path_are_known_by_their_operations() -> None:
    found = steps()

    assert found["Attach data to db_b"].critical
    assert not found["Start database on db_b"].critical


def test_retries_and_waits_are_with_their_step() -> None:
    deferral = {"resource": "data", "held_by": "x", "at": NOW - 85.5, "seconds": 0.5}
    every = steps(deferrals=[deferral])
    found = every["Attach data to db_b"]

    assert every["Detach data from db_a"].lock_wait == 0
    assert found.attempts == 3
    assert found.marks == (Mark(6.0, "Attach data to db_b waits for Nova"),)
    assert found.lock_wait == 0.5
    assert found.notes == (
        "3 attempts",
        "waited 0.5 s for a lock",
        "Attach data to db_b waits for Nova",
    )


def test_a_step_that_runs_ends_now() -> None:
    running = operation("create", "data", "volume_attachment", "db_b", "move_volumes", 5, None)
    found = timeline(
        traversal(operations=[running], ended_at=None, seconds=90.0, status="IN_PROGRESS")
    )
    ((step,),) = (stage.steps for stage in found.stages)

    assert (step.outcome, step.end, found.running) == (Outcome.RUNNING, 90.0, True)
    assert found.stages[0].running


def test_a_step_to_come_says_what_it_waits_for_and_a_replay_has_none() -> None:
    ahead = [step_ahead("Start database on db_b", "activate", "a", "b", "c", certain=False)]
    found = timeline(traversal(ahead=ahead))

    (step,) = found.stages[-1].ahead
    assert step.waits_for == "a, b and 1 other"
    assert step.start >= found.seconds
    assert not any(stage.ahead for stage in timeline(traversal(ahead=ahead), step=3).stages)


def test_a_step_to_come_is_behind_what_it_comes_after_though_others_have_the_same_words() -> None:
    first = step_ahead("Attach data", "move_volumes", key="a", expected=1.0)
    other = step_ahead("Attach data", "move_volumes", key="b", expected=50.0)
    last = step_ahead("Start database", "activate", "Attach data", after=["a"])
    found = timeline(traversal(ahead=[first, other, last]))

    starts = {step.label: step.start for stage in found.stages for step in stage.ahead}
    assert starts["Start database"] == starts["Attach data"] + 1.0


def test_failures_and_unknown_outcomes_are_told_apart() -> None:
    failed = operation(
        "create", "data", "volume_attachment", "db_b", "move_volumes", 5, 6, status="failed"
    )
    unknown = operation("create", "w", "activation", "db_b", "activate", 5, None, status="unknown")
    found = steps(operations=[failed, unknown], ended_at=None)

    assert found["Attach data to db_b"].outcome is Outcome.FAILED
    assert found["Start w on db_b"].outcome is Outcome.UNKNOWN


def test_a_replay_shows_only_what_had_happened() -> None:
    found = timeline(traversal(), step=6)

    assert found.shown is not None
    assert (found.shown.number, found.shown.at) == (6, 5.0)
    assert [stage.label for stage in found.stages] == ["Fence", "Move volumes"]
    attach = found.stages[-1].steps[-1]
    assert attach.label == "Attach data to db_b"
    assert (attach.outcome, attach.attempts, attach.marks) == (Outcome.RUNNING, 1, ())


def test_a_step_outside_of_the_journal_counts_as_the_nearest() -> None:
    first, last = timeline(traversal(), step=0).shown, timeline(traversal(), step=10**6).shown

    assert first is not None
    assert last is not None
    assert (first.number, last.number) == (1, 11)
    assert timeline(traversal(history=[]), step=3).shown is None


def test_a_traversal_without_operations_has_no_stages() -> None:
    found = timeline(traversal(operations=[], critical_path={"seconds": 0.0, "steps": []}))

    assert (found.id, found.stages, found.critical) == (TRAVERSAL, (), "")


def test_what_was_taken_over_from_an_earlier_traversal_begins_with_this_one() -> None:
    early = OPERATIONS[0] | {"started_at": NOW - 500}

    assert steps(operations=[early])["Fence db_a"].start == 0
