# SPDX-License-Identifier: Apache-2.0
"""The ways to end the protection of an application."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import groups, orders, reports
from support.activation import done
from support.operators import Operator

CONTEXT = ActionContext(SecurityContext(), ExecutionContext())


def refused(group: Any, *, release: bool) -> str:
    answer = groups.Undefine(group.name, release=release).run(CONTEXT)
    assert isinstance(answer, Result)
    return str(answer.error["code"])


def test_a_released_group_leaves_everything_running(group: Any) -> None:
    group.activate()
    holders, since = group.holders(), group.cloud.audit()[-1]["seq"]

    done(groups.Undefine(group.name, release=True).run(CONTEXT))

    assert (group.holders(), group.runs_on()) == (holders, ["db_a"])
    asked = group.cloud.audit(since, kind="request")
    assert [row for row in asked if row["method"] not in ("GET", "HEAD")] == []


def test_a_released_group_can_be_protected_again(group: Any) -> None:
    group.activate()
    document = done(reports.Status(group.name, definition=True).run(CONTEXT))["definition"][
        "document"
    ]
    done(groups.Undefine(group.name, release=True).run(CONTEXT))

    done(groups.Define(document, name=group.name).run(CONTEXT))
    group.run("activate_first", group=group.name).assert_succeeded()

    assert (group.holders(), group.runs_on()) == (["db_a"], ["db_a"])


def test_a_group_in_service_is_only_released_on_demand(group: Any) -> None:
    group.activate()

    assert refused(group, release=False) == "IN_SERVICE"


def test_a_group_at_work_or_with_a_lost_member_is_not_released(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.activate()
    monkeypatch.setattr(group.state, "eager", False)
    done(orders.Begin(group.name, lost=["db_a"]).run(CONTEXT))
    assert refused(group, release=True) == "NOT_AT_REST"

    group.run("failover", group=group.name).assert_succeeded()
    assert refused(group, release=True) == "NOT_AT_REST"


@pytest.mark.parametrize("lost", [[], ["db_a"]])
@pytest.mark.parametrize("ladder", [["quiesce", "stop"], ["quiesce", "confirm"]])
def test_a_group_whose_stack_was_deleted_first_goes(
    protect: Callable[..., Any], operator: Operator, ladder: list[str], lost: list[str]
) -> None:
    group = protect(fence=ladder)
    group.activate()
    operator.delete_stack(group.name)

    group.run("remove", group=group.name, lost=lost).assert_succeeded()

    done(groups.Undefine(group.name).run(CONTEXT))
