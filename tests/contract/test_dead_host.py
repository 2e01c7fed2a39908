# SPDX-License-Identifier: Apache-2.0
"""What can be done to servers of a host whose compute service died, and what it proves. Nova
detaches nothing there, and what helps is refused until the server is proven off and the user
allowed it.

The host dies once for all tests of this file; each has servers and volumes of its own there.

Measured on Nova 34, Cinder 29, Heat 27, Keystone 30 and Mistral 23:

server_state

- Only administrators see a server's host and ``host_status``. For a silent host it is UNKNOWN,
  not DOWN (that means: forced down).
- A project's user learns of a dead host only from a refused detach.

deletion

- 204. The compute service's event ``compute_terminate_instance: Success`` outlives the server,
  and the project can read it (since microversion 2.21).
- On a dead host the server is gone in less than a second, its volumes are free, and there is no
  event.
- Before Nova notices the host's death: 204, and ``deleting`` forever. The same request again,
  once the host is known to be down, takes effect. After its return the compute service carries
  the first request out after all, and its event is the proof.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from contract.api import Api
from contract.conftest import Two
from contract.rig import Rig
from contract.test_cloud_volume_trouble import OFF, blocked, limit, refused
from contract.test_servers import deletions_of
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import (
    delete_server,
    deletion_proof,
    evacuate,
    server_state,
    stop,
)
from mistral_failover.cloud.volumes import Release, attach, detach

SPARE = 8
LEAVE = Release(off="a person confirmed it", fenced=True, delete_server=True)


@dataclass(frozen=True)
class Loaded:
    """A server with three volumes, of which one was leaving when the host died, and one seemed to
    arrive."""

    server: str
    volume: str
    leaving: str
    arriving: str


@dataclass
class Outage:
    """A dead host: servers on it that were not touched yet, each with a volume.

    ``leaving`` and ``detaching`` are two that were asked to be deleted, and to let their volume go,
    between the host's death and Nova's noticing it. ``hoarding`` would take its volume along.
    """

    leaving: tuple[str, str]
    detaching: tuple[str, str]
    untouched: list[tuple[str, str]]
    loaded: Loaded
    hoarding: tuple[str, str]

    def take(self) -> tuple[str, str]:
        """A server and the volume on it, for one test."""
        return self.untouched.pop()


@pytest.fixture(scope="module")
def outage(rig: Rig) -> Iterator[Outage]:
    """The outage."""
    made = [rig.boot(rig.victim) for _ in range(SPARE + 2)]
    rig.active(*made)
    volumes = [rig.make_volume() for _ in range(SPARE + 4)]
    pairs = list(zip(made[:SPARE], volumes[:SPARE], strict=True))
    several = volumes[SPARE:-1]
    loaded = Loaded(made[-2], *several)
    hoarding = (made[-1], volumes[-1])
    for server_id, volume_id in (*pairs, *((loaded.server, each) for each in several)):
        assert rig.api().attach(server_id, volume_id).status_code == 200
    body = {"volumeAttachment": {"volumeId": hoarding[1], "delete_on_termination": True}}
    assert rig.api().nova("POST", f"/servers/{hoarding[0]}/os-volume_attachments", body).ok
    for volume_id in volumes:
        rig.until(lambda v=volume_id: rig.volume_status(v) == "in-use")
    found = Outage(pairs.pop(), pairs.pop(), pairs, loaded, hoarding)

    def unnoticed() -> None:
        assert rig.api().nova("DELETE", f"/servers/{found.leaving[0]}").status_code == 204
        for asked in (found.detaching, (loaded.server, loaded.leaving)):
            assert rig.api().detach(*asked).status_code == 202

    try:
        rig.kill(rig.victim, unnoticed)
        rig.api("admin").reset_volume(loaded.arriving, "attaching")
        yield found
    finally:
        rig.revive(rig.victim)
        rig.remove_servers(made)
        for volume_id in volumes:
            rig.remove_volume(volume_id)


@pytest.fixture(scope="module")
def returned(rig: Rig, outage: Outage) -> Outage:
    """The same, over: the host is back. Tests that ask for this come last (conftest.py)."""
    gone, _ = outage.take()
    rig.remove_servers([gone])
    rig.revive(rig.victim)
    return replace(outage, untouched=[(gone, "")])


def test_nova_tells_administrators_alone_that_the_host_is_silent(rig, cloud, admin, outage):
    server, _ = outage.untouched[0]
    assert rig.service(rig.victim) == "down"
    assert admin.server(server)["host_status"] == "UNKNOWN"
    state = server_state(cloud, server)
    assert (state.status, state.task_state, state.host_status) == ("ACTIVE", None, None)


def test_detaching_on_a_dead_host_says_so_at_once(rig, cloud, demo, outage):
    server, volume = outage.take()
    answer = demo.detach(server, volume)
    words = "Service is unavailable at this time."
    assert (answer.status_code, answer.json()["conflictingRequest"]["message"]) == (409, words)
    with pytest.raises(CloudError) as raised:
        detach(cloud, volume, server, 60)
    assert raised.value.code == "HOST_DOWN"
    assert raised.value.remedy
    assert rig.holders(volume) == [server]


def test_a_stop_on_a_dead_host_proves_nothing_and_blocks_the_server(rig, cloud, demo, outage):
    server, volume = outage.take()
    evidence = stop(cloud, server, rig.seconds(4))
    assert not evidence.proven
    assert "powering-off" in evidence.observed
    assert rig.state(server) == ("ACTIVE", "powering-off")
    assert not stop(cloud, server, rig.seconds(2)).proven, "nor does a repeat"
    for verb, answer in (
        ("detach_volume", demo.detach(server, volume)),
        ("stop", demo.act(server, os_stop=None)),
    ):
        assert answer.status_code == 409
        assert answer.json()["conflictingRequest"]["message"] == (
            f"Cannot '{verb}' instance {server} while it is in task_state powering-off"
        )
    evidence = delete_server(cloud, server, 30)
    assert not evidence.proven
    assert not server_state(cloud, server).exists


def test_a_delete_on_a_dead_host_frees_the_volume_and_proves_nothing(rig, cloud, demo, two, outage):
    server, volume = outage.take()
    evidence = delete_server(cloud, server, 30)
    assert not evidence.proven
    assert "may be running" in evidence.observed
    assert not server_state(cloud, server).exists
    assert deletions_of(demo, server) == [[]]
    assert not deletion_proof(cloud, server).proven
    detach(cloud, volume, server, 30)
    assert attach(cloud, volume, two.a, 30)["server_id"] == two.a
    detach(cloud, volume, two.a, 30)
    assert not delete_server(cloud, server, 30).proven, "nor does a repeat"


def test_a_delete_that_the_dead_host_never_heard_of_is_sent_again(rig, cloud, demo, outage):
    server, volume = outage.leaving
    evidence = delete_server(cloud, server, 40)
    assert not evidence.proven
    assert "gone" in evidence.observed
    assert not server_state(cloud, server).exists
    rig.until(lambda: rig.volume_status(volume) == "available")
    assert deletions_of(demo, server) == [[], []]


def test_a_detach_that_the_dead_host_never_heard_of_stays_under_way(rig, cloud, demo, outage):
    server, volume = outage.detaching
    assert rig.volume_status(volume) == "detaching"
    assert rig.holders(volume) == [server]
    answer = demo.detach(server, volume)
    words = "Service is unavailable at this time."
    assert (answer.status_code, answer.json()["conflictingRequest"]["message"]) == (409, words)
    with pytest.raises(CloudError) as raised:
        detach(cloud, volume, server, rig.seconds(4))
    assert raised.value.code in ("VOLUME_STUCK", "HOST_DOWN")
    assert rig.holders(volume) == [server]


def test_an_attach_on_a_dead_host_has_no_effect(rig, connect, volume, outage):
    server, _ = outage.untouched[0]
    cloud = connect()
    cloud.session.timeout = rig.seconds(2)
    with pytest.raises(CloudError) as raised:
        attach(cloud, volume, server, rig.seconds(3))
    assert raised.value.code in ("TIMEOUT", "SERVER_ERROR")
    assert rig.volume_status(volume) == "available"
    assert rig.holders(volume) == []


# -- volumes that only the end of their server sets free


def test_a_dead_host_keeps_a_volume_until_its_server_may_go(
    rig: Rig, brisk: Cloud, demo: Api, two: Two, outage: Outage
) -> None:
    loaded = outage.loaded
    server = loaded.server
    assert rig.volume_status(loaded.leaving) == "detaching"

    unproven = refused(detach, brisk, loaded.volume, server, limit(rig))
    quiesced = blocked(detach, brisk, loaded.volume, server, limit(rig), Release(fenced=True))
    unasked = blocked(detach, brisk, loaded.volume, server, limit(rig), OFF)

    assert {unproven.code, quiesced.code, unasked.code} == {"HOST_DOWN"}
    assert not unproven.blocked
    assert "Start nova-compute" in unproven.remedy
    assert "Start nova-compute" in quiesced.remedy
    assert f"openstack server delete {server}" in unasked.remedy
    assert "evacuates" in unasked.remedy
    for moving in (loaded.leaving, loaded.arriving):
        assert blocked(detach, brisk, moving, server, limit(rig), OFF).code == "HOST_DOWN"
    assert rig.holders(loaded.volume) == [server]
    assert demo.server(server) is not None

    detach(brisk, loaded.leaving, server, limit(rig), LEAVE)

    assert demo.server(server) is None
    for volume in (loaded.volume, loaded.leaving, loaded.arriving):
        detach(brisk, volume, server, limit(rig), OFF)
        assert attach(brisk, volume, two.a, limit(rig))["server_id"] == two.a
        detach(brisk, volume, two.a, limit(rig))


def test_a_server_that_would_take_a_volume_along_is_not_deleted(
    rig: Rig, brisk: Cloud, demo: Api, outage: Outage
) -> None:
    server, volume = outage.hoarding

    evidence = delete_server(brisk, server, limit(rig))
    error = blocked(detach, brisk, volume, server, limit(rig), LEAVE)

    assert not evidence.proven
    assert volume in evidence.observed
    assert error.code == "VOLUME_WOULD_GO"
    assert f"--preserve-on-termination {server} {volume}" in error.remedy
    # What that command changes is what a sweep looks for.
    assert error.about is not None
    assert f"deleting it also deletes {volume}" in error.about["sight"]
    assert demo.server(server) is not None
    assert rig.holders(volume) == [server]


def test_an_evacuated_server_is_off_elsewhere_and_gives_its_volume_away(
    rig: Rig, brisk: Cloud, admin: Api, outage: Outage
) -> None:
    """Asked twice, Nova does it once. The project's user may not, and is told so before."""
    server, volume = outage.take()
    chief, fenced_at = rig.within_demo("admin"), time.time()
    home = admin.server(server)["OS-EXT-SRV-ATTR:host"]

    refused = evacuate(brisk, server, limit(rig), fenced_at=fenced_at)
    found = [evacuate(chief, server, limit(rig), fenced_at=fenced_at) for _ in range(2)]

    assert not refused.proven
    assert all(each.proven for each in found), found
    assert server_state(chief, server).off
    assert admin.server(server)["OS-EXT-SRV-ATTR:host"] != home
    assert rig.holders(volume) == [server]
    detach(brisk, volume, server, limit(rig), OFF)
    assert rig.volume_status(volume) == "available"
    rows = admin.nova("GET", f"/servers/{server}/os-instance-actions").json()["instanceActions"]
    assert [each["action"] for each in rows].count("evacuate") == 1


# -- the host is back


def test_the_record_of_a_deletion_that_waited_is_proof_once_the_host_is_back(
    rig, cloud, demo, returned
):
    server, volume = returned.leaving
    rig.until(lambda: deletion_proof(cloud, server).proven)
    assert [event["event"] for events in deletions_of(demo, server) for event in events] == [
        "compute_terminate_instance"
    ]


def test_a_deletion_that_was_not_carried_out_is_no_proof(cloud, returned):
    ((server, _),) = returned.untouched
    assert not deletion_proof(cloud, server).proven


def test_a_detach_that_waited_is_carried_out_once_the_host_is_back(rig, cloud, returned):
    server, volume = returned.detaching
    detach(cloud, volume, server, 60)
    assert rig.volume_status(volume) == "available"
