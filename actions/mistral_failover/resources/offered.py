# SPDX-License-Identifier: Apache-2.0
"""What rungs and resources need of the cloud's services, and whether this cloud offers it.

The needs are those that the readers of the answers declare (`cloud.fields`). A failover finds out
too late, so a group file, the doctor and the server's start are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mistral_failover.cloud.clients import COMPLETED_ATTACHMENT, Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.fields import Feature, microversion
from mistral_failover.cloud.servers import DELETION
from mistral_failover.model.goal import ATTACHMENT
from mistral_failover.model.group import Group
from mistral_failover.model.installed import installed
from mistral_failover.model.restarts import RESTARTS
from mistral_failover.model.rungs import RungKind, rung_kind, rung_kinds
from mistral_failover.resources.fence.rung import FenceRung
from mistral_failover.resources.restart.way import Way

_VOLUMES = (COMPLETED_ATTACHMENT,)
_ONE = {"limit": "1"}
_LISTINGS: Mapping[str, Callable[[Cloud], Any]] = {
    "Heat": lambda cloud: list(cloud.heat.stacks.list(limit=1)),
    "Nova": lambda cloud: cloud.read("Nova", "/servers", params=_ONE),
    "Cinder": lambda cloud: cloud.volumes.volumes.list(limit=1, detailed=False),
    "Neutron": lambda cloud: cloud.read("Neutron", "/v2.0/ports", params=_ONE),
    "Octavia": lambda cloud: cloud.read("Octavia", "/v2/lbaas/pools", params=_ONE),
    "Designate": lambda cloud: cloud.read("Designate", "/v2/zones", params=_ONE),
    "Aodh": lambda cloud: cloud.read("Aodh", "/v2/alarms", params=_ONE),
}
_ALWAYS = ("Nova", "Cinder")
"""The services that every failover needs."""


@dataclass(frozen=True)
class Need:
    """Something that a user of services needs. ``path``: of the user in the group file, empty if no
    file is meant; ``user``: in words; ``without``: how to do without it."""

    path: str
    user: str
    features: tuple[Feature, ...]
    without: str


@dataclass(frozen=True)
class Unmet:
    """A need that a cloud does not meet, with the sentence and the remedy."""

    path: str
    sentence: str
    remedy: str


def _services(cloud: Cloud, definitions: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the services that failovers of groups ask. ``definitions``: as they are stored. Heat
    is asked by groups that have a stack; while there is no group, it counts if the cloud has it."""
    definitions = list(definitions)
    stacks = [definition["document"].get("stack") for definition in definitions]
    heat = any(stacks) if stacks else _has_heat(cloud)
    used = {
        service
        for definition in definitions
        for type_ in definition["types"]
        for service in type_.get("services", ())
    }
    return [name for name in _LISTINGS if name in {*_ALWAYS, *(["Heat"] if heat else []), *used}]


def _has_heat(cloud: Cloud) -> bool:
    try:
        return cloud.endpoint("Heat") is not None
    except CloudError as error:
        return error.code != "NO_ENDPOINT"


@dataclass(frozen=True)
class Asked:
    """A ``service`` that was asked for one of its things. ``place``: the URL and the region, as a
    clause; empty if Keystone did not say. ``error``: None if the service shows what it has."""

    service: str
    place: str
    error: CloudError | None = None


def asked(cloud: Cloud, definitions: Iterable[Mapping[str, Any]]) -> Iterator[Asked]:
    """Ask every service that failovers of groups ask, and yield what each said. ``definitions``: as
    they are stored."""
    yield from (ask(cloud, service) for service in _services(cloud, definitions))


def ask(cloud: Cloud, service: str) -> Asked:
    """Ask a service for one of its things: does it answer, and may the caller read there?"""
    place = ""
    try:
        place = _place(cloud, service)
        _LISTINGS[service](cloud)
    except CloudError as error:
        return Asked(service, place, error)
    return Asked(service, place)


def _place(cloud: Cloud, service: str) -> str:
    region = cloud.session.region_name
    where = f" in region {region}" if region else ""
    return f"{cloud.endpoint(service) or 'no endpoint in the catalog'}{where}"


def needs_of(group: Group) -> Iterator[Need]:
    """Yield what the rungs and the volumes of a group need."""
    for number, rung in enumerate(group.fence):
        yield _of_rung(f"fence[{number}]", rung_kind(rung["kind"]))
    for number, name in enumerate(group.members.restart):
        if (way := installed(RESTARTS).get(name)) is not None:
            yield _of_way(f"members.restart[{number}]", way(name))
    for name, spec in group.resources.items():
        if spec.type == ATTACHMENT:
            path = f"resources.{name}"
            yield Need(path, f"the volume {name}", _VOLUMES, "leave the volume out")
            if spec.properties.get("when_host_is_down") == "delete_server":
                yield _of_deletion(f"{path}.properties.when_host_is_down")


def all_needs() -> Iterator[Need]:
    """Yield what any group may need: every installed rung, and volumes."""
    for kind in rung_kinds().values():
        yield _of_rung("", kind)
    for name, way in installed(RESTARTS).items():
        yield _of_way("", way(name))
    yield Need("", "a volume_attachment", _VOLUMES, "move no volumes")
    yield _of_deletion("")


def _of_rung(path: str, kind: RungKind) -> Need:
    features = tuple(kind.features()) if isinstance(kind, FenceRung) else ()
    return Need(path, f"the rung {kind.kind}", features, "leave the rung out")


def _of_way(path: str, way: Way) -> Need:
    return Need(path, f"the way {way.name}", tuple(way.features()), "leave the way out")


def _of_deletion(path: str) -> Need:
    user = "when_host_is_down: delete_server"
    return Need(path, user, DELETION, "leave when_host_is_down out")


def unmet(cloud: Cloud, needs: Iterable[Need]) -> Iterator[Unmet]:
    """Yield the needs that the cloud does not meet, each by the newest microversion that it lacks.
    Raises `CloudError` if a service does not say what it offers."""
    newest: dict[str, str] = {}
    for need in needs:
        for service in dict.fromkeys(each.service for each in need.features):
            if service not in newest:
                newest[service] = cloud.newest(service)
            lacking = [
                each
                for each in need.features
                if each.service == service and not each.offered_by(newest[service])
            ]
            if lacking:
                worst = max(lacking, key=lambda each: microversion(each.since))
                yield Unmet(
                    need.path,
                    f"{service} of this cloud offers up to {newest[service]}; {need.user} needs "
                    f"{worst.since} ({worst.name})",
                    f"Upgrade {service}, or {need.without}.",
                )
