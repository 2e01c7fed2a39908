# SPDX-License-Identifier: Apache-2.0
"""A device that a compute service reserved after Nova had given the attach up: Nova lists it, there
is no attachment, and Nova attaches the volume nowhere else."""

from __future__ import annotations

import dataclasses
import re
import time
from typing import Any

import pytest

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.volume_holders import holders_of
from mistral_failover.cloud.volumes import attach, detach
from mistral_failover.lab.emulator.client import EmulatorClient
from support.emulated import Pair
from support.nova import nova_of

NO_WORKER = 0.3


@pytest.fixture
def patient(cloud: Cloud) -> Cloud:
    cloud.settings = dataclasses.replace(cloud.settings, repeat_after=NO_WORKER)
    return cloud


@pytest.fixture
def device(patient: Cloud, pair: Pair, emulator: EmulatorClient) -> None:
    """A device of the volume on the server a, left by a request that Nova answered with a 500."""
    emulator.set_latency(rpc_timeout=0.05)
    emulator.api_fault("attach", "queue", seconds=0.1)
    with pytest.raises(Exception, match="Unexpected API Error"):
        nova_of(patient).create_volume_attachment(pair.a, volume=pair.volume)
    while not listed(patient, pair):
        time.sleep(0.01)


def listed(cloud: Cloud, pair: Pair) -> list[Any]:
    return [row.attachment_id for row in nova_of(cloud).volume_attachments(pair.a)]


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("where", ["a", "b"])
def test_it_does_not_keep_the_volume_from_being_attached(
    patient: Cloud, pair: Pair, where: str
) -> None:
    assert listed(patient, pair) == [None]
    server = getattr(pair, where)

    made = attach(patient, pair.volume, server, 10)

    assert made["server_id"] == server
    assert [c.id for c in holders_of(patient, pair.volume)] == [made["attachment_id"]]
    assert listed(patient, pair) == ([made["attachment_id"]] if where == "a" else [])


@pytest.mark.usefixtures("device")
def test_it_goes_when_the_volume_is_to_be_free_of_the_server(patient: Cloud, pair: Pair) -> None:
    detach(patient, pair.volume, pair.a, 10)

    assert listed(patient, pair) == []
    assert holders_of(patient, pair.volume) == []
    assert patient.volumes.volumes.get(pair.volume).status == "available"


@pytest.mark.usefixtures("device")
def test_it_is_left_alone_while_nova_may_be_at_work_on_it(
    patient: Cloud, pair: Pair, emulator: EmulatorClient
) -> None:
    patient.settings = dataclasses.replace(patient.settings, repeat_after=60)

    with pytest.raises(CloudError) as raised:
        detach(patient, pair.volume, pair.a, 0.5)

    assert raised.value.code == "TIMEOUT"
    assert "but Nova lists it on the server" in raised.value.message
    assert listed(patient, pair) == [None]
    assert not any(event["kind"] == "detach_begin" for event in emulator.audit())


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("verb", [attach, detach])
def test_what_nova_does_not_give_up_is_a_person_s_and_nothing_more_is_left(
    patient: Cloud, pair: Pair, emulator: EmulatorClient, verb: Any
) -> None:
    """As libvirt's driver, which fails where it finds nothing to disconnect."""
    emulator.api_fault("detach", "fail", times=9)

    with pytest.raises(CloudError) as raised:
        verb(patient, pair.volume, pair.a, 10)

    error = raised.value
    assert (error.code, error.blocked) == ("DEVICE_LEFT", True)
    assert f"openstack server delete {pair.a}" in error.remedy
    assert holders_of(patient, pair.volume) == []
    assert patient.volumes.volumes.get(pair.volume).status == "available"


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("verb", [attach, detach])
@pytest.mark.parametrize("completed", [False, True])
def test_an_attempt_that_died_over_it_is_gone_on_with(
    patient: Cloud, pair: Pair, verb: Any, completed: bool
) -> None:
    made = patient.volumes.attachments.create(pair.volume, None, pair.a)["id"]
    if completed:
        patient.volumes.attachments.complete(made)

    verb(patient, pair.volume, pair.a, 10)

    own = [c.id for c in holders_of(patient, pair.volume)]
    assert own == listed(patient, pair)
    assert len(own) == (1 if verb is attach else 0)
    assert made not in own


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("fault", ["hold", "drop"])
@pytest.mark.parametrize(
    ("operation", "method", "path"),
    [
        ("volume_attachment_create", "POST", r"/attachments\Z"),
        ("detach", "DELETE", r"/os-volume_attachments/[^/]+\Z"),
    ],
)
def test_a_request_for_it_that_is_not_answered_is_sent_once(
    patient: Cloud,
    pair: Pair,
    emulator: EmulatorClient,
    operation: str,
    method: str,
    path: str,
    fault: str,
) -> None:
    """It takes effect late, or at once and without an answer."""
    patient.session.timeout = 0.2
    patient.settings = dataclasses.replace(
        patient.settings, http_timeout=0.2, poll_ceiling=0.05, repeat_after=1.2
    )
    emulator.api_fault(operation, fault, seconds=0.6, times=9)

    detach(patient, pair.volume, pair.a, 20)

    emulator.clear_api_faults()
    sent = [
        event["path"]
        for event in emulator.audit()
        if event["kind"] == "request"
        and event["method"] == method
        and re.search(path, event["path"])
    ]
    assert len(sent) == 1, sent
    assert listed(patient, pair) == []
    assert holders_of(patient, pair.volume) == []
