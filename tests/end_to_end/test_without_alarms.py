# SPDX-License-Identifier: Apache-2.0
"""A real Mistral that looks at its groups by itself: what it sees and heals without any alarm."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mistral_failover.lab.drill import examples
from mistral_failover.lab.emulator.client import EmulatorClient
from support.deployments import create_example, deployed
from support.mistral_process import MistralProcess
from support.operators import Operator

pytestmark = pytest.mark.drills

INTERVAL = 1.0  # seconds between two looks at a group


@pytest.fixture(scope="module")
def deployment(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[MistralProcess, EmulatorClient]]:
    folder = tmp_path_factory.mktemp("deployed")
    with deployed(
        folder, sweep=True, observe_interval=INTERVAL, sweep_interval=0.5, sweep_after=1
    ) as both:
        yield both


@pytest.fixture
def serving(
    deployment: tuple[MistralProcess, EmulatorClient], request: pytest.FixtureRequest
) -> Callable[..., str]:
    """Bring a group up; returns its name."""
    mistral, cloud = deployment

    def make(**more: Any) -> str:
        name = request.node.name.replace("_", "-")[:40]
        create_example(cloud, name)
        definition = examples.group(1, name) | more
        given = {"definition": definition, "name": name}
        mistral.client.run_action("failover.define", given)
        mistral.client.run("failover.activate_first", {"group": name}, timeout=60)
        return name

    return make


def until(
    mistral: MistralProcess, group: str, condition: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Wait until the group's status is so; returns it."""
    deadline = time.monotonic() + 180
    while True:
        found: dict[str, Any] = mistral.client.run_action("failover.status", {"group": group})
        if condition(found):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


def test_the_death_of_the_active_server_is_a_failover_although_every_alarm_is_lost(
    deployment: tuple[MistralProcess, EmulatorClient], serving: Callable[..., str]
) -> None:
    mistral, cloud = deployment
    before = len(cloud.violations())  # by those who change what other groups of this cloud have
    group = serving(heal="failover")
    server = str(cloud.resources(group)["db_a"]["physical_resource_id"])
    begun = time.monotonic()
    Operator(cloud).stop_server(server)

    found = until(
        mistral,
        group,
        lambda s: s["roles"] == {"active": "db_b"} and s["status"] == "COMPLETE",
    )

    print(f"from the stop to the goal: {time.monotonic() - begun:.1f} s, looks every {INTERVAL} s")
    assert found["lost"] == ["db_a"]
    assert cloud.violations()[before:] == []


def test_drift_that_the_servers_own_look_sees_first_is_repaired_and_by_a_sweep_at_once(
    deployment: tuple[MistralProcess, EmulatorClient], serving: Callable[..., str]
) -> None:
    mistral, cloud = deployment
    operator = Operator(cloud)
    group = serving(limits={"per_hour": 1})  # which bringing it up has used

    def repaired() -> bool:
        return str(operator.stack(group)["parameters"]["active"]) == "db_a"

    until(mistral, group, lambda s: s["service"]["status"] == "SERVING")
    operator.update_stack(group, active="none")
    until(mistral, group, lambda s: repaired() and s["service"]["status"] == "SERVING")
    operator.update_stack(group, active="none")
    until(mistral, group, lambda s: s["service"]["status"] == "DEGRADED")

    ran = mistral.client.run("failover.sweep", {"group": group}, timeout=60)

    assert ran["output"]["swept"]["heals"], ran
    until(mistral, group, lambda s: repaired() and s["service"]["status"] == "SERVING")
