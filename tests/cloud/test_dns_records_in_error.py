# SPDX-License-Identifier: Apache-2.0
"""A name server that lacks a change is waited for, and named in the end."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import requests

from mistral_failover.cloud import dns_records
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.lab.emulator.client import EmulatorClient


@pytest.fixture
def wanted(emulator: EmulatorClient) -> Iterator[dns_records.WantedRecordset]:
    """What a name in a zone of the test's own should be."""
    url, headers = f"{emulator.url}/dns/v2/zones", {"X-Auth-Token": emulator.token()}
    body = {"name": "errors.org.", "email": "a@b.org"}
    zone = requests.post(url, json=body, headers=headers, timeout=10).json()["id"]
    yield dns_records.WantedRecordset(zone, "db.errors.org.", "A", "192.0.2.1", 30, "of the group")
    requests.delete(f"{url}/{zone}", headers=headers, timeout=10)
    emulator.clear_api_faults()


def test_a_change_that_some_name_server_lacks_is_named_when_the_time_is_over(
    cloud: Cloud, emulator: EmulatorClient, wanted: dns_records.WantedRecordset
) -> None:
    emulator.api_fault("name_server", "fail")

    with pytest.raises(CloudError) as caught:
        dns_records.point(cloud, wanted, 0.3)

    assert caught.value.code == "DNS_ERROR"
    assert "A record db.errors.org." in caught.value.message
    sent = [
        event["method"]
        for event in emulator.audit(kind="request")
        if wanted.zone_id in event["path"] and event["method"] != "GET"
    ]
    assert sent == ["POST"], "Designate itself tries again"


def test_the_next_change_ends_the_error(
    cloud: Cloud, emulator: EmulatorClient, wanted: dns_records.WantedRecordset
) -> None:
    emulator.api_fault("name_server", "fail")
    with pytest.raises(CloudError):
        dns_records.point(cloud, wanted, 0.1)

    _, made = dns_records.point(cloud, dataclasses.replace(wanted, target="192.0.2.2"), 10)

    assert made["target"] == "192.0.2.2"
