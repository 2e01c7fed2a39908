# SPDX-License-Identifier: Apache-2.0
"""Heat replaces a member that is marked as unhealthy at any update; so none is sent that would take
the server of a member that carries something of the group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions.members import NextMember
from mistral_failover.actions.orders import Begin, ReplaceMember, Switchover
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.stacks import stack_map
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.convergence.records import Record
from mistral_failover.groups.kept_parts import servers_of
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.store.groups import MemberRow
from support.scaled_groups import ScaledGroup, emulated, of, shared, state

__all__ = ["emulated", "of", "shared", "state"]

ROLES = ["active", "files"]
TWO_ROLES = {
    "roles": ROLES,
    "resources": {
        name: {
            "type": "activation",
            "properties": {"member": {"get_param": name}, "start": "start", "stop": "stop"},
        }
        for name in ROLES
    }
    | {
        "routing": {
            "type": "stack_parameters",
            "depends_on": ROLES,
            "properties": {"parameters": {"active": {"get_param": "files"}}},
        }
    },
}


@pytest.fixture
def cloud(state: Runtime) -> Cloud:
    """The cloud, as somebody beside the group uses it."""
    return Request(state, ActionContext(SecurityContext(), ExecutionContext())).cloud(Unguarded())


@pytest.fixture
def mark(cloud: Cloud) -> Callable[..., None]:
    """Have Heat take a member for unhealthy, or not any more."""

    def call(group: ScaledGroup, member: str, unhealthy: bool = True) -> None:
        nodes = stack_map(cloud, group.name)["nodes"].physical_id
        cloud.heat.resources.mark_unhealthy(nodes, member, unhealthy, "somebody's check")

    return call


def refused(answer: Any) -> dict[str, Any]:
    assert isinstance(answer, Result), answer
    assert answer.error["code"] == "MEMBER_MARKED"
    return dict(answer.error)


def test_no_standby_is_replaced_while_the_active_member_is_marked(
    of: Callable[..., ScaledGroup], mark: Callable[..., None], cloud: Cloud
) -> None:
    group = of(3)
    active, standby = group.members[:2]
    before = group.servers()
    mark(group, active)

    error = refused(group.run(ReplaceMember(group.name, standby)))

    nodes = stack_map(cloud, group.name)["nodes"].physical_id
    assert before[active] in error["message"]
    assert f"failover replace {group.name} {active}" in error["remedy"]
    assert f"mark unhealthy --reset {nodes} {active}" in error["remedy"]
    assert group.servers() == before


def test_a_mark_that_comes_while_a_replacement_is_under_way_stops_it_and_harms_no_member(
    of: Callable[..., ScaledGroup], mark: Callable[..., None]
) -> None:
    group = of(3)
    active, standby = group.members[:2]
    before = group.servers()
    begun = group.run(ReplaceMember(group.name, standby))
    mark(group, active)

    group.carry(begun)

    assert group.status()["status"] == "FAILED"
    assert "MEMBER_MARKED" in str(group.status())
    mark(group, active, False)
    group.done(Begin(group.name, lost=[]))
    after = group.servers()
    assert group.status()["status"] == "COMPLETE"
    assert (after[active], group.active()) == (before[active], active)
    assert after[standby] != before[standby], "what was wanted is done once nothing is marked"


def test_the_marked_member_itself_is_fenced_and_replaced(
    of: Callable[..., ScaledGroup], mark: Callable[..., None]
) -> None:
    group = of(3)
    active = group.members[0]
    before = group.servers()
    mark(group, active)

    assert group.done(NextMember(group.name))["member"] == active, "before any other one"
    group.replace(active)

    after = group.servers()
    assert group.status()["status"] == "COMPLETE"
    assert [name for name in before if after[name] != before[name]] == [active]
    assert group.active() != active
    assert f"Stop database on {active}: done" in group.told()


def test_another_role_is_not_moved_by_plan_while_a_holder_is_marked(
    of: Callable[..., ScaledGroup], mark: Callable[..., None]
) -> None:
    group = of(3, **TWO_ROLES)
    roles = group.status()["roles"]
    assert roles["active"] != roles["files"]
    (spare,) = set(group.members) - set(roles.values())
    mark(group, roles["active"])

    refused(group.run(Switchover(group.name, role="files", to=spare)))

    assert group.status()["roles"] == roles


def test_a_failover_s_update_spares_a_marked_holder_of_another_role(
    of: Callable[..., ScaledGroup], mark: Callable[..., None]
) -> None:
    group = of(3, **TWO_ROLES)
    roles = group.status()["roles"]
    before = group.servers()
    mark(group, roles["active"])

    group.done(Begin(group.name, lost=[roles["files"]]))

    assert group.status()["status"] == "FAILED"
    assert group.servers() == before
    assert group.status()["roles"]["active"] == roles["active"]
    mark(group, roles["active"], False)
    group.done(Begin(group.name, lost=[]))
    assert group.status()["status"] == "COMPLETE"
    assert group.servers() == before


def test_a_lost_member_that_an_alarm_marked_holds_no_failover_up(
    of: Callable[..., ScaledGroup], mark: Callable[..., None]
) -> None:
    group = of(2)
    first, second = group.members
    group.breaks(first)
    mark(group, first)

    group.done(Begin(group.name, lost=[first]))

    assert (group.status()["status"], group.active()) == ("COMPLETE", second)


def _record(name: str, member: str | None = None, epoch: int = 1, **more: Any) -> Record:
    given = {"action": "CREATE", "status": "COMPLETE", **more}
    return Record(name, "g", name, "any", member, epoch, **given)


DB_A = {"db_a": MemberRow("db_a", "s-a", 1.0, 2, None)}


@pytest.mark.parametrize(
    ("records", "kept"),
    [
        ([], {}),
        ([_record("routing")], {}),
        ([_record("data", "db_a", 2)], {"s-a": "db_a"}),
        ([_record("data", "db_a", 2, action="INIT")], {}),
        ([_record("data", "db_a", 2, attributes={"server_id": "old"})], {"old": "db_a"}),
        ([_record("data", "db_a", 1), _record("fence:db_a")], {}),
        ([_record("data", "db_a", 2), _record("fence:db_a")], {"s-a": "db_a"}),
        (
            [_record("data", "db_a", 1), _record("fence:db_a", status="IN_PROGRESS")],
            {"s-a": "db_a"},
        ),
        (
            [_record("data", "db_a"), _record("fence:db_a"), _record("fence:db_a", action="INIT")],
            {"s-a": "db_a"},
        ),
        ([_record("data", "gone", 2)], {}),
    ],
)
def test_who_carries_something_and_is_not_proven_fenced_keeps_its_server(
    records: list[Record], kept: dict[str, str]
) -> None:
    assert servers_of(records, DB_A) == kept
