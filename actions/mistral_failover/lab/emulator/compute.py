# SPDX-License-Identifier: Apache-2.0
"""Nova's API, microversions 2.1 to 2.96: servers, their actions, the compute services.

Where a server runs, and how its compute service is (`host_status`), is shown to administrators
only, as Nova's default policy has it.
"""

import hashlib
import time
from collections.abc import Callable
from typing import Any

from oslo_utils import strutils
from starlette.routing import Route

from mistral_failover.lab.emulator import (
    guests,
    images,
    ports,
    quotas,
    security_groups,
    server_tasks,
    servers,
    volume,
)
from mistral_failover.lab.emulator.state import (
    Host,
    Network,
    Port,
    Server,
    Volume,
    new_id,
    stable_hex,
)
from mistral_failover.lab.emulator.web import (
    ApiError,
    Call,
    Service,
    endpoint,
    microversion,
    newest,
    paged,
    utc,
)

_FAULTS = {
    400: "badRequest",
    403: "forbidden",
    404: "itemNotFound",
    409: "conflictingRequest",
    429: "overLimit",
    503: "serviceUnavailable",
}
LOWEST, HIGHEST = (2, 1), (2, 96)


def error_body(status: int, message: str) -> dict[str, Any]:
    """Nova's error body."""
    return {_FAULTS.get(status, "computeFault"): {"code": status, "message": message}}


def asked_version(call: Call) -> tuple[int, int]:
    """The microversion of a request."""
    headers = call.request.headers
    plain = headers.get("x-openstack-nova-api-version")
    return microversion(
        headers.get("openstack-api-version"),
        "compute",
        LOWEST,
        newest(call, "compute", HIGHEST),
        plain=plain,
    )


def _prepare(call: Call) -> dict[str, str]:
    major, minor = asked_version(call)
    return {
        "OpenStack-API-Version": f"compute {major}.{minor}",
        "X-OpenStack-Nova-API-Version": f"{major}.{minor}",
        "Vary": "OpenStack-API-Version, X-OpenStack-Nova-API-Version",
    }


SERVICE = Service("compute", error_body, prepare=_prepare)
refused = SERVICE.refused


def find_server(call: Call) -> Server:
    """The server that the path names; 404 for one that the caller may not see."""
    server = call.emulation.state.servers.get(call.path("server_id"))
    if server is None or not call.sees(server.project_id):
        raise refused(404, f"Instance {call.path('server_id')} could not be found.")
    return server


def view(call: Call, server: Server) -> dict[str, Any]:
    """A server in the shape of the microversion asked for."""
    version = asked_version(call)
    state, url = call.emulation.state, call.emulation.url
    host = state.hosts.get(server.host)
    attached = state.attachments_of(server_id=server.id)
    flavor: dict[str, Any] = {"id": server.flavor, "links": []}
    if version >= (2, 47):
        flavor = {
            "original_name": server.flavor,
            "vcpus": 1,
            "ram": 512,
            "disk": 1,
            "ephemeral": 0,
            "swap": 0,
            "extra_specs": {},
        }
    body: dict[str, Any] = {
        "id": server.id,
        "name": server.name,
        "status": server.status,
        "tenant_id": server.project_id,
        "user_id": server.user_id,
        "metadata": server.metadata,
        "hostId": _host_id(server.project_id, server.host) if server.host else "",
        "image": {"id": server.image, "links": []} if server.image else "",
        "flavor": flavor,
        "created": utc(server.created),
        "updated": utc(server.updated),
        "addresses": _addresses(call, server),
        "accessIPv4": "",
        "accessIPv6": "",
        "links": [{"rel": "self", "href": f"{url}/compute/v2.1/servers/{server.id}"}],
        "OS-DCF:diskConfig": "MANUAL",
        "progress": 0,
        "OS-EXT-AZ:availability_zone": server.zone,
        "config_drive": "",
        "key_name": None,
        "OS-SRV-USG:launched_at": (
            utc(server.launched_at, "%Y-%m-%dT%H:%M:%S.%f") if server.launched_at else None
        ),
        "OS-SRV-USG:terminated_at": None,
        "OS-EXT-STS:task_state": server.task_state,
        "OS-EXT-STS:vm_state": server.vm_state,
        "OS-EXT-STS:power_state": server.power_state,
        "os-extended-volumes:volumes_attached": [
            {"id": a.volume_id, "delete_on_termination": a.delete_on_termination}
            if version >= (2, 3)
            else {"id": a.volume_id}
            for a in attached
        ],
    }
    if server.fault:
        body["fault"] = {
            "code": 500,
            "created": utc(server.updated),
            "message": server.fault,
        }
    if version >= (2, 9):
        body["locked"] = server.locked
    if version >= (2, 19):
        body["description"] = None
    if version >= (2, 26):
        body["tags"] = server.tags
    return {**body, **_for_administrators(server, host, version)} if call.admin else body


