# SPDX-License-Identifier: Apache-2.0
"""The members of a load balancer's pool: enabled, drained and disabled in Octavia.

Each call looks first, so a repeat continues at any point. Octavia shows a change before the load
balancer has it. So a change counts when the member is ACTIVE again. While a load balancer carries
out one change, Octavia refuses every other one; the next look decides again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mistral_failover.cloud import absence, networks
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.stacks import named_in
from mistral_failover.cloud.url_paths import url_path
from mistral_failover.cloud.waits import ProbeResult, ResendPolicy
from mistral_failover.model import remedies
from mistral_failover.model.remedies import need

POOL = "OS::Octavia::Pool"
PAGE = 1000
"""Rows in one answer of Octavia, unless the operator allows fewer."""
ATTEMPTS = 3
"""How often a change is sent that Octavia accepts and does not carry out."""
KEPT = 0.2
"""The part of an operation's time that a drain leaves for disabling the member."""


@dataclass(frozen=True, slots=True)
class PoolMember:
    """A member of a pool as Octavia shows it. ``enabled``: it may get connections; ``weight``: with
    0 it gets no new ones; ``status``: the provisioning status, ACTIVE if the load balancer has what
    Octavia shows."""

    id: str
    pool_id: str
    address: str
    protocol_port: int
    weight: int
    enabled: bool
    status: str

    def __str__(self) -> str:
        return f"{self.address}:{self.protocol_port}"


def _read(pool_id: str, row: Mapping[str, Any]) -> PoolMember:
    return PoolMember(
        id=str(row["id"]),
        pool_id=pool_id,
        address=str(row["address"]),
        protocol_port=int(row["protocol_port"]),
        weight=int(row["weight"]),
        enabled=bool(row["admin_state_up"]),
        status=str(row["provisioning_status"]),
    )


def _path(pool_id: str, *more: str) -> str:
    return url_path("v2", "lbaas", "pools", pool_id, *more)


def pools(cloud: Cloud) -> list[Mapping[str, Any]]:
    """Return the rows of the project's pools. Raises `CloudError`."""
    path, project = url_path("v2", "lbaas", "pools"), cloud.project_id
    rows = cloud.rows("Octavia", "pools", path, {"limit": str(PAGE), "project_id": project})
    return [row for row in rows if networks.PROJECT_ID.of(row) == project]


def pool_members(cloud: Cloud, pool_id: str) -> dict[str, PoolMember]:
    """Return the members of a pool by id. Raises `CloudError` NOT_FOUND without such a pool."""
    rows = cloud.rows("Octavia", "members", _path(pool_id, "members"), {"limit": str(PAGE)})
    what = f"Pool {pool_id}"
    found = [_read(pool_id, cloud.own(row, what)) for row in rows]
    return {each.id: each for each in found}


def resolve_pool(cloud: Cloud, stack: str | None, name: str) -> str:
    """Return the id of a pool: a resource of the stack, or an id. Raises `CloudError` NOT_FOUND, or
    BAD_REQUEST if the stack's resource is no pool."""
    return named_in(cloud, stack, name, POOL, "a load balancer's pool")


def member_of(
    cloud: Cloud, members: Iterable[PoolMember], server_id: str, protocol_port: int | None = None
) -> PoolMember:
    """Return the one of a pool's members that leads to a server: to an address of its ports, and to
    ``protocol_port`` if one is named.

    Raises `CloudError` NO_POOL_MEMBER if there is none, or several.
    """
    own = {address for each in networks.ports_of(cloud, server_id) for address in each.addresses}
    found = [
        each
        for each in members
        if each.address in own and protocol_port in (None, each.protocol_port)
    ]
    if len(found) == 1:
        return found[0]
    where = "" if protocol_port is None else f", port {protocol_port}"
    if found:
        said = f"{len(found)} members lead to server {server_id}{where}"
        remedy = "Name the protocol_port of one of them in the group file."
    else:
        said = f"No member leads to server {server_id}{where}"
        remedy = (
            "Add one: openstack loadbalancer member create --disable --address ADDRESS "
            "--protocol-port PORT POOL. Or correct protocol_port in the group file."
        )
    if found and protocol_port is not None:
        remedy = "Leave the server one of them in the pool."
    raise CloudError("NO_POOL_MEMBER", f"{said} in the load balancer's pool.", remedy=remedy)


def other_enabled(members: Iterable[PoolMember], own: PoolMember) -> PoolMember | None:
    """Return another member of the pool that may get connections, None if there is none."""
    return next((each for each in members if each.enabled and each.id != own.id), None)


def refuse_others(members: Iterable[PoolMember], own: PoolMember) -> None:
    """Raise `CloudError` POOL_IN_USE if another member of the pool may get connections."""
    if (other := other_enabled(members, own)) is not None:
        disable = need("DISABLE_POOL_MEMBER", pool=other.pool_id, member=other.id)
        raise CloudError(
            "POOL_IN_USE",
            f"Pool {other.pool_id} also leads to {other}, member {other.id}.",
            remedy=f"{remedies.sentence([disable], '')}. "
            "If not, set shared: true in the group file.",
            needs=(disable,),
        )


