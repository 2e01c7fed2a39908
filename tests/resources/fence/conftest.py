# SPDX-License-Identifier: Apache-2.0
"""A member on a host with simulated fence devices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mistral_failover.cloud.clients import Cloud
from mistral_failover.lab.emulator.server import EmulatedCloud
from support.ceph import RealCeph, missing, real_ceph
from support.emulated import Pair, cloud, connect, emulated, emulator, pair
from support.fencing import Fencing, Machines, clouds_of_an_operator, runtime_for

__all__ = ["cloud", "connect", "emulated", "emulator", "pair"]


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    """Machines and their boards."""
    machines = Machines(tmp_path)
    yield machines
    machines.stop()


@pytest.fixture
def fencing(
    emulated: EmulatedCloud,
    cloud: Cloud,
    pair: Pair,
    machines: Machines,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Fencing:
    """The member db_a of a group, on a host whose machine is on."""
    clouds = clouds_of_an_operator(emulated, tmp_path)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(clouds))
    host = emulated.emulation.state.servers[pair.a].host
    machines.add(host)
    return Fencing(emulated, cloud, runtime_for(tmp_path), pair.a, host, tmp_path, machines)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCeph]:
    """A real Ceph."""
    if lacking := missing():
        pytest.skip(f"{', '.join(lacking)} not installed")
    with real_ceph(tmp_path_factory.mktemp("ceph")) as ceph:
        yield ceph
