# SPDX-License-Identifier: Apache-2.0
"""The validator finds before the run what Mistral finds only in it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mistral_failover.embedded.validate import Problem, call_depth, main, validate

GOOD = """\
version: '2.0'
good:
  description: Says what it is given.
  input: [what, times: 1]
  output-on-error: {message: failed}
  tasks:
    say:
      action: std.echo
      input: {output: <% $.what %>}
"""

Check = Callable[..., list[Problem]]


class Counting(dict[str, Any]):
    """A schema that counts how often it is checked: only then does its comment matter."""

    checked = 0

    def __contains__(self, key: object) -> bool:
        self.checked += key == "$comment"
        return super().__contains__(key)


@pytest.fixture
def check(tmp_path: Path) -> Check:
    def run(*texts: str, **options: object) -> list[Problem]:
        paths = []
        for number, text in enumerate(texts):
            paths.append(tmp_path / f"{number}.yaml")
            paths[-1].write_text(text)
        return validate(paths, **options)

    return run


def with_task(task: str, name: str = "w") -> str:
    return f"""\
version: '2.0'
{name}:
  description: For a test.
  output-on-error: {{message: failed}}
  tasks:
    t:
{chr(10).join("      " + line for line in task.splitlines())}
"""


def codes(problems: list[Problem]) -> list[str]:
    return [p.code for p in problems]


def test_a_good_workflow_has_no_problems(check):
    assert check(GOOD, strict=True) == []


@pytest.mark.parametrize(
    ("task", "code"),
    [
        ("action: no.such", "UNKNOWN_ACTION"),
        ("workflow: no_such", "UNKNOWN_WORKFLOW"),
        ("action: std.echo", "MISSING_INPUT"),
        ("action: std.noop\ninput: {x: 1}", "UNKNOWN_INPUT"),
        ("workflow: good", "MISSING_INPUT"),
        ("workflow: good\ninput: {what: 1, whom: 2}", "UNKNOWN_INPUT"),
        ("action: std.noop\non-success: nowhere", "WORKFLOW_INVALID"),
        ("action: std.echo\ninput: {output: <% $.( %>}", "WORKFLOW_INVALID"),
        ("action: std.noop\nunheard-of: 1", "WORKFLOW_INVALID"),
        ("action: std.echo output=plain", "INLINE_INPUT_DROPPED"),
        ("action: std.noop\npublish: {a: <% max(1, 2) %>}", "EXPRESSION_SPLIT"),
    ],
)
def test_mistakes_are_found(check, task, code):
    problems = check(GOOD, with_task(task))
    assert code in codes(problems)
    assert all(p.error and p.remedy for p in problems)


@pytest.mark.parametrize(
    "task",
    [
        "action: <% $.name %>",
        "workflow: <% $.name %>\ninput: {anything: 1}",
        "workflow: good\ninput: <% $.all %>",
        "workflow: good\ninput: {what: 1, env: {}}",
        "action: std.echo output='quoted' delay=1",
        "action: std.echo output=<% $.x %>",
        "action: std.noop\npublish:\n  a: <% max(1, 2) %>",
    ],
)
def test_what_is_right_or_known_only_at_the_run_is_left_alone(check, task):
    assert check(GOOD, with_task(task)) == []


def test_the_schema_of_the_language_is_checked_once_and_a_wrong_schema_each_time(check):
    check(GOOD)
    schema = {"type": "nothing"}
    for _ in range(2):
        with pytest.raises(jsonschema.SchemaError):
            jsonschema.validate({}, schema)
    counted = Counting(type="object")
    for _ in range(2):
        jsonschema.validate({}, counted)
    assert counted.checked == 1


def test_a_problem_names_file_workflow_and_task(check, tmp_path):
    [problem] = check(with_task("action: no.such"))
    assert (problem.file, problem.workflow, problem.task) == (str(tmp_path / "0.yaml"), "w", "t")
    assert str(problem).startswith(f"{tmp_path}/0.yaml: w.t: error UNKNOWN_ACTION: ")


@pytest.mark.parametrize(
    ("task", "wrong"),
    [("acton: std.noop", "t: "), ("action: std.noop\nretry: {cout: 3}", "retry: ")],
)
def test_what_breaks_the_language_says_where_and_shows_no_schema(check, task, wrong):
    (found,) = [each for each in check(with_task(task)) if each.code == "WORKFLOW_INVALID"]

    assert found.message.startswith(wrong)
    assert "schema" not in found.message.replace("schemas", "")


def test_names_that_exist_elsewhere_can_be_ignored(check):
    assert check(with_task("action: nova.servers_list"), ignore=["nova.*"]) == []


@pytest.mark.parametrize("text", ["", "[]", "just text", "version: '2.0'\nw: 1", "a: [", "w: {}"])
def test_what_is_no_workflow_file_is_a_problem_not_a_crash(check, text):
    assert "WORKFLOW_INVALID" in codes(check(text))


def test_house_rules_are_warnings_unless_strict(check):
    text = "version: '2.0'\nw:\n  tasks:\n    t: {action: std.noop}\n" + "\n" * 80
    found = check(text)
    assert codes(found) == ["TOO_LONG", "NO_DESCRIPTION", "NO_OUTPUT_ON_ERROR"]
    assert not any(p.error for p in found)
    assert all(p.error for p in check(text, strict=True))


def test_two_workflows_in_a_file_are_against_the_house_rules(check):
    assert codes(check(GOOD + GOOD.split("\n", 1)[1].replace("good", "other"))) == [
        "ONE_WORKFLOW_A_FILE"
    ]


def test_what_the_task_gave_may_be_an_argument(check):
    text = with_task("action: std.echo\ninput:\n  output: <% isDict(task().result) %>")
    assert check(text) == []


def test_deeply_nested_expressions_are_against_the_house_rules(check):
    text = with_task("action: std.echo\ninput:\n  output: <% len($.x.where(str($) = a)) %>")
    assert codes(check(text)) == ["NESTED_EXPRESSION"]


@pytest.mark.parametrize(
    ("expression", "depth"),
    [
        ("$.a.b", 0),
        ("task(a).result.first(null)", 1),
        ("($.a + 1) * 2", 0),
        ("not ($.a and ($.b))", 0),
        ("$.a.where($.b = '(x)')", 1),
        ("len($.a.where($.b > 1))", 2),
        ("f(g(h(1)))", 3),
        ("isDict(task().result) and task( ).result.get(again, false)", 1),
        (")(", 0),
    ],
)
def test_call_depth_counts_calls_within_calls(expression, depth):
    assert call_depth(expression) == depth


def chain(*tasks: tuple[str, str], hold: str = "true") -> str:
    """A chain of tasks, one after the other: a name, and the stage that it calls or nothing."""
    head = """\
