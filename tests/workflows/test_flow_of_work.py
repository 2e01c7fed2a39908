# SPDX-License-Identifier: Apache-2.0
"""_work: one ready node and what follows from it; and the workflow of each operation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mistral_lib.actions import Result

from mistral_failover import workflows
from mistral_failover.testing.run import Run
from mistral_failover.testing.workflows import Workflows

TICKET = {"key": "k", "verb": "create"}
OPERATION = {"ticket": TICKET, "verb": "create", "group": "g"}
NODE = {"traversal": "t", "node": "update:0"}
ERROR = {"code": "NO_PLUG", "message": "there is no plug", "remedy": "buy one"}
FILES = {Path(path).stem: path for path in workflows.paths()}
OPERATIONS = [
    "attach_volume",
    "detach_volume",
    "activate",
    "reactivate",
    "quiesce",
    "patch_stack",
    "fence",
]
TWO_STEPS = """
version: '2.0'
test.two_steps:
  input: [operation]
  output:
    physical_id: <% $.operation.verb %>
  tasks:
    first:
      action: std.noop
      on-success: second
    second:
      action: std.noop
"""
SPEECHLESS = """
version: '2.0'
test.speechless:
  input: [operation]
  tasks:
    only:
      action: std.fail
"""


def step(
    *spread: str,
    operation: str | None = None,
    document: dict[str, Any] = OPERATION,
    timeout: int = 60,
) -> dict[str, Any]:
    return {
        "spread": [{"traversal": "t", "node": node} for node in spread],
        "operation": operation
        and {"workflow": operation, "input": {"operation": document}, "timeout": timeout},
        "said": ["a step"],
    }


def work(pack: Workflows) -> Run:
    return pack.run("failover._work", NODE)


def test_a_node_that_needs_nothing_more_ends_with_its_sentences(pack: Workflows) -> None:
    pack.replace("failover.work", step())

    run = work(pack).assert_succeeded()

    run.assert_tasks("work")
    assert run.output == {"said": ["a step"]}
    assert pack.calls("failover.work") == [NODE]


def test_what_became_ready_besides_goes_to_executions_of_the_same_workflow(
    pack: Workflows,
) -> None:
    first = step("update:1", "cleanup:2")
    pack.replace("failover.work", lambda traversal, node: first if node == "update:0" else step())

    run = work(pack).assert_succeeded()

    run.assert_tasks("work", "spread")
    assert [sub.name for sub in run.task("spread").subs] == ["failover._work"] * 2
    nodes = sorted(call["node"] for call in pack.calls("failover.work"))
    assert nodes == ["cleanup:2", "update:0", "update:1"]


def test_an_operation_that_is_a_workflow_is_run_and_its_output_concluded(pack: Workflows) -> None:
    pack.load(TWO_STEPS)
    pack.replace("failover.work", step(operation="test.two_steps"))
    pack.replace("failover.conclude", step())

    run = work(pack).assert_succeeded()

    run.assert_tasks("work", "operate", "conclude")
    (call,) = pack.calls("failover.conclude")
    assert call == {"ticket": TICKET, "result": {"physical_id": "create"}}


def test_a_slow_operation_does_not_hold_up_what_became_ready_besides(pack: Workflows) -> None:
    pack.load(TWO_STEPS)
    answers = {"update:0": step("update:1", operation="test.two_steps"), "update:1": step()}
    pack.replace("failover.work", lambda traversal, node: answers[node])
    pack.replace("failover.conclude", step())

    run = work(pack).assert_succeeded()

    run.assert_tasks("work", "spread", "operate", "conclude", any_order=True)


def test_an_operation_that_fails_is_concluded_with_its_own_error(pack: Workflows) -> None:
    pack.replace("failover.work", step(operation="failover.attach_volume"))
    pack.load(FILES["attach_volume"])
    pack.replace("failover.attach_volume", Result(error=ERROR))
    pack.replace("failover.conclude", step())

    run = work(pack).assert_succeeded()

    run.assert_tasks("work", "operate", "conclude_failure")
    (call,) = pack.calls("failover.conclude")
    assert call["ticket"] == TICKET
    assert call["error"]["result"]["error"] == ERROR


@pytest.mark.parametrize("name", ["test.speechless", "test.not_there"])
def test_a_failure_without_a_word_is_concluded_as_a_failure(pack: Workflows, name: str) -> None:
    pack.load(SPEECHLESS)
    pack.replace("failover.work", step(operation=name))
    pack.replace("failover.conclude", step())

    work(pack).assert_succeeded()

    (call,) = pack.calls("failover.conclude")
    assert call.get("error") is not None
    assert "result" not in call


def test_what_a_conclusion_hands_back_is_worked_in_the_same_execution(pack: Workflows) -> None:
    pack.load(TWO_STEPS)
    second = {**OPERATION, "ticket": {"key": "second"}, "verb": "delete"}
    pack.replace("failover.work", step(operation="test.two_steps"))
    pack.replace(
        "failover.conclude",
        sequence=[step(operation="test.two_steps", document=second), step()],
    )

    run = work(pack).assert_succeeded()

    run.assert_tasks("work", "operate", "conclude", "operate", "conclude")
    assert pack.calls("failover.conclude") == [
        {"ticket": TICKET, "result": {"physical_id": "create"}},
        {"ticket": {"key": "second"}, "result": {"physical_id": "delete"}},
    ]


def test_after_a_failure_the_next_operation_succeeds_with_its_own_result(pack: Workflows) -> None:
    pack.load(TWO_STEPS)
    second = {**OPERATION, "ticket": {"key": "second"}}
    pack.load(FILES["attach_volume"])
    pack.replace("failover.attach_volume", Result(error=ERROR))
    pack.replace(
        "failover.conclude",
        sequence=[step(operation="test.two_steps", document=second), step("update:9"), step()],
    )
    pack.replace("failover.work", sequence=[step(operation="failover.attach_volume"), step()])

    run = work(pack).assert_succeeded()

    run.assert_tasks("work", "operate", "conclude_failure", "operate", "conclude", "spread")
    first, last = pack.calls("failover.conclude")
    assert "result" not in first
    assert last == {"ticket": {"key": "second"}, "result": {"physical_id": "create"}}


@pytest.mark.parametrize("task", ["work", "conclude"])
def test_a_state_store_that_is_away_is_asked_four_times(pack: Workflows, task: str) -> None:
    pack.load(TWO_STEPS)
    broken = Result(error=ERROR)
    pack.replace("failover.work", step(operation="test.two_steps") if task != "work" else broken)
    pack.replace("failover.conclude", broken)

    run = work(pack).assert_failed_with("NO_PLUG")

    assert run.task(task).attempts == 4
    assert run.output["error"] == ERROR


def test_a_state_store_that_comes_back_is_not_noticed(pack: Workflows) -> None:
    pack.replace("failover.work", sequence=[Result(error=ERROR), step()])

    run = work(pack).assert_succeeded()

    assert run.output == {"said": ["a step"]}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_s_workflow_gives_physical_id_and_attributes(
    workflow: Workflows, name: str
) -> None:
    workflow.load(FILES[name])
    made = {"physical_id": "p1", "attributes": {"device": "/dev/vdb"}}
    workflow.replace(f"failover.{name}", made)

    run = workflow.run(f"failover.{name}", {"operation": OPERATION}).assert_succeeded()

    run.assert_tasks(name)
    assert run.output == made
    assert workflow.calls(f"failover.{name}") == [{"operation": OPERATION}]


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_makes_nothing_gives_two_nulls(workflow: Workflows, name: str) -> None:
    workflow.load(FILES[name])
    workflow.replace(f"failover.{name}", {})

    run = workflow.run(f"failover.{name}", {"operation": OPERATION}).assert_succeeded()

    assert run.output == {"physical_id": None, "attributes": None}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_fails_gives_code_message_and_remedy(
    workflow: Workflows, name: str
) -> None:
    workflow.load(FILES[name])
    workflow.replace(f"failover.{name}", Result(error=ERROR))

    run = workflow.run(f"failover.{name}", {"operation": OPERATION}).assert_failed_with("NO_PLUG")

    assert run.output["error"] == ERROR
