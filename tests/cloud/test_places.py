# SPDX-License-Identifier: Apache-2.0
"""Where services are: by the catalog in each of its usual forms, and by what an entry of
clouds.yaml says instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.session import session_for
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.settings import Settings
from support import one_place

FOUND = {
    "Nova": ("/servers", {"servers": []}),
    "Cinder": ("/volumes", {"volumes": []}),
    "Heat": ("/stacks", {"stacks": []}),
    "Neutron": ("/v2.0/ports", {"ports": []}),
    "Octavia": ("/v2/lbaas/pools", {"pools": []}),
    "Designate": ("/v2/zones", {"zones": []}),
    "Aodh": ("/v2/alarms", []),
}
WHERE = {
    "Nova": "/compute/v2.1/servers",
    "Cinder": "/volume/v3/p/volumes",
    "Heat": "/heat/v1/p/stacks",
    "Neutron": "/network/v2.0/ports",
    "Octavia": "/load-balancer/v2/lbaas/pools",
    "Designate": "/dns/v2/zones",
    "Aodh": "/alarming/v2/alarms",
}


def read(cloud: Cloud, service: str) -> Any:
    match service:
        case "Cinder":
            return cloud.volumes.volumes.list(limit=1, detailed=False)
        case "Heat":
            return list(cloud.heat.stacks.list(limit=1))
    return cloud.read(service, FOUND[service][0])


class Keystone:
    """A Keystone whose catalog a test changes, and all services beside it."""

    def __init__(self, server: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server, self.catalog = server, one_place.catalog(server.url)
        self._file = folder / "clouds.yaml"
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(self._file))
        server.reply = self._reply

    def _reply(self, request: Any) -> Any:
        path = request.path.partition("?")[0]
        if path.endswith("/auth/tokens"):
            token = {
                "methods": ["password"],
                "user": {"id": "u", "name": "u", "domain": {"id": "d", "name": "d"}},
                "project": {"id": "p", "name": "p", "domain": {"id": "d", "name": "d"}},
                "expires_at": "2100-01-01T00:00:00.000000Z",
                "issued_at": "2020-01-01T00:00:00.000000Z",
                "catalog": self.catalog,
            }
            return 201, {"X-Subject-Token": "t"}, {"token": token}
        if path.rstrip("/").endswith("/identity/v3"):
            link = {"rel": "self", "href": f"{self.server.url}/identity/v3/"}
            return 200, {}, {"version": {"id": "v3.14", "status": "stable", "links": [link]}}
        if known := one_place.versions(self.server.url, path):
            return 200, {}, known
        for end, body in FOUND.values():
            if path.endswith(end):
                return 200, {}, body
        return 404, {}, {"error": {"message": "no"}}

    def place(self, kind: str, path: str, interface: str = "public") -> None:
        """Let the catalog have a service at a path, and nowhere else."""
        (entry,) = (each for each in self.catalog if each["type"] == kind)
        entry["endpoints"][0] |= {"url": self.server.url + path, "interface": interface}

    def cloud(self, **entry: Any) -> Cloud:
        """The cloud of an entry of clouds.yaml."""
        auth = {"auth_url": f"{self.server.url}/identity/v3", "username": "u", "password": "p"}
        auth |= {"project_name": "p", "user_domain_id": "d", "project_domain_id": "d"}
        clouds = {"clouds": {"mine": {"auth": auth, "region_name": "R", **entry}}}
        self._file.write_text(yaml.safe_dump(clouds))
        settings = Settings(cloud="mine", http_timeout=5)
        return Cloud(session_for(object(), guard=Unguarded(60), settings=settings), settings)

    def reached(self, cloud: Cloud, service: str) -> str:
        """Where a service was asked."""
        read(cloud, service)
        return str(self.server.seen[-1].path.partition("?")[0])


@pytest.fixture
def keystone(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keystone:
    return Keystone(server, tmp_path, monkeypatch)


@pytest.mark.parametrize("service", FOUND)
def test_each_service_is_found_in_the_catalog(keystone: Keystone, service: str) -> None:
    assert keystone.reached(keystone.cloud(), service) == WHERE[service]


@pytest.mark.parametrize(
    ("service", "kind", "path"),
    [
        ("Nova", "compute", "/compute"),
        ("Nova", "compute", "/compute/"),
        ("Nova", "compute", "/compute/v2.1/"),
        ("Cinder", "block-storage", "/volume/v3/p/"),
        ("Heat", "orchestration", "/heat/v1/p/"),
        ("Neutron", "network", "/network/"),
        ("Neutron", "network", "/network/v2.0"),
        ("Neutron", "network", "/network/v2.0/"),
        ("Octavia", "load-balancer", "/load-balancer/v2"),
        ("Octavia", "load-balancer", "/load-balancer/v2.0/"),
        ("Designate", "dns", "/dns/v2/"),
        ("Aodh", "alarming", "/alarming/v2"),
    ],
)
def test_a_catalog_may_name_a_version_or_not(
    keystone: Keystone, service: str, kind: str, path: str
) -> None:
    keystone.place(kind, path)

    assert keystone.reached(keystone.cloud(), service).replace("//", "/") == WHERE[service]


@pytest.mark.parametrize("service", FOUND)
def test_the_interface_of_an_entry_counts(keystone: Keystone, service: str) -> None:
    for kind, path in one_place.PATHS.items():
        keystone.place(kind, f"/{path}", "internal")

    assert keystone.reached(keystone.cloud(interface="internal"), service) == WHERE[service]
    with pytest.raises(CloudError) as raised:
        read(keystone.cloud(), service)
    assert raised.value.code == "NO_ENDPOINT"


@pytest.mark.parametrize(
    ("service", "key", "path"),
    [
        ("Nova", "compute_endpoint_override", "/compute/v2.1"),
        ("Nova", "compute_endpoint_override", "/compute"),
        ("Cinder", "block_storage_endpoint_override", "/volume/v3/p"),
        ("Heat", "orchestration_endpoint_override", "/heat/v1/p"),
        ("Neutron", "network_endpoint_override", "/network/v2.0/"),
        ("Octavia", "load_balancer_endpoint_override", "/load-balancer"),
        ("Designate", "dns_endpoint_override", "/dns"),
        ("Aodh", "alarming_endpoint_override", "/alarming"),
    ],
)
def test_the_endpoint_of_an_entry_counts(
    keystone: Keystone, service: str, key: str, path: str
) -> None:
    for kind in one_place.PATHS:
        keystone.place(kind, "/nowhere")

    cloud = keystone.cloud(**{key: keystone.server.url + path})

    assert keystone.reached(cloud, service).replace("//", "/") == WHERE[service]


def test_a_region_that_the_catalog_does_not_have_is_named(keystone: Keystone) -> None:
    with pytest.raises(CloudError) as raised:
        read(keystone.cloud(region_name="r"), "Nova")

    assert raised.value.code == "NO_ENDPOINT"
    assert "in r region" in raised.value.message
