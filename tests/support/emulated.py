# SPDX-License-Identifier: Apache-2.0
"""An emulated cloud for each test, with faults on demand, and the adapters on it.

What a cloud does by itself is for tests/contract; here are fixtures for what goes wrong on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from mistral_failover.cloud.clients import Cloud, cloud_for
from mistral_failover.cloud.servers import server_state
from mistral_failover.cloud.transport import Guard, Unguarded
from mistral_failover.cloud.volumes import attach
from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.lab.emulator.state import stable_hex
from mistral_failover.settings import Settings

SETTINGS = Settings(
    http_timeout=5, poll_first=0.005, poll_growth=1.3, poll_ceiling=0.05, repeat_after=1
)
SERVER = {
    "type": "OS::Nova::Server",
    "properties": {
        "image": "tiny",
        "flavor": "m1.tiny",
        "networks": [{"allocate_network": "none"}],
    },
}
PAIR = {
    "heat_template_version": "2021-04-16",
    "parameters": {
        "active": {"type": "string", "default": "db_a"},
        "copies": {"type": "number", "default": 1},
        "secret": {"type": "string", "default": "s", "hidden": True},
    },
    "resources": {
        "db_a": SERVER,
        "db_b": SERVER,
        "data": {"type": "OS::Cinder::Volume", "properties": {"size": 1}},
    },
}
GROUP = {
    "heat_template_version": "2021-04-16",
    "resources": {
        "db_servers": {
            "type": "OS::Heat::AutoScalingGroup",
            "properties": {
                "min_size": 2,
                "max_size": 2,
                "desired_capacity": 2,
                "resource": SERVER,
            },
        },
        "data": {"type": "OS::Cinder::Volume", "properties": {"size": 1}},
    },
}


@dataclass
class Pair:
    """A stack with two servers, on two hosts, and a volume."""

    name: str
    a: str
    b: str
    volume: str


@pytest.fixture
def emulated() -> Iterator[EmulatedCloud]:
    """A cloud of its own for each test, for hosts die in some."""
    with EmulatedCloud() as cloud:
        yield cloud


@pytest.fixture
def emulator(emulated: EmulatedCloud) -> EmulatorClient:
    """The emulator's own interface: seeds, faults, what happened."""
    return emulated.client


@pytest.fixture
def connect(emulated: EmulatedCloud, emulator: EmulatorClient) -> Callable[..., Cloud]:
    """Make a cloud with a trust-scoped token of a user, as an alarm brings it."""

    def make(
        user: str = "demo", guard: Guard | None = None, expires_in: float = 3600, **more: Any
    ) -> Cloud:
        security = SimpleNamespace(
            auth_uri=emulated.auth_url,
            auth_token=emulator.mint_token(user=user, trust=True, expires_in=expires_in),
            region_name="RegionOne",
            **{"project_id": stable_hex("project", user), **more},
        )
        return cloud_for(security, guard=guard or Unguarded(), settings=SETTINGS)

    return make


@pytest.fixture
def cloud(connect: Callable[..., Cloud]) -> Cloud:
    """The cloud of the project `demo`."""
    return connect()


@pytest.fixture
def pair(emulator: EmulatorClient) -> Pair:
    """The stack `payments`."""
    emulator.create_stack("payments", PAIR)
    resources = emulator.resources("payments")
    ids = {name: row["physical_resource_id"] for name, row in resources.items()}
    return Pair("payments", ids["db_a"], ids["db_b"], ids["data"])


@pytest.fixture
def group(emulator: EmulatorClient) -> str:
    """The stack `shop`, with an autoscaling group `db_servers` of two servers."""
    emulator.create_stack("shop", GROUP)
    return "shop"


def works(cloud: Cloud, pair: Pair) -> None:
    """Nova, Cinder, Heat, Neutron and Aodh are asked, and something is changed."""
    assert server_state(cloud, pair.a).status == "ACTIVE"
    assert attach(cloud, pair.volume, pair.a, 20)["server_id"] == pair.a
    assert cloud.volume(pair.volume).status == "in-use"
    assert cloud.heat.stacks.get(pair.name).stack_status == "CREATE_COMPLETE"
    assert cloud.read("Neutron", "/v2.0/networks")["networks"]
    assert cloud.read("Aodh", "/v2/alarms") == []
