# SPDX-License-Identifier: Apache-2.0
"""What an operation is told about its member, and what of its answer is kept."""

from __future__ import annotations

from typing import Any

import pytest

from mistral_failover.convergence.records import Lock, Node, Operation, Record, Ticket, Verb
from mistral_failover.mistral.operation_documents import operation_document, outcome_of
from mistral_failover.model.goal import render_goal
from mistral_failover.model.group import parse_group
from mistral_failover.store.groups import MemberRow

GROUP = parse_group(
    {
        "failover_template_version": "2026-11-21",
        "stack": "payments",
        "members": {"servers": ["db_a", "db_b"]},
        "resources": {
            "routing": {"type": "stack_parameters", "properties": {"parameters": {"a": 1}}}
        },
    }
)
FENCED_SINCE = {"db_a": MemberRow("db_a", "s-a", 1.0, 4, None)}


@pytest.mark.parametrize(("verb", "epoch"), [("create", 3), ("update", 3), ("delete", 4)])
def test_only_what_takes_something_away_reaches_a_member_that_was_fenced_since(
    verb: Verb, epoch: int
) -> None:
    record = Record("r", "g", "database", "activation", "db_a", epoch=3)
    node = Node("cleanup" if verb == "delete" else "update", "r")
    ticket = Ticket("t", verb, "k", node, Lock("r", "o", 1, 30.0), "v")

    operation = Operation(ticket, record, {}, None, {})
    document = operation_document(operation, None, GROUP, FENCED_SINCE, 1.0)

    assert document["member"] == {"name": "db_a", "server_id": "s-a", "epoch": epoch}


@pytest.mark.parametrize("name", ["routing", "left"])
def test_a_deletion_is_told_whether_another_record_takes_the_place(name: str) -> None:
    record = Record("r", "g", name, "stack_parameters")
    ticket = Ticket("t", "delete", "k", Node("cleanup", "r"), Lock("r", "o", 1, 30.0), "v")
    goal = render_goal(GROUP, {"active": "db_a"}, [])

    document = operation_document(Operation(ticket, record, {}, None, {}), goal, GROUP, {}, 1.0)

    assert document["wanted"] is (name == "routing")


def failure(code: str, **more: Any) -> dict[str, Any]:
    return {"code": code, "message": "m", "remedy": "r", **more}


@pytest.mark.parametrize(
    ("error", "unknown"),
    [
        (failure("NO_ANSWER"), True),
        ({"error": failure("NO_ANSWER")}, True),
        (failure("UNEXPECTED"), True),
        (failure("OWN", unknown=True), True),
        (failure("OWN", unknown=False), False),
        (failure("OWN", unknown="yes"), False),
        (failure("COMMAND_FAILED"), False),
        ("it broke", False),
    ],
)
def test_a_failure_that_may_have_taken_effect_says_so(error: Any, unknown: bool) -> None:
    assert outcome_of(None, error).unknown is unknown


def test_a_failure_is_kept_in_words_that_every_database_takes() -> None:
    error = outcome_of(None, failure("OWN", message="a\x00b" + "c" * 9000, reasons={"m": 1})).error

    assert error is not None
    assert error["message"] == "ab" + "c" * 3998
    assert error["reasons"] == {"m": 1}


def test_a_physical_id_is_kept_as_far_as_its_column_goes() -> None:
    assert outcome_of({"physical_id": "\x00" + "p" * 300}, None).physical_id == "p" * 255
