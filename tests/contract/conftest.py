# SPDX-License-Identifier: Apache-2.0
"""The cloud of ``--cloud``, and what the tests find in it: servers, volumes, stacks.

What takes long to make is made once for all tests; who uses it leaves it as it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from contract.api import Api
from contract.emulated import LATENCY, EmulatedRig
from contract.recorder import Recorder, file_of
from contract.rig import Made, Rig
from contract.templates import GROUPS, MEMBER, PAIR
from mistral_failover.cloud.clients import Cloud
from mistral_failover.lab.emulator.server import EmulatedCloud


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what only the other cloud can serve."""
    cloud = item.config.getoption("--cloud")
    for mark in item.iter_markers("only_on"):
        if mark.args[0] != cloud:
            pytest.skip(f"only on the {mark.args[0]} cloud: {mark.kwargs['reason']}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Within a file, what happens after a host's return comes after what happens without it."""
    order = {file: place for place, file in enumerate(dict.fromkeys(it.path for it in items))}
    items.sort(key=lambda it: (order[it.path], "returned" in getattr(it, "fixturenames", ())))


@pytest.fixture(scope="session")
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """The cloud."""
    with ExitStack() as stack:
        if request.config.getoption("--cloud") == "real":
            from contract import real

            found: Rig = real.real_rig()
        else:
            found = EmulatedRig(stack.enter_context(EmulatedCloud(overrides=LATENCY)))
        if folder := request.config.getoption("--record"):
            recorder = Recorder(found.services)
            stack.enter_context(recorder.recording(file_of(folder)))
        yield found


@pytest.fixture
def connect(rig: Rig) -> Callable[..., Cloud]:
    """Makes adapters, as `Rig.connect`."""
    return rig.connect


@pytest.fixture(scope="session")
def cloud(rig: Rig) -> Cloud:
    """The adapters with a token by which another user acts as demo."""
    return rig.connect()


@pytest.fixture(scope="session")
def brisk(rig: Rig) -> Cloud:
    """The same as `cloud`, but it asks sooner why nothing moves."""
    return made_brisk(rig.connect())


@pytest.fixture
def demo(rig: Rig) -> Api:
    """The services as the user demo reaches them."""
    return rig.api()


@pytest.fixture
def admin(rig: Rig) -> Api:
    """The services as an administrator reaches them, in demo's project."""
    return rig.api("admin")


@pytest.fixture
def other(rig: Rig) -> Api:
    """The services as a user of another project reaches them."""
    return rig.api("other")


@dataclass(frozen=True)
class Two:
    """Two servers that run, and stay."""

    a: str
    b: str


@pytest.fixture(scope="session")
def two(rig: Rig) -> Iterator[Two]:
    """Two servers for volumes to be moved between."""
    servers = Two(rig.boot(rig.steady), rig.boot(rig.steady))
    rig.active(servers.a, servers.b)
    yield servers
    rig.remove_servers((servers.a, servers.b))


@pytest.fixture(scope="session")
def linked(rig: Rig) -> Iterator[Two]:
    """Two servers with one port each, on one network, and they stay."""
    made: list[str] = []
    try:
        for _ in range(2):
            made.append(rig.boot(rig.steady, network=rig.network_id))
        rig.active(*made)
        yield Two(*made)
    finally:
        rig.remove_servers(made)


@pytest.fixture
def server(rig: Rig) -> Iterator[str]:
    """A server of the test's own."""
    server_id = rig.boot()
    rig.active(server_id)
    yield server_id
    rig.remove_servers([server_id])


@pytest.fixture
def volume(rig: Rig) -> Iterator[str]:
    """A volume of the test's own."""
    volume_id = rig.make_volume()
    yield volume_id
    rig.remove_volume(volume_id)


@pytest.fixture(scope="session")
def pair(rig: Rig) -> Iterator[Made]:
    """A stack with two servers, a volume, parameters, and a resource that takes as long, or fails,
    as its parameters say. Its parameters may be anything: a test PATCHes to values of its own."""
    made = rig.make_stack(of(PAIR, rig))
    yield made
    rig.remove_stack(made)


@pytest.fixture(scope="session")
def groups(rig: Rig) -> Iterator[Made]:
    """A stack with two autoscaling groups: ``plain``, of servers, and ``deep``, of stacks with a
    server each."""
    made = rig.make_stack(of(GROUPS, rig), {"member.yaml": of(MEMBER, rig)})
    yield made
    rig.remove_stack(made)


def made_brisk(cloud: Cloud) -> Cloud:
    """The same adapters, which ask sooner why nothing moves: after 1.5 s instead of 5. A busy
    service of the test cloud takes less for the rest of a detach that Cinder shows already."""
    ceiling = min(cloud.settings.poll_ceiling, 0.6)
    cloud.settings = dataclasses.replace(cloud.settings, poll_ceiling=ceiling)
    return cloud


def of(template: str, rig: Rig) -> Any:
    """A template of `contract.templates` for this cloud."""
    return template.replace("FLAVOR", rig.flavor)
