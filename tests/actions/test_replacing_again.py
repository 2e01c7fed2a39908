# SPDX-License-Identifier: Apache-2.0
"""What is asked twice, comes too late, failed, or whose process died replaces nobody twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import new_servers, starting
from mistral_failover.actions.converge import Begin
from mistral_failover.actions.replacing import ReplaceMember
from mistral_failover.actions.runtime import Request, Runtime
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.guard import Unguarded
from mistral_failover.cloud.replacements import Replacement
from mistral_failover.fault_points import arm, disarm
from support.armed import Injected
from support.shops import Shop, emulated, of, shared, state

__all__ = ["emulated", "of", "shared", "state"]


def test_the_same_execution_again_replaces_nobody_twice(of: Callable[..., Shop]) -> None:
    group = of(2)
    standby = group.members[1]
    begun = group.done(ReplaceMember(group.name, standby), "again")
    server = group.servers()[standby]

    for _ in range(2):
        repeated = group.done(ReplaceMember(group.name, standby), "again")
        assert repeated["traversal"] == begun["traversal"]
        assert repeated["server"] == begun["server"]

    assert group.servers()[standby] == server


def test_a_server_that_went_already_is_not_replaced_again(of: Callable[..., Shop]) -> None:
    group = of(2)
    standby = group.members[1]
    begun = group.replace(standby)
    server = group.servers()[standby]

    again = group.done(ReplaceMember(group.name, standby, begun["server"]))

    assert (again["ready"], again["moves"], again["traversal"]) == ([], [], None)
    assert f"it is server {server}" in again["sentence"]


def test_one_that_somebody_else_replaced_meanwhile_is_only_noted(
    of: Callable[..., Shop], state: Runtime
) -> None:
    group = of(2)
    standby = group.members[1]
    former = group.servers()[standby]
    begun = group.run(ReplaceMember(group.name, standby))
    context = ActionContext(SecurityContext(), ExecutionContext())
    made = new_servers.replace_by_heat(
        Request(state, context).cloud(Unguarded()),
        group.name,
        standby,
        autoscaling_group="nodes",
        resource=None,
        server_id=former,
        reason="somebody else",
        limit=30,
    )

    group.carry(begun)

    assert group.status()["status"] == "COMPLETE"
    assert group.servers()[standby] == made.server
    assert group.epochs()[1] == 2


def test_a_replacement_that_failed_is_taken_up_by_the_next_goal_or_dropped_by_a_person_s_word(
    of: Callable[..., Shop], monkeypatch: pytest.MonkeyPatch
) -> None:
    group = of(2)
    first, standby = group.members
    former = group.servers()[standby]
    with monkeypatch.context() as patch:

        def fail(*given: Any, **more: Any) -> Any:
            raise CloudError("STACK_FAILED", "no room")

        patch.setattr(new_servers, "replace_by_heat", fail)
        group.replace(standby)
        assert group.status()["status"] == "FAILED"
        refused = group.run(Begin(group.name, lost=[first]))
        assert "its server is to be replaced" in str(refused.error["reasons"])
        group.done(Begin(group.name, lost=[], recovered=[standby]))
        assert group.status()["status"] == "COMPLETE"
        group.replace(standby)

    group.done(Begin(group.name, lost=[]))

    assert group.status()["status"] == "COMPLETE"
    assert group.servers()[standby] != former


def test_a_group_that_is_not_at_rest_replaces_nobody_who_is_well(
    of: Callable[..., Shop],
) -> None:
    group = of(2)
    group.run(ReplaceMember(group.name, group.members[1]))

    refused = group.run(ReplaceMember(group.name, group.members[1]))

    assert refused.error["code"] == "NOT_COMPLETE"


@pytest.mark.parametrize("at", ["before", "after"])
def test_whoever_dies_around_the_new_epoch_leaves_it_to_the_next_to_tell_the_former_agent(
    of: Callable[..., Shop], monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    group = of(2)
    standby = group.members[1]
    former = group.servers()[standby]
    told: list[tuple[str, str | None, int]] = []
    deaths = [at]

    def dies(here: str) -> bool:
        return here in deaths and deaths.pop() == here

    def depose(request: Any, cloud: Any, stands: Any, replaced: Any) -> None:
        if replaced and dies("after"):
            raise Injected("the epoch is raised, and nobody was told")
        told.extend((one.name, one.server_id, one.epoch) for one in replaced)

    def die(point: str) -> None:
        if point == "replaced.before" and dies("before"):
            raise Injected("nobody has seen the new server")

    monkeypatch.setattr(starting, "depose", depose)
    arm(die)
    try:
        group.replace(standby)
    finally:
        disarm()
    assert group.status()["status"] == "FAILED"
    told.clear()

    group.done(Begin(group.name, lost=[]))

    assert group.status()["status"] == "COMPLETE"
    assert told[-1] == (standby, former, 2)
    assert group.epochs()[1] == 2


def test_only_a_resource_of_the_member_may_be_replaced_again_and_again(
    of: Callable[..., Shop], monkeypatch: pytest.MonkeyPatch
) -> None:
    group = of(2)
    standby = group.members[1]
    server = group.servers()[standby]
    asked = []

    def replaced(cloud: Any, stack: str, member: str, **more: Any) -> Replacement:
        asked.append((member, more["resource"], more["server_id"], more["reason"]))
        return Replacement(server, server, "UPDATE_COMPLETE", adopted=False)

    monkeypatch.setattr(new_servers, "replace_by_heat", replaced)

    for _ in range(2):
        group.done(ReplaceMember(group.name, standby, resource="port"))

    assert [each[:3] for each in asked] == [(standby, "port", server)] * 2
    assert asked[0][3] != asked[1][3], "by its reason a repeat knows its own mark"
    assert group.epochs() == [1, 1]
