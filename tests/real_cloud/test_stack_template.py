# SPDX-License-Identifier: Apache-2.0
"""A group whose volumes Heat moves: its stack gets another template, whose attachments name the
other server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from support.cloud_audit import CloudAudit
from testcloud import templates
from testcloud.tenant import Tenant

pytestmark = pytest.mark.timeout(600)
MEMBERS = ("db_a", "db_b")
SHAPES = {member: templates.attached_to(member) for member in MEMBERS}


@dataclass(frozen=True)
class Shaped:
    """A stack with two templates, and its group."""

    tenant: Tenant
    name: str

    def ordered(self, verb: str, **inputs: Any) -> dict[str, Any]:
        """Give an order; its execution, which must end well."""
        done = self.tenant.run(f"failover.{verb}", group=self.name, limit=300, **inputs)
        assert done["state"] == "SUCCESS", done["output"]
        return done

    def servers(self) -> dict[str, str]:
        """The server's id of each member."""
        outputs = self.tenant.outputs(self.name)
        return {member: str(outputs[member]) for member in MEMBERS}

    def holders(self) -> list[str]:
        """The members that have the volume, by Cinder."""
        (volume,) = self.tenant.outputs(self.name)["volumes"]
        members = {server: member for member, server in self.servers().items()}
        return [members[server] for server in self.tenant.holders(volume)]

    def shape(self) -> str:
        """The member whose template the stack has, by Heat."""
        stack = self.tenant.stack(self.name)
        shown = self.tenant.cloud.orchestration.get(f"/stacks/{stack.name}/{stack.id}/template")
        resources = shown.json()["resources"]
        return str(resources["attachment1"]["properties"]["instance_uuid"]["get_resource"])

    def is_on(self, member: str) -> None:
        """Assert that the goal, Heat's template and the volume name this member."""
        status = self.tenant.action("failover.status", group=self.name)
        assert (status["status"], status["roles"]) == ("COMPLETE", {"active": member})
        assert (self.shape(), self.holders()) == (member, [member])


@pytest.fixture(scope="module")
def shaped(demo: Tenant, audited: CloudAudit) -> Iterator[Shaped]:
    """The stack on db_a, and its group, brought up there."""
    made = Shaped(demo, f"shaped-{os.getpid()}")
    audited.watch(demo, made.name)
    demo.create_stack(made.name, SHAPES["db_a"])
    definition = {
        "failover_template_version": "2026-11-21",
        "stack": made.name,
        "members": {"servers": list(MEMBERS)},
        "roles": ["active"],
        "resources": {
            "shape": {
                "type": "stack_template",
                "properties": {"templates": SHAPES, "use": {"get_param": "active"}},
            }
        },
        "fence": ["stop", "confirm"],
        "limits": {"cooldown": 0, "per_hour": 1000},
    }
    demo.action("failover.define", definition=definition, name=made.name)
    yield made
    demo.run("failover.remove", group=made.name)
    demo.delete_stack(made.name)


def test_the_volume_moves_with_the_template_and_comes_back_by_a_rollback(shaped: Shaped) -> None:
    shaped.ordered("activate_first", to="db_a")  # otherwise the oldest, in whole seconds
    shaped.is_on("db_a")
    servers = shaped.servers()

    shaped.ordered("switchover")
    shaped.is_on("db_b")
    assert shaped.servers() == servers

    shaped.ordered("rollback", because="db_a was better")
    shaped.is_on("db_a")
    assert shaped.servers() == servers
