# SPDX-License-Identifier: Apache-2.0
"""The operator's file of fence devices: what switches which compute host off, what cuts a client
from the storage, and which projects may use it.

The file belongs to the operator of the cloud. Projects see neither its content nor the names of
hosts: an error has ``message`` for the project and ``detail`` for the operator.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from mistral_failover import private_files
from mistral_failover.model.documents import load_document
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.validation import check_schema
from mistral_failover.settings import Settings

OPTION = "[failover] fence_devices_file"
_REMEDY = f"Ask the operator of the cloud to check {OPTION} and the log of the executor."
_NAME = r"^[A-Za-z_][A-Za-z0-9_-]*\Z"
_LINE = r"^[^\x00-\x1f\x7f]*\Z"
_ABSOLUTE = r"^/[^\x00-\x1f\x7f]*\Z"
# What an agent is asked to do is decided for each call.
_OURS = ("action", "o", "method")
_SECRET = re.compile(r"passw|secret|token|passphrase|community", re.IGNORECASE)
_ALL = "*"

_SCALAR = {"type": ["string", "number", "boolean"]}
_SECONDS = {"type": "number", "exclusiveMinimum": 0, "maximum": 600}
_DEVICE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "agent": {"type": "string", "pattern": r"^(/[^\x00-\x1f\x7f]+|[A-Za-z0-9_-]+)\Z"},
        "options": {"type": "object", "additionalProperties": _SCALAR},
        "secrets": {
            "type": "object",
            "additionalProperties": {"type": "string", "pattern": _ABSOLUTE},
        },
        "limit": _SECONDS,
        "ca_file": {"type": "string", "pattern": _ABSOLUTE},
    },
    "required": ["agent"],
    "additionalProperties": False,
}
_ADDRESSES: dict[str, Any] = {
    "type": "array",
    "items": {"type": "string", "pattern": r"^[0-9A-Fa-f.:]+\Z"},
    "minItems": 1,
}
_CEPH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "conf": {"type": "string", "pattern": _ABSOLUTE},
        "keyring": {"type": "string", "pattern": _ABSOLUTE},
        "name": {"type": "string", "pattern": r"^client\.[A-Za-z0-9._-]+\Z"},
        "pools": {
            "type": "array",
            "items": {"type": "string", "pattern": r"^[A-Za-z0-9._-]+\Z"},
            "minItems": 1,
        },
        "limit": _SECONDS,
        "ceph": {"type": "string", "pattern": _ABSOLUTE},
        "rbd": {"type": "string", "pattern": _ABSOLUTE},
        "addresses": {"type": "object", "additionalProperties": _ADDRESSES},
        "services": _ADDRESSES,
    },
    "required": ["pools"],
    "additionalProperties": False,
}
_FILE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "projects": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "cloud": {"type": "string", "minLength": 1},
        "compute_must_be_down": {"type": "boolean"},
        "listen": {"type": "number", "minimum": 0, "maximum": 120},
        "hosts": {
            "type": "object",
            "additionalProperties": {
                "type": "array",
                "minItems": 1,
                "maxItems": 9,
                "items": {"type": "array", "minItems": 1, "maxItems": 9, "items": _DEVICE},
            },
        },
        "ceph": _CEPH,
    },
    "required": ["projects"],
    "additionalProperties": False,
}


class NoDevices(Exception):  # noqa: N818 - it names the finding
    """The devices cannot be used. ``message`` is for the project, ``detail`` for the operator."""

    code = "CONFIG"

    def __init__(self, message: str, detail: str = "", remedy: str = _REMEDY) -> None:
        super().__init__(detail or message)
        self.message = message
        self.detail = detail or message
        self.remedy = remedy


@dataclass(frozen=True)
class Device:
    """One fence agent with its options. ``secrets``: the file of each secret option. ``limit``:
    seconds for one call. ``ca_file``: certificates that the agent trusts, or None."""

    agent: str
    options: Mapping[str, str]
    secrets: Mapping[str, Path] = field(default_factory=dict)
    limit: float = 40.0
    ca_file: str | None = None

    def read_secrets(self) -> dict[str, str]:
        """Return each secret option with its value. Raises NoDevices."""
        return {name: _secret(name, path) for name, path in self.secrets.items()}


Levels = tuple[tuple[Device, ...], ...]
"""Levels of devices, tried in order. Every device of a level must report off."""


@dataclass(frozen=True)
class Ceph:
    """How clients are blocked in a Ceph cluster. ``pools``: where the volumes are, as images
    ``volume-<id>``. ``addresses``: by compute host, its addresses in the storage network; they tell
    the clients of a shared volume apart. ``services``: addresses of services that open volumes
    themselves, and where no guest runs: their clients are not a member's. ``limit``: seconds for
    one command."""

    pools: tuple[str, ...]
    conf: str | None = None
    keyring: str | None = None
    name: str | None = None
    limit: float = 10.0
    ceph: str = "ceph"
    rbd: str = "rbd"
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    services: tuple[str, ...] = ()


@dataclass(frozen=True)
class Devices:
    """The operator's file.

    ``cloud``: the entry of clouds.yaml with which Nova is asked for hosts, and Cinder for the names
    of images; None: that of ``[failover] cloud``. ``compute_must_be_down``: switch a host off only
    if Nova reports its compute service down. ``listen``: seconds to wait for a sign of life after a
    host was switched off, if its guest was heard shortly before.
    """

    projects: frozenset[str]
    cloud: str | None = None
    compute_must_be_down: bool = True
    listen: float = 12.0
    hosts: Mapping[str, Levels] = field(default_factory=dict)
    ceph: Ceph | None = None

    def serves(self, project_id: str) -> bool:
        """Return whether a project may use the devices."""
        return _ALL in self.projects or project_id in self.projects


def load(settings: Settings) -> Devices:
    """Read the operator's file. Raises NoDevices if there is none, if other users can read or
    change it, or if it is wrong."""
    if not settings.fence_devices_file:
        raise NoDevices("no fence devices are configured", remedy=f"Set {OPTION}.")
    file = Path(settings.fence_devices_file)
    try:
        return _read(load_document(private_files.read(file, installed=True), "fence devices"))
    except private_files.NotPrivate as error:
        raise _unusable(f"{error.message}. {error.remedy}") from None
    except InvalidDocument as error:
        raise _unusable(f"{file}: {error}") from None
    except OSError as error:
        raise _unusable(f"{file}: {error.strerror or type(error).__name__}") from None


def for_project(settings: Settings, project_id: str) -> Devices:
    """Return the devices that a project may use. Raises NoDevices."""
    devices = load(settings)
    if not devices.serves(project_id):
        raise NoDevices(
            "the operator has not given this project the use of fence devices",
            f"project {project_id} is not in projects of {settings.fence_devices_file}",
            f"Ask the operator of the cloud to add the project to {OPTION}.",
        )
    return devices


def _unusable(detail: str) -> NoDevices:
    return NoDevices("the operator's fence devices cannot be used", detail)


def _read(document: Mapping[str, Any]) -> Devices:
    check_schema(_FILE, document, "")
    ceph = document.get("ceph")
    return Devices(
        projects=frozenset(document["projects"]),
        cloud=document.get("cloud"),
        compute_must_be_down=document.get("compute_must_be_down", True),
        listen=float(document.get("listen", Devices.listen)),
        hosts={
            host: tuple(
                tuple(
                    _device(device, f"hosts.{host}[{number}][{place}]")
                    for place, device in enumerate(level)
                )
                for number, level in enumerate(levels)
            )
            for host, levels in document.get("hosts", {}).items()
        },
        ceph=_ceph(ceph) if ceph else None,
    )


def _device(document: Mapping[str, Any], path: str) -> Device:
    options = {name: _option(value) for name, value in document.get("options", {}).items()}
    secrets = {name: Path(file) for name, file in document.get("secrets", {}).items()}
    for name, value in [*options.items(), *((name, "") for name in secrets)]:
        if not re.match(_NAME, name) or not re.match(_LINE, value):
            raise InvalidDocument(
                f"{path}.options.{name}",
                "not an option of a fence agent",
                "Write a name and a value of one line.",
            )
        if name in _OURS:
            raise InvalidDocument(
                f"{path}.options.{name}", "the rung decides what the agent does", "Remove it."
            )
    for name in options:
        if _SECRET.search(name) and not name.endswith(("_script", "-script")):
            raise InvalidDocument(
                f"{path}.options.{name}",
                "a secret must not be in this file",
                f"Write it into a file of its own, and name the file in secrets.{name}.",
            )
    given = {key: document[key] for key in ("limit", "ca_file") if key in document}
    return Device(document["agent"], options, secrets, **given)


def _ceph(document: Mapping[str, Any]) -> Ceph:
    given = dict(document)
    addresses = {
        host: tuple(_address(each, f"ceph.addresses.{host}") for each in found)
        for host, found in given.pop("addresses", {}).items()
    }
    services = tuple(_address(each, "ceph.services") for each in given.pop("services", ()))
    hosts: dict[str, str] = {}
    for host, found in addresses.items():
        if both := sorted({*services} & {*found}):
            raise InvalidDocument(
                "ceph.services",
                f"{both[0]} is also an address of {host}",
                "Name only addresses where no guest runs.",
            )
        for address in found:
            if (other := hosts.setdefault(address, host)) != host:
                # A proof that one of them was off would count for the clients of the other.
                raise InvalidDocument(
                    f"ceph.addresses.{host}",
                    f"{address} is also an address of {other}",
                    "Name the addresses of each host.",
                )
    return Ceph(tuple(given.pop("pools")), addresses=addresses, services=services, **given)


def _address(stated: str, path: str) -> str:
    """Return an address in the form in which `ceph.address_of` returns those of clients."""
    try:
        return str(ip_address(stated))
    except ValueError:
        raise InvalidDocument(path, f"{stated} is not an IP address", "Correct it.") from None


def _option(value: Any) -> str:
    """Return the value as agents read it: 1 for true, 0 for false."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def _secret(name: str, path: Path) -> str:
    """Return the content of a secret's file without the end of its last line."""
    try:
        value = private_files.read(path, installed=True).decode("utf-8").rstrip("\r\n")
    except private_files.NotPrivate as error:
        raise _unusable(f"{name}: {error.message}. {error.remedy}") from None
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise _unusable(f"{name}: {path}: {reason}") from None
    if not value or not re.match(_LINE, value):
        raise _unusable(f"{name}: {path} must have one line with the secret")
    return value
