# SPDX-License-Identifier: Apache-2.0
"""A stack brings its group up and takes it out of service, on a real Mistral with its API."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from mistral_failover.lab.drill import examples
from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.mistral.client import MistralError
from support.deployments import create_example, deployed
from support.mistral_process import MistralProcess

pytestmark = pytest.mark.drills


@dataclass
class Scene:
    """A Mistral with the pack in a process of its own, and the emulated cloud that it acts in."""

    mistral: MistralProcess
    cloud: EmulatorClient

    def action(self, name: str, /, **inputs: Any) -> Any:
        """Run an action through the API."""
        return self.mistral.client.run_action(name, inputs)

    def run(self, workflow: str, /, timeout: float = 30, **inputs: Any) -> dict[str, Any]:
        """Run a workflow to its end; returns the execution."""
        return self.mistral.client.run(workflow, inputs, timeout=timeout)

    def server(self, group: str, member: str) -> str:
        """The id of the server behind a member."""
        return str(self.cloud.resources(group)[member]["physical_resource_id"])


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with deployed(tmp_path_factory.mktemp("scene")) as (mistral, cloud):
        yield Scene(mistral, cloud)


@pytest.fixture
def group(scene: Scene, request: pytest.FixtureRequest) -> str:
    """A stack that no group is defined over yet."""
    name = f"group{abs(hash(request.node.name)) % 10**6}"
    create_example(scene.cloud, name)
    return name


def protect(scene: Scene, group: str, **changes: Any) -> dict[str, Any]:
    definition = examples.group(1, group) | changes
    return scene.run("failover.protect", name=group, definition=definition, timeout=30)


def until_complete(scene: Scene, group: str) -> dict[str, Any]:
    """Wait for the group's goal to be reached; its status."""
    deadline = time.monotonic() + 30
    while True:
        status: dict[str, Any] = scene.action("failover.status", group=group)
        if status["status"] == "COMPLETE" and status["roles"]:
            return status
        assert time.monotonic() < deadline, status
        time.sleep(0.02)


def launched(scene: Scene, group: str) -> list[str]:
    """The executions that bring this group up, on any request."""
    found = scene.mistral.client.executions(workflow_name="failover.activate_first")
    return [row["id"] for row in found if row["input"].get("group") == group]


def test_a_group_is_defined_and_brought_up_without_anybody_waiting_for_it(
    scene: Scene, group: str
) -> None:
    ended = protect(scene, group)

    assert ended["state"] == "SUCCESS"
    assert ended["output"]["group"] == group
    assert until_complete(scene, group)["roles"] == {"active": "db_a"}
    assert ended["output"]["execution"] in launched(scene, group)


def test_a_changed_definition_converges_the_group_and_leaves_who_is_active(
    scene: Scene, group: str
) -> None:
    protect(scene, group)
    until_complete(scene, group)
    scene.run("failover.failover", group=group, to="db_b", lost=[], timeout=30)
    before = until_complete(scene, group)

    definition = examples.group(1, group)
    definition["resources"]["routing"]["properties"]["parameters"] = {"active": "moved"}
    protect(scene, group, resources=definition["resources"])

    deadline = time.monotonic() + 30
    while (after := until_complete(scene, group))["goal"] == before["goal"]:
        assert time.monotonic() < deadline
    assert after["roles"] == {"active": "db_b"}


def test_a_definition_that_is_wrong_ends_in_error_and_says_where(scene: Scene, group: str) -> None:
    ended = protect(scene, group, roles=[])

    assert ended["state"] == "ERROR"
    assert "roles" in ended["output"]["error"]["message"]
    assert group not in scene.action("failover.status")["groups"]


def test_before_the_stack_goes_its_group_goes_out_of_service(scene: Scene, group: str) -> None:
    protect(scene, group)
    until_complete(scene, group)

    ended = scene.run("failover.unprotect", name=group, definition="what it was", timeout=30)

    assert ended["state"] == "SUCCESS"
    assert ended["output"]["outcome"]["status"] == "COMPLETE"
    nodes = scene.cloud.guests()
    servers = [scene.server(group, member) for member in ("db_a", "db_b")]
    assert [nodes[server]["volumes"] for server in servers] == [{}, {}]
    assert [nodes[server]["applications"] for server in servers] == [[], []]


def test_a_dead_member_is_proven_off_before_its_volume_goes(scene: Scene, group: str) -> None:
    protect(scene, group, fence=[{"kind": "quiesce", "limit": 0.2}, "stop"])
    until_complete(scene, group)
    scene.cloud.fault("server", scene.server(group, "db_a"), "crash")

    ended = scene.run("failover.unprotect", name=group, timeout=60)

    assert ended["state"] == "SUCCESS"
    assert scene.cloud.guests()[scene.server(group, "db_a")]["volumes"] == {}


def test_without_a_proof_the_stack_stays(scene: Scene, group: str) -> None:
    protect(scene, group, fence=[{"kind": "quiesce", "limit": 0.2}])
    until_complete(scene, group)
    scene.cloud.fault("server", scene.server(group, "db_a"), "crash")

    ended = scene.run("failover.unprotect", name=group, timeout=60)

    assert ended["state"] == "ERROR"
    assert scene.action("failover.status", group=group)["status"] == "BLOCKED"
    assert scene.cloud.guests()[scene.server(group, "db_a")]["volumes"] != {}


def test_a_group_that_was_never_there_is_out_of_service(scene: Scene) -> None:
    ended = scene.run("failover.unprotect", name="unheard_of", timeout=30)

    assert ended["state"] == "SUCCESS"


@pytest.mark.parametrize("workflow", ["failover._chain", "std.echo", "house.own"])
def test_only_the_pack_s_public_workflows_are_started(scene: Scene, workflow: str) -> None:
    with pytest.raises(MistralError, match=workflow):
        scene.action("failover.launch", workflow=workflow, input={})


def test_nothing_is_started_for_whom_a_repeat_could_not_be_told(scene: Scene) -> None:
    with pytest.raises(MistralError, match="Start failover.sweep itself"):
        scene.action("failover.launch", workflow="failover.sweep", input={})
