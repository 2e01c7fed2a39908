# SPDX-License-Identifier: Apache-2.0
"""What a test can do with the fixture ``workflow``, shown on the real engine."""

import threading
import traceback

import pytest
from mistral_lib.actions import Result

from mistral_failover.errors import CodedError
from mistral_failover.lab.testing.engine import TestEngine
from mistral_failover.lab.testing.workflows import Workflows

TWO = """\
version: '2.0'
two:
  input: [x: 1]
  output: {r: <% $.r %>}
  output-on-error: {error: <% task(first).result %>}
  tasks:
    first:
      action: std.echo
      input: {output: <% $.x %>}
      retry: {count: 2, delay: 600}
      publish: {r: <% task().result %>}
      on-success: second
    second: {action: std.noop}
"""
OUTER = """\
version: '2.0'
outer:
  tasks:
    each:
      with-items: i in <% [1, 2] %>
      workflow: two
      input: {x: <% $.i %>}
"""
OWN_ACTION = """\
version: '2.0'
house.echo:
  base: std.echo
  base-input: {output: <% $.words %>}
  input: [words]
"""
USES_IT = """\
version: '2.0'
uses_it:
  output: {said: <% $.said %>}
  tasks:
    say:
      action: house.echo
      input: {words: hello}
      publish: {said: <% task().result %>}
"""
SLOW = """\
version: '2.0'
slow:
  tasks:
    wait: {action: std.async_noop}
"""
WAITS = """\
version: '2.0'
waits:
  tasks:
    a: {action: std.noop, wait-before: 600, wait-after: 600}
"""


def test_a_workflow_runs_for_real(workflow):
    assert workflow.load(TWO) == ["two"]
    run = workflow.run("two", {"x": [1, {"a": 2}]})
    run.assert_succeeded().assert_tasks("first", "second")
    assert run.output == {"r": [1, {"a": 2}]}
    assert run.tasks == [("first", "SUCCESS"), ("second", "SUCCESS")]
    assert run.task("first").published == {"r": [1, {"a": 2}]}


def test_files_and_directories_are_loaded(workflow, tmp_path):
    (tmp_path / "a.yaml").write_text(TWO)
    (tmp_path / "b.yaml").write_text(OUTER)
    assert workflow.load(tmp_path) == ["two", "outer"]
    assert workflow.load(tmp_path / "a.yaml") == []  # nothing new
    assert workflow.load(str(tmp_path / "b.yaml")) == []


def test_a_bad_workflow_is_refused_with_the_reason(workflow):
    with pytest.raises(CodedError) as caught:
        workflow.load(TWO.replace("on-success: second", "on-success: nowhere"))
    assert caught.value.code == "WORKFLOW_INVALID"
    assert "nowhere" in caught.value.message


def test_a_workflow_that_breaks_the_language_is_refused_in_one_line(workflow):
    with pytest.raises(CodedError) as caught:
        workflow.load(TWO.replace("on-success: second", "on-sucess: second"))

    assert "on-sucess" in caught.value.message
    shown = "".join(traceback.format_exception(caught.value))
    assert "properties" not in shown.replace("Additional properties", "")


@pytest.mark.parametrize("order", [1, 2])
def test_nothing_of_one_test_is_there_in_the_next(workflow, order):
    with pytest.raises(Exception, match="Workflow not found"):
        workflow.run("two")
    with pytest.raises(KeyError):
        workflow.calls("std.echo")
    workflow.load(TWO)
    workflow.replace("std.echo", None)
    workflow.run("two")


@pytest.mark.parametrize(
    ("outcome", "result"),
    [(7, 7), (Result(data={"a": 1}), {"a": 1}), (lambda output, delay=0: output + 1, 2)],
)
def test_an_action_is_replaced_by_a_value_a_result_or_a_callable(workflow, outcome, result):
    workflow.load(TWO)
    workflow.replace("std.echo", outcome)
    assert workflow.run("two").output == {"r": result}
    assert workflow.calls("std.echo") == [{"output": 1}]


@pytest.mark.parametrize("outcome", [RuntimeError("no answer"), RuntimeError])
def test_an_exception_fails_the_task_after_its_retries_without_their_delay(workflow, outcome):
    workflow.load(TWO)
    workflow.replace("std.echo", outcome)
    run = workflow.run("two")
    assert run.state == "ERROR"
    run.assert_tasks("first")
    assert run.task("first").attempts == len(workflow.calls("std.echo")) == 3


def test_an_error_result_is_known_by_its_code(workflow):
    workflow.load(TWO)
    workflow.replace("std.echo", Result(error={"code": "NOT_FOUND", "message": "gone"}))
    run = workflow.run("two").assert_failed_with("NOT_FOUND")
    assert run.error_codes() == {"NOT_FOUND"}
    with pytest.raises(AssertionError, match="no error 'OTHER'; found .'NOT_FOUND'"):
        run.assert_failed_with("OTHER")


