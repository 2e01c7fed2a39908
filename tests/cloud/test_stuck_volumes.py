# SPDX-License-Identifier: Apache-2.0
"""Volumes whose attach or detach was accepted and never ends, and what ends it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from mistral_failover.cloud import volumes
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.volumes import Release, attach, detach
from support.operators import Operator


@pytest.fixture
def operator(emulator: Any) -> Operator:
    """An administrator of the cloud."""
    return Operator(emulator)


def stuck(action: Any, *given: Any) -> CloudError:
    with pytest.raises(CloudError) as raised:
        action(*given)
    assert raised.value.code == "VOLUME_STUCK"
    assert raised.value.blocked
    return raised.value


def test_an_attach_that_nova_gave_up_without_a_word_is_undone_when_it_is_called_attached(
    cloud: Any, pair: Any, emulator: Any, operator: Operator
) -> None:
    emulator.api_fault("attach", "stuck")

    error = stuck(attach, cloud, pair.volume, pair.a, 0.4)

    assert f"openstack volume set --state in-use --attached {pair.volume}" in error.remedy
    assert pair.a in error.message
    operator.set_volume(pair.volume, "in-use", "attached")
    detach(cloud, pair.volume, pair.a, 5)
    assert operator.attachments(pair.volume) == []
    assert attach(cloud, pair.volume, pair.b, 5)["server_id"] == pair.b


def test_a_volume_that_is_called_in_use_by_no_server_waits_for_an_operator(
    cloud: Any, pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup that began while it was attached sets it back, and the server was deleted."""
    shown = volumes.volume_of

    def in_use(*given: Any) -> Any:
        volume = shown(*given)
        volume.status = "in-use"
        return volume

    monkeypatch.setattr(volumes, "volume_of", in_use)

    error = stuck(attach, cloud, pair.volume, pair.a, 5)

    assert f"openstack volume set --state available --detached {pair.volume}" in error.remedy
    assert "no server lists it" in error.remedy


def test_a_detach_that_nova_gave_up_without_a_word_is_asked_for_again(
    cloud: Any, pair: Any, emulator: Any, operator: Operator
) -> None:
    attach(cloud, pair.volume, pair.a, 5)
    emulator.api_fault("detach", "stuck")

    error = stuck(detach, cloud, pair.volume, pair.a, 0.4)

    assert pair.a in error.message
    assert [row["status"] for row in operator.attachments(pair.volume)] == ["detaching"]
    operator.delete_server(pair.a)
    detach(cloud, pair.volume, pair.a, 5)
    assert attach(cloud, pair.volume, pair.b, 5)["server_id"] == pair.b


def detaches(emulator: Any) -> int:
    """How many requests to detach a compute service carried out."""
    return len(emulator.audit(kind="detached"))


@pytest.mark.parametrize("status", [500, 503])
@pytest.mark.parametrize("times", [1, 2])
def test_a_detach_of_which_no_compute_service_was_told_is_asked_for_again(
    cloud: Any, pair: Any, emulator: Any, status: int, times: int
) -> None:
    """Nova marked the volume as detaching, and could not reach the broker of its messages."""
    attach(cloud, pair.volume, pair.a, 5)
    cloud.settings = dataclasses.replace(cloud.settings, repeat_after=0.3)
    emulator.api_fault("detach", "unsent", status=status, times=times)

    detach(cloud, pair.volume, pair.a, 20)

    assert detaches(emulator) == 1
    assert attach(cloud, pair.volume, pair.b, 5)["server_id"] == pair.b


def test_a_detach_that_got_lost_on_its_way_to_the_compute_service_is_asked_for_again(
    cloud: Any, pair: Any, emulator: Any
) -> None:
    """Nova accepted it, and the broker of its messages lost it: no compute service took it up."""
    attach(cloud, pair.volume, pair.a, 5)
    emulator.api_fault("detach", "unsent", status=202, times=2)

    detach(cloud, pair.volume, pair.a, 20)

    assert detaches(emulator) == 1


def test_a_lost_detach_that_another_try_requested_is_asked_for_again(
    cloud: Any, pair: Any, emulator: Any
) -> None:
    """That one did not hear that Nova accepted it, or its process died."""
    attach(cloud, pair.volume, pair.a, 5)
    emulator.api_fault("detach", "unsent", status=202)
    cloud.send("Nova", "DELETE", f"/servers/{pair.a}/os-volume_attachments/{pair.volume}")

    detach(cloud, pair.volume, pair.a, 20)

    assert detaches(emulator) == 1


@pytest.mark.parametrize("hidden", [False, True])
def test_a_detach_that_another_try_requested_and_a_compute_service_may_work_on_is_waited_for(
    cloud: Any, pair: Any, emulator: Any, hidden: bool
) -> None:
    """It works on it, or the project may not see whether it does."""
    attach(cloud, pair.volume, pair.a, 5)
    if hidden:
        emulator.api_fault("server_actions", "error", status=403, times=99)
        emulator.api_fault("detach", "unsent", status=202)
    else:
        emulator.api_fault("detach", "stuck")
    cloud.send("Nova", "DELETE", f"/servers/{pair.a}/os-volume_attachments/{pair.volume}")

    stuck(detach, cloud, pair.volume, pair.a, 1.2)


