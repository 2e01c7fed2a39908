# SPDX-License-Identifier: Apache-2.0
"""Catalogues as clouds have them: however an endpoint is written, a service is found; what cannot
be found is said with the words of the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import server_state
from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.lab.emulator.server import EmulatedCloud
from support.emulated import Pair, works
from support.gateway import gateway


@pytest.fixture(name="gateway")
def _gateway(emulated: EmulatedCloud) -> Iterator[str]:
    """The URL of a gateway before the cloud."""
    with gateway(emulated.url) as url:
        yield url


WAYS: dict[str, dict[str, str | None]] = {
    "without versions": {
        "compute": "{url}/compute",
        "volumev3": "{url}/volume",
        "block-storage": "{url}/volume",
    },
    "with versions": {
        "network": "{url}/network/v2.0",
        "load-balancer": "{url}/load-balancer/v2.0",
        "dns": "{url}/dns/v2",
        "alarming": "{url}/alarming/v2",
        "identity": "{url}/identity/v3",
    },
    "with a slash at the end": {
        "compute": "{url}/compute/v2.1/",
        "network": "{url}/network/",
        "orchestration": "{url}/orchestration/v1/{project}/",
        "volumev3": "{url}/volume/v3/{project}/",
        "block-storage": None,
    },
    "Cinder by its old name only": {"block-storage": None},
    "Cinder by its new name only": {"volumev3": None},
    "Cinder without the project": {
        "volumev3": "{url}/volume/v3",
        "block-storage": "{url}/volume/v3",
    },
    "public endpoints only": {},
    "behind a gateway": {
        "compute": "{gateway}/compute/v2.1",
        "volumev3": "{gateway}/volume/v3/{project}",
        "block-storage": "{gateway}/volume/v3/{project}",
        "network": "{gateway}/network",
        "orchestration": "{gateway}/orchestration/v1/{project}",
        "alarming": "{gateway}/alarming",
    },
    "behind a gateway, without versions": {
        "compute": "{gateway}/compute",
        "volumev3": "{gateway}/volume",
        "block-storage": "{gateway}/volume",
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_every_service_is_found(
    emulator: EmulatorClient, connect: Callable[..., Cloud], pair: Pair, gateway: str, way: str
) -> None:
    endpoints = {kind: url and url.replace("{gateway}", gateway) for kind, url in WAYS[way].items()}
    only_public = {"interfaces": ["public"]} if way == "public endpoints only" else {}
    emulator.configure(endpoints=endpoints, **only_public)

    works(connect(), pair)


def test_a_region_in_another_case_is_named_with_those_that_there_are(
    emulator: EmulatorClient, connect: Callable[..., Cloud], pair: Pair
) -> None:
    emulator.configure(region="REGIONONE")

    with pytest.raises(CloudError) as error:
        server_state(connect(), pair.a)

    assert error.value.code == "NO_ENDPOINT"
    assert "RegionOne" in str(error.value)
    assert "REGIONONE" in error.value.remedy


def test_a_service_that_the_catalogue_lacks_is_named(
    emulator: EmulatorClient, connect: Callable[..., Cloud], pair: Pair
) -> None:
    emulator.configure(endpoints={"orchestration": None})

    with pytest.raises(CloudError) as error:
        connect().heat.stacks.get(pair.name)

    assert error.value.code == "NO_ENDPOINT"
    assert "orchestration" in str(error.value)
    assert "Register" in error.value.remedy
