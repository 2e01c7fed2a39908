# SPDX-License-Identifier: Apache-2.0
"""Rungs of the ladder that are workflows of the user's, in a real Mistral."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from mistral_failover.lab.drill import examples
from mistral_failover.lab.emulator.client import EmulatorClient
from support.deployments import create_example, deployed
from support.mistral_process import MistralProcess

pytestmark = pytest.mark.drills

HOUSE = """
version: '2.0'
house.narrow:
  input: [group]
  tasks:
    only:
      action: std.noop
house.slow:
  input: [group, member, servers, because]
  output:
    proof: it came too late
  tasks:
    only:
      action: std.noop
      wait-before: 60
house.refuses:
  input: [group, member, servers, because]
  output-on-error:
    error:
      code: NO_BMC
      message: no BMC answers for <% $.servers.first() %>
  tasks:
    only:
      action: std.fail
house.silent:
  input: [group, member, servers, because]
  tasks:
    only:
      action: std.noop
house.power_off:
  input: [group, member, servers, because]
  output:
    proof: the BMC says that <% $.member %> is off
  tasks:
    only:
      action: std.noop
"""
IN_VAIN = [
    {"workflow": "house.unknown", "limit": 5},
    {"workflow": "house.narrow", "limit": 5},
    {"workflow": "house.slow", "limit": 1},
    {"workflow": "house.refuses", "limit": 5},
    {"workflow": "house.silent", "limit": 5},
]


@pytest.fixture(scope="module")
def scene(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[MistralProcess, EmulatorClient]]:
    with deployed(tmp_path_factory.mktemp("scene")) as (mistral, cloud):
        mistral.client.upload(HOUSE)
        yield mistral, cloud


def fail_over(scene: Any, group: str, ladder: list[Any]) -> dict[str, Any]:
    """Bring a group up, let its active member die; where the group stands then."""
    mistral, cloud = scene
    create_example(cloud, group)
    definition = {**examples.group(1, group), "fence": ladder}
    mistral.client.run_action("failover.define", {"definition": definition, "name": group})
    brought = mistral.client.run("failover.activate_first", {"group": group})
    assert brought["state"] == "SUCCESS", brought
    server = cloud.resources(group)["db_a"]["physical_resource_id"]
    cloud.fault("server", server, "crash")
    mistral.client.run("failover.on_alarm", cloud.alarm_body(server))
    return dict(mistral.client.run_action("failover.status", {"group": group}))


def test_a_workflow_s_proof_lets_the_failover_go_on(scene: Any) -> None:
    status = fail_over(scene, "proven", [*IN_VAIN, {"workflow": "house.power_off", "limit": 10}])

    assert (status["status"], status["roles"]) == ("COMPLETE", {"active": "db_b"})
    (fence,) = [r for r in status["resources"] if r["type"] == "fence"]
    assert fence["attributes"] == {
        "rung": "workflow",
        "observed": "house.power_off: the BMC says that db_a is off",
    }


def test_of_workflows_that_prove_nothing_it_is_told_what_came_of_them(scene: Any) -> None:
    mistral, cloud = scene

    status = fail_over(scene, "unproven", IN_VAIN)

    server = cloud.resources("unproven")["db_a"]["physical_resource_id"]
    assert status["status"] == "BLOCKED"
    for said in (
        r"workflow: house\.unknown: .*Mistral has no workflow",
        r"workflow: house\.narrow: .*Invalid input",
        r"workflow: house\.slow \(execution \S+\) is RUNNING after 1 s, and was stopped;",
        rf"house\.refuses \(execution \S+\) is ERROR: no BMC answers for {server};",
        r"house\.silent \(execution \S+\) is SUCCESS, but its output has no text named proof;",
        r"failover confirm-fenced unproven db_a --because",
    ):
        assert re.search(said, status["reason"]), (said, status["reason"])
    slow = mistral.client.executions(workflow_name="house.slow")
    assert {execution["state"] for execution in slow} == {"CANCELLED"}
    refused = mistral.client.executions(workflow_name="house.refuses")
    because = mistral.client.execution(refused[-1]["id"])["input"]["because"]
    assert because.startswith("db_a is declared lost; workflow: house.unknown: ")
