# SPDX-License-Identifier: Apache-2.0
"""Whole failovers whose only proof comes from the operator's devices: what a dead host holds is
released without an operator, and without a proof nothing moves."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from mistral_failover.actions import orders
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.runtime.process import Runtime
from mistral_failover.store import host_fences
from support.fencing import AGENT, Machines, clouds_of_an_operator, private, shown_up
from support.planned_groups import PlannedGroup, emulated, protect, resources, state
from support.waiting import until

__all__ = ["emulated", "protect", "state"]
LIMIT = 30  # seconds of the rung


class House:
    """A group on two hosts, each with a board."""

    def __init__(self, group: PlannedGroup, cloud: EmulatedCloud, machines: Machines) -> None:
        self.group, self.cloud, self.machines = group, cloud, machines
        server = cloud.client.resources(group.name)["db_a"]["physical_resource_id"]
        self.server = str(server)
        self.host = cloud.emulation.state.servers[self.server].host
        for host in cloud.emulation.state.hosts:
            machines.add(host)


@pytest.fixture
def house(
    state: Runtime,
    protect: Callable[..., PlannedGroup],
    emulated: EmulatedCloud,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., House]]:
    """Make a group that is active on db_a, whose operator has fence devices."""
    file = tmp_path / "fence-devices.yaml"
    clouds = yaml.safe_load(Path(os.environ["OS_CLIENT_CONFIG_FILE"]).read_text("utf-8"))
    operator = clouds_of_an_operator(emulated, tmp_path)
    clouds["clouds"] |= yaml.safe_load(operator.read_text("utf-8"))["clouds"]
    private(operator, yaml.safe_dump(clouds))
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(operator))
    monkeypatch.setattr(state, "settings", replace(state.settings, fence_devices_file=str(file)))
    machines = Machines(tmp_path)

    def make(mode: str = "works", limit: int = LIMIT) -> House:
        wanted = resources(1, ["active"])
        for spec in wanted.values():
            if spec["type"] == "volume_attachment":
                spec["properties"]["when_host_is_down"] = "delete_server"
        ladder = [{"kind": "host_power", "limit": limit}, "confirm"]
        group = protect(fence=ladder, resources=wanted)
        servers = emulated.emulation.state.servers
        if servers[group.server("db_a")].host == servers[group.server("db_b")].host:
            # What an earlier test deleted left the hosts unequally full.
            return make(mode, limit)
        group.order(orders.Begin(group.name, lost=[]))
        found = House(group, emulated, machines)
        port, secret = machines.board(mode), private(tmp_path / "secret", "s3cret-of-the-board")
        options: dict[str, Any] = {"ipport": port, "username": "fence", "plug": found.host}
        device = {
            "agent": AGENT,
            "options": options,
            "secrets": {"password": str(secret)},
            "limit": 10,
        }
        document = {
            "projects": ["*"],
            "cloud": "operator",
            "listen": 1.5,
            "hosts": {found.host: [[device]]},
        }
        private(file, json.dumps(document))
        return found

    yield make
    for host in emulated.emulation.state.hosts.values():
        host.forced_down = False
        emulated.client.fault("host", host.name, "revive")
        state.database.atomically(partial(shown_up, host=host.name))
    machines.stop()


def test_a_dead_host_is_fenced_and_what_it_holds_is_released_without_an_operator(
    house: Callable[..., House],
) -> None:
    here = house()
    here.cloud.client.fault("host", here.host, "power_off")

    here.group.order(orders.Begin(here.group.name, lost=["db_a"]))

    status = here.group.status()
    assert status["status"] == "COMPLETE", status["reason"]
    assert status["roles"] == {"active": "db_b"}
    (proof,) = [row for row in status["resources"] if row["type"] == "fence"]
    assert proof["attributes"]["rung"] == "host_power"
    assert here.host not in proof["attributes"]["observed"]
    assert here.machines.power(here.host) == "off"
    assert here.server not in here.cloud.emulation.state.servers, "deleted, to free its volume"


def test_a_fence_of_the_host_by_another_group_is_awaited_beyond_the_limit_of_the_rung(
    state: Runtime, house: Callable[..., House]
) -> None:
    """Its process died, and its claim lasts longer than the rung."""
    here = house(limit=4)
    here.cloud.client.fault("host", here.host, "power_off")
    state.database.atomically(lambda tx: host_fences.claim(tx, here.host, "another group", 6.0))

    begun = here.group.order(orders.Begin(here.group.name, lost=["db_a"]))
    assert here.group.status()["status"] == "IN_PROGRESS"

    def reached() -> bool:
        here.group.carry(begun)
        return bool(here.group.status()["status"] == "COMPLETE")

    until(reached, "the goal")
    assert here.machines.power(here.host) == "off"


@pytest.mark.parametrize("mode", ["refuses", "lies"])
def test_without_a_proof_nothing_moves(house: Callable[..., House], mode: str) -> None:
    """nova-compute died; the guest writes on."""
    here = house(mode)
    here.cloud.client.fault("host", here.host, "compute_down")

    here.group.order(orders.Begin(here.group.name, lost=["db_a"]))

    status = here.group.status()
    assert status["status"] == "BLOCKED"
    assert "host_power: " in status["reason"]
    assert here.server in here.cloud.emulation.state.servers
    assert not here.cloud.emulation.state.hosts[here.host].forced_down
