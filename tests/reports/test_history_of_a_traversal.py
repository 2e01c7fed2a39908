# SPDX-License-Identifier: Apache-2.0
"""``failover.history`` of one traversal, by its id or the first digits of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import suspensions
from mistral_failover.actions.reports import History
from mistral_failover.convergence.records import Ready
from mistral_failover.runtime.process import Runtime
from mistral_failover.store.tables import traversals


def told(context: ActionContext, said: str, group: str = "payments") -> Any:
    """The steps, or the code with which the question is refused."""
    answer = History(group, traversal=said).run(context)
    return answer.error["code"] if isinstance(answer, Result) else answer


def test_its_first_digits_tell_what_the_whole_id_does(begun: Ready, context: ActionContext) -> None:
    rows = told(context, begun.traversal_id)

    assert rows
    assert told(context, begun.traversal_id[:8]) == rows


@pytest.mark.parametrize("said", ["0badc0de", "zzz", "%"])
def test_an_id_that_no_traversal_has_is_refused(
    begun: Ready, context: ActionContext, said: str
) -> None:
    assert told(context, said) == "UNKNOWN_ID"


def test_seven_digits_are_too_few_and_other_things_are_no_traversals(
    begun: Ready, context: ActionContext
) -> None:
    assert told(context, begun.traversal_id[:7]) == "UNKNOWN_ID"
    assert told(context, begun.node.resource_id) == "UNKNOWN_ID"


def test_a_traversal_of_another_group_or_project_is_unknown(
    begun: Ready,
    serve: Callable[..., str],
    context: ActionContext,
    context_of: Callable[..., ActionContext],
) -> None:
    other = serve("ledger")

    assert told(context, begun.traversal_id, other) == "UNKNOWN_ID"
    assert told(context, begun.traversal_id[:8], other) == "UNKNOWN_ID"
    stranger = told(context_of("somebody-else"), begun.traversal_id)
    assert stranger == "UNKNOWN_GROUP"


def test_what_is_left_of_a_traversal_that_was_forgotten_is_told_by_its_whole_id(
    begun: Ready, state: Runtime, context: ActionContext
) -> None:
    rows = told(context, begun.traversal_id)
    forget = traversals.delete().where(traversals.c.id == begun.traversal_id)
    state.database.atomically(lambda tx: tx.execute(forget))

    assert told(context, begun.traversal_id) == rows
    assert told(context, begun.traversal_id[:8]) == "UNKNOWN_ID"


def test_without_a_group_the_journal_of_the_whole_project_is_returned(
    begun: Ready,
    serve: Callable[..., str],
    context: ActionContext,
    context_of: Callable[..., ActionContext],
) -> None:
    other = serve("ledger")
    rows = History().run(context)

    assert {row["group"] for row in rows} == {"payments", other}
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
    assert History(after=rows[0]["id"], limit=1).run(context) == rows[1:2]
    assert History(limit=1).run(context) == rows[-1:]
    assert History().run(context_of("another-project")) == []
    refused = History(traversal=begun.traversal_id).run(context)
    assert refused.error["code"] == "BAD_INPUT"


def test_who_knows_the_last_step_can_wait_for_the_next_one(
    begun: Ready,  # noqa: ARG001 - its journal
    context: ActionContext,
) -> None:
    group = "payments"
    last = History(group).run(context)[-1]["id"]

    assert History(group, after=last).run(context) == []
    assert History(group, after=last, wait=1).run(context) == []
    later = threading.Timer(0.2, lambda: suspensions.Pause(group, "a test").run(context))
    later.start()
    (row,) = History(group, after=last, wait=20).run(context)
    later.join()

    assert "a test" in row["sentence"]
    assert [each["id"] for each in History(after=last, wait=20).run(context)] == [row["id"]]
