# SPDX-License-Identifier: Apache-2.0
"""Security groups: Neutron's, which ports have, and the servers that have them by their ports. They
keep nothing out: what tools do with them is what matters here.

Nova gives the ports that it makes the project's group ``default``. It adds and takes groups on all
ports of a server, also on one that was attached later.
"""

from __future__ import annotations

from typing import Any

from starlette.routing import Route

from mistral_failover.lab.emulator import ports
from mistral_failover.lab.emulator.core import Emulation
from mistral_failover.lab.emulator.network import SERVICE, asked_for, listed, refused
from mistral_failover.lab.emulator.ports import default_group
from mistral_failover.lab.emulator.state import SecurityGroup, Server, new_id
from mistral_failover.lab.emulator.web import Call, endpoint


def named(emulation: Emulation, project_id: str, name: str) -> SecurityGroup | None:
    """A group of a project by its name or id."""
    default_group(emulation, project_id)
    groups = emulation.state.security_groups.values()
    mine = [each for each in groups if each.project_id == project_id]
    return next((each for each in mine if name in (each.id, each.name)), None)


def of_server(emulation: Emulation, server: Server) -> list[SecurityGroup]:
    """The groups that the ports of a server have; as Nova does, one of two ports twice."""
    groups = emulation.state.security_groups
    found = [group for port in ports.of(emulation, server.id) for group in port.groups]
    return [groups[each] for each in found if each in groups]


def add(emulation: Emulation, server: Server, group: SecurityGroup) -> None:
    """Give every port of a server a group."""
    for port in ports.of(emulation, server.id):
        if group.id not in port.groups:
            port.groups.append(group.id)
            port.revision += 1
    emulation.changed()


def take(emulation: Emulation, server: Server, group: SecurityGroup) -> bool:
    """Take a group from every port of a server; return whether one had it."""
    had = [port for port in ports.of(emulation, server.id) if group.id in port.groups]
    for port in had:
        port.groups.remove(group.id)
        port.revision += 1
    emulation.changed()
    return bool(had)


# -- Neutron's API


def _view(call: Call, group: SecurityGroup) -> dict[str, Any]:
    del call
    return {
        "id": group.id,
        "name": group.name,
        "description": group.description,
        "project_id": group.project_id,
        "security_group_rules": [],
        "stateful": True,
        "shared": False,
        "tags": [],
        "revision_number": 1,
    }


def _group(call: Call) -> SecurityGroup:
    identity = call.path("group_id")
    group = call.emulation.state.security_groups.get(identity)
    if group is None or not call.sees(group.project_id):
        raise refused(404, f"Security group {identity} does not exist")
    return group


def _list(call: Call) -> Any:
    default_group(call.emulation, call.project_id)
    return listed(call, "security_groups", call.emulation.state.security_groups, _view)


def _show(call: Call) -> Any:
    return {"security_group": _view(call, _group(call))}


def _create(call: Call) -> Any:
    asked = asked_for(call, "security_group")
    name, words = str(asked.get("name") or ""), str(asked.get("description") or "")
    made = SecurityGroup(new_id(), call.project_id, name, words)
    call.emulation.state.security_groups[made.id] = made
    call.emulation.changed()
    return 201, {"security_group": _view(call, made)}


def _delete(call: Call) -> Any:
    group = _group(call)
    if any(group.id in port.groups for port in call.emulation.state.ports.values()):
        raise refused(409, f"Security Group {group.id} in use.")
    del call.emulation.state.security_groups[group.id]
    call.emulation.changed()
    return 204, None


def routes() -> list[Route]:
    """Neutron's routes of security groups."""
    base = "/network/v2.0/security-groups"
    one = f"{base}/{{group_id}}"
    table = (
        (base, _list, "security_group_list", "GET"),
        (base, _create, "security_group_create", "POST"),
        (one, _show, "security_group_show", "GET"),
        (one, _delete, "security_group_delete", "DELETE"),
    )
    return [
        endpoint(SERVICE, path, handler, name, [method]) for path, handler, name, method in table
    ]
