# SPDX-License-Identifier: Apache-2.0
"""With a resource that is marked as unhealthy Heat replaces what has it among its properties: a
server, too, that something of the group is on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions.groups import Define
from mistral_failover.actions.orders import Begin, ReplaceMember, Switchover
from mistral_failover.cloud import stack_updates
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.heat_replacements import rows_of
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from support.scaled_groups import SERVER, ScaledGroup, definition, emulated, shared, stack, state
from support.waiting import until

__all__ = ["emulated", "shared", "state"]

_numbers = itertools.count(1)
MEMBER = {
    "heat_template_version": "2021-04-16",
    "resources": {
        "config": {"type": "OS::Heat::TestResource", "properties": {"value": "hello"}},
        "beside": {"type": "OS::Heat::TestResource", "depends_on": "config"},
        "node": {
            "type": "OS::Nova::Server",
            "properties": {**SERVER["properties"], "key_name": {"get_resource": "config"}},
            "depends_on": "beside",
        },
    },
}


@pytest.fixture
def cloud(state: Runtime) -> Cloud:
    """The cloud, as somebody beside the group uses it."""
    return Request(state, ActionContext(SecurityContext(), ExecutionContext())).cloud(Unguarded())


@pytest.fixture
def parts(state: Runtime, emulated: EmulatedCloud, cloud: Cloud) -> ScaledGroup:
    """A group of two, each a stack of its own: a server, and what that is made of."""
    group = ScaledGroup(f"parts{next(_numbers)}", emulated.client, state)
    cloud.heat.stacks.create(
        stack_name=group.name,
        template=stack(2, {"type": "member.yaml", "properties": {}}),
        files={"member.yaml": yaml.safe_dump(MEMBER)},
    )
    until(lambda: cloud.heat.stacks.get(group.name).stack_status == "CREATE_COMPLETE")
    emulated.client.add_application(group.name, start="start", stop="stop", stack=group.name)
    group.done(Define(definition(group.name)))
    group.done(Begin(group.name, lost=[]))
    active = group.active()
    (standby,) = set(group.servers()) - {active}
    group.members = [active, standby]
    return group


@pytest.fixture
def mark(parts: ScaledGroup, cloud: Cloud) -> Callable[..., None]:
    """Have Heat take a part of a member for unhealthy, or not any more."""

    def call(member: str, part: str = "config", unhealthy: bool = True) -> None:
        rows = rows_of(cloud, parts.name)
        (own,) = [row.resource.physical_id for row in rows if row.name == member]
        cloud.heat.resources.mark_unhealthy(own, part, unhealthy, "somebody's check")

    return call


def refused(answer: Any, code: str) -> dict[str, Any]:
    assert isinstance(answer, Result), answer
    assert answer.error["code"] == code
    return dict(answer.error)


def test_whose_replacement_broke_off_takes_no_role_while_its_mark_would_take_the_server(
    parts: ScaledGroup, mark: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    active, standby = parts.members
    server = parts.servers()[standby]

    def broken(*_: Any) -> None:
        raise CloudError("FORBIDDEN", "Heat says no", retryable=False)

    with monkeypatch.context() as patch:
        patch.setattr(stack_updates._UpdateWait, "_update", broken)
        parts.carry(parts.run(ReplaceMember(parts.name, standby, resource="config")))
    assert parts.status()["status"] == "FAILED"

    error = refused(parts.run(Begin(parts.name, lost=[active])), "NO_ELIGIBLE_MEMBER")

    assert "Heat has config of stack" in error["reasons"][standby]
    assert "remove the mark" in error["reasons"][standby]
    mark(standby, unhealthy=False)
    parts.done(Begin(parts.name, lost=[active]))
    assert (parts.status()["status"], parts.active()) == ("COMPLETE", standby)
    assert parts.servers()[standby] == server
    assert server in parts.cloud.guests(), "the server that serves is there"


def test_the_member_whose_part_is_marked_is_replaced_and_then_takes_over(
    parts: ScaledGroup, mark: Callable[..., None]
) -> None:
    active, standby = parts.members
    before = parts.servers()
    mark(standby)

    parts.replace(standby)
    parts.done(Begin(parts.name, lost=[active]))

    assert (parts.status()["status"], parts.active()) == ("COMPLETE", standby)
    assert parts.servers()[standby] != before[standby]


def test_no_update_is_sent_while_a_marked_part_would_take_the_active_server_along(
    parts: ScaledGroup, mark: Callable[..., None]
) -> None:
    active, standby = parts.members
    before = parts.servers()
    mark(active)

    error = refused(parts.run(ReplaceMember(parts.name, standby)), "MEMBER_MARKED")

    assert f"and with config would replace server {before[active]}" in error["message"]
    assert parts.servers() == before


def test_a_mark_that_comes_while_a_failover_is_under_way_costs_the_update_and_not_the_server(
    parts: ScaledGroup, mark: Callable[..., None]
) -> None:
    active, standby = parts.members
    server = parts.servers()[standby]
    begun = parts.run(Begin(parts.name, lost=[active]))
    mark(standby)

    parts.carry(begun)

    assert parts.status()["status"] == "FAILED"
    assert "MEMBER_MARKED" in str(parts.status())
    assert f"database on {standby}" in "\n".join(parts.told())
    assert server in parts.cloud.guests(), "the server that serves is there"


def test_a_marked_part_that_only_comes_before_the_server_takes_nothing_along(
    parts: ScaledGroup, mark: Callable[..., None]
) -> None:
    _, standby = parts.members
    before = parts.servers()
    for member in parts.members:
        mark(member, "beside")

    parts.done(Switchover(parts.name))

    assert (parts.status()["status"], parts.active()) == ("COMPLETE", standby)
    assert parts.servers() == before
