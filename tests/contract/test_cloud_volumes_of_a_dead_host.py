# SPDX-License-Identifier: Apache-2.0
"""Volumes on a host whose compute service died: Nova detaches nothing there, and what helps is
refused until the server is proven off and the user allowed it.

The host dies once for all tests of this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from contract.api import Api
from contract.rig import Rig
from contract.test_cloud_volume_trouble import OFF, blocked, limit, refused
from mistral_failover.cloud import servers
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.detaching import Release
from mistral_failover.cloud.volumes import attach, detach

LEAVE = Release(off="a person confirmed it", fenced=True, delete_server=True)


@pytest.fixture(scope="module")
def cloud(brisk: Cloud) -> Cloud:
    """A volume that moves on no host is looked into soon."""
    return brisk


@dataclass
class Outage:
    """A dead host, and on it: a server with three volumes, of which one was leaving when the host
    died, and one seemed to arrive; a server that would take its volume along. The survivor is on
    another host."""

    server: str
    volume: str
    leaving: str
    arriving: str
    hoarding: str
    hoarded: str
    survivor: str


def asked(rig: Rig, server: str, volume: str) -> None:
    """Nova accepts to detach, and no host carries it out."""
    assert rig.api().detach(server, volume).status_code == 202


@pytest.fixture(scope="module")
def outage(rig: Rig) -> Iterator[Outage]:
    """It happens once for all tests that need it."""
    server, hoarding = rig.boot(rig.victim), rig.boot(rig.victim)
    rig.active(server, hoarding)
    made = [server, hoarding]
    volumes = [rig.make_volume() for _ in range(4)]
    for volume in volumes[:3]:
        rig.attach(server, volume)
    leaving, arriving, hoarded = volumes[1:]
    body = {"volumeAttachment": {"volumeId": hoarded, "delete_on_termination": True}}
    assert rig.api().nova("POST", f"/servers/{hoarding}/os-volume_attachments", body).ok
    rig.until(lambda: rig.volume_status(hoarded) == "in-use")
    try:
        rig.kill(rig.victim, lambda: asked(rig, server, leaving))
        rig.api("admin").reset_volume(arriving, "attaching")
        made.append(rig.boot())
        rig.active(made[-1])
        yield Outage(server, *volumes[:3], hoarding, hoarded, made[-1])
    finally:
        rig.revive(rig.victim)
        rig.remove_servers(made)
        for volume in volumes:
            rig.remove_volume(volume)


def test_a_dead_host_keeps_a_volume_until_its_server_may_go(
    rig: Rig, cloud: Cloud, demo: Api, outage: Outage
) -> None:
    server = outage.server
    assert rig.volume_status(outage.leaving) == "detaching"

    unproven = refused(detach, cloud, outage.volume, server, limit(rig))
    quiesced = blocked(detach, cloud, outage.volume, server, limit(rig), Release(fenced=True))
    unasked = blocked(detach, cloud, outage.volume, server, limit(rig), OFF)

    assert {unproven.code, quiesced.code, unasked.code} == {"HOST_DOWN"}
    assert not unproven.blocked
    assert "Start nova-compute" in unproven.remedy
    assert "Start nova-compute" in quiesced.remedy
    assert f"openstack server delete {server}" in unasked.remedy
    assert f"2.95 server evacuate {server}" in unasked.remedy
    for moving in (outage.leaving, outage.arriving):
        assert blocked(detach, cloud, moving, server, limit(rig), OFF).code == "HOST_DOWN"
    assert rig.holders(outage.volume) == [server]
    assert demo.server(server) is not None

    detach(cloud, outage.leaving, server, limit(rig), LEAVE)

    assert demo.server(server) is None
    for volume in (outage.volume, outage.leaving, outage.arriving):
        detach(cloud, volume, server, limit(rig), OFF)
        assert attach(cloud, volume, outage.survivor, limit(rig))["server_id"] == outage.survivor
        detach(cloud, volume, outage.survivor, limit(rig))


def test_a_server_that_would_take_a_volume_along_is_not_deleted(
    rig: Rig, cloud: Cloud, demo: Api, outage: Outage
) -> None:
    server, volume = outage.hoarding, outage.hoarded

    evidence = servers.delete_server(cloud, server, limit(rig))
    error = blocked(detach, cloud, volume, server, limit(rig), LEAVE)

    assert not evidence.proven
    assert volume in evidence.observed
    assert error.code == "VOLUME_WOULD_GO"
    assert f"--preserve-on-termination {server} {volume}" in error.remedy
    # What that command changes is what a sweep looks for.
    assert error.about is not None
    assert f"deleting it also deletes {volume}" in error.about["sight"]
    assert demo.server(server) is not None
    assert rig.holders(volume) == [server]