def _addresses(call: Call, server: Server) -> dict[str, list[dict[str, Any]]]:
    """By network, the addresses of its ports."""
    state = call.emulation.state
    found: dict[str, list[dict[str, Any]]] = {}
    for port in state.ports.values():
        if port.device_id == server.id and port.project_id == server.project_id:
            shown = {"addr": port.address, "version": 4, "OS-EXT-IPS:type": "fixed"}
            shown["OS-EXT-IPS-MAC:mac_addr"] = port.mac
            found.setdefault(state.networks[port.network_id].name, []).append(shown)
    return found


def _host_id(project_id: str, host: str) -> str:
    """As Nova makes it."""
    return hashlib.sha224((project_id + host).encode()).hexdigest()


def _for_administrators(
    server: Server, host: Host | None, version: tuple[int, int]
) -> dict[str, Any]:
    """UNKNOWN: its compute service does not report; DOWN: the service was forced down; MAINTENANCE:
    it is disabled."""
    body: dict[str, Any] = {
        "OS-EXT-SRV-ATTR:host": server.host or None,
        "OS-EXT-SRV-ATTR:instance_name": f"instance-{server.id[:8]}",
        "OS-EXT-SRV-ATTR:hypervisor_hostname": server.host or None,
    }
    if version >= (2, 16):
        dead = "DOWN" if host is not None and host.forced_down else "UNKNOWN"
        live = "MAINTENANCE" if host is not None and host.disabled else "UP"
        body["host_status"] = "" if host is None else (live if host.up else dead)
    return body


def _listed(call: Call) -> list[Server]:
    everywhere = call.admin and strutils.bool_from_string(call.query("all_tenants"))
    name, status, host = call.query("name"), call.query("status"), call.query("host")
    found = [
        server
        for server in call.emulation.state.servers.values()
        if (everywhere or server.project_id == call.project_id)
        and (name is None or name in server.name)
        and (status is None or status.upper() == server.status)
        and (host is None or host == server.host)
    ]
    found.sort(key=lambda server: server.created, reverse=True)
    return paged(call, found, no_marker=lambda marker: refused(400, f"marker [{marker}] not found"))


def _list(call: Call) -> Any:
    brief = ("id", "name", "links")
    return {
        "servers": [{k: v for k, v in view(call, s).items() if k in brief} for s in _listed(call)]
    }


def _list_detail(call: Call) -> Any:
    return {"servers": [view(call, server) for server in _listed(call)]}


def _show(call: Call) -> Any:
    return {"server": view(call, find_server(call))}


def _update(call: Call) -> Any:
    """PUT /servers/{id}: its name."""
    server, asked = find_server(call), call.body.get("server")
    if not isinstance(asked, dict) or not isinstance(asked.get("name", ""), str):
        raise refused(400, "Invalid input for field/attribute server.")
    server.name = asked.get("name", server.name)
    call.emulation.changed()
    return {"server": view(call, server)}


