# SPDX-License-Identifier: Apache-2.0
"""converge: the stages of a failover, one task each. Only the action is replaced."""

from __future__ import annotations

from typing import Any

import pytest
from mistral_lib.actions import Result

from mistral_failover.lab.testing.workflows import Run, Workflows

STAGES = ["fence", "quiesce", "move_volumes", "activate", "update_stack", "finish"]
REPORT = {"status": "COMPLETE", "reason": ""}
DONE = {"state": "IN_PROGRESS", "said": [], "again": False}
AGAIN = {**DONE, "again": True}
FAILED = {"code": "FAILED", "message": "the plug is gone", "remedy": "look"}


def converge(pack: Workflows, **answers: Any) -> Run:
    """Run the chain; ``answers`` by stage, a list in the order of the calls."""
    left = {stage: list(answer) for stage, answer in answers.items()}

    def advance(traversal: str, through: str, hold: bool = False) -> Any:
        if left.get(through):
            return left[through].pop(0)
        return {**DONE, "outcome": REPORT} if through == "end" else DONE

    pack.replace("failover.advance", advance)
    return pack.run("failover.converge", {"traversal": "t"})


def test_the_task_list_names_the_stages_in_their_order(pack: Workflows) -> None:
    run = converge(pack).assert_succeeded()

    run.assert_tasks(*STAGES)
    assert run.output == {"outcome": REPORT}
    calls = [(call["traversal"], call["through"]) for call in pack.calls("failover.advance")]
    assert calls == [("t", stage) for stage in [*STAGES[:-1], "end"]]


@pytest.mark.parametrize("stage", STAGES[:-1])
def test_once_everything_is_done_the_other_stages_have_no_task(pack: Workflows, stage: str) -> None:
    done = {**DONE, "state": "COMPLETE", "outcome": REPORT}

    run = converge(pack, **{stage: [done]}).assert_succeeded()

    run.assert_tasks(*STAGES[: STAGES.index(stage) + 1])
    assert run.output == {"outcome": REPORT}


@pytest.mark.parametrize("stage", STAGES[:-1])
def test_a_stage_that_fails_is_seen_to_and_finish_says_how_it_ended(
    pack: Workflows, stage: str
) -> None:
    run = converge(pack, **{stage: [Result(error=FAILED)]}, end=[Result(error=FAILED)])

    run.assert_failed_with("FAILED")
    run.assert_tasks(*STAGES[: STAGES.index(stage) + 1], "finish")
    assert run.task(stage).state == "ERROR"
    assert run.output["error"] == FAILED


def test_a_stage_whose_executor_died_leaves_its_work_to_finish(pack: Workflows) -> None:
    run = converge(pack, quiesce=[Result(error="the heartbeat of its executor is missing")])

    run.assert_succeeded().assert_tasks("fence", "quiesce", "finish")
    assert run.output == {"outcome": REPORT}


def test_a_call_that_gave_its_thread_back_is_repeated_within_its_task(pack: Workflows) -> None:
    run = converge(pack, fence=[AGAIN, AGAIN, AGAIN], end=[AGAIN])

    run.assert_succeeded().assert_tasks(*STAGES)
    assert run.task("fence").attempts == 4
    assert run.task("finish").attempts == 2
    assert run.output == {"outcome": REPORT}