def enable(
    cloud: Cloud,
    pool_id: str,
    server_id: str,
    limit: float,
    protocol_port: int | None = None,
    *,
    shared: bool = False,
    weight: int | None = None,
) -> tuple[str, dict[str, Any]]:
    """Enable the server's member of a pool; return its id, and ``address``, ``pool_id``,
    ``server_id`` and ``weight``.

    ``limit``: seconds in total. ``shared``: other members may be enabled, too. ``weight``: takes
    the place of a weight of 0, which a drain that did not end has left; 1 by default. Raises
    `CloudError` NO_POOL_MEMBER, POOL_IN_USE, LOAD_BALANCER_ERROR, NOT_FOUND.
    """
    target = member_of(cloud, pool_members(cloud, pool_id).values(), server_id, protocol_port)
    changes = _Changes(cloud)

    def step() -> ProbeResult:
        members = pool_members(cloud, pool_id)
        if target.id not in members and _member(cloud, pool_id, target.id) is None:
            raise CloudError("NOT_FOUND", f"Pool {pool_id} no longer has member {target.id}.")
        now = members[target.id]
        if not shared:
            refuse_others(members.values(), now)
        if now.enabled and now.weight and now.status == "ACTIVE":
            attributes = {
                "address": str(now),
                "pool_id": pool_id,
                "server_id": server_id,
                "weight": now.weight,
            }
            return ProbeResult("it is enabled", done=True, result=(now.id, attributes))
        return changes.send(now, enabled=True, weight=now.weight or weight or 1)

    what = f"member {target} of pool {pool_id} to be enabled"
    return cloud.carry_out(changes.repeats, step, what, limit)  # type: ignore[no-any-return]


def disable(
    cloud: Cloud,
    pool_id: str,
    member_id: str,
    limit: float,
    *,
    drain: float = 0,
    weight: int | None = None,
) -> None:
    """Disable a member of a pool and wait until the load balancer has it.

    ``drain``: seconds before, in which the member gets no new connections and keeps those it has;
    fewer if the changes need the time. ``weight``: what it gets back if an earlier drain has left
    it with 0; 1 by default. ``limit``: seconds in total, the drain included. A pool or a member
    that no longer exists is no error. Raises `CloudError` LOAD_BALANCER_ERROR.
    """
    changes = _Changes(cloud)
    deadline = time.monotonic() + limit
    own = weight or 1

    def drained() -> ProbeResult:
        nonlocal own
        now = _member(cloud, pool_id, member_id)
        if now is None or not now.enabled:
            return ProbeResult("it has no connections", done=True, result=False)
        own = now.weight or own
        if not now.weight and now.status == "ACTIVE":
            return ProbeResult("it gets no new connections", done=True, result=True)
        return changes.send(now, enabled=True, weight=0)

    def disabled() -> ProbeResult:
        now = _member(cloud, pool_id, member_id)
        if now is None:
            return ProbeResult("it does not exist", done=True)
        if not now.enabled and now.status == "ACTIVE":
            return changes.repeats.settled("it is disabled")
        return changes.send(now, enabled=False, weight=now.weight or own)

    where = f"member {member_id} of pool {pool_id}"
    if drain and cloud.carry_out(changes.repeats, drained, f"{where} to be drained", limit):
        until = min(time.monotonic() + drain, deadline - limit * KEPT)
        cloud.wait(
            lambda: ProbeResult("it drains", done=time.monotonic() >= until),
            what=f"{where} to end its connections",
            limit=drain + 1,
        )
    left = deadline - time.monotonic()
    cloud.carry_out(changes.repeats, disabled, f"{where} to be disabled", left)


def _member(cloud: Cloud, pool_id: str, member_id: str) -> PoolMember | None:
    path = _path(pool_id, "members", member_id)
    kind = absence.pool_member(pool_id)
    return absence.unless_absent(
        cloud, kind, member_id, lambda: _read(pool_id, cloud.read("Octavia", path)["member"])
    )


class _Changes:
    """The changes of a member that one operation sends."""

    def __init__(self, cloud: Cloud) -> None:
        self.repeats = ResendPolicy(cloud)
        self._cloud = cloud
        self._accepted = 0

    def send(self, now: PoolMember, *, enabled: bool, weight: int) -> ProbeResult:
        """Change a member, unless its load balancer is busy with another change. Raises
        `CloudError` LOAD_BALANCER_ERROR."""
        shown = "enabled" if now.enabled else "disabled"
        state = f"it is {shown}, with weight {now.weight}, and {now.status}"
        if now.status.startswith("PENDING"):
            return ProbeResult(state)
        if not self.repeats.allow():
            return self.repeats.no_effect_yet(state)
        if now.status != "ERROR":
            self._accepted = 0
        elif self._accepted >= ATTEMPTS:
            raise CloudError(
                "LOAD_BALANCER_ERROR",
                f"Octavia accepted the change of member {now.id} of pool {now.pool_id} "
                f"{self._accepted} times, and the member is in ERROR each time.",
                remedy="Ask an administrator of the cloud for the cause: it is in Octavia's log.",
            )
        path = _path(now.pool_id, "members", now.id)
        body = {"member": {"admin_state_up": enabled, "weight": weight}}
        try:
            with self.repeats.sending(f"change member {now.id} of pool {now.pool_id}"):
                self._cloud.send("Octavia", "PUT", path, body)
        except CloudError as error:
            if error.code != "CONFLICT":
                raise
            refuse_failed(self._cloud, now.pool_id)
            return ProbeResult(f"{state}, and {error.message}")
        self._accepted += 1
        return ProbeResult("Octavia has just accepted the change")


def refuse_failed(cloud: Cloud, pool_id: str) -> None:
    """Raise `CloudError` LOAD_BALANCER_ERROR if Octavia refuses every change of a pool because its
    load balancer is in ERROR."""
    for each in cloud.read("Octavia", _path(pool_id))["pool"]["loadbalancers"]:
        path = url_path("v2", "lbaas", "loadbalancers", each["id"])
        if cloud.read("Octavia", path)["loadbalancer"]["provisioning_status"] == "ERROR":
            raise CloudError(
                "LOAD_BALANCER_ERROR",
                f"Load balancer {each['id']} is in ERROR, so Octavia changes nothing on it.",
                remedy="Ask an administrator of the cloud for a failover of the load balancer.",
            )
