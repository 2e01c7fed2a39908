# SPDX-License-Identifier: Apache-2.0
"""What an entry of Ceph's blocklist is: the same for a real Ceph and for the simulated one.

Debian: ceph-mon, ceph-osd, ceph-common (``python -m support.fence_agents``).
"""

from __future__ import annotations

import errno
import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mistral_failover import private_files
from mistral_failover.resources.fence.ceph import ENOUGH, Cluster
from mistral_failover.resources.fence.devices import Ceph
from support.ceph import LIMIT, POOL, RealCeph
from support.fencing import SIMULATORS
from support.waiting import until

pytestmark = pytest.mark.faults

CLIENT = "192.0.2.1:0/1234567"


def cluster_of(conf: Path, folder: Path, **more: Any) -> Cluster:
    """Return the cluster as a fence uses it."""
    keyring = folder / "client.fence.keyring"
    ceph = Ceph((POOL,), conf=str(conf), name="client.fence", keyring=str(keyring), **more)
    return Cluster(ceph, lambda seconds: seconds)


@pytest.fixture(params=["simulated", "real"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Cluster:
    """A cluster of each kind."""
    if request.param == "real":
        real = request.getfixturevalue("real")
        return cluster_of(real.conf, real.folder)
    state = dict.fromkeys(("watchers", "locks", "until"), {})
    conf = tmp_path / "ceph.conf"
    conf.write_text(json.dumps({**state, "blocklist": [], "modes": [], "calls": []}), "utf-8")
    programs = {name: str(tmp_path / name) for name in ("ceph", "rbd")}
    for each in programs.values():
        shutil.copy(SIMULATORS / "ceph_simulated", each)
    private_files.write(tmp_path / "client.fence.keyring", "a key")
    return cluster_of(conf, tmp_path, **programs)


def test_only_an_entry_that_was_removed_gets_another_end(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adding it once more succeeds, and changes nothing."""
    with monkeypatch.context() as patch:
        patch.setattr("mistral_failover.resources.fence.ceph.FOREVER", 3600)
        cluster.block(CLIENT)
    cluster.block(CLIENT)
    assert 0 < cluster.blocked()[CLIENT] <= 3600 + 5

    cluster.renew(CLIENT)
    assert cluster.blocked()[CLIENT] > 9 * ENOUGH
    with monkeypatch.context() as patch:
        patch.setattr("mistral_failover.resources.fence.ceph.FOREVER", 2 * ENOUGH)
        cluster.renew(CLIENT)
    assert cluster.blocked()[CLIENT] > 9 * ENOUGH, "another process may rely on it already"

    cluster.unblock(CLIENT)
    cluster.unblock(CLIENT)
    assert CLIENT not in cluster.blocked()


def test_a_client_that_slept_through_a_block_writes_again_unless_it_was_renewed(
    real: RealCeph,
) -> None:
    """It has no watch any more, so nothing would show it."""
    cluster, image = cluster_of(real.conf, real.folder), f"{POOL}/volume-x"
    real.run("rbd", "create", image, "--size", "64")
    write = ["rbd", "-c", str(real.conf), "bench", image, "--io-type", "write", "--io-size", "4K"]
    command = [*write, "--io-total", "64G", "--rbd-cache=false"]
    writer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        until(lambda: real.watchers(image))
        (client,) = real.watchers(image)
        writer.send_signal(signal.SIGSTOP)
        real.run("ceph", "osd", "blocklist", "add", client, "3600")
        assert real.watchers(image) == []
        assert cluster.image_of("x", "x").clients == {client}, "its lock names it"

        real.run("ceph", "osd", "blocklist", "rm", client)  # as at the end of the entry
        writer.send_signal(signal.SIGCONT)
        with pytest.raises(subprocess.TimeoutExpired):  # refused, it would end at once
            writer.wait(timeout=1)
        writer.send_signal(signal.SIGSTOP)

        real.run("ceph", "osd", "blocklist", "add", client, "3600")
        cluster.renew(client)
        assert cluster.blocked()[client] > ENOUGH
        writer.send_signal(signal.SIGCONT)
        _, said = writer.communicate(timeout=LIMIT)
    finally:
        writer.kill()
        writer.wait()
    assert writer.returncode == errno.ESHUTDOWN, said


def test_a_client_is_silent_if_it_does_not_answer(real: RealCeph) -> None:
    """It hangs, or died a moment ago; Ceph shows its watch for half a minute. The user may read
    only."""
    cluster, image = cluster_of(real.conf, real.folder), f"{POOL}/volume-y"
    real.run("rbd", "create", image, "--size", "64")
    assert not cluster.is_silent(image, 1), "there is none"
    read = ["rbd", "-c", str(real.conf), "bench", image, "--io-type", "read", "--io-total", "64G"]
    clients = [subprocess.Popen(read, stdout=subprocess.DEVNULL)]
    try:
        until(lambda: len(real.watchers(image)) == 1)
        assert not cluster.is_silent(image, 1)

        clients[0].send_signal(signal.SIGSTOP)
        assert cluster.is_silent(image, 1)
        clients[0].send_signal(signal.SIGCONT)
        assert not cluster.is_silent(image, 1)

        clients[0].kill()
        clients[0].wait()
        assert cluster.is_silent(image, 1)
        assert len(real.watchers(image)) == 1

        clients.append(subprocess.Popen(read, stdout=subprocess.DEVNULL))
        until(lambda: len(real.watchers(image)) == 2)
        assert not cluster.is_silent(image, 1), "one of two: which one is not said"
    finally:
        for each in clients:
            each.kill()
            each.wait()
