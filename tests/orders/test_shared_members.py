# SPDX-License-Identifier: Apache-2.0
"""Two groups on the same servers would fence them under each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import groups as group_actions
from mistral_failover.actions import reports
from mistral_failover.runtime.process import Runtime
from mistral_failover.store import groups
from support.group_fixtures import HOUSE


def group_file(stack: str, **members: Any) -> dict[str, Any]:
    return {
        "failover_template_version": "2026-11-21",
        "stack": stack,
        "members": members,
        "resources": {
            "thing": {"type": "house", "properties": {"holder": {"get_param": "active"}}}
        },
    }


@pytest.fixture
def defined(context: ActionContext, define: Callable[..., str]) -> Callable[..., Any]:
    """Define a group beside payments, of which db_a and db_b are members; its answer, or the error
    that it is refused with."""
    define("payments")

    def make(name: str, document: dict[str, Any], **more: Any) -> Any:
        answer = group_actions.Define(document, name=name, types=[HOUSE], **more).run(context)
        return answer.error if isinstance(answer, Result) else answer

    return make


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_group_on_servers_of_another_one_is_refused(
    defined: Callable[..., Any], context: ActionContext, dry_run: bool
) -> None:
    refused = defined("shop", group_file("payments", servers=["db_b", "db_c"]), dry_run=dry_run)

    assert refused["code"] == "INVALID_DOCUMENT"
    assert "db_b of stack payments" in refused["message"]
    assert "group payments" in refused["message"]
    assert "failover group delete payments" in refused["remedy"]
    assert reports.Status("shop").run(context).error["code"] == "UNKNOWN_GROUP"


def test_other_members_of_the_same_stack_may_be_another_group(defined: Callable[..., Any]) -> None:
    assert defined("shop", group_file("payments", servers=["db_c", "db_d"]))["created"]
    assert defined("web", group_file("payments", autoscaling_group="nodes"))["created"]
    again = defined("web2", group_file("payments", autoscaling_group="nodes"))
    assert again["code"] == "INVALID_DOCUMENT"


def test_a_group_does_not_take_over_a_server_of_another_one_later(
    defined: Callable[..., Any],
) -> None:
    defined("shop", group_file("payments", servers=["db_c", "db_d"]))

    refused = defined("shop", group_file("payments", servers=["db_a", "db_c"]))

    assert refused["code"] == "INVALID_DOCUMENT"


def test_once_the_other_group_is_deleted_its_servers_are_free(
    defined: Callable[..., Any], context: ActionContext
) -> None:
    deleted = group_actions.Undefine("payments").run(context)
    assert not isinstance(deleted, Result), deleted.error

    assert defined("shop", group_file("payments", servers=["db_a", "db_b"]))["created"]


def test_groups_that_share_servers_already_can_be_changed_and_deleted(
    defined: Callable[..., Any], state: Runtime, project: str, context: ActionContext
) -> None:
    before = {"document": group_file("payments", servers=["db_a", "db_b"]), "types": [HOUSE]}
    state.database.for_project(project).atomically(lambda tx: groups.define(tx, "shop", before))

    changed = defined("shop", group_file("payments", servers=["db_a", "db_c"]))
    deleted = group_actions.Undefine("shop").run(context)

    assert changed["created"] is False
    assert not isinstance(deleted, Result), deleted.error
    assert reports.Status("payments").run(context)["group"] == "payments"
