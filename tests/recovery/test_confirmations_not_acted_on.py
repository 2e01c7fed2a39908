# SPDX-License-Identifier: Apache-2.0
"""A person's word for a fence was written down, and the process died before it acted on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import recovery, reports
from mistral_failover.convergence.records import Outcome, Ready
from mistral_failover.model.goal import render_goal
from mistral_failover.runtime.process import Runtime
from mistral_failover.store import groups
from support.driving import ready_nodes


@pytest.fixture
def blocked(
    state: Runtime, project: str, define: Callable[..., str], context: ActionContext
) -> Ready:
    """The fence of ``db_a`` of the group ``payments``, blocked for want of a proof."""
    define(fence=["confirm"])
    identity = groups.group_id(project, "payments")
    group = state.database.reading(
        lambda tx: state.definitions.group(tx, tx.lock_group(identity, shared=True))
    )
    seen = [("db_a", "s-a", 1.0), ("db_b", "s-b", 2.0)]
    state.database.atomically(lambda tx: groups.record_members(tx, identity, seen))
    goal = render_goal(group, {"active": "db_b"}, ["db_a"])
    started = state.engine.start(
        identity, goal, traversal_id=f"t-{project}"[:36], expected=None, cause="a test"
    )
    records = state.database.reading(lambda tx: {r.id: r for r in tx.records(identity)})
    (fence,) = (r for r in started.ready if records[r.node.resource_id].type == "fence")
    operation = state.engine.check(fence, "an owner").operation
    assert operation is not None
    error = {"code": "FENCE_UNPROVEN", "message": "no operator has confirmed it yet"}
    state.engine.conclude(operation.ticket, Outcome(error=error, blocked=True))
    assert reports.Status("payments").run(context)["status"] == "BLOCKED"
    return fence


def say(state: Runtime, project: str, member: str) -> None:
    """Write the word down, and die."""
    identity = groups.group_id(project, "payments")
    state.database.atomically(lambda tx: groups.confirm_fenced(tx, identity, member, "I saw it"))


def swept(context: ActionContext, group: str | None = "payments") -> list[dict[str, Any]]:
    """The fence, if a sweep takes it up."""
    rows = recovery.Sweep(group).run(context)["restarted"]
    return [row for row in rows if "fence:db_a" in row["sentence"]]


@pytest.mark.parametrize("group", ["payments", None])
def test_a_sweep_reopens_what_waited_for_it_once(
    group: str | None, state: Runtime, project: str, blocked: Ready, context: ActionContext
) -> None:
    say(state, project, "db_a")

    (row,) = swept(context, group)

    assert (row["traversal"], row["workflow"]) == (blocked.traversal_id, "failover.converge")
    assert blocked in ready_nodes(state, blocked.traversal_id)
    assert row["group"] == "payments"
    assert "confirmed" in row["sentence"]
    assert reports.Status("payments").run(context)["status"] == "IN_PROGRESS"


def test_nothing_is_reopened_for_another_member(
    state: Runtime, project: str, blocked: Ready, context: ActionContext
) -> None:
    say(state, project, "db_b")

    assert swept(context) == []
    assert reports.Status("payments").run(context)["status"] == "BLOCKED"


def test_a_word_of_an_earlier_epoch_counts_for_nothing(
    state: Runtime, project: str, blocked: Ready, context: ActionContext
) -> None:
    say(state, project, "db_a")
    identity = groups.group_id(project, "payments")
    state.database.atomically(lambda tx: tx.raise_epochs(identity, ["db_a"]))

    assert swept(context) == []
