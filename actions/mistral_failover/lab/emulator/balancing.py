# SPDX-License-Identifier: Apache-2.0
"""Octavia's API v2: load balancers, their pools, and the members of these.

While a load balancer carries a change out, everything on it is PENDING and every other change is
refused with 409. A change is shown at once, before the load balancer has it. In ERROR a load
balancer accepts nothing but its deletion.
"""

from __future__ import annotations

from typing import Any

from starlette.routing import Route

from mistral_failover.lab.emulator.core import Emulation, transition
from mistral_failover.lab.emulator.state import LoadBalancer, Pool, PoolMember, new_id
from mistral_failover.lab.emulator.web import (
    ApiError,
    Call,
    Service,
    endpoint,
    next_page,
    paged,
    take_fault,
)

MAX_WEIGHT = 256
_CHANGEABLE = {"name", "admin_state_up", "weight", "backup"}


def error_body(status: int, message: str) -> dict[str, Any]:
    """Octavia's error body."""
    return {
        "faultcode": "Client" if status < 500 else "Server",
        "faultstring": message,
        "debuginfo": None,
    }


SERVICE = Service("load-balancer", error_body)
refused = SERVICE.refused


def make_load_balancer(emulation: Emulation, project_id: str, name: str = "") -> LoadBalancer:
    """Makes a load balancer with the next free address; it is ready after a while."""
    number = 1 + len(emulation.state.load_balancers)
    address = f"10.98.{number // 250}.{number % 250 + 1}"
    made = LoadBalancer(new_id(), project_id, address, name, status="PENDING_CREATE")
    emulation.state.load_balancers[made.id] = made
    _settle_later(emulation, made)
    return made


def make_pool(emulation: Emulation, balancer: LoadBalancer, name: str = "") -> Pool:
    """Makes a pool of a load balancer."""
    made = Pool(new_id(), balancer.project_id, balancer.id, name, status="PENDING_CREATE")
    emulation.state.pools[made.id] = made
    _settle_later(emulation, balancer)
    return made


def make_member(
    emulation: Emulation, pool: Pool, address: str, protocol_port: int, *, enabled: bool = True
) -> PoolMember:
    """Makes a member of a pool."""
    made = PoolMember(new_id(), pool.id, address, protocol_port, enabled, status="PENDING_CREATE")
    emulation.state.pool_members[made.id] = made
    _settle_later(emulation, emulation.state.load_balancers[pool.load_balancer_id])
    return made


def set_member(emulation: Emulation, member_id: str, *, enabled: bool) -> None:
    """Enables or disables a member, if there is one with this id."""
    member = emulation.state.pool_members.get(member_id)
    if member is not None:
        member.enabled, member.status = enabled, "PENDING_UPDATE"
        pool = emulation.state.pools[member.pool_id]
        _settle_later(emulation, emulation.state.load_balancers[pool.load_balancer_id])


def remove(emulation: Emulation, identity: str) -> None:
    """Removes a load balancer, a pool or a member, with what is below it, if there is one with
    this id."""
    state = emulation.state
    state.load_balancers.pop(identity, None)
    state.pools.pop(identity, None)
    state.pool_members.pop(identity, None)
    for pool in [p for p in state.pools.values() if p.load_balancer_id == identity]:
        remove(emulation, pool.id)
    for member in [m for m in state.pool_members.values() if m.pool_id == identity]:
        remove(emulation, member.id)
    emulation.changed()


def backends(emulation: Emulation, address: str) -> set[str]:
    """The addresses to which the load balancer with this address passes connections on now."""
    state = emulation.state
    own = {each.id for each in state.load_balancers.values() if each.address == address}
    pools = {each.id for each in state.pools.values() if each.load_balancer_id in own}
    return {m.address for m in state.pool_members.values() if m.pool_id in pools and m.live}


