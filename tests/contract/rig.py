# SPDX-License-Identifier: Apache-2.0
"""A cloud to hold the adapters to: the emulated one, or a real one.

The tests know nothing else of the cloud than this, so that they are the same for both. Everything
here goes through the services' own API; what has no API (the death of a host) is a rig's own.
"""

from __future__ import annotations

import re
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import requests
from keystoneauth1.adapter import Adapter
from keystoneauth1.exceptions import EndpointNotFound

from contract.api import SERVICES, Api, Person
from mistral_failover.cloud.clients import Cloud, cloud_for
from mistral_failover.cloud.transport import Guard, Unguarded
from mistral_failover.settings import Settings

UNKNOWN_ID = "0b5e9d2c-9a4f-4e0f-9a53-0d5f0c1e7a11"
"""An id that nothing has."""


@dataclass(frozen=True)
class Made:
    """A stack: its name, its id, and the physical ids of its resources."""

    name: str
    id: str
    ids: Mapping[str, str]

    @property
    def path(self) -> str:
        """Where Heat has it."""
        return f"/stacks/{self.name}/{self.id}"


class Rig(ABC):
    """A cloud with the people ``demo``, ``other`` and ``admin``.

    :ivar settings: those of the adapters under test.
    :ivar victim: the host that may die; ``steady``: one that never does.
    :ivar image, flavor: names that a template may use.
    """

    image = "tiny"
    settings: Settings
    victim: str
    steady: str
    flavor: str

    def __init__(self, auth_url: str, people: Mapping[str, Person]) -> None:
        self.auth_url = auth_url
        self._people = dict(people)
        self._apis: dict[str, Api] = {}
        self.places: dict[str, str] = {}
        """Where services are that the catalog has elsewhere, or not at all."""
        self.prefix = f"contract-{secrets.token_hex(3)}"
        self._count = 0

    # What only the cloud itself can do.

    @abstractmethod
    def kill(self, host: str, unnoticed: Callable[[], None] | None = None) -> None:
        """Let the compute service of a host die, and wait until Nova says that it is down.

        What ``unnoticed`` asks of it does not reach the host, though Nova still takes it for alive.
        """

    @abstractmethod
    def revive(self, host: str) -> None:
        """Start the compute service of a host again, and wait until Nova says that it is up."""

    @abstractmethod
    def forget_tokens(self) -> None:
        """Let the services ask Keystone again about tokens that they know."""

    @abstractmethod
    def seconds(self, real: float) -> float:
        """How long something takes here that takes so many seconds in a real cloud."""

    def long_enough(self, real: float) -> float:
        """The same, for what has to be under way during some calls, on a busy machine too."""
        return max(1.0, self.seconds(real))

    @abstractmethod
    def boot_nowhere(self, root: str) -> str:
        """Ask for a server that no host has room for, which boots from a volume."""

    @property
    @abstractmethod
    def image_id(self) -> str:
        """The image's id."""

    @property
    @abstractmethod
    def flavor_id(self) -> str:
        """The flavor's id."""

    @property
    @abstractmethod
    def network_id(self) -> str:
        """A network of demo's own, whose ports may get floating IPs."""

    @property
    def services(self) -> dict[str, str]:
        """The beginning of the addresses of each service, and its name."""
        found = {self.auth_url: "keystone"}
        for service in SERVICES:
            with suppress(EndpointNotFound):
                url = self.api().url(service)
                found[re.sub(r"(/v[0-9.]+)/.*", r"\1", url)] = service
        return found

    # People.

    def api(self, name: str = "demo") -> Api:
        """The services as somebody reaches them; "admin" is one within demo's project."""
        if name not in self._apis:
            person = self._people[name]
            if name == "admin":
                person = Person(person.user, person.password, self._people["demo"].project)
            self._apis[name] = Api(self.auth_url, person, self.places)
        return self._apis[name]

    def password(self, name: str) -> Person:
        """Somebody's name and password."""
        return self._people[name]

    def login(self, name: str) -> dict[str, str]:
        """How a service logs in to Keystone as a user, as in its configuration."""
        person = self._people[name]
        return {
            "auth_type": "password",
            "auth_url": self.auth_url,
            "username": person.user,
            "password": person.password,
            "project_name": person.project,
            "user_domain_id": "default",
            "project_domain_id": "default",
        }

    def token(self, name: str = "demo") -> str:
        """A token of a user that is used nowhere else."""
        person = self._people[name]
        return self._asked_for(
            {
                "methods": ["password"],
                "password": {
                    "user": {
                        "name": person.user,
                        "domain": {"id": "default"},
                        "password": person.password,
                    }
                },
            },
            {"project": {"name": person.project, "domain": {"id": "default"}}},
        )

    def trust(self, name: str = "demo", *, lifetime: float | None = None) -> tuple[str, str]:
        """A token by which the user ``other`` acts as somebody, as an alarm's would; and its trust.

        ``lifetime``: seconds until the trust ends, and the token with it.
        """
        own, others = self.token(name), self.token("other")
        asked: dict[str, Any] = {
            "trustor_user_id": self.user_id(name),
            "trustee_user_id": self.user_id("other"),
            "project_id": self.project_id(name),
            "impersonation": True,
            "roles": [{"name": role} for role in self.roles],
        }
        if lifetime is not None:
            end = datetime.now(UTC) + timedelta(seconds=lifetime)
            asked["expires_at"] = end.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        made = self.keystone("POST", "/OS-TRUST/trusts", own, {"trust": asked})
        assert made.status_code == 201, made.text
        trust = str(made.json()["trust"]["id"])
        way = {"methods": ["token"], "token": {"id": others}}
        return self._asked_for(way, {"OS-TRUST:trust": {"id": trust}}), trust

    def restricted(self, rules: Sequence[Mapping[str, str]]) -> str:
        """A token of an application credential of demo that is only for these requests, each with
        service, method and path."""
        asked = {"name": self.name(), "access_rules": [dict(rule) for rule in rules]}
        made = self.keystone(
            "POST",
            f"/users/{self.user_id()}/application_credentials",
            self.token(),
            {"application_credential": asked},
        )
        assert made.status_code == 201, made.text
        known = made.json()["application_credential"]
        given = {"id": known["id"], "secret": known["secret"]}
        return self._asked_for(
            {"methods": ["application_credential"], "application_credential": given}
        )

    def by_trust(self, trust: str) -> requests.Response:
        """Keystone's answer to ``other``, who asks for one more token by a trust."""
        way = {"methods": ["token"], "token": {"id": self.token("other")}}
        body = {"auth": {"identity": way, "scope": {"OS-TRUST:trust": {"id": trust}}}}
        return self.keystone("POST", "/auth/tokens", body=body)

    def end_trust(self, trust: str, name: str = "demo") -> None:
        """Delete somebody's trust."""
        answer = self.keystone("DELETE", f"/OS-TRUST/trusts/{trust}", self.token(name))
        assert answer.status_code == 204, answer.text
        self.forget_tokens()

    @contextmanager
    def newcomer(self) -> Iterator[str]:
        """A user with the role ``member`` in demo's project, used nowhere else."""
        name = self.name()
        self._people[name] = Person(name, name, self._people["demo"].project)
        self._hire(name)
        yield name
        self._dismiss(name)

    @abstractmethod
    def _hire(self, name: str) -> None:
        """Add a user to demo's project, whose password is the name."""

    @abstractmethod
    def _dismiss(self, name: str) -> None:
        """Remove them."""

    def enable(self, user_id: str, enabled: bool) -> None:
        """Enable or disable somebody, and let the services hear of it."""
        body = {"user": {"enabled": enabled}}
        answer = self.keystone("PATCH", f"/users/{user_id}", self.token("admin"), body)
        assert answer.status_code == 200, answer.text
        self.forget_tokens()

    def revoke(self, token: str) -> None:
        """Revoke a token, and let the services hear of it."""
        headers = {"X-Subject-Token": token}
        answer = self.keystone("DELETE", "/auth/tokens", token, headers=headers)
        assert answer.status_code == 204, answer.text
        self.forget_tokens()

    def keystone(
        self,
        method: str,
        path: str,
        token: str | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Keystone's answer."""
        sent = {**({"X-Auth-Token": token} if token else {}), **(headers or {})}
        return requests.request(method, self.auth_url + path, json=body, headers=sent, timeout=30)

    def _asked_for(
        self, identity: Mapping[str, Any], scope: Mapping[str, Any] | None = None
    ) -> str:
        body = {"auth": {"identity": identity, **({"scope": scope} if scope else {})}}
        answer = self.keystone("POST", "/auth/tokens", body=body)
        assert answer.status_code == 201, answer.text
        return answer.headers["X-Subject-Token"]

    roles: Sequence[str] = ("member",)
    """Those that a trust passes on."""

    def project_id(self, name: str = "demo") -> str:
        """The id of somebody's project."""
        return str(self.api(name).session.get_project_id())

    def user_id(self, name: str = "demo") -> str:
        """Somebody's id."""
        return str(self.api(name).session.get_user_id())

    def connect(
        self,
        name: str = "demo",
        *,
        token: str | None = None,
        trust: bool = True,
        guard: Guard | None = None,
        **more: Any,
    ) -> Cloud:
        """The adapters with somebody's token: a given one, by a trust, or by a password."""
        if token is None:
            token = self.trust(name)[0] if trust else self.token(name)
        security = SimpleNamespace(
            **{
                "auth_uri": self.auth_url,
                "auth_token": token,
                "project_id": self.project_id(name),
                "region_name": "RegionOne",
                **more,
            }
        )
        cloud = cloud_for(security, guard=guard or Unguarded(), settings=self.settings)
        usual = cloud._adapter

        def adapter(service: str, **more: Any) -> Adapter:
            found = usual(service, **more)
            found.endpoint_override = self.places.get(service.lower())
            return found

        cloud._adapter = adapter  # type: ignore[method-assign]
        return cloud

    # What there is.

    def name(self) -> str:
        """A name that nothing has had."""
        self._count += 1
        return f"{self.prefix}-{self._count}"

    def until(self, probe: Callable[[], Any], limit: float = 90.0) -> Any:
        """Ask until the answer is true, and return it. Each question costs the services processor
        time, so the pauses grow a little."""
        deadline = time.monotonic() + limit
        pause = self.settings.poll_first
        while not (found := probe()):
            assert time.monotonic() < deadline, "it did not come to pass"
            time.sleep(pause)
            pause = min(pause * 1.2, 3 * self.settings.poll_first)
        return found

    def boot(
        self,
        host: str | None = None,
        *,
        user: str = "demo",
        root: str | None = None,
        network: str | None = None,
        flavor: str | None = None,
    ) -> str:
        """Ask for a server, on a host, of a root volume, of a flavor and with a port on a network
        if one is named."""
        asked: dict[str, Any] = {
            "name": self.name(),
            "flavorRef": flavor or self.flavor_id,
            "networks": "none" if network is None else [{"uuid": network}],
        }
        if root is None:
            asked["imageRef"] = self.image_id
        else:
            asked["block_device_mapping_v2"] = [
                {
                    "boot_index": 0,
                    "uuid": root,
                    "source_type": "volume",
                    "destination_type": "volume",
                }
            ]
        if host is not None:
            asked["availability_zone"] = f"nova:{host}"
            user = "admin"
        answer = self.api(user).nova("POST", "/servers", {"server": asked})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["server"]["id"])

    def active(self, *servers: str, user: str = "demo") -> None:
        """Wait until the servers run."""
        for server_id in servers:
            self.until(lambda s=server_id: self.state(s, user)[0] in ("ACTIVE", "ERROR"))
            assert self.state(server_id, user)[0] == "ACTIVE", self.api(user).server(server_id)

    def state(self, server_id: str, user: str = "demo") -> tuple[str | None, str | None]:
        """A server's status and task state, of one that is gone (None, None)."""
        shown = self.api(user).server(server_id) or {}
        return shown.get("status"), shown.get("OS-EXT-STS:task_state")

    def remove_servers(self, servers: Iterable[str], user: str = "demo") -> None:
        """Delete servers, and wait until they are gone."""
        servers = list(servers)
        for server_id in servers:
            self.api(user).nova("DELETE", f"/servers/{server_id}")
        for server_id in servers:
            self.until(lambda s=server_id: self.api(user).server(s) is None)

    def make_volume(self, *, bootable: bool = False, **more: Any) -> str:
        """A volume, available."""
        asked = {"size": 1, "name": self.name(), **more}
        answer = self.api().cinder("POST", "/volumes", {"volume": asked})
        assert answer.status_code == 202, answer.text
        volume_id = str(answer.json()["volume"]["id"])
        self.until(lambda: self.volume_status(volume_id) not in ("creating", "downloading"))
        assert self.volume_status(volume_id) == "available"
        if bootable:
            body = {"os-set_bootable": {"bootable": True}}
            self.api("admin").cinder("POST", f"/volumes/{volume_id}/action", body)
        return volume_id

    def volume_status(self, volume_id: str) -> str | None:
        """A volume's status, of one that is gone None."""
        return (self.api().volume(volume_id) or {}).get("status")

    def holders(self, volume_id: str) -> list[str]:
        """The servers that hold a volume, as Cinder shows it."""
        shown = self.api().volume(volume_id) or {"attachments": []}
        return [held["server_id"] for held in shown["attachments"]]

    def attach(self, server_id: str, volume_id: str) -> None:
        """Attach a volume, and wait until it is there."""
        answer = self.api().attach(server_id, volume_id)
        assert answer.status_code == 200, answer.text
        self.until(lambda: server_id in self.holders(volume_id))
        self.until(lambda: self.volume_status(volume_id) == "in-use")

    def remove_volume(self, volume_id: str) -> None:
        """Delete a volume, whatever its status and its holder are."""
        if self.api().volume(volume_id) is None:
            return
        admin = self.api("admin")
        for server_id in self._lists(volume_id):
            if self.volume_status(volume_id) != "in-use":
                admin.reset_volume(volume_id, "in-use")
            self.until(lambda s=server_id: self._is_free_of(volume_id, s))
        if self.volume_status(volume_id) not in ("available", None):
            admin.reset_volume(volume_id, "available", attach_status="detached")
        self.api().cinder("DELETE", f"/volumes/{volume_id}")

    def _is_free_of(self, volume_id: str, server_id: str) -> bool:
        """Ask again each time: a request may be refused for what is under way."""
        if server_id not in self._lists(volume_id):
            return True
        self.api().detach(server_id, volume_id)
        return False

    def _lists(self, volume_id: str) -> list[str]:
        """The servers that have a volume, or are about to, as Cinder's attachments say."""
        answer = self.api().cinder("GET", f"/attachments?volume_id={volume_id}")
        return [row["instance"] for row in answer.json()["attachments"] if row["instance"]]

    def within_demo(self, name: str) -> Cloud:
        """The adapters with a user's own token, in demo's project: "demo", or "admin"."""
        return self.connect(name, token=str(self.api(name).session.get_token()))

    def make_port(self) -> str:
        """A port on demo's network, on no server."""
        body = {"port": {"network_id": self.network_id, "name": self.name()}}
        return self._of_neutron("ports", body)

    def make_floating_ip(self, user: str = "demo") -> str:
        """A floating IP, associated with nothing."""
        (public,) = self.api(user).neutron("GET", "/networks?name=public").json()["networks"]
        body = {"floatingip": {"floating_network_id": public["id"]}}
        return self._of_neutron("floatingips", body, user)

    def remove_of_neutron(self, kind: str, identity: str, user: str = "demo") -> None:
        """Delete a port (``ports``) or a floating IP (``floatingips``), also one in use, and
        wait until it is gone."""
        path = f"/{kind}/{identity}"
        self.until(lambda: self.api(user).neutron("DELETE", path).status_code in (204, 404))

    def _of_neutron(self, kind: str, body: Mapping[str, Any], user: str = "demo") -> str:
        answer = self.api(user).neutron("POST", f"/{kind}", body)
        assert answer.status_code == 201, answer.text
        (made,) = answer.json().values()
        return str(made["id"])

    def port_of(self, server_id: str) -> str:
        """The id of a server's first port."""
        return str(
            self.api().neutron("GET", f"/ports?device_id={server_id}").json()["ports"][0]["id"]
        )

    def make_stack(
        self, template: Mapping[str, Any], files: Mapping[str, str] | None = None, **more: Any
    ) -> Made:
        """A stack, complete; ``more``: of Heat's request."""
        name = self.name()
        body = {"stack_name": name, "template": template, "files": files or {}, **more}
        answer = self.api().heat("POST", "/stacks", body)
        assert answer.status_code == 201, answer.text
        made = Made(name, str(answer.json()["stack"]["id"]), {})
        assert self.settled(made) == "CREATE_COMPLETE", self.stack(made)
        rows = self.api().heat("GET", f"{made.path}/resources").json()["resources"]
        ids = {row["resource_name"]: row["physical_resource_id"] for row in rows}
        return Made(name, made.id, ids)

    def stack(self, made: Made) -> dict[str, Any]:
        """A stack as Heat shows it."""
        return dict(self.api().heat("GET", made.path).json()["stack"])

    def settled(self, made: Made) -> str:
        """Wait until nothing happens to a stack; the status that it then has."""

        def status() -> str | None:
            found = str(self.stack(made)["stack_status"])
            return None if found.endswith("IN_PROGRESS") else found

        return str(self.until(status))

    def patch(self, made: Made, **body: Any) -> requests.Response:
        """The answer to a PATCH of a stack."""
        return self.api().heat("PATCH", made.path, body)

    def remove_stack(self, made: Made) -> None:
        """Delete a stack, and wait until it is gone."""
        self.settled(made)
        self.api().heat("DELETE", made.path)
        self.until(lambda: self.api().heat("GET", f"/stacks/{made.name}").status_code == 404)

    def service(self, host: str) -> str:
        """What Nova calls a host's compute service: up or down."""
        query = f"/os-services?binary=nova-compute&host={host}"
        rows = self.api("admin").nova("GET", query).json()["services"]
        return str(next(row["state"] for row in rows if row["host"] == host))
