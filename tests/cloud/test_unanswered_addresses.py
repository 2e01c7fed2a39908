# SPDX-License-Identifier: Apache-2.0
"""A change of an address or an alarm without an answer is looked for before it is sent again. One
that is accepted and not carried out is sent a few times."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from mistral_failover.cloud import dns_records, event_alarms, load_balancers, networks
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.lab.emulator.client import EmulatorClient

TIMEOUT = 0.3
WAYS = [("mute", {"seconds": 3 * TIMEOUT}), ("drop", {}), ("lost", {"status": 502})]


class Neutron:
    """What there is: two servers with a port each, a port on none, and a floating IP."""

    def __init__(self, emulator: EmulatorClient) -> None:
        self._url, self._headers = emulator.url, {"X-Auth-Token": emulator.token()}
        (found,) = self._call("GET", "networks?name=net1")["networks"]
        (public,) = self._call("GET", "networks?name=public")["networks"]
        self.network = str(found["id"])
        self.a, self.b = self.another_server(), self.another_server()
        self.port = self._call("POST", "ports", {"port": {"network_id": self.network}})["port"]
        body = {"floatingip": {"floating_network_id": public["id"]}}
        self.floating = self._call("POST", "floatingips", body)["floatingip"]

    def another_server(self) -> str:
        """Boot a server with a port."""
        asked = {"name": "s", "flavorRef": "m1.tiny", "networks": [{"uuid": self.network}]}
        headers = {**self._headers, "OpenStack-API-Version": "compute 2.90"}
        url = f"{self._url}/compute/v2.1/servers"
        answer = requests.post(url, json={"server": asked}, headers=headers, timeout=10)
        server = str(answer.json()["server"]["id"])
        while True:
            shown = requests.get(f"{url}/{server}", headers=headers, timeout=10).json()["server"]
            if shown["status"] == "ACTIVE":
                return server

    def pool(self) -> str:
        """Make a load balancer's pool, with a disabled member for the first server."""
        row = self._call("GET", f"ports?device_id={self.a}")["ports"][0]
        address = row["fixed_ips"][0]["ip_address"]
        balancer = self._balanced("loadbalancers", {"loadbalancer": {}})
        pool = self._balanced("pools", {"pool": {"loadbalancer_id": balancer}})
        member = {"address": address, "protocol_port": 80, "admin_state_up": False}
        self._balanced(f"pools/{pool}/members", {"member": member})
        return pool

    def name(self) -> dns_records.WantedRecordset:
        """Make a zone, and say what a name of it should be."""
        zone = f"z-{self.port['id']}.org."
        made = self._call("POST", "zones", {"name": zone, "email": "a@b.org"}, "dns/v2")
        return dns_records.WantedRecordset(
            made["id"], f"db.{zone}", "A", "192.0.2.1", 30, "of the group"
        )

    def alarm(self) -> str:
        """Make an alarm that watches the second server."""
        query = [{"field": "traits.instance_id", "op": "eq", "type": "string", "value": self.b}]
        body = {"name": "lost", "type": "event", "event_rule": {"query": query}}
        return str(self._call("POST", "alarms", body, "alarming/v2")["alarm_id"])

    def _balanced(self, path: str, body: Any) -> str:
        base = "load-balancer/v2/lbaas"
        (made,) = self._call("POST", path, body, base).values()
        while True:
            (shown,) = self._call("GET", f"{path}/{made['id']}", None, base).values()
            if shown["provisioning_status"] == "ACTIVE":
                return str(made["id"])

    def _call(self, method: str, path: str, body: Any = None, base: str = "network/v2.0") -> Any:
        url = f"{self._url}/{base}/{path}"
        answer = requests.request(method, url, json=body, headers=self._headers, timeout=10)
        assert answer.ok, answer.text
        return answer.json()


@pytest.fixture
def neutron(emulator: EmulatorClient) -> Neutron:
    """Things of the test's own."""
    return Neutron(emulator)


@pytest.fixture
def hasty(cloud: Cloud, emulator: EmulatorClient) -> Iterator[Cloud]:
    """The adapters, which wait for an answer for a short time only."""
    cloud.project_id  # noqa: B018 - the session's own calls come before
    cloud.newest("Nova")
    cloud.session.timeout = TIMEOUT
    cloud.settings = dataclasses.replace(
        cloud.settings, http_timeout=TIMEOUT, repeat_after=9 * TIMEOUT, poll_ceiling=TIMEOUT / 3
    )
    yield cloud
    emulator.clear_api_faults()


Change = Callable[[Cloud, Neutron], Any]


def _pointed(cloud: Cloud, n: Neutron) -> dict[str, Any]:
    return {**dns_records.point(cloud, n.name(), 10)[1], "server_id": n.a}


def _watched(cloud: Cloud, n: Neutron) -> dict[str, Any]:
    (server,) = event_alarms.watch(cloud, n.alarm(), n.a, 10).servers
    return {"server_id": server}


