# SPDX-License-Identifier: Apache-2.0
"""replace_member of a member that holds roles: they move one by one, each looked at anew.

Only the actions are replaced; their signatures are the real ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions import Result

from mistral_failover.lab.testing.workflows import Run, Workflows

RETURNED = Result(error={"code": "RETURNED", "message": "it came back", "remedy": ""})
COMPLETE = {"status": "COMPLETE", "reason": ""}
CHAIN = "failover.converge"


@pytest.fixture
def calls() -> list[Any]:
    """Which actions ran: the role and its holder of a move, ``replace`` for the rest."""
    return []


@pytest.fixture
def replaces(pack: Workflows, calls: list[Any]) -> Callable[..., Run]:
    """Replace the member m, which holds these roles, a list for each look at it."""

    def replaces(*looks: list[str], report: Any = COMPLETE) -> Run:
        left = list(looks)

        def move(
            group: str, role: str, holder: str, because: str, to: str | None = None
        ) -> dict[str, Any]:
            calls.append((role, holder))
            return {"group": group, "traversal": f"move of {role}", "workflow": CHAIN}

        def begin(
            group: str, member: str, server: str | None, resource: str | None, because: str
        ) -> dict[str, Any]:
            calls.append("replace")
            moves = left.pop(0)
            traversal = None if moves else "replacement"
            begun = {"group": group, "member": member, "server": "s1", "moves": moves}
            return begun | {"traversal": traversal, "workflow": None if moves else CHAIN}

        pack.replace("failover.switchover", move)
        pack.replace("failover.replace_member", begin)
        ended = report if isinstance(report, Result) else {"again": False, "outcome": report}
        pack.replace("failover.advance", ended)
        return pack.run("failover.replace_member", {"group": "g", "member": "m"})

    return replaces


def test_what_a_member_holds_moves_role_by_role_before_it_is_replaced(
    replaces: Callable[..., Run], calls: list[Any]
) -> None:
    run = replaces(["orders", "files"], ["files"], []).assert_succeeded()

    assert calls == ["replace", ("orders", "m"), "replace", ("files", "m"), "replace"]
    assert run.output["begun"]["traversal"] == "replacement"
    assert run.output["outcome"] == COMPLETE


def test_a_role_that_somebody_else_moved_meanwhile_is_not_moved_again(
    replaces: Callable[..., Run], calls: list[Any]
) -> None:
    replaces(["orders", "files"], []).assert_succeeded()

    assert calls == ["replace", ("orders", "m"), "replace"]


def test_after_a_move_that_came_back_nothing_more_moves_and_nothing_is_replaced(
    replaces: Callable[..., Run], calls: list[Any]
) -> None:
    run = replaces(["orders", "files"], report=RETURNED)

    assert run.state == "ERROR"
    assert run.output["error"]["code"] == "NOT_MOVED"
    assert calls == ["replace", ("orders", "m")]
