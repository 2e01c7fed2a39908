# SPDX-License-Identifier: Apache-2.0
"""Find what a group file without a stack names, among all that the project has of its kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from oslo_utils import timeutils

from mistral_failover.cloud import load_balancers, networks
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.fields import Field
from mistral_failover.cloud.stacks import meant
from mistral_failover.model.named import Identity, Named, Thing

_SHOWN = 12
"""The candidates that an error lists at most."""
_NAME, _METADATA = Field("Nova", "name"), Field("Nova", "metadata")
_CREATED = Field("Nova", "created")
_NAMES = {service: Field(service, "name") for service in ("Neutron", "Octavia")}
_ADDRESS = Field("Neutron", "floating_ip_address")
_TAGS = {
    Thing.SERVER: Field("Nova", "tags", since="2.26"),
    Thing.PORT: Field("Neutron", "tags"),
    Thing.FLOATING_IP: Field("Neutron", "tags"),
    Thing.POOL: Field("Octavia", "tags"),
}
"""Volumes have none, only metadata."""


@dataclass(frozen=True)
class _Candidate:
    """Something that the project has. ``row``: what the service shows of its tags; ``items``:
    ``key=value`` for each item of its metadata; ``created_at``: of a server, in seconds since the
    epoch."""

    id: str
    name: str
    thing: Thing
    row: Mapping[str, Any]
    items: frozenset[str] = frozenset()
    created_at: float | None = None

    @property
    def tags(self) -> frozenset[str]:
        """Return its tags, as far as they are shown, and its metadata."""
        field = _TAGS.get(self.thing)
        shown = field.if_shown(self.row) if field else None
        return self.items.union(map(str, shown or ()))

    def has_tag(self, tag: str) -> bool:
        """Return whether it has a tag. Raises `CloudError` NOT_OFFERED where that is not shown."""
        if tag in self.items or (field := _TAGS.get(self.thing)) is None:
            return tag in self.items
        return tag in map(str, field.of(self.row) or ())

    def __str__(self) -> str:
        """Return it as an error lists it."""
        tags = f" ({', '.join(sorted(self.tags))})" if self.tags else ""
        return f"{self.name or 'one without a name'}{tags} {self.id}"

    def is_meant(self, named: Named) -> bool:
        """Return whether a group file names it."""
        if named.by == "tag":
            return self.has_tag(named.value)
        return named.value == (self.name if named.by == "name" else self.id)


class ProjectThings:
    """What the cloud's project has, each kind listed once when it is first asked for. Not safe for
    several threads."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._listed: dict[Thing, list[_Candidate] | CloudError] = {}

    def identity(self, named: Named) -> Identity:
        """Return what is behind a name.

        Raises `CloudError` NOT_FOUND if nothing is, and BAD_REQUEST if several are, both with the
        candidates; and if the service does not answer.
        """
        candidates = self._of(named.thing)
        found = [each for each in candidates if each.is_meant(named)]
        if len(found) == 1:
            return {"id": found[0].id, "created_at": found[0].created_at}
        if found:
            raise CloudError(
                "BAD_REQUEST",
                f"The project has {len(found)} of what is named: a {named}. They are: "
                f"{_listed(named, found)}.",
                remedy="Write the id of one of them, as in {id: ...}.",
            )
        near = meant(named.value, _values(named, candidates))
        raise CloudError(
            "NOT_FOUND",
            f"The project has no {named}. It has: {_listed(named, candidates) or 'none'}.",
            remedy=f"{near}Correct it in the group file, or create the {named.thing.words} first.",
        )

    def _of(self, thing: Thing) -> list[_Candidate]:
        if thing not in self._listed:
            try:
                self._listed[thing] = _LISTERS[thing](self._cloud)
            except CloudError as error:
                self._listed[thing] = error
        found = self._listed[thing]
        if isinstance(found, CloudError):
            raise found
        return found


def _values(named: Named, candidates: Iterable[_Candidate]) -> list[str]:
    """Return what a candidate could be named by in the same way."""
    if named.by == "tag":
        return [tag for each in candidates for tag in each.tags]
    return [each.name if named.by == "name" else each.id for each in candidates]


def _listed(named: Named, candidates: list[_Candidate]) -> str:
    """Return the candidates in a list, what resembles the name first."""

    def unlike(candidate: _Candidate) -> tuple[float, str]:
        values = _values(named, [candidate])
        alike = (SequenceMatcher(None, named.value, each).ratio() for each in values)
        return -max(alike, default=0.0), str(candidate)

    ordered = sorted(candidates, key=unlike)
    more = [f"{len(ordered) - _SHOWN} more"] if len(ordered) > _SHOWN else []
    return ", ".join([*map(str, ordered[:_SHOWN]), *more])


def _servers(cloud: Cloud) -> list[_Candidate]:
    return [
        _Candidate(
            str(row["id"]),
            str(_NAME.of(row)),
            Thing.SERVER,
            row,
            _items(_METADATA.of(row)),
            timeutils.parse_isotime(_CREATED.of(row)).timestamp(),
        )
        for row in cloud.rows("Nova", "servers", "/servers/detail")
    ]


def _volumes(cloud: Cloud) -> list[_Candidate]:
    return [
        _Candidate(str(each.id), str(each.name or ""), Thing.VOLUME, {}, _items(each.metadata))
        for each in cloud.volumes.volumes.list()
    ]


def _ports(cloud: Cloud) -> list[_Candidate]:
    return _rows(Thing.PORT, _NAMES["Neutron"], networks.listed(cloud, "ports"))


def _floating_ips(cloud: Cloud) -> list[_Candidate]:
    """Its address is its name: Neutron gives it none."""
    return _rows(Thing.FLOATING_IP, _ADDRESS, networks.listed(cloud, "floatingips"))


def _pools(cloud: Cloud) -> list[_Candidate]:
    return _rows(Thing.POOL, _NAMES["Octavia"], load_balancers.pools(cloud))


def _rows(thing: Thing, name: Field, rows: Iterable[Mapping[str, Any]]) -> list[_Candidate]:
    return [_Candidate(str(row["id"]), str(name.of(row) or ""), thing, row) for row in rows]


def _items(metadata: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(f"{key}={value}" for key, value in metadata.items())


_LISTERS: Mapping[Thing, Callable[[Cloud], list[_Candidate]]] = {
    Thing.SERVER: _servers,
    Thing.VOLUME: _volumes,
    Thing.PORT: _ports,
    Thing.FLOATING_IP: _floating_ips,
    Thing.POOL: _pools,
}