def _create(call: Call) -> Any:
    asked = call.body.get("server")
    if not isinstance(asked, dict) or not asked.get("name") or "flavorRef" not in asked:
        raise refused(
            400,
            "Invalid input for field/attribute server. "
            "'name' and 'flavorRef' are required properties",
        )
    if asked_version(call) >= (2, 37) and "networks" not in asked:
        raise refused(
            400,
            "Invalid input for field/attribute server. 'networks' is a required property",
        )
    zone = str(asked.get("availability_zone") or "")
    if ":" in zone and not call.admin:
        raise refused(403, denied("os_compute_api:servers:create:forced_host"))
    if why := quotas.no_server(call.emulation.state, call.project_id):
        raise refused(403, why)
    server = servers.create(
        call.emulation,
        project_id=call.project_id,
        name=str(asked["name"]),
        host=servers.host_of_zone(call.emulation, zone),
        zone=servers.zone_shown(call.emulation, zone),
        disks=_disks(call, asked),
        networks=_networks(call, asked),
        image=str(asked.get("imageRef") or ""),
        flavor=str(asked["flavorRef"]),
        metadata=dict(asked.get("metadata") or {}),
        user_id=call.user_id,
    )
    server.tags = list(map(str, asked.get("tags") or []))
    wanted = [str(each.get("name")) for each in asked.get("security_groups") or []]
    _give_groups(call, server, wanted)
    link = f"{call.emulation.url}/compute/v2.1/servers/{server.id}"
    return 202, {
        "server": {
            "id": server.id,
            "links": [{"rel": "self", "href": link}],
            "OS-DCF:diskConfig": "MANUAL",
            "security_groups": [{"name": each} for each in wanted or ["default"]],
            "adminPass": server.id[:12],
        }
    }


def _networks(call: Call, asked: dict[str, Any]) -> list[Network | Port]:
    wanted = asked.get("networks") or []
    found: list[Network | Port] = []
    for each in wanted if isinstance(wanted, list) else []:
        state = call.emulation.state
        one = state.ports.get(each.get("port")) or state.networks.get(each.get("uuid"))
        if one is None or not call.sees(one.project_id):
            raise refused(
                400, f"Network {each.get('uuid') or each.get('port')} could not be found."
            )
        if isinstance(one, Network) and each.get("fixed_ip"):
            one = _at_address(call, one, str(each["fixed_ip"]))
        found.append(one)
    return found


def _at_address(call: Call, on: Network, address: str) -> Port:
    """A port of Nova's with an address that a new server is to have."""
    if ports.is_taken(call.emulation, on, address):
        raise refused(400, f"Fixed IP address {address} is already in use on instance.")
    return ports.make(call.emulation, call.project_id, on, by_nova=True, address=address)


def _disks(call: Call, asked: dict[str, Any]) -> list[servers.Disk]:
    """The volumes that a new server is to have: existing ones, and those that Nova makes of an
    image."""
    found = []
    for mapping in asked.get("block_device_mapping_v2") or []:
        root = str(mapping.get("boot_index")) == "0"
        delete = bool(mapping.get("delete_on_termination"))
        if mapping.get("source_type") == "volume":
            found.append(
                servers.Disk(_free_volume(call, mapping.get("uuid"), root).id, root, delete)
            )
        elif mapping.get("destination_type") == "volume":
            made = volume.of_image(
                call.emulation, call.project_id, int(mapping.get("volume_size") or 1), call.user_id
            )
            found.append(servers.Disk(made.id, root, delete))
    return found


def _free_volume(call: Call, identity: Any, root: bool) -> Volume:
    found = call.emulation.state.volumes.get(str(identity))
    if found is None or not call.sees(found.project_id):
        raise refused(400, f"Block Device Mapping is Invalid: failed to get volume {identity}.")
    if root and not found.bootable:
        raise refused(400, f"Block Device {found.id} is not bootable.")
    if found.status != "available" and not (found.multiattach and found.status == "in-use"):
        raise unreservable(found)
    return found


def _delete(call: Call) -> Any:
    server = find_server(call)
    _require_unlocked(call, server)
    kept = call.emulation.state.config["reclaim_instance_interval"]
    if kept and server.vm_state in server_tasks.TASKS["soft-delete"].allowed:
        server_tasks.begin(call.emulation, server, "soft-delete", call.request_id)
        return 204, None
    servers.delete(call.emulation, server, call.request_id)
    return 204, None


def _action_name(call: Call) -> str:
    return next(iter(call.body), "server_action").removeprefix("os-")


