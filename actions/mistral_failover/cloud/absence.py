# SPDX-License-Identifier: Apache-2.0
"""Absence, asked for in two ways.

A 404 is one answer of one path: a proxy, a cell that is away, a token of another project or a
region that was mixed up give it, too. What is absent is let go, deleted from the records, or given
up for good, so a 404 counts only if the service does not list the thing either. The second question
costs one listing, and is asked only after a 404.

Every read that may end in "it does not exist" goes through :func:`unless_absent` or
:func:`refuse_listed` (``tests/cloud/test_absence.py`` looks for others). A 404 that answers a
DELETE needs no second way: nothing is concluded from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError, if_there, translated
from mistral_failover.cloud.url_paths import url_path

T = TypeVar("T")
Listing = Callable[[Cloud, str], Iterable[str]]
"""Returns the ids (and names) under which a service lists things of a kind; it may leave out those
that were not asked for."""
_PAGE = "1000"
"""Rows of a page of Neutron, Octavia and Designate; the services send fewer if they allow fewer."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of thing. ``service`` and ``words``: whose and what it is; ``listed``: how the service
    lists such things."""

    service: str
    words: str
    listed: Listing


def unless_absent(cloud: Cloud, kind: Kind, identity: str, read: Callable[[], T]) -> T | None:
    """Return what ``read`` sees; None only if the service answers that there is no such thing, and
    does not list it either. Raises `CloudError` as `refuse_listed`, and as ``read``."""
    found = if_there(read)
    if found is None:
        refuse_listed(cloud, kind, identity)
    return found


def refuse_listed(cloud: Cloud, kind: Kind, identity: str) -> None:
    """Raise `CloudError` UNREACHABLE, transient, if the service lists what it has just called
    absent. Raises also if the listing cannot be read: then absence is not known."""
    if identity not in set(kind.listed(cloud, identity)):
        return
    raise CloudError(
        "UNREACHABLE",
        f"{kind.service} answers that {kind.words} {identity} does not exist, and lists it",
        transient=True,
        service=kind.service,
        detail="it contradicts itself (HTTP 404 for what it lists)",
    )


def _rows(service: str, rows: str, path: str, wanted: str | None = "id", **more: str) -> Listing:
    """Return a listing by the service's filter of that name; without one it lists all."""

    def listed(cloud: Cloud, identity: str) -> Iterable[str]:
        query = more if wanted is None else {wanted: identity, **more}
        found = cloud.rows(service, rows, path, query)
        return [str(row["id"]) for row in found]

    return listed


def _images(cloud: Cloud, identity: str) -> Iterable[str]:
    del identity  # Nova has no such filter
    return [str(row["id"]) for row in cloud.rows("Nova", "images", "/images", microversion=IMAGES)]


def _volumes(cloud: Cloud, identity: str) -> Iterable[str]:
    del identity  # Cinder has no such filter
    return cloud.volume_ids()


def _snapshots(cloud: Cloud, identity: str) -> Iterable[str]:
    del identity  # Cinder has no such filter
    return [str(row["id"]) for row in cloud.cinder_rows("snapshots", "/snapshots")]


def _stacks(cloud: Cloud, identity: str) -> Iterable[str]:
    """Return the names and ids of stacks. Heat lists no nested ones."""
    with translated(f"list stack {identity}", "Heat"):
        found = list(cloud.heat.stacks.list())
    return [key for each in found for key in (str(each.stack_name), str(each.id))]


SERVER = Kind("Nova", "server", _rows("Nova", "servers", "/servers", "uuid"))
"""A server of the project. Nova takes the filter from administrators only."""
ANY_SERVER = Kind("Nova", "server", _rows("Nova", "servers", "/servers", "uuid", all_tenants="1"))
"""A server of any project, for an operator."""
IMAGES = "2.35"
"""The last microversion in which Nova shows images."""
IMAGE = Kind("Nova", "image", _images)
VOLUME = Kind("Cinder", "volume", _volumes)
SNAPSHOT = Kind("Cinder", "snapshot", _snapshots)
STACK = Kind("Heat", "stack", _stacks)
PORT = Kind("Neutron", "port", _rows("Neutron", "ports", "/v2.0/ports", limit=_PAGE))
FLOATING_IP = Kind(
    "Neutron", "floating IP", _rows("Neutron", "floatingips", "/v2.0/floatingips", limit=_PAGE)
)
POOL = Kind("Octavia", "pool", _rows("Octavia", "pools", "/v2/lbaas/pools", limit=_PAGE))


def pool_member(pool_id: str) -> Kind:
    """Return the kind of the members of a load balancer's pool."""
    path = url_path("v2", "lbaas", "pools", pool_id, "members")
    listed = _rows("Octavia", "members", path, limit=_PAGE)
    return Kind("Octavia", f"member of pool {pool_id}", _within(listed, POOL, pool_id))


def recordset(zone_id: str) -> Kind:
    """Return the kind of the recordsets of a DNS zone."""
    # Designate filters by name, type and the like, and refuses an id.
    zones = _rows("Designate", "zones", "/v2/zones", wanted=None, limit=_PAGE)
    zone = Kind("Designate", "zone", zones)
    path = url_path("v2", "zones", zone_id, "recordsets")
    listed = _rows("Designate", "recordsets", path, wanted=None, limit=_PAGE)
    return Kind("Designate", "recordset", _within(listed, zone, zone_id))


def volume_on(server_id: str) -> Kind:
    """Return the kind of the volumes that Nova lists on a server."""

    def listed(cloud: Cloud, identity: str) -> Iterable[str]:
        del identity
        path = url_path("servers", server_id, "os-volume_attachments")
        return [str(row["volumeId"]) for row in cloud.read_nova(path)["volumeAttachments"]]

    return Kind("Nova", f"on server {server_id} volume", _within(listed, SERVER, server_id))


def _within(listed: Listing, whole: Kind, whole_id: str) -> Listing:
    """Return a listing of what is in something, which may be absent itself."""

    def found(cloud: Cloud, identity: str) -> Iterable[str]:
        return unless_absent(cloud, whole, whole_id, lambda: list(listed(cloud, identity))) or ()

    return found
