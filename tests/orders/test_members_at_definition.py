# SPDX-License-Identifier: Apache-2.0
"""A group file whose members are no servers of its stack is refused when it is given, with what the
stack has instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions import Result

from mistral_failover.actions.groups import Define
from support.scaled_groups import ScaledGroup, definition, emulated, of, shared, state

__all__ = ["emulated", "of", "shared", "state"]

VOLUME = {"type": "OS::Cinder::Volume", "properties": {"size": 1}}
SERVER = {"type": "OS::Nova::Server", "properties": {"image": "tiny", "flavor": "1"}}
ALIASES = {"Own::Node": "own_node.yaml", "Own::Hollow": "own_hollow.yaml"}


def template(**resources: Any) -> dict[str, Any]:
    return {
        "heat_template_version": "2021-04-16",
        "parameters": {"active": {"type": "string", "default": "none"}},
        "resources": resources,
    }


FILES = {"own_node.yaml": template(db=SERVER), "own_hollow.yaml": template(disk=VOLUME)}


@pytest.fixture
def refusal(of: Callable[..., ScaledGroup]) -> Callable[..., Any]:
    """Defines a group with these members; returns the error, or None."""
    group = of(2)
    name = f"{group.name}-deep"
    crew = {"min_size": 1, "max_size": 1, "resource": {"type": "Own::Hollow"}}
    group.cloud.create_stack(
        name,
        template(
            app={"type": "Own::Node"},
            hollow={"type": "Own::Hollow"},
            crew={"type": "OS::Heat::AutoScalingGroup", "properties": crew},
            disk=VOLUME,
        ),
        files=FILES,
        environment={"resource_registry": ALIASES},
    )

    group.cloud.add_application(name, start="start", stop="stop", stack=name)

    def define(stack: str | None = None, **members: Any) -> Any:
        document = definition(name) | {"stack": stack or name, "members": members}
        answer = group.run(Define(document, name=f"{name}-x", dry_run=True))
        return answer.error if isinstance(answer, Result) else None

    return define


@pytest.mark.parametrize(
    ("members", "path", "seen", "remedy"),
    [
        ({"servers": ["disk"]}, "members.servers[0]", "OS::Cinder::Volume", "right type"),
        ({"servers": ["hollow"]}, "members.servers[0]", "disk (OS::Cinder::Volume)", "one server"),
        ({"servers": ["db"]}, "members.servers[0]", "the stack behind app", "Name app"),
        ({"servers": ["unknown"]}, "members.servers[0]", "app, crew, disk, hollow", "Name a"),
        (
            {"autoscaling_group": "crew"},
            "members.autoscaling_group",
            "(Own::Hollow with disk (OS::Cinder::Volume))",
            "one server",
        ),
        ({"autoscaling_group": "app"}, "members.autoscaling_group", "Own::Node", "right type"),
    ],
)
def test_members_that_are_no_servers_are_refused_with_what_the_stack_has(
    refusal: Callable[..., Any], members: dict[str, Any], path: str, seen: str, remedy: str
) -> None:
    error = refusal(**members)
    assert error["code"] == "INVALID_DOCUMENT"
    assert error["message"].startswith(f"{path}: ")
    assert seen in error["message"]
    assert remedy in error["remedy"]


def test_a_member_that_is_a_stack_with_a_server_is_accepted(refusal: Callable[..., Any]) -> None:
    assert refusal(servers=["app"]) is None


def test_a_stack_that_does_not_exist_yet_prevents_no_definition(
    refusal: Callable[..., Any],
) -> None:
    assert refusal("not-yet", servers=["db_a"]) is None
