# SPDX-License-Identifier: Apache-2.0
"""Catalogues as clouds have them: however an endpoint is written, a service is found; what cannot
be found is said with the words of the catalogue."""

from __future__ import annotations

import http.server
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import server_state
from mistral_failover.cloud.volumes import attach
from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.lab.emulator.server import EmulatedCloud
from support.emulated import Pair

_OF_THE_CONNECTION = {
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "accept-encoding",
}


class _Gateway(http.server.BaseHTTPRequestHandler):
    """Passes on to the cloud what comes below ``/gw``. Bodies stay as they are: the links in them
    lead to where no client outside gets."""

    inside = ""
    lost = "http://127.0.0.1:9"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _pass_on(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        asked = urllib.request.Request(  # noqa: S310 - the cloud of this test
            self.inside + self.path.removeprefix("/gw"),
            data=self.rfile.read(length) if length else None,
            headers={k: v for k, v in self.headers.items() if k.lower() not in _OF_THE_CONNECTION},
            method=self.command,
        )
        try:
            answer: Any = urllib.request.build_opener(_NoRedirect).open(asked, timeout=20)
        except urllib.error.HTTPError as error:
            answer = error
        body = answer.read().replace(self.inside.encode(), self.lost.encode())
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in _OF_THE_CONNECTION:
                self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow none: the caller does."""


@pytest.fixture
def gateway(emulated: EmulatedCloud) -> Iterator[str]:
    """The URL of a gateway before the cloud."""
    handler = type("Gateway", (_Gateway,), {"inside": emulated.url})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/gw"
        server.shutdown()


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


def works(cloud: Cloud, pair: Pair) -> None:
    """Nova, Cinder, Heat, Neutron and Aodh are asked, and something is changed."""
    assert server_state(cloud, pair.a).status == "ACTIVE"
    assert attach(cloud, pair.volume, pair.a, 20)["server_id"] == pair.a
    assert cloud.volume(pair.volume).status == "in-use"
    assert cloud.heat.stacks.get(pair.name).stack_status == "CREATE_COMPLETE"
    assert cloud.read("Neutron", "/v2.0/networks")["networks"]
    assert cloud.read("Aodh", "/v2/alarms") == []


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
