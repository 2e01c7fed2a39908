# SPDX-License-Identifier: Apache-2.0
"""Where a group stands, and how one of its traversals went."""

from __future__ import annotations

from collections.abc import Callable

from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import recovery
from mistral_failover.convergence.records import Outcome, Ready
from mistral_failover.groups.snapshot import group_snapshot
from mistral_failover.model.goal import render_goal
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request

ON_MEMBERS = {
    "database": {
        "type": "activation",
        "properties": {"member": {"get_param": "active"}, "start": "on", "stop": "off"},
    }
}


def test_a_goal_is_reached_when_its_traversal_is_complete_and_not_before(
    state: Runtime, context: ActionContext, begun: Ready
) -> None:
    request = Request(state, context)
    assert not group_snapshot(request, "payments").reached

    step = state.engine.check(begun, "a test")
    assert step.operation is not None
    state.engine.conclude(step.operation.ticket, Outcome())

    assert group_snapshot(request, "payments").reached


def test_a_goal_that_failed_is_not_reached(
    state: Runtime, context: ActionContext, begun: Ready
) -> None:
    step = state.engine.check(begun, "a test")
    assert step.operation is not None
    state.engine.conclude(step.operation.ticket, Outcome(error={"code": "NO", "message": "no"}))

    assert not group_snapshot(Request(state, context), "payments").reached


def test_a_member_is_occupied_by_the_records_on_it(
    state: Runtime, context: ActionContext, started: Callable[..., Ready]
) -> None:
    started(resources=ON_MEMBERS)

    assert group_snapshot(Request(state, context), "payments").occupied == {"db_a"}


def test_a_resource_on_no_member_occupies_none(
    state: Runtime, context: ActionContext, begun: Ready
) -> None:
    assert group_snapshot(Request(state, context), "payments").occupied == frozenset()


def test_a_report_tells_its_own_traversal_s_goal_after_a_newer_one_began(
    state: Runtime, context: ActionContext, begun: Ready
) -> None:
    snapshot = group_snapshot(Request(state, context), "payments")
    newer = f"newer-than-{begun.traversal_id}"
    state.engine.start(
        snapshot.state.id,
        render_goal(snapshot.group, {"active": "db_b"}, ["db_a"]),
        traversal_id=newer,
        expected=begun.traversal_id,
        cause="a test",
    )

    older, current = (
        recovery.Report("payments", traversal).run(context)
        for traversal in (begun.traversal_id, newer)
    )

    assert (older["status"], older["roles"], older["lost"]) == (
        "SUPERSEDED",
        {"active": "db_a"},
        [],
    )
    assert (current["roles"], current["lost"]) == ({"active": "db_b"}, ["db_a"])