CHANGES: list[tuple[str, str, Change]] = [
    (
        "floating_ip_update",
        "/floatingips/",
        lambda cloud, n: networks.associate(cloud, n.floating["id"], n.a, 10),
    ),
    (
        "attach_port",
        "/os-interface",
        lambda cloud, n: networks.attach_port(cloud, n.port["id"], n.a, 10),
    ),
    (
        "port_update",
        "/ports/",
        lambda cloud, n: networks.allow_address(cloud, n.port["id"], n.a, 10),
    ),
    (
        "pool_member_update",
        "/members/",
        lambda cloud, n: load_balancers.enable(cloud, n.pool(), n.a, 10)[1],
    ),
    ("recordset_create", "/recordsets", _pointed),
    ("alarm_update", "/alarms/", _watched),
]


@pytest.mark.parametrize(("fault", "more"), WAYS, ids=[name for name, _ in WAYS])
@pytest.mark.parametrize(
    ("operation", "path", "change"), CHANGES, ids=[name for name, *_ in CHANGES]
)
def test_a_change_that_is_not_answered_is_sent_once(
    hasty: Cloud,
    neutron: Neutron,
    emulator: EmulatorClient,
    operation: str,
    path: str,
    change: Change,
    fault: str,
    more: dict[str, Any],
) -> None:
    emulator.api_fault(operation, fault, times=1, **more)

    assert change(hasty, neutron)["server_id"] == neutron.a

    sent = [
        event
        for event in emulator.audit(kind="request")
        if event["method"] in ("PUT", "POST") and path in event["path"]
    ]
    assert len(sent) == 1


def test_an_answer_that_never_came_is_said_to_be_unknown(
    hasty: Cloud, neutron: Neutron, emulator: EmulatorClient
) -> None:
    emulator.api_fault("floating_ip_update", "hold", seconds=2, times=9)

    with pytest.raises(CloudError) as caught:
        networks.associate(hasty, neutron.floating["id"], neutron.a, 2 * TIMEOUT)

    assert caught.value.unknown
    assert caught.value.service == "Neutron"


def test_neutron_that_is_away_is_waited_for(
    hasty: Cloud, neutron: Neutron, emulator: EmulatorClient
) -> None:
    emulator.api_fault("floating_ip_show", status=503, times=4)

    assert networks.associate(hasty, neutron.floating["id"], neutron.a, 10)["server_id"]


def test_a_detach_that_a_dead_host_would_keep_is_not_requested(
    connect: Callable[..., Cloud], neutron: Neutron, emulator: EmulatorClient
) -> None:
    """It would take the port from its next server when the host is back. Nova shows the state of a
    host to administrators."""
    project = emulator.add_user("administrator", project="demo", admin=True)
    cloud = connect("administrator", project_id=project)
    networks.attach_port(cloud, neutron.port["id"], neutron.a, 10)
    host = emulator.guests()[neutron.a]["host"]
    emulator.fault("host", host, "compute_down")
    try:
        with pytest.raises(CloudError) as caught:
            networks.detach_port(cloud, neutron.port["id"], neutron.a, 1)
    finally:
        emulator.fault("host", host, "revive")

    assert caught.value.code == "HOST_DOWN"
    assert neutron.a in caught.value.message
    assert neutron.port["fixed_ips"][0]["ip_address"] in emulator.guests()[neutron.a]["addresses"]


def test_a_released_port_that_its_old_guest_still_has_is_a_violation(
    cloud: Cloud, neutron: Neutron, emulator: EmulatorClient
) -> None:
    """So a test that moves an address without a fence is found out."""
    port, address = neutron.port["id"], neutron.port["fixed_ips"][0]["ip_address"]
    networks.attach_port(cloud, port, neutron.a, 10)
    host = emulator.guests()[neutron.a]["host"]
    other = neutron.b if emulator.guests()[neutron.b]["host"] != host else neutron.another_server()
    emulator.fault("host", host, "compute_down")
    try:
        networks.detach_port(cloud, port, neutron.a, 10, off=True)
        assert emulator.answering(address) == [neutron.a]
        networks.attach_port(cloud, port, other, 10)
        seen, *_ = [each for each in emulator.violations() if each.get("address") == address]
    finally:
        emulator.fault("host", host, "revive")

    assert seen["rule"] == "address_on_two_servers"
    assert sorted(seen["servers"]) == sorted((neutron.a, other))
    assert emulator.answering(address) == [other]


def test_a_member_of_a_pool_that_stays_in_error_is_changed_a_few_times(
    cloud: Cloud, neutron: Neutron, emulator: EmulatorClient
) -> None:
    """The load balancer itself is ACTIVE, so Octavia accepts each change."""

    def sent() -> int:
        return sum(
            event["method"] == "PUT" and pool in event["path"]
            for event in emulator.audit(0, "request")
        )

    pool = neutron.pool()
    emulator.api_fault("pool_member", "fail", times=2)
    member, _ = load_balancers.enable(cloud, pool, neutron.a, 10)
    assert sent() == 3

    emulator.api_fault("pool_member", "fail", times=100)
    with pytest.raises(CloudError) as caught:
        load_balancers.disable(cloud, pool, member, 10)
    emulator.clear_api_faults()
    assert caught.value.code == "LOAD_BALANCER_ERROR"
    assert member in caught.value.message
    assert sent() == 6

    load_balancers.disable(cloud, pool, member, 10, drain=1)
    assert sent() == 7, "what is disabled is not enabled to drain"