def _action(call: Call) -> Any:
    if call.path("server_id") not in call.emulation.state.servers:
        raise refused(404, f"Instance {call.path('server_id')} has no mapping to a cell.")
    server = find_server(call)
    if "os-stop" in call.body:
        require_state(call, server, "stop", ("active", "error"))
        servers.stop(call.emulation, server, call.request_id)
    elif "os-start" in call.body:
        require_state(call, server, "start", ("stopped",))
        servers.start(call.emulation, server, call.request_id)
    elif "rebuild" in call.body:
        require_state(call, server, "rebuild", ("active", "stopped", "error"))
        servers.rebuild(call.emulation, server, call.request_id)
        return 202, {"server": view(call, server)}
    elif "evacuate" in call.body:
        _evacuate(call, server)
        return 200, None
    elif "os-resetState" in call.body:
        if not call.admin:
            raise refused(403, denied("os_compute_api:os-admin-actions:reset_state"))
        servers.reset(call.emulation, server, str((call.body["os-resetState"] or {}).get("state")))
    elif "os-getConsoleOutput" in call.body:
        return 200, {"output": guests.console(call.emulation, server.id)}
    elif "addSecurityGroup" in call.body or "removeSecurityGroup" in call.body:
        _change_groups(call, server)
    elif "lock" in call.body or "unlock" in call.body:
        server_tasks.lock(call.emulation, server, locked="lock" in call.body)
    else:
        return _begin_task(call, server)
    return 202, None


def _begin_task(call: Call, server: Server) -> Any:
    # A soft deletion is no action of the API: it is what DELETE does where servers are kept.
    actions = server_tasks.TASKS.keys() - {"soft-delete"}
    name = next((each for each in call.body if each in actions), None)
    if name is None:
        raise refused(400, f"There is no such action: {next(iter(call.body), '')}")
    task = server_tasks.TASKS[name]
    if task.admin is not None and not call.admin:
        raise refused(403, denied(task.admin))
    require_state(call, server, name, task.allowed, unlocked=task.unlocked)
    server_tasks.begin(call.emulation, server, name, call.request_id)
    return _ACCEPTED.get(name, 202), _GIVEN[name]() if name in _GIVEN else None


_ACCEPTED = {"confirmResize": 204, "rescue": 200}
_GIVEN: dict[str, Callable[[], dict[str, str]]] = {
    "createImage": lambda: {"image_id": new_id()},
    "rescue": lambda: {"adminPass": new_id()[:12]},
}


def _evacuate(call: Call, server: Server) -> None:
    if not call.admin:
        raise refused(403, denied("os_compute_api:os-evacuate"))
    asked, state = call.body["evacuate"] or {}, call.emulation.state
    if server.vm_state not in ("active", "stopped", "error"):
        raise refused(
            409,
            f"Cannot 'evacuate' instance {server.id} while it is in vm_state {server.vm_state}",
        )
    if state.host_up(server.host):
        raise refused(400, f"Compute service of {server.host} is still in use.")
    target = asked.get("host")
    if target is not None and target not in state.hosts:
        raise refused(404, f"Compute host {target} could not be found.")
    servers.evacuate(
        call.emulation,
        server,
        call.request_id,
        target,
        stays_off=asked_version(call) >= (2, 95),
    )


def _require_unlocked(call: Call, server: Server) -> None:
    if server.locked and not call.admin:
        raise refused(409, f"Instance {server.id} is locked")


def require_state(
    call: Call, server: Server, verb: str, allowed: tuple[str, ...], *, unlocked: bool = True
) -> None:
    """Nova's check before an action: not locked, the right vm_state, and no running task."""
    if unlocked:
        _require_unlocked(call, server)
    for attribute, ok in (
        ("vm_state", server.vm_state in allowed),
        ("task_state", server.task_state is None),
    ):
        if not ok:
            raise refused(
                409,
                f"Cannot '{verb}' instance {server.id} while it is in "
                f"{attribute} {getattr(server, attribute)}",
            )
    if not server.host:
        raise refused(409, f"Instance {server.id} is not ready")


def denied(rule: str) -> str:
    """Nova's answer to a caller without the rights of a policy rule."""
    return f"Policy doesn't allow {rule} to be performed."


def of_cinder(words: str) -> str:
    """Nova's error for a refusal of Cinder's."""
    return f"Invalid input received: {words} (HTTP 400) (Request-ID: req-{new_id()})"


def unreservable(volume: Volume) -> ApiError:
    """Cinder's refusal to reserve a volume, as Nova returns it."""
    if volume.status.startswith("error"):
        words = (
            "Invalid volume: Volume attachments can not be created if the volume is in an error "
            f"state. The Volume {volume.id} currently has a status of: {volume.status} "
        )
    else:
        words = (
            f"Invalid volume: Volume {volume.id} status must be available or downloading to "
            f"reserve, but the current status is {volume.status}."
        )
    return refused(400, of_cinder(words))


