# SPDX-License-Identifier: Apache-2.0
"""Names in the DNS: the recordsets of Designate's zones.

Each call looks first, so a repeat continues at any point. Designate shows a change before its name
servers answer with it. So a change counts when the recordset is ACTIVE again. In ERROR some name
server lacks the change; Designate itself tries again every few minutes.

A recordset belongs to the group whose name its description has, if the project made it: in a zone
that is shared, another project could make one with that description. No other one is changed or
deleted.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from oslo_utils import uuidutils

from mistral_failover.cloud import absence, networks
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.url_paths import url_path
from mistral_failover.cloud.waits import ProbeResult, ResendPolicy
from mistral_failover.model import remedies
from mistral_failover.model.remedies import need

Kind = Literal["A", "AAAA", "CNAME"]
_VERSIONS = {"A": 4, "AAAA": 6}
_LONGEST = 160
"""Characters in a description, which Designate limits."""


@dataclass(frozen=True, slots=True)
class Recordset:
    """The records of a name and a type, as Designate shows them. ``status``: ACTIVE if the name
    servers answer with them."""

    id: str
    zone_id: str
    name: str
    type: str
    records: tuple[str, ...]
    ttl: int | None
    description: str
    status: str
    project_id: str

    def __str__(self) -> str:
        return f"{self.type} record {self.name}"

    def leads_to(self, target: str) -> bool:
        """Return whether the name leads there, and nowhere else."""
        return [_canonical(self.type, each) for each in self.records] == [
            _canonical(self.type, target)
        ]


@dataclass(frozen=True, slots=True)
class WantedRecordset:
    """What a name should be. ``owner``: the description of what belongs to the group."""

    zone_id: str
    name: str
    type: Kind
    target: str
    ttl: int
    owner: str

    def values(self) -> dict[str, Any]:
        """Return what Designate is told."""
        target = _canonical(self.type, self.target)
        return {"records": [target], "ttl": self.ttl, "description": self.owner}


def _canonical(type_: str, target: str) -> str:
    """Return a target in the one form that is compared and sent."""
    if type_ not in _VERSIONS:
        return absolute(target)
    try:
        return str(ipaddress.ip_address(target))
    except ValueError:
        return target  # Designate says what is wrong with it


def absolute(name: str) -> str:
    """Return a name in the form that Designate has: in small letters, with a dot at its end."""
    return f"{name.lower().removesuffix('.')}."


def owner(group: str, resource: str) -> str:
    """Return the description of a recordset that belongs to a group's resource."""
    text = f"mistral-failover: {resource} of group {group}"
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST - 33]} {hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _read(row: Mapping[str, Any]) -> Recordset:
    return Recordset(
        id=str(row["id"]),
        zone_id=str(row["zone_id"]),
        name=str(row["name"]),
        type=str(row["type"]),
        records=tuple(str(each) for each in row["records"]),
        ttl=row["ttl"],
        description=str(row["description"] or ""),
        status=str(row["status"]),
        project_id=str(row["project_id"]),
    )


def _path(zone_id: str, *more: str) -> str:
    return url_path("v2", "zones", zone_id, "recordsets", *more)


def resolve_zone(cloud: Cloud, zone: str) -> str:
    """Return the id of a zone, by its id, or by its name if it is the project's own: anyone can
    share a zone of any name with the project. Raises `CloudError` NOT_FOUND."""
    if uuidutils.is_uuid_like(zone):
        return zone
    rows = cloud.read("Designate", "/v2/zones", params={"name": absolute(zone)})["zones"]
    named_so = [row for row in rows if row["name"] == absolute(zone)]
    found = [row for row in named_so if row["project_id"] == cloud.project_id]
    if named_so and not found:
        raise CloudError(
            "NOT_FOUND",
            f"Zone {absolute(zone)} belongs to another project.",
            remedy="If the project may use it, write the zone's id in the group file: "
            "openstack zone list.",
        )
    if not found:
        raise CloudError(
            "NOT_FOUND",
            f"The project has no zone {absolute(zone)}",
            remedy="Correct the zone in the group file, or: openstack zone create --email EMAIL "
            f"{absolute(zone)}",
        )
    return str(found[0]["id"])


def recordset(cloud: Cloud, zone_id: str, recordset_id: str) -> Recordset | None:
    """Return a recordset; None where it does not exist. Raises `CloudError`."""
    path = _path(zone_id, recordset_id)
    return absence.unless_absent(
        cloud,
        absence.recordset(zone_id),
        recordset_id,
        lambda: _read(cloud.read("Designate", path)),
    )


def named(cloud: Cloud, zone_id: str, name: str, type_: str) -> Recordset | None:
    """Return the recordset of a name and a type; None where it does not exist. Raises `CloudError`
    NOT_FOUND without such a zone."""
    wanted = absolute(name)
    params = {"name": wanted, "type": type_}
    rows = cloud.read("Designate", _path(zone_id), params=params)["recordsets"]
    found = (_read(row) for row in rows)
    return next((each for each in found if (each.name, each.type) == (wanted, type_)), None)


def target_of(
    cloud: Cloud,
    member: str,
    server_id: str,
    type_: Kind,
    network: str | None = None,
    targets: Mapping[str, str] | None = None,
) -> str:
    """Return where the name leads to for a member: what ``targets`` states for it, else the address
    of its server's port, on a network if one is named.

    Raises `CloudError` NO_DNS_TARGET, NO_PORT.
    """
    if targets is not None and member in targets:
        return targets[member]
    if targets is not None or type_ not in _VERSIONS:
        raise CloudError(
            "NO_DNS_TARGET",
            f"The group file states no target for {member}.",
            remedy="Add it to targets, by the name of the member.",
        )
    port = networks.port_of(cloud, server_id, network)
    for address in port.addresses:
        if ipaddress.ip_address(address).version == _VERSIONS[type_]:
            return address
    raise CloudError(
        "NO_DNS_TARGET",
        f"Port {port.id} of {member} has no IPv{_VERSIONS[type_]} address.",
        remedy="Correct type or network in the group file, or state targets.",
    )


def _is_of(cloud: Cloud, found: Recordset, wanted_owner: str) -> bool:
    return found.description == wanted_owner and found.project_id == cloud.project_id


def refuse_foreign(cloud: Cloud, found: Recordset, wanted_owner: str) -> None:
    """Raise `CloudError` DNS_RECORD_IN_USE if a recordset belongs to another owner."""
    if found.project_id != cloud.project_id:
        raise CloudError(
            "DNS_RECORD_IN_USE",
            f"The {found} ({', '.join(found.records)}) belongs to another project.",
            remedy="Name a record of the group's own project, or have its owner delete it: "
            f"recordset {found.id} of zone {found.zone_id}.",
        )
    if not _is_of(cloud, found, wanted_owner):
        where = {"zone": found.zone_id, "recordset": found.id}
        give = need("GIVE_RECORDSET", owner=wanted_owner, **where)
        raise CloudError(
            "DNS_RECORD_IN_USE",
            f"The {found} ({', '.join(found.records)}) belongs to another owner: its description "
            f'is "{found.description}".',
            remedy=f"{remedies.sentence([give], '')}. Or name another one in the group file.",
            needs=(give,),
        )


def point(cloud: Cloud, wanted: WantedRecordset, limit: float) -> tuple[str, dict[str, Any]]:
    """Point a name to its target, and wait until the name servers answer so; return the recordset's
    id, and ``name``, ``target`` and ``zone_id``.

    A record that does not exist is made. ``limit``: seconds in total. Raises `CloudError`
    DNS_RECORD_IN_USE, DNS_ERROR, NOT_FOUND.
    """
    repeats = ResendPolicy(cloud)
    values = wanted.values()
    (target,) = values["records"]
    doing = f"change {wanted.type} record {absolute(wanted.name)}"

    def step() -> ProbeResult:
        now = named(cloud, wanted.zone_id, wanted.name, wanted.type)
        if now is None:
            body = {"name": absolute(wanted.name), "type": wanted.type, **values}
            path = _path(wanted.zone_id)
            return repeats.send("it does not exist", doing, "Designate", "POST", path, body)
        refuse_foreign(cloud, now, wanted.owner)
        leads = now.leads_to(target) and now.ttl == wanted.ttl
        state = f"it leads to {', '.join(now.records)}, and is {now.status}"
        if leads and now.status == "ACTIVE":
            attributes = {"name": now.name, "target": target, "zone_id": now.zone_id}
            return ProbeResult(state, done=True, result=(now.id, attributes))
        if leads:
            return ProbeResult(state, error=_failed(now) if now.status == "ERROR" else None)
        path = _path(now.zone_id, now.id)
        return repeats.send(state, doing, "Designate", "PUT", path, values)

    what = f"{wanted.type} record {absolute(wanted.name)} to lead to {target}"
    return cloud.carry_out(repeats, step, what, limit)  # type: ignore[no-any-return]


def _failed(found: Recordset) -> CloudError:
    return CloudError(
        "DNS_ERROR",
        f"Designate has the {found}, but is in ERROR: not all its name servers answer with it.",
        remedy="Ask an administrator of the cloud for the log of designate-worker, then start the "
        "failover again.",
    )


def remove(
    cloud: Cloud,
    zone_id: str,
    recordset_id: str,
    wanted_owner: str,
    limit: float,
) -> None:
    """Delete a recordset that belongs to the group; another one stays. What does not exist is no
    error."""
    repeats = ResendPolicy(cloud)

    def step() -> ProbeResult:
        now = recordset(cloud, zone_id, recordset_id)
        if now is None:
            return ProbeResult("it is gone", done=True)
        if not _is_of(cloud, now, wanted_owner):
            return ProbeResult("it belongs to another owner", done=True)
        path = _path(zone_id, recordset_id)
        return repeats.send(f"it is {now.status}", f"delete {now}", "Designate", "DELETE", path)

    cloud.carry_out(repeats, step, f"recordset {recordset_id} to be deleted", limit)
