# SPDX-License-Identifier: Apache-2.0
"""Volumes are attached and detached once, whatever was under way before."""

import threading

import pytest
from openstack.compute.v2.server import Server

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.guard import LeaseLost
from mistral_failover.cloud.stacks import VOLUME
from mistral_failover.cloud.volumes import attach, detach, resolve_volume


def holders(cloud, volume):
    return [held["server_id"] for held in cloud.volumes.volumes.get(volume).attachments]


def effects(emulator, *kinds):
    return [event["kind"] for event in emulator.audit() if event["kind"] in kinds]


def host_of(emulator, server_id):
    return emulator.nodes()[server_id]["host"]


def test_a_volume_is_attached_and_confirmed(cloud, pair):
    result = attach(cloud, pair.volume, pair.a, 10)
    assert result["server_id"] == pair.a
    assert result["device"].startswith("/dev/")
    assert result["attachment_id"]
    assert holders(cloud, pair.volume) == [pair.a]


def test_attaching_again_adopts_what_is_there(cloud, pair, emulator):
    assert attach(cloud, pair.volume, pair.a, 10) == attach(cloud, pair.volume, pair.a, 10)
    assert effects(emulator, "attach_begin") == ["attach_begin"]


def test_an_attach_whose_process_died_after_the_request_is_adopted(cloud, pair, emulator):
    emulator.set_latency(attach=0.3)
    cloud.compute.create_volume_attachment(pair.a, volume=pair.volume)
    assert attach(cloud, pair.volume, pair.a, 10)["server_id"] == pair.a
    assert effects(emulator, "attach_begin") == ["attach_begin"]


def test_an_attach_whose_answer_got_lost_is_adopted(cloud, pair, emulator):
    emulator.api_fault("attach", "lost")
    assert attach(cloud, pair.volume, pair.a, 10)["server_id"] == pair.a
    assert effects(emulator, "attach_begin") == ["attach_begin"]


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
    assert raised.value.code == "ATTACH_FAILED"
    assert len(effects(emulator, "attach_begin")) == 3


def test_a_volume_that_another_server_holds_is_not_taken_away(cloud, pair):
    attach(cloud, pair.volume, pair.a, 10)
    with pytest.raises(CloudError) as raised:
        attach(cloud, pair.volume, pair.b, 10)
    assert raised.value.code == "VOLUME_IN_USE"
    assert pair.a in raised.value.message
    assert holders(cloud, pair.volume) == [pair.a]


def test_a_volume_on_its_way_out_of_another_server_is_waited_for(cloud, pair, emulator):
    attach(cloud, pair.volume, pair.a, 10)
    emulator.set_latency(detach=0.3)
    cloud.compute.delete_volume_attachment(Server.new(id=pair.a), pair.volume)
    assert attach(cloud, pair.volume, pair.b, 10)["server_id"] == pair.b


def test_an_attach_that_gets_stuck_ends_with_the_state_that_it_is_in(cloud, pair, emulator):
    emulator.api_fault("attach", "stuck")
    with pytest.raises(CloudError) as raised:
        attach(cloud, pair.volume, pair.a, 0.2)
    assert raised.value.code == "TIMEOUT"
    assert "attaching" in raised.value.message


@pytest.mark.parametrize("action", [attach, detach])
def test_a_volume_that_does_not_exist_is_reported(cloud, pair, action):
    with pytest.raises(CloudError) as raised:
        action(cloud, "0b5e9d2c-9a4f-4e0f-9a53-0d5f0c1e7a11", pair.a, 5)
    assert raised.value.code == "NOT_FOUND"


def test_attaching_to_a_server_that_does_not_exist_is_reported(cloud, pair):
    with pytest.raises(CloudError) as raised:
        attach(cloud, pair.volume, "0b5e9d2c-9a4f-4e0f-9a53-0d5f0c1e7a11", 5)
    assert raised.value.code == "NOT_FOUND"


@pytest.mark.parametrize("action", [attach, detach])
def test_a_volume_of_another_project_does_not_exist(connect, pair, action):
    with pytest.raises(CloudError) as raised:
        action(connect("other"), pair.volume, pair.a, 5)
    assert raised.value.code == "NOT_FOUND"


def test_a_volume_is_detached_and_confirmed(cloud, pair):
    attach(cloud, pair.volume, pair.a, 10)
    detach(cloud, pair.volume, pair.a, 10)
    assert holders(cloud, pair.volume) == []


def test_detaching_what_is_not_attached_sends_nothing(cloud, pair, emulator):
    detach(cloud, pair.volume, pair.a, 10)
    attach(cloud, pair.volume, pair.b, 10)
    detach(cloud, pair.volume, pair.a, 10)
    assert effects(emulator, "detach_begin") == []
    assert holders(cloud, pair.volume) == [pair.b]