def _settle_later(emulation: Emulation, balancer: LoadBalancer) -> None:
    if not balancer.status.startswith("PENDING"):
        balancer.status = "PENDING_UPDATE"
    seconds = emulation.latency.of("load_balancer")
    emulation.after(seconds, "load_balancer.settled", load_balancer_id=balancer.id)
    emulation.changed()


@transition("load_balancer.settled")
def _settled(emulation: Emulation, load_balancer_id: str) -> None:
    """The load balancer has carried its changes out."""
    state = emulation.state
    balancer = state.load_balancers.get(load_balancer_id)
    if balancer is None:
        return
    failed = take_fault(emulation, "load_balancer", ("fail",)) is not None
    member_failed = failed or take_fault(emulation, "pool_member", ("fail",)) is not None
    pools = [p for p in state.pools.values() if p.load_balancer_id == balancer.id]
    ids = {pool.id for pool in pools}
    members = [m for m in state.pool_members.values() if m.pool_id in ids]
    concerned: tuple[PoolMember | Pool | LoadBalancer, ...] = (*members, *pools, balancer)
    for each in concerned:
        if each.status == "PENDING_DELETE" and not failed:
            remove(emulation, each.id)
        elif each.status.startswith("PENDING"):
            wrong = member_failed if isinstance(each, PoolMember) else failed
            each.status = "ERROR" if wrong else "ACTIVE"
            if isinstance(each, PoolMember) and not wrong:
                _live(emulation, each)
    if failed:
        balancer.status = "ERROR"
    elif balancer.status.startswith("PENDING"):
        balancer.status = "ACTIVE"
    emulation.changed()


def _live(emulation: Emulation, member: PoolMember) -> None:
    member.live = member.enabled
    emulation.audit.record(
        "pool_member",
        member=member.id,
        pool=member.pool_id,
        enabled=member.enabled,
        weight=member.weight,
    )


def _balancer_view(call: Call, one: LoadBalancer) -> dict[str, Any]:
    pools = [p for p in call.emulation.state.pools.values() if p.load_balancer_id == one.id]
    return {
        "id": one.id,
        "name": one.name,
        "project_id": one.project_id,
        "vip_address": one.address,
        "provisioning_status": one.status,
        "operating_status": "ONLINE",
        "admin_state_up": True,
        "provider": "emulated",
        "pools": [{"id": each.id} for each in pools],
        "listeners": [],
    }


def _pool_view(call: Call, pool: Pool) -> dict[str, Any]:
    members = [m for m in call.emulation.state.pool_members.values() if m.pool_id == pool.id]
    return {
        "id": pool.id,
        "name": pool.name,
        "project_id": pool.project_id,
        "provisioning_status": pool.status,
        "operating_status": "ONLINE",
        "admin_state_up": True,
        "protocol": "TCP",
        "lb_algorithm": "ROUND_ROBIN",
        "loadbalancers": [{"id": pool.load_balancer_id}],
        "members": [{"id": each.id} for each in members],
        "tags": pool.tags,
    }


def _member_view(call: Call, member: PoolMember) -> dict[str, Any]:
    return {
        "id": member.id,
        "name": member.name,
        "project_id": call.emulation.state.pools[member.pool_id].project_id,
        "address": member.address,
        "protocol_port": member.protocol_port,
        "weight": member.weight,
        "backup": member.backup,
        "admin_state_up": member.enabled,
        "provisioning_status": member.status,
        "operating_status": "NO_MONITOR",
    }


