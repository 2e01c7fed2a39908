# SPDX-License-Identifier: Apache-2.0
"""What an operator is told before and after a confirmation, of a host that stays down: the volume
comes free only with the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions.members import Evidence

ACTIVE = {"get_param": "active"}
WAITS = "waits until you delete the member's server, or the host is back"


def resources(**more: str) -> dict[str, Any]:
    properties = {"volume": "data_volume", "server": ACTIVE, **more}
    return {"data": {"type": "volume_attachment", "properties": properties}}


@pytest.mark.parametrize("deletes", [True, False])
def test_before_the_confirmation_it_is_said_what_comes_next(
    protect: Callable[..., Any], deletes: bool
) -> None:
    group = protect(resources(**({"when_host_is_down": "delete_server"} if deletes else {})))
    group.activate()

    (found,) = group.examined_all("fence")
    context = ActionContext(SecurityContext(), ExecutionContext())
    asked: Any = Evidence(group.name, "db_a").run(context)

    assert (WAITS in found["sentence"]) is not deletes
    assert (WAITS in asked["afterwards"]) is not deletes


def test_a_volume_that_is_not_detached_yet_is_not_taken_for_a_stranger_s(
    protect: Callable[..., Any],
) -> None:
    group = protect(resources(), fence=["confirm"])
    group.activate()
    group.fails("power_off")
    group.run("failover", group=group.name, lost=["db_a"]).assert_failed_with("BLOCKED")
    said = {"group": group.name, "member": "db_a", "because": "its host has no power"}
    group.run("confirm_fenced", **said).assert_failed_with("BLOCKED")

    (found,) = group.examined_all("volumes")

    assert "is still on db_a" in found["sentence"]
    assert "remove volume" not in found["remedy"]
