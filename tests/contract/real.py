# SPDX-License-Identifier: Apache-2.0
"""The test cloud's real services as a rig."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import yaml

from contract.api import Api, Person
from contract.rig import Rig
from mistral_failover.settings import Settings
from testcloud import seed, service_processes, settings
from testcloud.processes import Processes

PEOPLE = ("demo", "other", "admin")


class RealRig(Rig):
    """A rig on real services.

    ``entries``: the auth of each of `PEOPLE`, as in clouds.yaml. ``kill`` and ``start`` do that to
    the compute service of a host. ``memcached``: where the services remember tokens.
    """

    settings = Settings(http_timeout=30, poll_first=0.1)

    def __init__(
        self,
        entries: Mapping[str, Mapping[str, str]],
        *,
        victim: str,
        steady: str,
        flavor: str,
        kill: Callable[[str], object],
        start: Callable[[str], object],
        memcached: tuple[str, int],
    ) -> None:
        people = {
            name: Person(auth["username"], auth["password"], auth["project_name"])
            for name, auth in entries.items()
        }
        super().__init__(entries["demo"]["auth_url"], people)
        self.victim, self.steady, self.flavor = victim, steady, flavor
        self._kill, self._start, self._memcached = kill, start, memcached
        self._let_admin_into_demo(Api(self.auth_url, people["admin"]))

    def _let_admin_into_demo(self, admin: Api) -> None:
        """An administrator's own project does not hold what is to be put into a state."""
        session = admin.session
        token = session.get_token()
        query = "/roles?name=admin"
        role = self.keystone("GET", query, token).json()["roles"][0]["id"]
        path = f"/projects/{self.project_id()}/users/{session.get_user_id()}/roles/{role}"
        assert self.keystone("PUT", path, token).status_code == 204

    def kill(self, host: str, unnoticed: Callable[[], None] | None = None) -> None:
        self._kill(host)
        if unnoticed is not None:
            unnoticed()
        self.until(lambda: self.service(host) == "down")

    def revive(self, host: str) -> None:
        self._start(host)
        self.until(lambda: self.service(host) == "up")

    def boot_nowhere(self, root: str) -> str:
        """No quota counts a flavor's disk; its root disk does not matter to one with a volume."""
        size = {"ram": 64, "vcpus": 1, "disk": 1, "OS-FLV-EXT-DATA:ephemeral": 10**8}
        flavors = self.api("admin")
        answer = flavors.nova("POST", "/flavors", {"flavor": {"name": self.name(), **size}})
        assert answer.status_code == 200, answer.text
        flavor = str(answer.json()["flavor"]["id"])
        try:
            server = self.boot(root=root, flavor=flavor)
            self.until(lambda: self.state(server)[0] == "ERROR")
        finally:
            flavors.nova("DELETE", f"/flavors/{flavor}")
        return server

    def _hire(self, name: str) -> None:
        admin = self.token("admin")
        user = {"name": name, "password": name, "domain_id": "default"}
        made = self.keystone("POST", "/users", admin, {"user": user})
        assert made.status_code == 201, made.text
        (role,) = self.keystone("GET", "/roles?name=member", admin).json()["roles"]
        user_id = made.json()["user"]["id"]
        path = f"/projects/{self.project_id()}/users/{user_id}/roles/{role['id']}"
        assert self.keystone("PUT", path, admin).status_code == 204

    def _dismiss(self, name: str) -> None:
        admin = self.token("admin")
        (user,) = self.keystone("GET", f"/users?name={name}", admin).json()["users"]
        assert self.keystone("DELETE", f"/users/{user['id']}", admin).status_code == 204

    def forget_tokens(self) -> None:
        # memcached forgets what is older than the present second of its own clock, which is late
        # on a busy machine.
        with socket.create_connection(self._memcached, timeout=30) as connection:
            began = _clock(connection)
            self.until(lambda: _clock(connection) > began)
            connection.sendall(b"flush_all\r\n")
            assert connection.recv(16).startswith(b"OK")

    def seconds(self, real: float) -> float:
        return real

    @cached_property
    def image_id(self) -> str:
        return self._find("image", "/v2/images", "images", self.image)

    @cached_property
    def flavor_id(self) -> str:
        return self._find("compute", "/flavors", "flavors", self.flavor)

    @cached_property
    def network_id(self) -> str:
        """Made by the first run. Only the owner of a network may allow addresses on its ports."""
        network = self._ensured("networks", {})
        subnet = {"network_id": network, "cidr": "10.98.0.0/24", "ip_version": 4}
        subnet_id = self._ensured("subnets", {**subnet, "enable_dhcp": False})
        demo = self.api()
        (public,) = demo.neutron("GET", "/networks?name=public").json()["networks"]
        gateway = {"external_gateway_info": {"network_id": public["id"]}}
        router = self._ensured("routers", gateway)
        query = f"/ports?device_id={router}&network_id={network}"
        if not demo.neutron("GET", query).json()["ports"]:
            path = f"/routers/{router}/add_router_interface"
            answer = demo.neutron("PUT", path, {"subnet_id": subnet_id})
            assert answer.status_code == 200, answer.text
        return network

    def _ensured(self, kind: str, wanted: Mapping[str, Any]) -> str:
        """The id of demo's network, subnet or router called ``contract``; an earlier run may have
        ended before it made all of them."""
        query = f"/{kind}?name=contract&project_id={self.project_id()}"
        if found := self.api().neutron("GET", query).json()[kind]:
            return str(found[0]["id"])
        return self._of_neutron(kind, {kind[:-1]: {"name": "contract", **wanted}})

    def _find(self, kind: str, path: str, key: str, name: str) -> str:
        session = self.api().session
        rows: list[dict[str, Any]] = session.get(
            path, endpoint_filter={"service_type": kind, "interface": "public"}
        ).json()[key]
        return str(next(row["id"] for row in rows if row["name"] == name))


def _clock(memcached: socket.socket) -> int:
    """memcached's present second."""
    memcached.sendall(b"stats\r\n")
    said = b""
    while not said.endswith(b"END\r\n"):
        said += memcached.recv(4096)
    (second,) = (line.split()[2] for line in said.splitlines() if line.startswith(b"STAT time "))
    return int(second)


def real_rig() -> RealRig:
    """The rig of the test cloud, which must be up: ``make cloud-up``."""
    cloud = settings.load()
    found = yaml.safe_load(cloud.clouds_yaml.read_text(encoding="utf-8"))["clouds"]
    processes = Processes(cloud)
    return RealRig(
        {name: found[f"testcloud-{name}"]["auth"] for name in PEOPLE},
        victim=settings.VICTIM,
        steady=settings.HOSTS[0],
        flavor=seed.FLAVOR,
        kill=lambda host: processes.stop(f"nova-compute-{host}", kill=True),
        start=lambda host: service_processes.start(cloud, f"nova-compute-{host}"),
        memcached=(settings.HOST, cloud.port("memcached")),
    )
