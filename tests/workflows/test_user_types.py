# SPDX-License-Identifier: Apache-2.0
"""A user's own types: operations that are workflows of theirs, or functions of their package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.lab.testing.workflows import Run
from support.packages import Install

TICKET = {
    "failover_type_version": "2026-11-21",
    "name": "ticket",
    "description": "A ticket in the house's own system",
    "replace": "delete_first",
    "properties": {"holder": {"type": "string", "required": True, "immutable": True}},
    "attributes": {"number": {"description": "The ticket's number"}},
    "operations": {
        "create": {"workflow": "house.open_ticket"},
        "delete": {"workflow": "house.close_ticket"},
    },
}
OPEN = """
version: '2.0'
house.open_ticket:
  input: [operation]
  output:
    physical_id: <% $.id %>
    attributes:
      number: 17
  tasks:
    look:
      action: std.noop
      on-success: write
    write:
      action: std.echo
      input:
        output: ticket of <% $.operation.properties.holder %>
      publish:
        id: <% task().result %>
"""
WRONG_OPEN = OPEN.replace("properties.holder", "propertys.holder")
CLOSE = """
version: '2.0'
house.close_ticket:
  input: [operation]
  output:
    closed: <% $.operation.resource.physical_id %>
  tasks:
    only:
      action: std.noop
"""
BROKEN_OPEN = """
version: '2.0'
house.open_ticket:
  input: [operation]
  output-on-error:
    error:
      code: NO_PAPER
      message: the printer is out of paper
      remedy: Fill it.
  tasks:
    write:
      action: std.fail
"""
SPEECHLESS_OPEN = """
version: '2.0'
house.open_ticket:
  input: [operation]
  tasks:
    write:
      action: std.fail
"""
ACTIVE = {"get_param": "active"}
RESOURCES = {
    "paper": {"type": "ticket", "properties": {"holder": ACTIVE}},
    "routing": {
        "type": "stack_parameters",
        "depends_on": "paper",
        "properties": {"parameters": {"active": ACTIVE}},
    },
}


def paper(group: Any) -> list[dict[str, Any]]:
    """The records of the ticket, as failover.status shows them."""
    return [row for row in group.status()["resources"] if row["name"] == "paper"]


def executions_of(group: Any, workflow: str) -> list[Run]:
    """The executions of a workflow, oldest first."""
    return [run for run in group.workflows.executions() if run.name == workflow]


def test_the_operation_s_workflow_runs_and_its_output_is_recorded(
    protect: Callable[..., Any],
) -> None:
    group = protect(RESOURCES, [TICKET])
    group.workflows.load(OPEN)

    outcome = group.activate()

    (operation,) = executions_of(group, "house.open_ticket")
    operation.assert_tasks("look", "write")
    (record,) = paper(group)
    assert record["status"] == "CREATE_COMPLETE"
    assert record["physical_id"] == "ticket of db_a"
    assert record["attributes"] == {"number": 17}
    assert outcome["status"] == "COMPLETE"


def test_a_failover_deletes_by_one_workflow_and_creates_by_the_other(
    protect: Callable[..., Any],
) -> None:
    group = protect(RESOURCES, [TICKET])
    group.workflows.load(OPEN)
    group.workflows.load(CLOSE)
    group.activate()
    group.fails("app")

    group.run("failover", group=group.name).assert_succeeded()

    assert [run.state for run in executions_of(group, "house.close_ticket")] == ["SUCCESS"]
    live = [row for row in paper(group) if row["status"] == "CREATE_COMPLETE"]
    assert [row["physical_id"] for row in live] == ["ticket of db_b"]


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (BROKEN_OPEN, "NO_PAPER", "the printer is out of paper. Fill it."),
        (SPEECHLESS_OPEN, "OPERATION_FAILED", "Fail action expected exception"),
        (
            WRONG_OPEN,
            "OPERATION_FAILED",
            "task write: Failed to run task [error=Can not evaluate YAQL expression "
            "[expression=$.operation.propertys.holder, error='propertys'], "
            "wf=house.open_ticket, task=write]",
        ),
        (None, "NO_WORKFLOW", "Mistral has no workflow house.open_ticket"),
    ],
    ids=[
        "with its own error",
        "without a message",
        "with a wrong expression",
        "whose workflow is not there",
    ],
)
def test_an_operation_that_fails_fails_the_failover(
    protect: Callable[..., Any], text: str | None, code: str, words: str
) -> None:
    group = protect(RESOURCES, [TICKET])
    if text:
        group.workflows.load(text)

    run = group.run("activate_first", group=group.name)

    run.assert_failed_with("FAILED")
    message = run.output["error"]["message"]
    assert f"[{code}]" in message
    assert words in message
    assert "Traceback" not in message
    (record,) = paper(group)
    assert record["status"] == "CREATE_FAILED"
    assert record["owner"] is None


def test_a_repaired_workflow_is_tried_again_by_the_next_start(protect: Callable[..., Any]) -> None:
    group = protect(RESOURCES, [TICKET])
    group.workflows.load(SPEECHLESS_OPEN)
    group.run("activate_first", group=group.name).assert_failed_with("FAILED")
    group.workflows.load(OPEN)

    outcome = group.activate()

    assert outcome["status"] == "COMPLETE"
    assert paper(group)[-1]["physical_id"] == "ticket of db_a"


SLOW_OPEN = """
version: '2.0'
house.open_ticket:
  input: [operation]
  tasks:
    wait:
      action: std.async_noop