def test_a_sequence_gives_each_call_its_own_outcome(workflow):
    workflow.load(TWO)
    workflow.replace("std.echo", sequence=[RuntimeError("busy"), Result(error="busy"), "ready"])
    assert workflow.run("two").output == {"r": "ready"}


def test_one_call_more_than_the_sequence_has_fails_the_test(workflow):
    workflow.load(TWO)
    workflow.replace("std.echo", sequence=[RuntimeError("busy")])
    with pytest.raises(AssertionError, match="was called 2 times, but has 1 outcomes"):
        workflow.run("two")


@pytest.mark.parametrize("inputs", ["{wrong: 1}", "{output: 1, wrong: 2}"])
def test_a_replaced_action_keeps_its_real_signature(workflow, inputs):
    workflow.load(TWO.replace("{output: <% $.x %>}", inputs))
    workflow.replace("std.echo", 7)
    run = workflow.run("two")
    assert run.state == "ERROR"
    assert "Invalid input" in run.state_info
    assert workflow.calls("std.echo") == []


def test_an_action_that_is_not_installed_cannot_be_replaced_by_mistake(workflow):
    with pytest.raises(LookupError, match=r"no action 'std\.ecco'"):
        workflow.replace("std.ecco", 7)
    workflow.load(TWO.replace("std.echo", "my.action"))
    workflow.replace("my.action", 7, unchecked=True)
    assert workflow.run("two").output == {"r": 7}


def test_a_failed_assertion_in_a_replacement_fails_the_test(workflow):
    def check(output: int) -> None:
        assert output == 2, "not two"

    workflow.load(TWO)
    workflow.replace("std.echo", check)
    with pytest.raises(AssertionError, match="not two"):
        workflow.run("two")


def test_a_replacement_that_does_not_take_the_inputs_fails_the_test(workflow):
    workflow.load(TWO)
    workflow.replace("std.echo", lambda other: other)
    with pytest.raises(AssertionError, match="does not accept its inputs"):
        workflow.run("two")


def test_a_replacement_may_look_at_mistrals_context(workflow):
    workflow.load(TWO)
    workflow.replace("std.echo", lambda output, context: context.execution.workflow_name)
    assert workflow.run("two").output == {"r": "two"}


def test_replacements_run_in_parallel_as_actions_do(workflow):
    workflow.load(OUTER)
    workflow.load(TWO)
    meeting = threading.Barrier(2, timeout=5)
    workflow.replace("std.echo", lambda output: meeting.wait() and None)
    workflow.run("outer").assert_succeeded()


def test_sub_workflows_are_seen_as_a_tree(workflow):
    workflow.load(OUTER)
    workflow.load(TWO)
    run = workflow.run("outer").assert_succeeded()
    assert sorted(run.sub("each", i).output["r"] for i in (0, 1)) == [1, 2]
    assert run.tree().splitlines()[:3] == [
        "outer SUCCESS {}",
        "  each x2 SUCCESS",
        f'    two SUCCESS {{"r": {run.sub("each").output["r"]}}}',
    ]
    with pytest.raises(AssertionError, match="started 2 workflows"):
        run.sub("each", 2)


def test_waits_take_no_time(workflow):
    workflow.load(WAITS)
    workflow.run("waits", timeout=5).assert_succeeded()


def test_an_execution_that_does_not_end_fails_the_test_with_its_picture(workflow):
    workflow.load(SLOW)
    with pytest.raises(AssertionError, match=r"still RUNNING after 0\.1 s:\s+slow RUNNING"):
        workflow.run("slow", timeout=0.1)


def test_assertions_show_what_happened(workflow):
    workflow.load(TWO)
    run = workflow.run("two")
    run.assert_tasks("second", "first", any_order=True)
    with pytest.raises(AssertionError, match="expected the tasks"):
        run.assert_tasks("second", "first")
    with pytest.raises(AssertionError, match="did not run"):
        run.task("third")
    with pytest.raises(AssertionError, match="expected ERROR, got SUCCESS"):
        run.assert_failed_with("X")


def test_an_action_that_a_user_defines_is_found_from_then_on(
    mistral: TestEngine, workflow: Workflows
) -> None:
    from mistral.db.v2 import api as db_api
    from mistral.services import adhoc_actions

    workflow.load(USES_IT)
    assert workflow.run("uses_it").state == "ERROR"
    try:
        with mistral.context():
            adhoc_actions.create_actions(OWN_ACTION)
        assert workflow.run("uses_it").assert_succeeded().output == {"said": "hello"}
    finally:
        with mistral.context():
            db_api.delete_action_definitions()