def test_a_detach_whose_process_died_after_the_request_is_adopted(cloud, pair, emulator):
    attach(cloud, pair.volume, pair.a, 10)
    emulator.set_latency(detach=0.3)
    cloud.compute.delete_volume_attachment(Server.new(id=pair.a), pair.volume)
    detach(cloud, pair.volume, pair.a, 10)
    assert effects(emulator, "detach_begin") == ["detach_begin"]
    assert holders(cloud, pair.volume) == []


def test_a_detach_whose_answer_got_lost_is_adopted(cloud, pair, emulator):
    attach(cloud, pair.volume, pair.a, 10)
    emulator.api_fault("detach", "lost")
    detach(cloud, pair.volume, pair.a, 10)
    assert effects(emulator, "detach_begin") == ["detach_begin"]


def test_detaching_waits_for_an_attach_that_is_still_arriving(cloud, pair, emulator):
    emulator.set_latency(attach=0.3)
    cloud.compute.create_volume_attachment(pair.a, volume=pair.volume)
    detach(cloud, pair.volume, pair.a, 10)
    assert effects(emulator, "attached", "detached") == ["attached", "detached"]
    assert holders(cloud, pair.volume) == []


def test_detaching_does_not_wait_for_what_is_arriving_elsewhere(cloud, pair, emulator):
    emulator.set_latency(attach=30)
    cloud.compute.create_volume_attachment(pair.b, volume=pair.volume)
    detach(cloud, pair.volume, pair.a, 1)


def test_a_guest_that_never_lets_go_ends_it(cloud, pair, emulator):
    attach(cloud, pair.volume, pair.a, 10)
    emulator.api_fault("detach", "fail", times=9)
    with pytest.raises(CloudError) as raised:
        detach(cloud, pair.volume, pair.a, 10)
    assert raised.value.code == "DETACH_FAILED"
    assert holders(cloud, pair.volume) == [pair.a]


def test_detaching_on_a_dead_host_says_so_at_once(cloud, pair, emulator):
    attach(cloud, pair.volume, pair.a, 10)
    emulator.fault("host", host_of(emulator, pair.a), "compute_down")
    with pytest.raises(CloudError) as raised:
        detach(cloud, pair.volume, pair.a, 30)
    assert raised.value.code == "HOST_DOWN"
    assert "Fence" in raised.value.remedy
    assert holders(cloud, pair.volume) == [pair.a]


def test_detaching_from_a_server_that_is_gone_is_done(cloud, pair, emulator):
    attach(cloud, pair.volume, pair.a, 10)
    emulator.fault("host", host_of(emulator, pair.a), "power_off")
    cloud.compute.delete_server(pair.a)
    detach(cloud, pair.volume, pair.a, 10)
    assert attach(cloud, pair.volume, pair.b, 10)["server_id"] == pair.b


def test_two_processes_that_attach_the_same_agree(connect, pair, emulator):
    emulator.set_latency(attach=0.05)
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(attach(connect(), pair.volume, pair.a, 10)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(result == results[0] for result in results)
    assert effects(emulator, "attach_begin") == ["attach_begin"]


def test_nothing_is_attached_once_the_lease_is_lost(connect, pair, emulator):
    class Ending:
        """Lets the reads through that come before the request."""

        request_id = None

        def permit(self, method):
            if method == "POST":
                raise LeaseLost("The lease has ended.")
            return 5.0

    with pytest.raises(LeaseLost):
        attach(connect(guard=Ending()), pair.volume, pair.a, 10)
    assert effects(emulator, "attach_begin") == []


def test_a_volume_is_found_by_its_name_in_the_stack_or_by_its_id(cloud, pair):
    assert resolve_volume(cloud, pair.name, "data") == pair.volume
    assert resolve_volume(cloud, pair.name, pair.volume) == pair.volume


@pytest.mark.parametrize("name", ["nothing", "0b5e9d2c-9a4f-4e0f-9a53-0d5f0c1e7a11"])
def test_a_volume_that_is_neither_is_reported(cloud, pair, name):
    with pytest.raises(CloudError) as raised:
        resolve_volume(cloud, pair.name, name)
    assert raised.value.code == "NOT_FOUND"


def test_a_resource_that_is_no_volume_is_refused(cloud, pair):
    with pytest.raises(CloudError) as raised:
        resolve_volume(cloud, pair.name, "db_a")
    assert raised.value.code == "BAD_REQUEST"
    assert VOLUME not in raised.value.message
    assert "is not a volume" in raised.value.message
