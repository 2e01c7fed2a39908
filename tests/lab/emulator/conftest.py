# SPDX-License-Identifier: Apache-2.0
"""A cloud in a thread for each file, and the real clients on it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from lab.emulator.emulated_clients import PAIR, Clients, Pair, clients_of
from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.lab.emulator.server import EmulatedCloud

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def cloud() -> Iterator[EmulatedCloud]:
    with EmulatedCloud() as running:
        yield running


@pytest.fixture(scope="module")
def emulator(cloud: EmulatedCloud) -> EmulatorClient:
    return cloud.client


@pytest.fixture(scope="module")
def demo(cloud: EmulatedCloud) -> Clients:
    return clients_of(cloud.url)


@pytest.fixture(autouse=True)
def _hosts_are_back(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "emulator" in request.fixturenames:
        emulator: EmulatorClient = request.getfixturevalue("emulator")
        emulator.clear_api_faults()
        for host in emulator.status()["hosts"]:
            emulator.fault("host", host, "revive")


@pytest.fixture
def pair(emulator: EmulatorClient) -> Pair:
    name = f"pair{next(_numbers)}"
    emulator.create_stack(name, PAIR)
    parts = {key: row["physical_resource_id"] for key, row in emulator.resources(name).items()}
    emulator.add_application(
        name, start="start", stop="stop", status="status", needs_volume=True, stack=name
    )
    return Pair(name, parts["a"], parts["b"], parts["data"], name)
