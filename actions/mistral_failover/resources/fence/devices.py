# SPDX-License-Identifier: Apache-2.0
"""The operator's file of fence devices: what switches which compute host off, what cuts a client
from the storage, and which projects may use it.

The file belongs to the operator of the cloud. Projects see neither its content nor the names of
hosts: an error has ``message`` for the project and ``detail`` for the operator.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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
# The names of an option in the metadata of ClusterLabs' agents (fencing.py); the first one counts.
_SAME = {"ipaddr": "ip", "port": "plug", "login": "username"}
# One system for each address, whatever the option plug says. Debian ships them as copies.
_IPMI = (
    *("fence_ipmilan", "fence_ipmilanplus", "fence_idrac", "fence_imm"),
    *("fence_ilo3", "fence_ilo4", "fence_ilo5"),
)
_REDFISH = "fence_redfish"
_TELLS_APART = {**dict.fromkeys(_IPMI, ("ip", "target")), _REDFISH: ("ip",)}
# Without them the agent chooses, so a device without one may be each of the others.
_CHOSEN = ("ipport", "systems_uri")
# Options that say how to reach a system, and not which. Those of other agents may say which.
_HOW = re.compile(
    r"(username|delay|verbose.*|quiet|debug.*|ssl.*|ssh.*|secure|telnet|notls|tls1\.0|inet[46]_only"
    r"|cmd_prompt|command_prompt|identity_file|.*_timeout|.*_path|.*_script|power_wait|retry_on"
    r"|stonith_status_sleep|.*separator|snmp_.*|use_sudo|sudo|lanplus|auth|cipher|privlvl|log)\Z"
)

_TRUE = ("1", "yes", "on", "true")

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

    @property
    def name(self) -> str:
        """The agent without its folder."""
        return self.agent.rpartition("/")[2]

    @property
    def system(self) -> Mapping[str, str]:
        """The options that say which system the agent switches, by their present names and in one
        form. `_CHOSEN` may be missing."""
        stated = {_present(name): _plain(name, value) for name, value in self.options.items()}
        if stated.get("port_as_ip") in _TRUE and "plug" in stated:
            stated["ip"] = _host(stated["plug"])
        if stated.get("ip", "").count(":") == 1:  # fence_redfish still reads ADDRESS:PORT
            stated["ip"], stated["ipport"] = stated["ip"].split(":")
        tells = _TELLS_APART.get(self.name)
        return {
            name: value
            for name, value in stated.items()
            if name in _CHOSEN or (name in tells if tells else not _HOW.match(name))
        }

    @property
    def unclear(self) -> str:
        """What is unclear about the system that the agent switches; empty if nothing is."""
        if self.name == _REDFISH and "systems_uri" not in self.system:
            return (
                f"{_REDFISH} without systems_uri switches the last system that the board lists, "
                "and a proof does not say which one that is"
            )
        return ""

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

    def each(self) -> Iterator[tuple[str, str, Device]]:
        """Yield every device with its host and its path in the file."""
        for host, levels in self.hosts.items():
            for number, level in enumerate(levels):
                for place, device in enumerate(level):
                    yield host, f"hosts.{host}[{number}][{place}]", device

    def unclear(self) -> list[tuple[str, str]]:
        """Return what is unclear about devices, each with the path in the file."""
        return [(path, device.unclear) for _, path, device in self.each() if device.unclear]

    def serves(self, project_id: str) -> bool:
        """Return whether a project may use the devices."""
        return _ALL in self.projects or project_id in self.projects


def load(settings: Settings) -> Devices:
    """Read the operator's file. Raises NoDevices if there is none, and as `read`."""
    if not settings.fence_devices_file:
        raise NoDevices("no fence devices are configured", remedy=f"Set {OPTION}.")
    return read(Path(settings.fence_devices_file))


def read(file: Path) -> Devices:
    """Read an operator's file. Raises NoDevices if other users can read or change it, or if it is
    wrong."""
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
    devices = Devices(
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
    _require_one_system_each(devices)
    return devices


def _require_one_system_each(devices: Devices) -> None:
    """Refuse a device that may switch a system that another one switches: of two hosts, because
    one would be switched off for the other, and its proof would be about the wrong one; in one
    level of a host, because its second power supply would stay on. Raises InvalidDocument."""
    earlier: dict[object, list[tuple[str, str, Mapping[str, str]]]] = {}
    for host, path, device in devices.each():
        system = device.system
        named = frozenset(each for each in system.items() if each[0] not in _CHOSEN)
        agent = _IPMI[0] if device.name in _IPMI else device.name
        alike = earlier.setdefault((agent, named), [])
        for other_host, other_path, other in alike:
            two_levels = path.rpartition("[")[0] != other_path.rpartition("[")[0]
            if host == other_host and two_levels:
                continue
            both = [each for each in _CHOSEN if each in system and each in other]
            if any(system[each] != other[each] for each in both):
                continue
            hosts = f", for {host} and for {other_host}" if host != other_host else ""
            option = _tells_apart(device)
            also = "ipport" if option == "ip" else option
            raise InvalidDocument(
                f"{path}.options.{option}",
                f"{device.name} would switch the same system as {other_path}{hosts}",
                f"Correct {option} of one of them. If they differ, state {also} for both.",
            )
        alike.append((host, path, system))


def _tells_apart(device: Device) -> str:
    """Return the option that most often tells two systems of an agent apart."""
    if device.name == _REDFISH:
        return "systems_uri"
    return "plug" if "plug" in device.system else "ip"


def _present(name: str) -> str:
    """Return the present name of an option of an agent; agents read - for _ as well."""
    name = name.replace("-", "_")
    return _SAME.get(name, name)


def _plain(name: str, value: str) -> str:
    """Return a value of an option in the form in which two are compared. Agents remove quotes."""
    plain = value.strip().removeprefix('"').removesuffix('"').casefold()
    return _host(plain) if _present(name) == "ip" else plain.rstrip("/")


def _host(stated: str) -> str:
    try:
        return str(ip_address(stated.strip("[]")))
    except ValueError:
        return stated.rstrip(".")


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
    named: dict[str, str] = {}
    for name in [*options, *secrets]:
        if (other := named.setdefault(_present(name), name)) != name:
            raise InvalidDocument(
                f"{path}.options.{name}", f"it is another name of {other}", "State one of them."
            )
    if options.get(named.get("missing_as_off", ""), "").casefold() in _TRUE:
        raise InvalidDocument(
            f"{path}.options.missing_as_off",
            "the agent would report a system off that does not exist",
            "Remove it.",
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