def _listed(call: Call, kind: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    rows = [row for row in rows if call.query("id") in (None, row["id"])]
    page = paged(call, rows, key=lambda row: row["id"])
    return {kind: page, f"{kind}_links": next_page(call, rows, page)}


def _balancer(call: Call, identity: str) -> LoadBalancer:
    one = call.emulation.state.load_balancers.get(identity)
    if one is None or not call.sees(one.project_id):
        raise refused(404, f"Load Balancer {identity} not found.")
    return one


def _pool(call: Call, identity: str) -> Pool:
    pool = call.emulation.state.pools.get(identity)
    if pool is None:
        raise refused(404, f"Pool {identity} not found.")
    if not call.sees(pool.project_id):
        raise refused(403, "Policy does not allow this request to be performed.")
    return pool


def _pool_above(call: Call) -> Pool:
    """The pool of a request about its members; Octavia refuses a wrong one in another form."""
    identity = call.path("pool_id")
    if identity not in call.emulation.state.pools:
        message = f"Pool {identity} not found."
        raise ApiError(404, {"code": 404, "title": "Bad Request", "description": message})
    return _pool(call, identity)


def _member(call: Call) -> PoolMember:
    pool, identity = _pool_above(call), call.path("member_id")
    member = call.emulation.state.pool_members.get(identity)
    if member is None or member.pool_id != pool.id:
        raise refused(404, f"Member {identity} not found.")
    return member


def _asked(call: Call, name: str) -> dict[str, Any]:
    asked = call.body.get(name)
    if not isinstance(asked, dict):
        raise refused(400, f'Missing argument: "{name}"')
    return asked


def _refuse_immutable(call: Call, pool: Pool) -> LoadBalancer:
    balancer = call.emulation.state.load_balancers[pool.load_balancer_id]
    if pool.status != "ACTIVE":
        raise refused(409, f"Pool {pool.id} is immutable and cannot be updated.")
    if balancer.status != "ACTIVE":
        raise refused(409, f"Load Balancer {balancer.id} is immutable and cannot be updated.")
    return balancer


def _checked(asked: dict[str, Any]) -> dict[str, Any]:
    weight = asked.get("weight", 1)
    if not isinstance(weight, int) or not 0 <= weight <= MAX_WEIGHT:
        bound = "lower or equal to 256" if str(weight) > "0" else "greater or equal to 0"
        message = f"Invalid input for field/attribute weight. Value: '{weight}'. "
        raise refused(400, f"{message}Value should be {bound}")
    return asked


def _list_balancers(call: Call) -> Any:
    rows = call.emulation.state.load_balancers.values()
    shown = [_balancer_view(call, each) for each in rows if call.sees(each.project_id)]
    return _listed(call, "loadbalancers", shown)


def _create_balancer(call: Call) -> Any:
    name = str(_asked(call, "loadbalancer").get("name") or "")
    made = make_load_balancer(call.emulation, call.project_id, name)
    return 201, {"loadbalancer": _balancer_view(call, made)}


def _show_balancer(call: Call) -> Any:
    return {"loadbalancer": _balancer_view(call, _balancer(call, call.path("balancer_id")))}


def _delete_balancer(call: Call) -> Any:
    balancer = _balancer(call, call.path("balancer_id"))
    if balancer.status.startswith("PENDING"):
        raise refused(409, f"Load Balancer {balancer.id} is immutable and cannot be updated.")
    pools = call.emulation.state.pools.values()
    if call.query("cascade") != "true" and any(p.load_balancer_id == balancer.id for p in pools):
        message = f"Validation failure: Cannot delete Load Balancer {balancer.id} - "
        raise refused(400, f"{message}it has children")
    balancer.status = "PENDING_DELETE"
    _settle_later(call.emulation, balancer)
    return 204, None


def _list_pools(call: Call) -> Any:
    rows = call.emulation.state.pools.values()
    shown = [_pool_view(call, each) for each in rows if call.sees(each.project_id)]
    return _listed(call, "pools", shown)


def _create_pool(call: Call) -> Any:
    asked = _asked(call, "pool")
    balancer = _balancer(call, str(asked.get("loadbalancer_id")))
    if balancer.status != "ACTIVE":
        raise refused(409, f"Load Balancer {balancer.id} is immutable and cannot be updated.")
    made = make_pool(call.emulation, balancer, str(asked.get("name") or ""))
    made.tags = list(map(str, asked.get("tags") or []))
    return 201, {"pool": _pool_view(call, made)}


def _show_pool(call: Call) -> Any:
    return {"pool": _pool_view(call, _pool(call, call.path("pool_id")))}


def _delete_pool(call: Call) -> Any:
    pool = _pool(call, call.path("pool_id"))
    balancer = _refuse_immutable(call, pool)
    pool.status = "PENDING_DELETE"
    _settle_later(call.emulation, balancer)
    return 204, None


def _list_members(call: Call) -> Any:
    pool = _pool_above(call)
    rows = call.emulation.state.pool_members.values()
    return _listed(call, "members", [_member_view(call, m) for m in rows if m.pool_id == pool.id])


def _create_member(call: Call) -> Any:
    pool, asked = _pool_above(call), _checked(_asked(call, "member"))
    _refuse_immutable(call, pool)
    where = (str(asked.get("address")), int(asked.get("protocol_port") or 0))
    rows = call.emulation.state.pool_members.values()
    if any((m.address, m.protocol_port) == where for m in rows if m.pool_id == pool.id):
        message = f"Another member on this pool is already using ip {where[0]}"
        raise refused(409, f"{message} on protocol_port {where[1]}")
    enabled = bool(asked.get("admin_state_up", True))
    made = make_member(call.emulation, pool, *where, enabled=enabled)
    made.weight, made.backup = asked.get("weight", 1), bool(asked.get("backup"))
    pool.status = "PENDING_UPDATE"
    return 201, {"member": _member_view(call, made)}


def _show_member(call: Call) -> Any:
    return {"member": _member_view(call, _member(call))}


def _update_member(call: Call) -> Any:
    member, asked = _member(call), _checked(_asked(call, "member"))
    for unknown in sorted(asked.keys() - _CHANGEABLE):
        raise refused(400, f"Unknown attribute for argument member_.member: {unknown}")
    pool = _pool_above(call)
    balancer = _refuse_immutable(call, pool)
    member.enabled = asked.get("admin_state_up", member.enabled)
    member.weight = asked.get("weight", member.weight)
    member.backup = asked.get("backup", member.backup)
    member.name = asked.get("name", member.name)
    member.status = pool.status = "PENDING_UPDATE"
    _settle_later(call.emulation, balancer)
    return {"member": _member_view(call, member)}


def _delete_member(call: Call) -> Any:
    member, pool = _member(call), _pool_above(call)
    balancer = _refuse_immutable(call, pool)
    member.status, pool.status = "PENDING_DELETE", "PENDING_UPDATE"
    _settle_later(call.emulation, balancer)
    return 204, None


def routes(version: str = "v2") -> list[Route]:
    """Octavia's routes. Its command line asks for ``v2.0``, which is the same."""
    base = f"/load-balancer/{version}/lbaas"
    balancer, pool = f"{base}/loadbalancers/{{balancer_id}}", f"{base}/pools/{{pool_id}}"
    members, member = f"{pool}/members", f"{pool}/members/{{member_id}}"
    table = (
        (f"{base}/loadbalancers", _list_balancers, "load_balancer_list", "GET"),
        (f"{base}/loadbalancers", _create_balancer, "load_balancer_create", "POST"),
        (balancer, _show_balancer, "load_balancer_show", "GET"),
        (balancer, _delete_balancer, "load_balancer_delete", "DELETE"),
        (f"{base}/pools", _list_pools, "pool_list", "GET"),
        (f"{base}/pools", _create_pool, "pool_create", "POST"),
        (pool, _show_pool, "pool_show", "GET"),
        (pool, _delete_pool, "pool_delete", "DELETE"),
        (members, _list_members, "pool_member_list", "GET"),
        (members, _create_member, "pool_member_create", "POST"),
        (member, _show_member, "pool_member_show", "GET"),
        (member, _update_member, "pool_member_update", "PUT"),
        (member, _delete_member, "pool_member_delete", "DELETE"),
    )
    return [
        endpoint(SERVICE, path, handler, name, [method]) for path, handler, name, method in table
    ]
