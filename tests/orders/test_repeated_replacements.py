# SPDX-License-Identifier: Apache-2.0
"""What is asked twice, comes too late, failed, or whose process died replaces no member twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions.orders import Begin, ReplaceMember
from mistral_failover.cloud import stack_updates
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.stack_updates import Replacement
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.fault_points import arm, disarm
from mistral_failover.groups import refresh_members
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from support.injected_faults import Injected
from support.scaled_groups import ScaledGroup, emulated, of, shared, state

__all__ = ["emulated", "of", "shared", "state"]


def test_the_same_execution_again_replaces_no_member_twice(of: Callable[..., ScaledGroup]) -> None:
    group = of(2)
    standby = group.members[1]
    begun = group.done(ReplaceMember(group.name, standby), "again")
    server = group.servers()[standby]

    for _ in range(2):
        repeated = group.done(ReplaceMember(group.name, standby), "again")
        assert repeated["traversal"] == begun["traversal"]
        assert repeated["server"] == begun["server"]

    assert group.servers()[standby] == server


def test_a_server_that_went_already_is_not_replaced_again(of: Callable[..., ScaledGroup]) -> None:
    group = of(2)
    standby = group.members[1]
    begun = group.replace(standby)
    server = group.servers()[standby]

    again = group.done(ReplaceMember(group.name, standby, begun["server"]))

    assert (again["workflow"], again["moves"], again["traversal"]) == (None, [], None)
    assert f"it is now server {server}" in again["sentence"]


def test_one_that_somebody_else_replaced_meanwhile_is_only_noted(
    of: Callable[..., ScaledGroup], state: Runtime
) -> None:
    group = of(2)
    standby = group.members[1]
    former = group.servers()[standby]
    begun = group.run(ReplaceMember(group.name, standby))
    context = ActionContext(SecurityContext(), ExecutionContext())
    made = stack_updates.replace_member(
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


def _no_room(*given: Any, **more: Any) -> Any:
    raise CloudError("STACK_FAILED", "no room")


def test_a_replacement_that_failed_is_taken_up_by_the_next_goal_or_dropped_by_a_person_s_word(
    of: Callable[..., ScaledGroup], monkeypatch: pytest.MonkeyPatch
) -> None:
    group = of(2)
    standby = group.members[1]
    former = group.servers()[standby]
    with monkeypatch.context() as patch:
        patch.setattr(stack_updates, "replace_member", _no_room)
        group.replace(standby)
        assert group.status()["status"] == "FAILED"
        group.done(Begin(group.name, lost=[], recovered=[standby]))
        assert group.status()["status"] == "COMPLETE"
        group.replace(standby)

    group.done(Begin(group.name, lost=[]))

    assert group.status()["status"] == "COMPLETE"
    assert group.servers()[standby] != former


@pytest.mark.parametrize("named", [True, False])
def test_a_standby_whose_replacement_failed_takes_over_all_the_same_and_keeps_its_server(
    of: Callable[..., ScaledGroup], monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    group = of(3 if named else 2)
    first, standby = group.members[:2]
    former = group.servers()[standby]
    with monkeypatch.context() as patch:
        patch.setattr(stack_updates, "replace_member", _no_room)
        group.replace(standby)
    group.breaks(first)

    group.done(Begin(group.name, lost=[first], to=standby if named else None))

    assert (group.status()["status"], group.active()) == ("COMPLETE", standby)
    assert group.servers()[standby] == former


def test_another_standby_takes_over_before_the_one_whose_replacement_failed(
    of: Callable[..., ScaledGroup], monkeypatch: pytest.MonkeyPatch
) -> None:
    group = of(3)
    first, *standbys = group.members
    with monkeypatch.context() as patch:
        patch.setattr(stack_updates, "replace_member", _no_room)
        group.replace(standbys[0])
    group.breaks(first)

    group.done(Begin(group.name, lost=[first]))

    assert group.active() == standbys[1]
    assert group.epochs()[1] == 2, "it was replaced in the same traversal"


def test_no_role_comes_to_a_member_while_heat_is_at_work_on_its_replacement(
    of: Callable[..., ScaledGroup], monkeypatch: pytest.MonkeyPatch
) -> None:
    group = of(2)
    first, standby = group.members
    answers = []

    def fail_over(*given: Any, **more: Any) -> Any:
        answers.append(group.run(Begin(group.name, lost=[first])))
        raise CloudError("STACK_FAILED", "no room")

    monkeypatch.setattr(stack_updates, "replace_member", fail_over)
    group.replace(standby)

    assert answers[0].error["code"] == "NO_ELIGIBLE_MEMBER"
    assert f"Heat is replacing {standby}" in answers[0].error["remedy"]
    assert f"--recovered {standby}" in answers[0].error["remedy"]


def test_a_member_without_a_server_for_a_moment_stays_lost_and_is_replaced(
    of: Callable[..., ScaledGroup], monkeypatch: pytest.MonkeyPatch
) -> None:
    group = of(3)
    first = group.members[0]
    group.breaks(first)
    with monkeypatch.context() as patch:
        patch.setattr(stack_updates, "replace_member", _no_room)
        group.replace(first)
        look = refresh_members.members_now
        patch.setattr(
            refresh_members,
            "members_now",
            lambda *given: [m for m in look(*given) if m.name != first],
        )
        derived = group.run(Begin(group.name, lost=[]))
    assert derived["lost"] == [first]

    group.carry(derived)

    assert (group.status()["status"], group.status()["lost"]) == ("COMPLETE", [])
    assert group.epochs()[0] == 3, "fenced, then replaced"


def test_a_member_that_left_for_good_is_let_go_by_a_person_s_word(
    of: Callable[..., ScaledGroup], monkeypatch: pytest.MonkeyPatch
) -> None:
    group = of(3)
    standby = group.members[1]

    def gone(*given: Any, **more: Any) -> Any:
        raise CloudError("NOT_FOUND", "it is not there")

    monkeypatch.setattr(stack_updates, "replace_member", gone)
    group.replace(standby)
    assert f"--recovered {standby}" in str(group.status())
    look = refresh_members.members_now
    monkeypatch.setattr(
        refresh_members,
        "members_now",
        lambda *given: [m for m in look(*given) if m.name != standby],
    )

    group.done(Begin(group.name, lost=[], recovered=[standby]))

    assert group.status()["status"] == "COMPLETE"


@pytest.mark.parametrize("named", [True, False])
def test_an_execution_whose_process_died_before_the_link_goes_on_with_the_member_it_chose(
    of: Callable[..., ScaledGroup], monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    group = of(3)
    before = group.servers()
    broken = group.members[2]
    group.breaks(broken)
    wish = ReplaceMember(group.name, broken if named else None)

    def die(point: str) -> None:
        if point == "link.before":
            raise Injected("the traversal is not linked to its order")

    arm(die)
    try:
        assert isinstance(group.run(wish, f"died-{named}"), Result)
    finally:
        disarm()

    again = group.done(wish, f"died-{named}")
    assert (again["member"], again["server"]) == (broken, before[broken])
    assert group.status()["status"] == "COMPLETE"
    assert group.done(wish, f"died-{named}")["traversal"] == again["traversal"]

    after = group.servers()
    assert [name for name in before if after[name] != before[name]] == [broken]


def test_an_order_that_was_refused_may_be_given_again_by_its_execution(
    of: Callable[..., ScaledGroup],
) -> None:
    group = of(3)
    standby = group.members[1]
    group.run(Begin(group.name, lost=[]))  # it is not at rest
    wish = ReplaceMember(group.name, standby)

    assert group.run(wish, "refused-once").error["code"] == "NOT_COMPLETE"
    group.done(Begin(group.name, lost=[]))

    assert group.done(wish, "refused-once")["member"] == standby
    assert group.status()["status"] == "COMPLETE"


def test_a_group_that_is_not_at_rest_replaces_no_healthy_member(
    of: Callable[..., ScaledGroup],
) -> None:
    group = of(2)
    group.run(ReplaceMember(group.name, group.members[1]))

    refused = group.run(ReplaceMember(group.name, group.members[1]))

    assert refused.error["code"] == "NOT_COMPLETE"


@pytest.mark.parametrize("at", ["before", "after"])
def test_a_process_that_dies_around_the_new_epoch_leaves_it_to_the_next_to_tell_the_former_agent(
    of: Callable[..., ScaledGroup], monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    group = of(2)
    standby = group.members[1]
    former = group.servers()[standby]
    told: list[tuple[str, str | None, int]] = []
    deaths = [at]

    def dies(here: str) -> bool:
        return here in deaths and deaths.pop() == here

    def depose(request: Any, cloud: Any, snapshot: Any, replaced: Any) -> None:
        if replaced and dies("after"):
            raise Injected("the epoch is raised, and no agent was told")
        told.extend((one.name, one.server_id, one.epoch) for one in replaced)

    def die(point: str) -> None:
        if point == "replaced.before" and dies("before"):
            raise Injected("the new server was not seen")

    monkeypatch.setattr(refresh_members, "depose", depose)
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
    of: Callable[..., ScaledGroup], monkeypatch: pytest.MonkeyPatch
) -> None:
    group = of(2)
    standby = group.members[1]
    server = group.servers()[standby]
    asked = []

    def replaced(cloud: Any, stack: str, member: str, **more: Any) -> Replacement:
        asked.append((member, more["resource"], more["server_id"], more["reason"]))
        return Replacement(server, server, "UPDATE_COMPLETE", adopted=False)

    monkeypatch.setattr(stack_updates, "replace_member", replaced)

    for _ in range(2):
        group.done(ReplaceMember(group.name, standby, resource="port"))

    assert [each[:3] for each in asked] == [(standby, "port", server)] * 2
    assert asked[0][3] != asked[1][3], "by its reason a repeat knows its own mark"
    assert group.epochs() == [1, 1]
