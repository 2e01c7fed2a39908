# SPDX-License-Identifier: Apache-2.0
"""What an operator does to the emulated cloud, through the services' own API, as an administrator
within the project of demo; each is what a command of a remedy does."""

from __future__ import annotations

import time
from typing import Any

import requests

from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.lab.emulator.state import stable_hex
from support.waiting import until

_LONG = ("createImage", "os-migrateLive")
"""Actions whose end is not waited for."""
_BODIES: dict[str, dict[str, str]] = {
    "createImage": {},
    "resize": {},
    "reboot": {"type": "SOFT"},
    "os-migrateLive": {},
    "rebuild": {"imageRef": "tiny"},
}


class Operator:
    """An administrator of the cloud."""

    def __init__(self, client: EmulatorClient) -> None:
        self._url = client.url
        self._project = stable_hex("project", "demo")
        versions = {"OpenStack-API-Version": "volume 3.70,compute 2.90"}
        self._headers = {**versions, "X-Auth-Token": client.mint_token(user="admin")}
        self._demo = {**versions, "X-Auth-Token": client.mint_token()}

    def set_volume(self, volume: str, status: str, attach_status: str | None = None) -> None:
        """``openstack volume set --state STATUS [--attached | --detached] VOLUME``"""
        wanted = {"status": status} | ({"attach_status": attach_status} if attach_status else {})
        self._volume("POST", f"volumes/{volume}/action", {"os-reset_status": wanted})

    def reserve(self, volume: str, server: str, *, connected: bool = False) -> str:
        """``openstack volume attachment create``: one that Nova knows nothing of; returns its id.
        ``connected``: a host was told the way to the volume."""
        wanted: dict[str, Any] = {"volume_uuid": volume, "instance_uuid": server}
        if connected:
            wanted["connector"] = {"host": "cmp9", "mountpoint": "/dev/vdx"}
        made = self._volume("POST", "attachments", {"attachment": wanted}).json()
        return str(made["attachment"]["id"])

    def attachments(self, volume: str) -> list[dict[str, Any]]:
        """``openstack volume attachment list``"""
        return list(self._volume("GET", f"attachments?volume_id={volume}").json()["attachments"])

    def make_alarm(self, name: str, stack: str, server: str | None) -> str:
        """``openstack alarm create --type event``: one that signals a resource of the stack;
        returns its id."""
        query = {"field": "traits.instance_id", "op": "eq", "type": "string", "value": server}
        state = {"field": "traits.state", "op": "eq", "type": "string", "value": "error"}
        signal = f"https://heat/v1/{self._project}/stacks/{stack}/4711/resources/on_lost/signal"
        alarm = {
            "name": name,
            "type": "event",
            "event_rule": {"query": [state, *([query] if server else [])]},
            "alarm_actions": [f"trust+{signal}"],
        }
        return str(self._done("POST", self._alarms(), alarm, self._demo).json()["alarm_id"])

    def alarm(self, alarm: str) -> dict[str, Any]:
        """``openstack alarm show ALARM``"""
        return dict(self._done("GET", self._alarms(alarm), None, self._demo).json())

    def alarms(self) -> list[dict[str, Any]]:
        """``openstack alarm list``"""
        return list(self._done("GET", self._alarms(), None, self._demo).json())

    def evacuate(self, server: str, version: str = "2.95") -> None:
        """``openstack --os-compute-api-version VERSION server evacuate SERVER``, and its end."""
        url, name = f"{self._url}/compute/v2.1/servers/{server}", "OS-EXT-SRV-ATTR:host"
        headers = self._headers | {"OpenStack-API-Version": f"compute {version}"}
        old = self._done("GET", url).json()["server"][name]
        self._done("POST", f"{url}/action", {"evacuate": {}}, headers)
        until(lambda: self._done("GET", url).json()["server"][name] != old)

    def set_alarm(self, alarm: str, **values: Any) -> None:
        """``openstack alarm update ALARM``: Aodh wants the whole alarm."""
        self._done("PUT", self._alarms(alarm), self.alarm(alarm) | values, self._demo)

    def point_alarm(self, alarm: str, server: str) -> None:
        """``openstack alarm update --query traits.instance_id=string::SERVER ALARM``"""
        query = {"field": "traits.instance_id", "op": "eq", "type": "string", "value": server}
        self.set_alarm(alarm, event_rule={"event_type": "*", "query": [query]})

    def watched(self, alarm: str) -> list[str]:
        """The servers that an event alarm watches."""
        query = self.alarm(alarm)["event_rule"]["query"]
        return [each["value"] for each in query if each["field"] == "traits.instance_id"]

    def delete_alarm(self, alarm: str) -> None:
        """``openstack alarm delete ALARM``"""
        self._done("DELETE", self._alarms(alarm), None, self._demo)

    def _alarms(self, alarm: str = "") -> str:
        return f"{self._url}/alarming/v2/alarms{alarm and f'/{alarm}'}"

    def delete_server(self, server: str) -> None:
        """``openstack server delete SERVER``"""
        self._done("DELETE", f"{self._url}/compute/v2.1/servers/{server}")

    def stop_server(self, server: str) -> None:
        """``openstack server stop SERVER``"""
        url = f"{self._url}/compute/v2.1/servers/{server}/action"
        self._done("POST", url, {"os-stop": None})

    def start_server(self, server: str) -> None:
        """``openstack server start SERVER``"""
        url = f"{self._url}/compute/v2.1/servers/{server}/action"
        self._done("POST", url, {"os-start": None})

    def act(self, server: str, action: str) -> None:
        """``openstack server VERB SERVER``, as Nova calls it, and the end of its task."""
        url = f"{self._url}/compute/v2.1/servers/{server}"
        self._done("POST", f"{url}/action", {action: _BODIES.get(action)})
        if action not in _LONG:
            until(lambda: not self._done("GET", url).json()["server"]["OS-EXT-STS:task_state"])

    def rebuild_server(self, server: str) -> None:
        """``openstack server rebuild --image tiny SERVER``"""
        url = f"{self._url}/compute/v2.1/servers/{server}/action"
        self._done("POST", url, {"rebuild": {"imageRef": "tiny"}})

    def extend(self, volume: str, size: int) -> None:
        """``openstack volume set --size SIZE VOLUME``"""
        self._volume("POST", f"volumes/{volume}/action", {"os-extend": {"new_size": size}})

    def attach(self, volume: str, server: str) -> None:
        """``openstack server add volume SERVER VOLUME``; waits for the end."""
        url = f"{self._url}/compute/v2.1/servers/{server}/os-volume_attachments"
        self._done("POST", url, {"volumeAttachment": {"volumeId": volume}})
        end = time.monotonic() + 30
        while not any(a.get("status") == "attached" for a in self.attachments(volume)):
            assert time.monotonic() < end
            time.sleep(0.05)

    def let_go_along(self, server: str, volume: str, *, kept: bool = False) -> None:
        """``openstack server volume update SERVER VOLUME``, with ``--delete-on-termination`` or, if
        it is ``kept``, ``--preserve-on-termination``."""
        url = f"{self._url}/compute/v2.1/servers/{server}/os-volume_attachments/{volume}"
        body = {"volumeAttachment": {"volumeId": volume, "delete_on_termination": not kept}}
        version = {"OpenStack-API-Version": "compute 2.85"}
        self._done("PUT", url, body, {**self._headers, **version})

    def detach(self, volume: str, server: str) -> None:
        """``openstack server remove volume SERVER VOLUME``; returns when it is available."""
        url = f"{self._url}/compute/v2.1/servers/{server}/os-volume_attachments/{volume}"
        self._done("DELETE", url)
        for _ in range(500):
            shown = self._volume("GET", f"volumes/{volume}").json()["volume"]
            if shown["status"] == "available":
                return
            time.sleep(0.01)
        raise AssertionError(shown)

    def delete_volume(self, volume: str) -> None:
        """``openstack volume delete VOLUME``; returns when it is gone."""
        self._volume("DELETE", f"volumes/{volume}")
        for _ in range(500):
            found = requests.get(
                self._volumes(f"volumes/{volume}"), headers=self._headers, timeout=10
            )
            if found.status_code == 404:
                return
            time.sleep(0.01)
        raise AssertionError(found.text)

    def delete_stack(self, stack: str) -> None:
        """``openstack stack delete STACK``; returns when its servers are gone."""
        shown, here = self.stack(stack), f"{self._url}/orchestration/v1/{self._project}/stacks"
        self._done("DELETE", f"{here}/{stack}/{shown['id']}", None, self._demo)
        for _ in range(500):
            if requests.get(f"{here}/{stack}", headers=self._demo, timeout=10).status_code == 404:
                return
            time.sleep(0.02)
        raise AssertionError(self.stack(stack))

    def stack(self, stack: str) -> dict[str, Any]:
        """``openstack stack show STACK``"""
        url = f"{self._url}/orchestration/v1/{self._project}/stacks/{stack}"
        return dict(self._done("GET", url, None, self._demo).json()["stack"])

    def update_stack(self, stack: str, *, ends: str = "UPDATE_COMPLETE", **parameters: Any) -> None:
        """``openstack stack update --existing --parameter NAME=VALUE STACK``; returns when it
        ``ends`` so."""
        self._update_stack(stack, {"parameters": parameters}, ends)

    def update_template(self, stack: str, template: dict[str, Any]) -> None:
        """``openstack stack update --existing --template FILE STACK``; returns when it is done."""
        self._update_stack(stack, {"template": template})

    def _update_stack(
        self, stack: str, body: dict[str, Any], ends: str = "UPDATE_COMPLETE"
    ) -> None:
        base = f"{self._url}/orchestration/v1/{self._project}/stacks"
        shown = self._done("GET", f"{base}/{stack}", None, self._demo).json()["stack"]
        path, before = f"{base}/{stack}/{shown['id']}", shown["updated_time"]
        self._done("PATCH", path, body, self._demo)
        for _ in range(500):
            shown = self._done("GET", path, None, self._demo).json()["stack"]
            if shown["stack_status"] == ends and shown["updated_time"] != before:
                return
            time.sleep(0.02)
        raise AssertionError(shown)

    def reset_server(self, server: str, state: str) -> None:
        """``openstack server set --state STATE SERVER``"""
        url = f"{self._url}/compute/v2.1/servers/{server}/action"
        self._done("POST", url, {"os-resetState": {"state": state}})

    def mark(self, stack: str, resource: str) -> str:
        """``openstack stack resource mark unhealthy STACK RESOURCE``; returns the stack's path."""
        base = f"{self._url}/orchestration/v1/{self._project}/stacks"
        shown = self._done("GET", f"{base}/{stack}", None, self._demo).json()["stack"]
        path = f"{base}/{stack}/{shown['id']}"
        mark = {"mark_unhealthy": True}
        self._done("PATCH", f"{path}/resources/{resource}", mark, self._demo)
        return path

    def make_server(self, name: str) -> str:
        """``openstack server create --image tiny --flavor m1.tiny --nic none NAME``; its id."""
        url = f"{self._url}/compute/v2.1/servers"
        wanted = {"name": name, "imageRef": "tiny", "flavorRef": "m1.tiny", "networks": "none"}
        made = self._done("POST", url, {"server": wanted}, self._demo).json()["server"]["id"]
        until(lambda: self._done("GET", f"{url}/{made}").json()["server"]["status"] == "ACTIVE")
        return str(made)

    def replace_server(self, stack: str, resource: str) -> None:
        """``openstack stack resource mark unhealthy STACK RESOURCE``, and ``openstack stack update
        --existing STACK``: returns when the new server has the name and the old one is gone."""
        path = self.mark(stack, resource)
        self._done("PATCH", path, {}, self._demo)
        for _ in range(500):
            shown = self._done("GET", path, None, self._demo).json()["stack"]
            if shown["stack_status"] == "UPDATE_COMPLETE":
                return
            time.sleep(0.02)
        raise AssertionError(shown)

    def server_exists(self, server: str) -> bool:
        """Whether Nova knows a server."""
        url = f"{self._url}/compute/v2.1/servers/{server}"
        return requests.get(url, headers=self._headers, timeout=10).ok

    def make_volume(self, kind: str | None = None, *, bootable: bool = False) -> str:
        """``openstack volume create [--type KIND] [--bootable]``, as demo; returns its id."""
        wanted = {"size": 1, "volume_type": kind, **({"imageRef": "tiny"} if bootable else {})}
        made = self._done("POST", self._volumes("volumes"), {"volume": wanted}, self._demo)
        volume = str(made.json()["volume"]["id"])
        for _ in range(200):
            row = self._volume("GET", f"volumes/{volume}").json()["volume"]
            if row["status"] == "available":
                return volume
            time.sleep(0.01)
        raise AssertionError(row)

    def boot_from(self, volume: str) -> str:
        """``openstack server create --volume VOLUME``, as demo; returns the server's id."""
        disk = {
            "boot_index": 0,
            "uuid": volume,
            "source_type": "volume",
            "destination_type": "volume",
        }
        wanted = {
            "name": "boots",
            "flavorRef": "m1.tiny",
            "networks": "none",
            "block_device_mapping_v2": [disk],
        }
        url = f"{self._url}/compute/v2.1/servers"
        made = self._done("POST", url, {"server": wanted}, self._demo)
        server = str(made.json()["server"]["id"])
        for _ in range(200):
            if self._volume("GET", f"volumes/{volume}").json()["volume"]["status"] == "in-use":
                return server
            time.sleep(0.01)
        raise AssertionError(server)

    def allow_address(self, server: str, port: str) -> None:
        """Allow a server's port to use the address of another port: ``openstack port set
        --allowed-address``."""
        base = f"{self._url}/network/v2.0/ports"
        reserved = self._done("GET", f"{base}/{port}", None, self._demo).json()["port"]
        pairs = [{"ip_address": reserved["fixed_ips"][0]["ip_address"]}]
        (own,) = self._done("GET", f"{base}?device_id={server}", None, self._demo).json()["ports"]
        body = {"port": {"allowed_address_pairs": pairs}}
        self._done("PUT", f"{base}/{own['id']}", body, self._demo)

    def give_port(self, server: str, port: str) -> None:
        """Attach a port to a server: ``openstack server add port``."""
        body = {"interfaceAttachment": {"port_id": port}}
        url = f"{self._url}/compute/v2.1/servers/{server}/os-interface"
        self._done("POST", url, body, self._demo)

    def give_floating_ip(self, floating_ip: str, port: str) -> None:
        """``openstack floating ip set --port PORT FLOATING_IP``"""
        url = f"{self._url}/network/v2.0/floatingips/{floating_ip}"
        self._done("PUT", url, {"floatingip": {"port_id": port}}, self._demo)

    def free_port(self, port: str) -> None:
        """``openstack port unset --device PORT``, whatever has it: as ``server remove port``."""
        url = f"{self._url}/network/v2.0/ports/{port}"
        self._done("PUT", url, {"port": {"device_id": ""}}, self._demo)

    def server_of_port(self, port: str) -> str | None:
        """The server that a port is on, by Neutron's word."""
        url = f"{self._url}/network/v2.0/ports/{port}"
        shown = self._done("GET", url, None, self._demo).json()["port"]
        return str(shown["device_id"]) or None

    def load_balancer(self, identity: str) -> dict[str, Any]:
        """``openstack loadbalancer show``."""
        url = f"{self._url}/load-balancer/v2/lbaas/loadbalancers/{identity}"
        return dict(self._done("GET", url, None, self._demo).json()["loadbalancer"])

    def pool_member(self, pool: str, member: str) -> dict[str, Any]:
        """``openstack loadbalancer member show``."""
        url = f"{self._url}/load-balancer/v2/lbaas/pools/{pool}/members/{member}"
        return dict(self._done("GET", url, None, self._demo).json()["member"])

    def set_pool_member(self, pool: str, member: str, **values: Any) -> None:
        """``openstack loadbalancer member set --wait``."""
        url = f"{self._url}/load-balancer/v2/lbaas/pools/{pool}/members/{member}"
        self._done("PUT", url, {"member": values}, self._demo)
        for _ in range(200):
            if self.pool_member(pool, member)["provisioning_status"] == "ACTIVE":
                return
            time.sleep(0.01)
        raise AssertionError(self.pool_member(pool, member))

    def make_zone(self, name: str) -> str:
        """``openstack zone create``; returns its id."""
        body = {"name": name, "email": "admin@example.org"}
        answer = self._done("POST", f"{self._url}/dns/v2/zones", body, self._demo)
        return str(answer.json()["id"])

    def zone(self, name: str) -> str:
        """``openstack zone list --name NAME``: its id."""
        shown = self._done("GET", f"{self._url}/dns/v2/zones?name={name}", None, self._demo)
        return str(shown.json()["zones"][0]["id"])

    def recordsets(self, zone: str) -> list[dict[str, Any]]:
        """``openstack recordset list ZONE``"""
        url = f"{self._url}/dns/v2/zones/{zone}/recordsets"
        return list(self._done("GET", url, None, self._demo).json()["recordsets"])

    def make_recordset(self, zone: str, name: str, type_: str, record: str) -> str:
        """``openstack recordset create``; returns its id."""
        body = {"name": name, "type": type_, "records": [record]}
        url = f"{self._url}/dns/v2/zones/{zone}/recordsets"
        return str(self._done("POST", url, body, self._demo).json()["id"])

    def set_recordset(self, zone: str, recordset: str, **values: Any) -> None:
        """``openstack recordset set``, and wait until the name servers have it, or are in ERROR."""
        url = f"{self._url}/dns/v2/zones/{zone}/recordsets/{recordset}"
        self._done("PUT", url, values, self._demo)
        for _ in range(200):
            if self._done("GET", url, None, self._demo).json()["status"] != "PENDING":
                return
            time.sleep(0.01)
        raise AssertionError(self.recordsets(zone))

    def delete_recordset(self, zone: str, recordset: str) -> None:
        """``openstack recordset delete``"""
        url = f"{self._url}/dns/v2/zones/{zone}/recordsets/{recordset}"
        self._done("DELETE", url, None, self._demo)

    def take_address(self, server: str, address: str) -> None:
        """Take a floating IP, an allowed address or a port with this address from a server:
        ``openstack floating ip unset --port``, ``openstack port unset --allowed-address``,
        ``openstack server remove port``."""
        base = f"{self._url}/network/v2.0"
        for row in self._done("GET", f"{base}/floatingips", None, self._demo).json()["floatingips"]:
            if row["floating_ip_address"] == address:
                body: dict[str, Any] = {"floatingip": {"port_id": None}}
                self._done("PUT", f"{base}/floatingips/{row['id']}", body, self._demo)
        url = f"{base}/ports?device_id={server}"
        for row in self._done("GET", url, None, self._demo).json()["ports"]:
            pairs = [p for p in row["allowed_address_pairs"] if p["ip_address"] != address]
            body = {"port": {"allowed_address_pairs": pairs}}
            if row["fixed_ips"][0]["ip_address"] == address:
                body = {"port": {"device_id": ""}}
            self._done("PUT", f"{base}/ports/{row['id']}", body, self._demo)

    def _volume(self, method: str, path: str, body: Any = None) -> requests.Response:
        return self._done(method, self._volumes(path), body)

    def _volumes(self, path: str) -> str:
        return f"{self._url}/volume/v3/{self._project}/{path}"

    def _done(
        self, method: str, url: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> requests.Response:
        headers = headers or self._headers
        answer = requests.request(method, url, json=body, headers=headers, timeout=10)
        assert answer.ok, answer.text
        return answer
