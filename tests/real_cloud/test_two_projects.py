# SPDX-License-Identifier: Apache-2.0
"""Two projects on one Mistral: the same names, and nothing in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from testcloud.errors import CloudError
from testcloud.tenant import ProtectedStack, Tenant

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def ours(protect: Callable[..., ProtectedStack]) -> ProtectedStack:
    """A stack of demo's."""
    return protect()


def body(server: str) -> dict[str, Any]:
    """An alarm about a server, as Aodh posts it."""
    event = {"message_id": f"about-{server}", "traits": [["instance_id", 1, server]]}
    return {
        "alarm_name": "server_lost",
        "alarm_id": "a1",
        "severity": "low",
        "previous": "ok",
        "current": "alarm",
        "reason": "an event",
        "reason_data": {"type": "event", "event": event},
    }


def test_a_project_s_groups_do_not_exist_for_another(ours: ProtectedStack, other: Tenant) -> None:
    assert ours.name not in other.action("failover.status")["groups"]
    for action in ("status", "history", "goals", "plan"):
        with pytest.raises(CloudError, match="UNKNOWN_GROUP"):
            other.action(f"failover.{action}", group=ours.name)


@pytest.mark.parametrize("workflow", ["failover", "rollback", "remove", "activate_first"])
def test_no_user_moves_another_project_s_group(
    workflow: str, ours: ProtectedStack, other: Tenant
) -> None:
    before = ours.status()["traversal"]

    ended = other.run(f"failover.{workflow}", group=ours.name)

    assert ended["state"] == "ERROR"
    assert ended["output"]["error"]["code"] == "UNKNOWN_GROUP"
    assert ours.status()["traversal"] == before


def test_another_project_s_alarm_about_a_server_of_ours_moves_nothing(
    ours: ProtectedStack, other: Tenant
) -> None:
    before = ours.status()
    server = ours.servers()[before["roles"]["active"]]

    for group in ({}, {"group": ours.name}):
        ended = other.run("failover.on_alarm", **body(server), **group)
        assert ended["output"]["admission"]["decision"] != "ADMITTED"

    after = ours.status()
    assert (after["traversal"], after["incidents"]) == (before["traversal"], before["incidents"])


def test_an_execution_is_not_there_for_another_project(ours: ProtectedStack, other: Tenant) -> None:
    mine = ours.tenant.executions("failover.activate_first")

    assert mine
    with pytest.raises(CloudError, match="MISTRAL"):
        other.execution(mine[0]["id"])


def test_two_groups_of_one_name_live_side_by_side(
    other: Tenant, protect: Callable[..., ProtectedStack]
) -> None:
    # A stack of its own: the name of `ours` must stay unheard of in the other project.
    mine = protect()
    theirs = protect(tenant=other, name=mine.name)
    home = theirs.active()

    to = next(member for member in mine.servers() if member != mine.active())
    ended = mine.tenant.run("failover.failover", group=mine.name, to=to, lost=[])

    assert ended["state"] == "SUCCESS", ended["output"]
    assert mine.active() == to
    assert theirs.active() == home
    assert theirs.tenant.holders(theirs.volume()) == [theirs.servers()[str(home)]]
