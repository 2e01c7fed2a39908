# SPDX-License-Identifier: Apache-2.0
"""Attaching and detaching when answers get lost and compute services give up: how often Nova is
asked."""

import dataclasses
import time

import pytest
from openstack.compute.v2.server import Server

from mistral_failover.cloud import volumes
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.volumes import Release, attach, detach
from mistral_failover.fault_points import arm, disarm
from support.nova import nova_of


def holders(cloud, volume):
    return [held["server_id"] for held in cloud.volumes.volumes.get(volume).attachments]


def effects(emulator, *kinds):
    return [event["kind"] for event in emulator.audit() if event["kind"] in kinds]


def host_of(emulator, server_id):
    return emulator.guests()[server_id]["host"]


def test_an_attach_that_the_api_failed_is_sent_again(cloud, pair, emulator):
    emulator.api_fault("attach", status=503, times=2)
    assert attach(cloud, pair.volume, pair.a, 10)["server_id"] == pair.a


def test_an_attach_that_the_compute_service_gave_up_is_sent_again(cloud, pair, emulator):
    emulator.api_fault("attach", "fail")
    assert attach(cloud, pair.volume, pair.a, 10)["server_id"] == pair.a


def test_a_compute_service_that_always_gives_up_ends_it(cloud, pair, emulator):
    emulator.api_fault("attach", "fail", times=9)
    with pytest.raises(CloudError) as raised:
        attach(cloud, pair.volume, pair.a, 10)
    assert raised.value.code == "TARGET_DOWN"
    assert raised.value.target["evidence"] == "refused"
    assert len(effects(emulator, "attach_begin")) == 3


def test_a_volume_on_its_way_out_of_another_server_is_waited_for(cloud, pair, emulator):
    attach(cloud, pair.volume, pair.a, 10)
    emulator.set_latency(detach=0.3)
    nova_of(cloud).delete_volume_attachment(Server.new(id=pair.a), pair.volume)
    assert attach(cloud, pair.volume, pair.b, 10)["server_id"] == pair.b


def test_a_shared_volume_that_another_attach_takes_between_look_and_request_is_waited_for(
    cloud, pair, emulator
):
    """However long the request took: Cinder has one state for all attachments."""
    volume = cloud.volumes.volumes.create(1, volume_type="multiattach").id
    while cloud.volume(volume).status != "available":
        time.sleep(0.01)
    emulator.set_latency(attach=0.3)
    cloud.settings = dataclasses.replace(cloud.settings, poll_ceiling=0.001)
    first = iter([True])

    def other(name: str) -> None:
        if name == "attach.before" and next(first, False):
            nova_of(cloud).create_volume_attachment(pair.b, volume=volume)

    arm(other)
    try:
        assert attach(cloud, volume, pair.a, 10)["server_id"] == pair.a
    finally:
        disarm()
    assert sorted(holders(cloud, volume)) == sorted([pair.a, pair.b])


def test_what_is_let_go_between_two_looks_is_not_disputed(cloud, pair, emulator, monkeypatch):
    attach(cloud, pair.volume, pair.a, 10)
    emulator.set_latency(detach=2)
    cloud.settings = dataclasses.replace(cloud.settings, poll_ceiling=0.005)
    nova_of(cloud).delete_volume_attachment(Server.new(id=pair.a), pair.volume)
    looked = volumes.orphaned
    asked = []

    def once_it_is_free(*given):
        asked.append(given)
        while cloud.volumes.volumes.get(pair.volume).status != "available":
            time.sleep(0.01)
        return looked(*given)

    monkeypatch.setattr(volumes, "orphaned", once_it_is_free)
    assert attach(cloud, pair.volume, pair.b, 10)["server_id"] == pair.b
    assert asked


def test_an_attach_that_gets_stuck_ends_with_the_state_that_it_is_in(cloud, pair, emulator):
    emulator.api_fault("attach", "stuck")
    with pytest.raises(CloudError) as raised:
        attach(cloud, pair.volume, pair.a, 0.2)
    assert raised.value.code == "VOLUME_STUCK"
    assert "attaching" in raised.value.message