_STATUS = {False: "enabled", True: "disabled"}


def _services(call: Call) -> Any:
    if not call.admin:
        raise refused(403, denied("os_compute_api:os-services:list"))
    return {
        "services": [
            _service(call, host)
            for host in call.emulation.state.hosts.values()
            if call.query("host") in (None, host.name)
        ]
    }


def _service(call: Call, host: Host) -> dict[str, Any]:
    version = asked_version(call)
    forced = {"forced_down": host.forced_down} if version >= (2, 11) else {}
    number = list(call.emulation.state.hosts).index(host.name) + 1
    return {
        "id": stable_hex("service", host.name) if version >= (2, 53) else number,
        "binary": "nova-compute",
        "host": host.name,
        "zone": "nova",
        "status": _STATUS[host.disabled],
        "state": "up" if host.up else "down",
        **forced,
        "disabled_reason": None,
        "updated_at": utc(host.updated),
    }


def _update_service(call: Call) -> Any:
    if not call.admin:
        raise refused(403, denied("os_compute_api:os-services:update"))
    for host in call.emulation.state.hosts.values():
        if stable_hex("service", host.name) == call.path("service_id"):
            before = host.forced_down, host.disabled
            host.forced_down = bool(call.body.get("forced_down", host.forced_down))
            host.disabled = call.body.get("status", _STATUS[host.disabled]) == _STATUS[True]
            if (host.forced_down, host.disabled) != before:
                host.changed = time.time()
            call.emulation.changed()
            return {"service": _service(call, host)}
    raise refused(404, f"Service {call.path('service_id')} not found.")


def _zones(call: Call) -> Any:
    """GET /os-availability-zone, without hosts."""
    names = call.emulation.state.config["availability_zones"]
    available = {"available": True}
    return {
        "availabilityZoneInfo": [
            {"zoneName": name, "zoneState": available, "hosts": None} for name in names
        ]
    }


def _limits(call: Call) -> Any:
    """GET /limits of the project, in which every flavor has one core and 512 MiB."""
    quota = quotas.limits(call.emulation.state, call.project_id, quotas.COMPUTE)
    used = quotas.used(call.emulation.state, call.project_id)
    absolute = {
        "maxTotalInstances": quota["instances"],
        "maxTotalCores": quota["cores"],
        "maxTotalRAMSize": quota["ram"],
        "totalInstancesUsed": used["instances"],
        "totalCoresUsed": used["cores"],
        "totalRAMUsed": used["ram"],
    }
    return {"limits": {"rate": [], "absolute": absolute}}


def _flavor_names(call: Call) -> list[str]:
    """The flavors of all servers."""
    known = {server.flavor for server in call.emulation.state.servers.values()}
    return sorted(known - {"", *call.emulation.state.config["gone"]})


def _flavor_view(name: str) -> dict[str, Any]:
    return {
        "id": name,
        "name": name,
        "vcpus": 1,
        "ram": 512,
        "disk": 1,
        "swap": 0,
        "OS-FLV-EXT-DATA:ephemeral": 0,
        "OS-FLV-DISABLED:disabled": False,
        "os-flavor-access:is_public": True,
        "rxtx_factor": 1.0,
        "links": [],
    }


def _flavors(call: Call) -> Any:
    """GET /flavors: all that a server has."""
    names = paged(call, _flavor_names(call), key=str)
    return {"flavors": [{"id": name, "name": name, "links": []} for name in names]}


def _flavors_detail(call: Call) -> Any:
    """GET /flavors/detail: the same ones, with what they have."""
    return {"flavors": [*map(_flavor_view, paged(call, _flavor_names(call), key=str))]}


def _flavor(call: Call) -> Any:
    """GET /flavors/ID: its name is its id, and each is there that is not gone."""
    name = call.path("flavor_id")
    if name in call.emulation.state.config["gone"]:
        raise refused(404, f"Flavor {name} could not be found.")
    return {"flavor": _flavor_view(name)}