"""
CAREFUL_OPEN = """
version: '2.0'
house.open_ticket:
  input: [operation]
  output:
    physical_id: <% str($.operation.unknown) + ' ' + $.operation.key %>
  tasks:
    only:
      action: std.noop
"""


def test_an_operation_that_takes_too_long_fails_and_is_taken_up_under_the_same_key(
    protect: Callable[..., Any],
) -> None:
    slow = {**TICKET, "operations": {"create": {"workflow": "house.open_ticket", "timeout": 1}}}
    group = protect(RESOURCES, [slow])
    group.workflows.load(SLOW_OPEN)

    run = group.run("activate_first", group=group.name)

    run.assert_failed_with("FAILED")
    assert "did not end within 1 s" in run.output["error"]["message"]
    assert "[TIMEOUT]" in run.output["error"]["message"]
    assert [run.state for run in executions_of(group, "house.open_ticket")] == ["CANCELLED"]
    (operation,) = group.status()["under_way"]
    assert operation["status"] == "unknown"

    group.workflows.load(CAREFUL_OPEN)
    group.activate()

    assert paper(group)[-1]["physical_id"] == f"true {operation['key']}"


FUNCTIONS = """
from mistral_failover.runtime.errors import ActionError

def open_ticket(context, operation):
    if operation["properties"]["holder"] == "db_b":
        raise ActionError("NO_PAPER", "out of paper", "Fill.")
    return {"physical_id": operation["verb"], "attributes": {"number": 3}}

OPERATIONS = (open_ticket,)
"""


@pytest.fixture
def functions(install: Install) -> dict[str, Any]:
    """The type, with an operation that is a function of an installed package."""
    points = {"mistral_failover.resources": "ticket = house_tickets"}
    install({"house_tickets.py": FUNCTIONS}, points)
    return {**TICKET, "operations": {"create": {"function": "open_ticket"}}}


def test_an_operation_that_is_a_function_is_carried_out_in_place(
    protect: Callable[..., Any], functions: dict[str, Any]
) -> None:
    group = protect(RESOURCES, [functions])

    group.activate()

    (record,) = paper(group)
    assert (record["physical_id"], record["attributes"]) == ("create", {"number": 3})


def test_a_function_that_fails_fails_the_failover_with_its_code(
    protect: Callable[..., Any], functions: dict[str, Any]
) -> None:
    group = protect(RESOURCES, [functions])

    run = group.run("activate_first", group=group.name, to="db_b")

    run.assert_failed_with("FAILED")
    assert "out of paper. Fill. [NO_PAPER]" in run.output["error"]["message"]