def test_detaching_does_not_wait_for_what_is_arriving_elsewhere(cloud, pair, emulator):
    emulator.set_latency(attach=30)
    nova_of(cloud).create_volume_attachment(pair.b, volume=pair.volume)
    detach(cloud, pair.volume, pair.a, 1)


def test_a_guest_that_never_lets_go_ends_it(cloud, pair, emulator):
    attach(cloud, pair.volume, pair.a, 10)
    emulator.api_fault("detach", "fail", times=9)
    with pytest.raises(CloudError) as raised:
        detach(cloud, pair.volume, pair.a, 10)
    assert raised.value.code == "DETACH_FAILED"
    assert holders(cloud, pair.volume) == [pair.a]


@pytest.mark.parametrize("fault", ["hang", "crash"])
def test_a_cut_off_guest_that_does_not_let_go_is_stopped(cloud, pair, emulator, fault):
    """It answers nobody. By the proof it reaches nothing, so it loses nothing."""
    attach(cloud, pair.volume, pair.a, 10)
    emulator.fault("server", pair.a, fault)
    detach(cloud, pair.volume, pair.a, 10, Release("Ceph blocks it", fenced=True, cut_off=True))
    assert holders(cloud, pair.volume) == []
    assert nova_of(cloud).get_server(pair.a).status == "SHUTOFF"


def test_a_cut_off_guest_whose_host_dies_after_the_request_is_not_stopped(
    cloud, pair, emulator, monkeypatch
):
    """Nova still believes in the host: a stop would wait for it as long as the detach may."""
    attach(cloud, pair.volume, pair.a, 10)
    host = host_of(emulator, pair.a)
    emulator.set_latency(detach=30)

    def die(point):
        if point == "detach.after":
            emulator.fault("host", host, "compute_down")

    monkeypatch.setattr(volumes, "reach", die)
    release = Release("Ceph blocks it", fenced=True, delete_server=True, cut_off=True)
    detach(cloud, pair.volume, pair.a, 20, release)
    assert holders(cloud, pair.volume) == []
    assert effects(emulator, "server_deleted", "stop") == ["server_deleted"]


def test_what_nova_finds_out_about_the_host_of_a_server_that_is_off_is_used_at_once(
    cloud, pair, emulator, monkeypatch
):
    """Until then it waits for the host, and so does the whole failover."""
    attach(cloud, pair.volume, pair.a, 10)
    cloud.settings = dataclasses.replace(cloud.settings, poll_ceiling=4.0)
    emulator.set_latency(detach=0.5)

    def die(point):
        if point == "detach.after":
            emulator.fault("host", host_of(emulator, pair.a), "compute_down")

    monkeypatch.setattr(volumes, "reach", die)
    detach(cloud, pair.volume, pair.a, 6, Release("it is off", fenced=True, delete_server=True))
    assert holders(cloud, pair.volume) == []


@pytest.mark.parametrize("stopped", [True, False])
def test_a_host_that_is_down_is_waited_for_if_it_has_just_stopped_the_server(
    cloud, pair, emulator, stopped
):
    """While the broker is away, Nova counts every compute service as down."""
    attach(cloud, pair.volume, pair.a, 10)
    emulator.fault("host", host_of(emulator, pair.a), "compute_down")
    release = Release("Nova reports it SHUTOFF", fenced=True, stopped=stopped)
    with pytest.raises(CloudError) as raised:
        detach(cloud, pair.volume, pair.a, 10, release)
    error = raised.value
    assert (error.code, error.blocked, error.transient) == ("HOST_DOWN", True, stopped)
    assert (error.patience is not None) == stopped


@pytest.mark.parametrize("release", [Release(), Release("it is off", fenced=True)])
def test_another_guest_that_does_not_let_go_is_not_stopped(cloud, pair, emulator, release):
    attach(cloud, pair.volume, pair.a, 10)
    emulator.fault("server", pair.a, "hang")
    with pytest.raises(CloudError) as raised:
        detach(cloud, pair.volume, pair.a, 10, release)
    assert raised.value.code == "DETACH_FAILED"
    assert nova_of(cloud).get_server(pair.a).status == "ACTIVE"
