# SPDX-License-Identifier: Apache-2.0
"""The services by HTTP, for what a test wants to see of their answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import requests
from keystoneauth1.identity import v3
from keystoneauth1.session import Session

SERVICES = {
    "nova": "compute",
    "cinder": "volumev3",
    "heat": "orchestration",
    "neutron": "network",
    "octavia": "load-balancer",
    "designate": "dns",
    "aodh": "alarming",
}
_HEADERS = {"nova": "compute {}", "cinder": "volume {}"}
_NEWEST = {"nova": "2.96", "cinder": "3.70"}


CONNECTOR = {
    "initiator": "iqn.2026-11.org.example:node",
    "ip": "192.0.2.1",
    "host": "elsewhere",
    "multipath": False,
    "platform": "x86_64",
    "os_type": "linux",
    "mountpoint": "/dev/vdx",
}


@dataclass(frozen=True)
class Person:
    """Somebody with a password, in a project."""

    user: str
    password: str
    project: str


class Api:
    """The services as somebody reaches them by HTTP: no client in between, no exception."""

    def __init__(
        self, auth_url: str, person: Person, places: Mapping[str, str] | None = None
    ) -> None:
        """``places``: where services are that the catalog has elsewhere, or not at all."""
        self._places = {} if places is None else places
        self.session = Session(
            v3.Password(
                auth_url,
                username=person.user,
                password=person.password,
                project_name=person.project,
                user_domain_id="default",
                project_domain_id="default",
            )
        )

    def call(
        self, service: str, method: str, path: str, body: Any = None, version: str | None = None
    ) -> requests.Response:
        """The answer to a request; ``service``: nova, cinder, heat, neutron, octavia,
        designate, aodh."""
        headers = {}
        if service in _HEADERS:
            version = version or _NEWEST[service]
            headers["OpenStack-API-Version"] = _HEADERS[service].format(version)
        return self.session.request(
            self.url(service) + path,
            method,
            json=body,
            headers=headers,
            raise_exc=False,
            redirect=False,
        )

    def url(self, service: str) -> str:
        """Where the service is, for this person's project."""
        if service in self._places:
            return self._places[service]
        found = self.session.get_endpoint(service_type=SERVICES[service], interface="public")
        return str(found).rstrip("/")

    def nova(
        self, method: str, path: str, body: Any = None, version: str | None = None
    ) -> requests.Response:
        """Nova's answer."""
        return self.call("nova", method, path, body, version)

    def cinder(self, method: str, path: str, body: Any = None) -> requests.Response:
        """Cinder's answer."""
        return self.call("cinder", method, path, body)

    def heat(self, method: str, path: str, body: Any = None) -> requests.Response:
        """Heat's answer."""
        return self.call("heat", method, path, body)

    def neutron(self, method: str, path: str, body: Any = None) -> requests.Response:
        """Neutron's answer."""
        return self.call("neutron", method, f"/v2.0{path}", body)

    def octavia(self, method: str, path: str, body: Any = None) -> requests.Response:
        """Octavia's answer."""
        return self.call("octavia", method, f"/v2/lbaas{path}", body)

    def designate(self, method: str, path: str, body: Any = None) -> requests.Response:
        """Designate's answer."""
        return self.call("designate", method, f"/v2{path}", body)

    def aodh(self, method: str, path: str, body: Any = None) -> requests.Response:
        """Aodh's answer."""
        return self.call("aodh", method, f"/v2{path}", body)

    def port(self, port_id: str) -> dict[str, Any] | None:
        """A port, None when there is none."""
        answer = self.neutron("GET", f"/ports/{port_id}")
        return dict(answer.json()["port"]) if answer.ok else None

    def floating_ip(self, floating_ip_id: str) -> dict[str, Any] | None:
        """A floating IP, None when there is none."""
        answer = self.neutron("GET", f"/floatingips/{floating_ip_id}")
        return dict(answer.json()["floatingip"]) if answer.ok else None

    def server(self, server_id: str) -> dict[str, Any] | None:
        """A server, None when there is none."""
        answer = self.nova("GET", f"/servers/{server_id}")
        return dict(answer.json()["server"]) if answer.ok else None

    def volume(self, volume_id: str) -> dict[str, Any] | None:
        """A volume, None when there is none."""
        answer = self.cinder("GET", f"/volumes/{volume_id}")
        return dict(answer.json()["volume"]) if answer.ok else None

    def attach(self, server_id: str, volume_id: str) -> requests.Response:
        """The answer to a request to attach a volume."""
        body = {"volumeAttachment": {"volumeId": volume_id}}
        return self.nova("POST", f"/servers/{server_id}/os-volume_attachments", body)

    def detach(self, server_id: str, volume_id: str) -> requests.Response:
        """The answer to a request to detach a volume."""
        return self.nova("DELETE", f"/servers/{server_id}/os-volume_attachments/{volume_id}")

    def act(self, server_id: str, **action: Any) -> requests.Response:
        """The answer to an action on a server, such as ``os_stop=None``."""
        body = {name.replace("_", "-", 1): value for name, value in action.items()}
        return self.nova("POST", f"/servers/{server_id}/action", body)

    def reset_volume(self, volume_id: str, status: str, **more: str) -> requests.Response:
        """The answer to a request to call a volume something."""
        body = {"os-reset_status": {"status": status, **more}}
        return self.cinder("POST", f"/volumes/{volume_id}/action", body)

    def claim(self, volume: str, server: str, *, connected: bool) -> str:
        """Make an attachment that Nova knows nothing of; its id."""
        asked: dict[str, Any] = {"volume_uuid": volume, "instance_uuid": server}
        if connected:
            asked["connector"] = CONNECTOR
        answer = self.cinder("POST", "/attachments", {"attachment": asked})
        assert answer.status_code == 200, answer.text
        identity = str(answer.json()["attachment"]["id"])
        if connected:
            done = self.cinder("POST", f"/attachments/{identity}/action", {"os-complete": {}})
            assert done.status_code == 204, done.text
        return identity
