# SPDX-License-Identifier: Apache-2.0
"""What the real cloud says of servers, volumes, hosts, stacks and tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from keystoneauth1 import exceptions
from keystoneauth1.identity import v3
from keystoneauth1.session import Session

_VERSION = {"OpenStack-API-Version": "compute 2.90", "Accept": "application/json"}
_LIMIT = 20.0  # seconds for one call
_DEPTH = 3  # nested stacks below a stack that are looked into


class Unreachable(Exception):
    """A service of the cloud did not answer as it should."""


class BadToken(Exception):
    """Keystone does not know the token."""


@dataclass(frozen=True)
class Caller:
    """Whom a token stands for."""

    user_id: str
    user_name: str
    project_id: str


@dataclass(frozen=True)
class Attached:
    """A volume that Nova and Cinder call attached to a server, or only Nova (`lost`)."""

    volume_id: str
    device: str
    multiattach: bool
    lost: bool


@dataclass(frozen=True)
class SeenServer:
    """A server as Nova has it."""

    id: str
    name: str
    project_id: str
    host: str
    status: str
    volumes: tuple[str, ...]
    attached: tuple[Attached, ...] = field(default=())


class CloudReader:
    """Looks at the real cloud with the rights of an admin; thread-safe."""

    def __init__(self, auth_url: str, username: str, password: str, project_name: str) -> None:
        self._auth_url = auth_url
        self._session = Session(
            auth=v3.Password(
                auth_url=auth_url,
                username=username,
                password=password,
                project_name=project_name,
                user_domain_id="default",
                project_domain_id="default",
            ),
            timeout=_LIMIT,
        )

    def caller(self, token: str) -> Caller:
        """Whom a token stands for, by Keystone.

        :raises BadToken: unknown, expired, or of no project.
        """
        answer = self._get(f"{self._auth_url}/auth/tokens", {"X-Subject-Token": token})
        if answer is None:
            raise BadToken
        found = answer["token"]
        if "project" not in found:
            raise BadToken
        return Caller(found["user"]["id"], found["user"]["name"], found["project"]["id"])

    def server(self, server_id: str) -> SeenServer | None:
        """A server with what is attached to it at this moment; None if Nova has none."""
        answer = self._compute(f"/servers/{server_id}")
        if answer is None:
            return None
        seen = _seen(answer["server"])
        listed = self._compute(f"/servers/{server_id}/os-volume_attachments")
        rows = [] if listed is None else listed["volumeAttachments"]
        attached = tuple(self._attached(server_id, row) for row in rows)
        return SeenServer(**{**vars(seen), "attached": attached})

    def servers(self) -> dict[str, SeenServer]:
        """All servers of all projects, without what is attached."""
        answer = self._compute("/servers/detail?all_tenants=True")
        return {row["id"]: _seen(row) for row in (answer or {"servers": []})["servers"]}

    def hosts_up(self) -> set[str]:
        """The hypervisors whose compute service Nova calls up."""
        answer = self._compute("/os-services?binary=nova-compute") or {"services": []}
        return {row["host"] for row in answer["services"] if row["state"] == "up"}

    def stack_of(self, server_id: str, token: str, project_id: str) -> tuple[str, str] | None:
        """Id and name of the outermost stack that a server belongs to, None if to none.

        Asked with the owner's token: Heat lets nobody look into other projects.
        """
        base = self._session.get_endpoint(service_type="orchestration", interface="public")
        base = f"{str(base).rsplit('/', 1)[0]}/{project_id}"
        headers = {"X-Auth-Token": token}
        for stack in (self._get(f"{base}/stacks", headers) or {"stacks": []})["stacks"]:
            where = f"{base}/stacks/{stack['stack_name']}/{stack['id']}/resources"
            listed = self._get(f"{where}?nested_depth={_DEPTH}", headers) or {"resources": []}
            if any(row["physical_resource_id"] == server_id for row in listed["resources"]):
                return stack["id"], stack["stack_name"]
        return None

    def _attached(self, server_id: str, row: dict[str, Any]) -> Attached:
        url = self._session.get_endpoint(service_type="volumev3", interface="public")
        found = self._get(f"{url}/volumes/{row['volumeId']}")
        volume = {} if found is None else found["volume"]
        held = [a for a in volume.get("attachments", []) if a["server_id"] == server_id]
        device = next((a["device"] for a in held if a["device"]), row["device"])
        multiattach = bool(volume.get("multiattach"))
        return Attached(row["volumeId"], device or "", multiattach, lost=not held)

    def _compute(self, path: str) -> Any:
        url = self._session.get_endpoint(service_type="compute", interface="public")
        return self._get(f"{url}{path}", _VERSION)

    def _get(self, url: str, headers: dict[str, str] | None = None) -> Any:
        """The JSON of a URL; None for 404 and, asked with somebody else's token, 401.

        :raises Unreachable: everything else.
        """
        foreign = "X-Auth-Token" in (headers or {})
        try:
            answer = self._session.get(
                url, headers=headers or {}, authenticated=not foreign, raise_exc=False, log=False
            )
        except exceptions.ClientException as error:
            raise Unreachable(type(error).__name__) from None
        if answer.status_code == 404 or (foreign and answer.status_code in (401, 403)):
            return None
        if not answer.ok:
            raise Unreachable(f"HTTP {answer.status_code}")
        return answer.json()


def _seen(row: dict[str, Any]) -> SeenServer:
    return SeenServer(
        id=row["id"],
        name=row["name"],
        project_id=row["tenant_id"],
        host=row["OS-EXT-SRV-ATTR:host"] or "",
        status=row["status"],
        volumes=tuple(v["id"] for v in row["os-extended-volumes:volumes_attached"]),
    )
