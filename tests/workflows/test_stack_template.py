# SPDX-License-Identifier: Apache-2.0
"""A group gives its stack the template that its role chooses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import recovery
from support.operators import Operator
from support.volume_group import ACTIVE, DATA

DATABASE = {
    "type": "activation",
    "depends_on": "data",
    "properties": {"member": ACTIVE, "start": "start", "stop": "stop"},
}


class Shapes:
    """Templates of one stack, a text for each member."""

    def __init__(self) -> None:
        self.base: dict[str, Any] = {}

    def remember(self, stack: dict[str, Any]) -> dict[str, Any]:
        """Keep the template that the stack is made of."""
        self.base = json.loads(json.dumps(stack))
        return stack

    def of(self, member: str, without: str | None = None) -> dict[str, Any]:
        """The template with a resource that names the member; ``without`` another one."""
        shape: dict[str, Any] = json.loads(json.dumps(self.base))
        shape["resources"]["sign"] = {
            "type": "OS::Heat::TestResource",
            "properties": {"value": member},
        }
        shape["resources"].pop(without, None)
        return shape


@pytest.fixture
def shaped(protect: Callable[..., Any]) -> Callable[..., Any]:
    """Make a group that gives its stack a template by its role: after its database, or nothing but
    that (``alone``)."""

    def make(alone: bool = False, **without: str) -> Any:
        shapes = Shapes()
        resources: dict[str, Any] = {}  # complete when the stack's template is known

        def template(made: dict[str, Any]) -> dict[str, Any]:
            shapes.remember(made)
            texts = {m: yaml.safe_dump(shapes.of(m, without.get(m))) for m in ("db_a", "db_b")}
            shape: dict[str, Any] = {
                "type": "stack_template",
                "properties": {"templates": texts, "use": ACTIVE},
            }
            if not alone:
                shape["depends_on"] = "database"
                resources.update(data=DATA, database=DATABASE)
            resources["shape"] = shape
            return made

        return protect(
            resources, template=template, fence=[{"kind": "stop", "limit": 1}, "confirm"]
        )

    return make


def sign(group: Any) -> str:
    """The member that the stack's template names."""
    row = group.cloud.template(group.name)["resources"].get("sign", {"properties": {"value": ""}})
    return str(row["properties"]["value"])


def test_the_stack_has_the_template_of_the_active_member(shaped: Callable[..., Any]) -> None:
    group = shaped()
    assert group.activate()["status"] == "COMPLETE"
    assert sign(group) == "db_a"

    group.run("switchover", group=group.name).assert_succeeded()

    assert sign(group) == "db_b"
    assert group.runs_on() == group.holders() == ["db_b"]

    group.run("rollback", group=group.name, because="db_a was better").assert_succeeded()

    assert sign(group) == "db_a"
    assert group.runs_on() == ["db_a"]


def test_a_template_that_depends_on_nothing_waits_for_the_fence_of_a_lost_member(
    shaped: Callable[..., Any],
) -> None:
    """It may move a volume by itself."""
    group = shaped(alone=True)
    group.activate()
    group.fails("power_off")

    group.run("failover", group=group.name)

    assert group.status()["traversal"]["status"] == "BLOCKED"
    assert sign(group) == "db_a", "nothing is proven"

    said = {"group": group.name, "member": "db_a", "because": "its power is off"}
    group.run("confirm_fenced", **said).assert_succeeded()
    assert sign(group) == "db_b"


def test_a_template_without_the_active_member_is_refused(shaped: Callable[..., Any]) -> None:
    group = shaped(db_b="db_b")
    group.activate()
    server = group.server("db_b")

    run = group.run("switchover", group=group.name)

    assert run.state == "ERROR"
    assert "TEMPLATE_REPLACES" in str(group.status()) + str(run.output)
    assert group.server("db_b") == server
    assert sign(group) == "db_a"


def observe(group: Any) -> tuple[str, list[str]]:
    """Look at the group now; whether it serves, and why not."""
    context = ActionContext(SecurityContext(), ExecutionContext())
    assert isinstance(recovery.Observe(group.name).run(context), list)
    service = group.status()["service"]
    return service["status"], service["reasons"]


def test_a_template_that_the_owner_of_the_stack_gave_it_is_seen_until_it_is_the_chosen_one_again(
    shaped: Callable[..., Any],
) -> None:
    group = shaped()
    group.activate()
    assert observe(group) == ("SERVING", [])
    chosen = group.cloud.template(group.name)
    other = json.loads(json.dumps(chosen))
    other["resources"]["sign"]["properties"]["value"] = "by hand"
    owner = Operator(group.cloud)

    owner.update_template(group.name, other)

    reason = f"shape: stack {group.name} has another template than the group chose"
    assert observe(group) == ("DEGRADED", [reason])
    assert group.runs_on() == ["db_a"]

    owner.update_template(group.name, chosen)
    assert observe(group) == ("SERVING", [])