version: '2.0'
house.failover:
  description: For a test.
  input: [traversal]
  output-on-error: {message: failed}
  tasks:
"""
    follow = [name for name, _ in tasks[1:]]
    lines = []
    for number, (name, stage) in enumerate(tasks):
        lines.append(f"    {name}:")
        if stage:
            lines.append("      action: failover.advance")
            given = f"traversal: <% $.traversal %>, through: {stage}, hold: {hold}"
            lines.append(f"      input: {{{given}}}")
        else:
            lines.append("      action: std.noop")
        lines += [f"      on-success: {each}" for each in follow[number : number + 1]]
    return head + "\n".join(lines) + "\n"


STAGES = [(name, name) for name in ("fence", "quiesce", "move_volumes", "activate", "update_stack")]


def test_a_chain_that_calls_the_stages_in_order_has_no_problems(check):
    assert check(chain(*STAGES, ("last", "end"), ("tell", "")), strict=True) == []
    assert check(chain(*STAGES[:2], ("tell", ""), ("last", "end")), strict=True) == []
    assert check(chain(("last", "end")), strict=True) == []


def test_a_chain_says_which_stage_is_called_too_late(check):
    (found,) = check(chain(("fence", "fence"), *reversed(STAGES[1:3]), ("last", "end")))

    assert (found.code, found.task) == ("CHAIN_ORDER", "quiesce")
    assert found.message == "the stage quiesce is called after move_volumes (task move_volumes)"


def test_a_chain_has_to_end_with_the_last_stage(check):
    found = check(chain(*STAGES[:2]))

    assert [(p.code, p.task) for p in found] == [
        ("CHAIN_NO_END", "fence"),
        ("CHAIN_NO_END", "quiesce"),
    ]


def test_a_chain_that_calls_no_stage_of_that_name_is_told_the_stages(check):
    (found,) = check(chain(("stop", "quiet"), ("last", "end")))

    assert (found.code, found.message) == ("CHAIN_STAGE", "there is no stage quiet")
    assert found.remedy.endswith("fence, quiesce, move_volumes, activate, update_stack, end")


def test_a_task_of_its_own_needs_stages_that_are_held(check):
    (found,) = check(chain(*STAGES[:1], ("tell", ""), ("last", "end"), hold="false"))

    assert (found.code, found.task) == ("CHAIN_NOT_HELD", "fence")
    assert "do not wait for the task tell" in found.message


def test_the_command_prints_problems_and_tells_errors_by_its_code(tmp_path, capsys):
    file = tmp_path / "w.yaml"
    file.write_text(GOOD)
    assert main([file]) == 0
    file.write_text(with_task("action: no.such"))
    assert main([file]) == 1
    assert "UNKNOWN_ACTION" in capsys.readouterr().out