@pytest.mark.parametrize("hidden", [False, True])
def test_a_detach_that_a_compute_service_may_work_on_gets_the_time_that_a_stubborn_guest_takes(
    cloud: Any, pair: Any, emulator: Any, monkeypatch: pytest.MonkeyPatch, hidden: bool
) -> None:
    """It took the detach up and never ended it, or the project may not see whether it did."""
    attach(cloud, pair.volume, pair.a, 5)
    cloud.settings = dataclasses.replace(cloud.settings, repeat_after=0.2)
    if hidden:
        emulator.api_fault("server_actions", "error", status=403, times=99)
        emulator.api_fault("detach", "unsent", status=202)
    else:
        emulator.api_fault("detach", "stuck")

    stuck(detach, cloud, pair.volume, pair.a, 1.2)
    monkeypatch.setattr(volumes, "UNPLUG", 0.3)
    detach(cloud, pair.volume, pair.a, 20)

    assert detaches(emulator) == 1


def test_the_detach_of_another_client_is_not_taken_back_in_place_of_a_lost_one(
    cloud: Any, pair: Any, emulator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other client is quicker, and its detach is taken up."""
    attach(cloud, pair.volume, pair.a, 5)
    volumes, taken_back = cloud.volumes.volumes, []
    roll_detaching = volumes.roll_detaching

    def another_is_quicker(volume: str) -> None:
        roll_detaching(volume)
        taken_back.append(volume)
        emulator.api_fault("detach", "stuck")
        cloud.send("Nova", "DELETE", f"/servers/{pair.a}/os-volume_attachments/{volume}")

    monkeypatch.setattr(volumes, "roll_detaching", another_is_quicker)
    emulator.api_fault("detach", "unsent", status=202)

    stuck(detach, cloud, pair.volume, pair.a, 1.5)

    assert taken_back == [pair.volume]


def test_a_detach_that_nova_keeps_failing_is_transient(
    cloud: Any, pair: Any, emulator: Any
) -> None:
    attach(cloud, pair.volume, pair.a, 5)
    cloud.settings = dataclasses.replace(cloud.settings, repeat_after=0.2)
    emulator.api_fault("detach", "unsent", status=503, times=99)

    with pytest.raises(CloudError) as raised:
        detach(cloud, pair.volume, pair.a, 1.5)

    error = raised.value
    assert (error.code, error.transient, error.unknown) == ("SERVER_ERROR", True, True)
    assert (error.service, error.detail) == ("Nova", "HTTP 503")


@pytest.mark.parametrize("fault", ["lost", "drop"])
def test_a_detach_that_the_compute_service_works_on_is_harmed_by_no_second_one(
    cloud: Any, pair: Any, emulator: Any, fault: str
) -> None:
    """It takes longer than a request is waited for."""
    attach(cloud, pair.volume, pair.a, 5)
    cloud.settings = dataclasses.replace(cloud.settings, repeat_after=0.2)
    emulator.set_latency(detach=1.5)
    emulator.api_fault("detach", fault, status=500)

    detach(cloud, pair.volume, pair.a, 20)

    emulator.set_latency(detach=0)
    assert attach(cloud, pair.volume, pair.b, 5)["server_id"] == pair.b
    assert detaches(emulator) == 1
    assert emulator.violations() == []


def test_a_project_that_may_not_take_a_detach_back_is_told_what_is_stuck(
    cloud: Any, pair: Any, emulator: Any
) -> None:
    attach(cloud, pair.volume, pair.a, 5)
    cloud.settings = dataclasses.replace(cloud.settings, repeat_after=0.2)
    emulator.api_fault("detach", "unsent", status=500)
    emulator.api_fault("roll_detaching", "error", status=403, times=99)

    error = stuck(detach, cloud, pair.volume, pair.a, 1)

    assert f"openstack volume set --state in-use --attached {pair.volume}" in error.remedy


@pytest.mark.parametrize(("task", "deleted"), [("powering-off", True), ("image_uploading", False)])
def test_only_a_stop_that_never_ends_tells_of_a_dead_host(
    cloud: Any,
    pair: Any,
    operator: Operator,
    monkeypatch: pytest.MonkeyPatch,
    task: str,
    deleted: bool,
) -> None:
    """An image of a server that is off is made by a host that is well."""
    attach(cloud, pair.volume, pair.a, 5)
    words = f"Cannot 'detach_volume' instance {pair.a} while it is in task_state {task}"

    asked = cloud.send

    def refuse(service: str, method: str, path: str, *given: Any, **options: Any) -> Any:
        if method == "DELETE" and "os-volume_attachments" in path:
            raise CloudError("CONFLICT", words)
        return asked(service, method, path, *given, **options)

    monkeypatch.setattr(cloud, "send", refuse)
    release = Release(off="it is off", fenced=True, delete_server=True)

    if deleted:
        detach(cloud, pair.volume, pair.a, 10, release)
    else:
        with pytest.raises(CloudError) as raised:
            detach(cloud, pair.volume, pair.a, 2, release)
        assert raised.value.code in ("TIMEOUT", "VOLUME_STUCK")
    assert operator.server_exists(pair.a) is not deleted