def _security_groups(call: Call) -> Any:
    """GET /servers/ID/os-security-groups: those of its ports."""
    rows = security_groups.of_server(call.emulation, find_server(call))
    return {
        "security_groups": [
            {
                "id": each.id,
                "name": each.name,
                "description": each.description,
                "tenant_id": each.project_id,
                "rules": [],
            }
            for each in rows
        ]
    }


def _give_groups(call: Call, server: Server, wanted: list[str]) -> None:
    """The groups of a new server, for the ports that Nova makes. None named: those stay as they
    are made."""
    made = [port for port in ports.of(call.emulation, server.id) if port.made_by_nova]
    found = [security_groups.named(call.emulation, server.project_id, each) for each in wanted]
    for port in made if wanted else ():
        port.groups = [group.id for group in found if group is not None]


def _change_groups(call: Call, server: Server) -> None:
    """addSecurityGroup and removeSecurityGroup, with a name or an id."""
    (asked,) = call.body.values()
    name = str((asked or {}).get("name"))
    group = security_groups.named(call.emulation, server.project_id, name)
    if group is None:
        raise refused(404, f"Security group {name} not found for project {server.project_id}.")
    if "addSecurityGroup" in call.body:
        security_groups.add(call.emulation, server, group)
    elif not security_groups.take(call.emulation, server, group):
        raise refused(
            404,
            f"Security group {group.id} not associated with the instance {server.id}",
        )


def _images(call: Call) -> Any:
    """GET /images, up to microversion 2.35."""
    if asked_version(call) > (2, 35):
        raise refused(404, "The resource could not be found.")
    ids = images.listed(call.emulation.state)
    return {"images": [{"id": image, "name": image, "links": []} for image in ids]}


def _image(call: Call) -> Any:
    """GET /images/ID, by which Nova asks Glance, up to microversion 2.35."""
    image = call.path("image_id")
    if asked_version(call) > (2, 35) or not images.exists(call.emulation.state, image):
        raise refused(404, "Image not found.")
    return {"image": {"id": image, "name": image, "status": "ACTIVE"}}


def _version(call: Call) -> dict[str, Any]:
    return {
        "id": "v2.1",
        "status": "CURRENT",
        "version": ".".join(map(str, newest(call, "compute", HIGHEST))),
        "min_version": f"{LOWEST[0]}.{LOWEST[1]}",
        "updated": "2013-07-23T11:33:21Z",
        "links": [{"rel": "self", "href": f"{call.emulation.url}/compute/v2.1/"}],
    }


def _versions(call: Call) -> Any:
    return {"versions": [_version(call)]}


def _one_version(call: Call) -> Any:
    return {"version": _version(call)}


def routes() -> list[Route]:
    """Nova's routes."""
    base = "/compute/v2.1"
    server = f"{base}/servers/{{server_id}}"
    table = (
        ("/compute", _versions, "versions", "GET", True),
        ("/compute/", _versions, "versions", "GET", True),
        (base, _one_version, "versions", "GET", True),
        (f"{base}/", _one_version, "versions", "GET", True),
        (f"{base}/servers", _list, "server_list", "GET", False),
        (f"{base}/servers/detail", _list_detail, "server_list", "GET", False),
        (f"{base}/servers", _create, "boot", "POST", False),
        (server, _show, "server_show", "GET", False),
        (server, _update, "server_update", "PUT", False),
        (server, _delete, "delete_server", "DELETE", False),
        (f"{server}/action", _action, _action_name, "POST", False),
        (f"{base}/os-availability-zone", _zones, "zone_list", "GET", False),
        (f"{base}/limits", _limits, "limits", "GET", False),
        (f"{base}/flavors", _flavors, "flavors", "GET", False),
        (f"{base}/flavors/detail", _flavors_detail, "flavors", "GET", False),
        (f"{base}/flavors/{{flavor_id}}", _flavor, "flavors", "GET", False),
        (f"{server}/os-security-groups", _security_groups, "server_show", "GET", False),
        (f"{base}/images", _images, "image", "GET", False),
        (f"{base}/images/{{image_id}}", _image, "image", "GET", False),
        (f"{base}/os-services", _services, "service_list", "GET", False),
        (f"{base}/os-services/{{service_id}}", _update_service, "service_update", "PUT", False),
    )
    return [
        endpoint(SERVICE, path, handler, operation, [method], public=public)
        for path, handler, operation, method, public in table
    ]
