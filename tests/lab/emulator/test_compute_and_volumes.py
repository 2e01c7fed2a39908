# SPDX-License-Identifier: Apache-2.0
"""Servers and volumes, through openstacksdk and python-cinderclient."""

from __future__ import annotations

import pytest
import requests
from openstack import exceptions
from oslo_utils.timeutils import parse_isotime

from lab.emulator.emulated_clients import Clients, Pair, clients_of
from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.lab.emulator.server import EmulatedCloud
from support.waiting import until


def attach(demo: Clients, server: str, volume: str) -> None:
    demo.compute.create_volume_attachment(server, volume_id=volume)
    until(lambda: demo.volumes.volumes.get(volume).status == "in-use")


@pytest.mark.parametrize(("user", "zone"), [("demo", "cmp2"), ("admin", "nova:cmp2")])
def test_a_booted_server_becomes_active_on_a_host(
    cloud: EmulatedCloud, user: str, zone: str
) -> None:
    compute = clients_of(cloud.url, user).compute
    server = compute.create_server(
        name=f"on-{zone}", image_id="tiny", flavor_id="1", networks="none", availability_zone=zone
    )
    server = compute.wait_for_server(server, interval=0.01)
    assert (server.status, server.vm_state, server.task_state) == ("ACTIVE", "active", None)
    assert server.power_state == 1
    assert compute.find_server(f"on-{zone}").id == server.id
    shown = clients_of(cloud.url, "admin").compute.get_server(server.id)
    assert shown.compute_host == "cmp2"
    assert compute.get_server(server.id).availability_zone == zone.partition(":")[0]


def test_the_microversion_decides_the_shape(
    cloud: EmulatedCloud, demo: Clients, pair: Pair
) -> None:
    url = f"{cloud.url}/compute/v2.1/servers/{pair.a}"

    def show(version: str | None) -> requests.Response:
        headers = {"X-Auth-Token": demo.session.get_token()}
        if version:
            headers["OpenStack-API-Version"] = f"compute {version}"
        return requests.get(url, headers=headers, timeout=5)

    assert "tags" not in show(None).json()["server"]
    assert show("2.26").json()["server"]["tags"] == []
    assert "original_name" in show("latest").json()["server"]["flavor"]
    assert show("2.16").headers["OpenStack-API-Version"] == "compute 2.16"
    assert show("2.97").status_code == 406
    assert show("two").status_code == 400


def test_a_compute_service_s_time_is_of_its_last_report_or_of_an_administrator_s_last_change(
    cloud: EmulatedCloud, emulator: EmulatorClient
) -> None:
    """As in Nova, whose database stamps each change of the row. A service that was forced down is
    down whatever it reports."""
    compute, host = clients_of(cloud.url, "admin").compute, cloud.emulation.state.hosts["cmp1"]

    def shown() -> tuple[str, str, float]:
        row = next(iter(compute.services(host="cmp1")))
        return row.state, row.status, parse_isotime(row.updated_at).timestamp()

    def change(down: bool) -> None:
        row = next(iter(compute.services(host="cmp1")))
        compute.update_service_forced_down(row, forced=down)

    emulator.fault("host", "cmp1", "compute_down")
    host.reported -= 60
    _, _, died = shown()
    change(down=True)
    _, _, changed = shown()
    assert changed > died + 50
    compute.disable_service(next(iter(compute.services(host="cmp1"))))
    host.changed -= 30
    assert shown()[:2] == ("down", "disabled")

    change(down=True)
    assert shown()[2] < changed, "a repeat changes nothing"
    emulator.fault("host", "cmp1", "revive")
    assert shown()[0] == "down"
    assert shown()[2] >= changed, "it reports"
    change(down=False)
    assert shown()[0] == "up"


def test_a_server_for_which_no_host_is_left_goes_to_error(
    demo: Clients, emulator: EmulatorClient
) -> None:
    for host in ("cmp1", "cmp2"):
        emulator.fault("host", host, "power_off")
    server = demo.compute.create_server(name="n", image_id="i", flavor_id="1", networks="none")
    until(lambda: demo.compute.get_server(server.id).status == "ERROR")
    assert "No valid host" in demo.compute.get_server(server.id).fault["message"]


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"server": {}}'])
def test_a_request_that_makes_no_sense_is_a_400(
    cloud: EmulatedCloud, demo: Clients, body: bytes
) -> None:
    headers = {"X-Auth-Token": demo.session.get_token(), "Content-Type": "application/json"}
    url = f"{cloud.url}/compute/v2.1/servers"
    answer = requests.post(url, data=body, headers=headers, timeout=5)
    assert answer.status_code == 400
    assert answer.json()["badRequest"]["code"] == 400


def test_a_path_that_no_service_has_is_a_404_in_its_shape(cloud: EmulatedCloud) -> None:
    answer = requests.get(f"{cloud.url}/compute/v2.1/flavours", timeout=5)
    assert answer.json()["itemNotFound"]["code"] == 404


class TestInjectedFaults:
    def test_an_error_comes_as_often_as_asked_for(
        self, demo: Clients, emulator: EmulatorClient, pair: Pair
    ) -> None:
        emulator.api_fault("attach", "error", status=503)
        with pytest.raises(exceptions.HttpException) as refused:
            demo.compute.create_volume_attachment(pair.a, volume_id=pair.data)
        assert refused.value.status_code == 503
        attach(demo, pair.a, pair.data)

    def test_a_lost_answer_took_effect(
        self, demo: Clients, emulator: EmulatorClient, pair: Pair
    ) -> None:
        emulator.api_fault("attach", "lost", status=502)
        with pytest.raises(exceptions.HttpException):
            demo.compute.create_volume_attachment(pair.a, volume_id=pair.data)
        until(lambda: demo.volumes.volumes.get(pair.data).status == "in-use")

    def test_an_attach_that_fails_leaves_the_volume_available(
        self, demo: Clients, emulator: EmulatorClient, pair: Pair
    ) -> None:
        emulator.api_fault("attach", "fail")
        demo.compute.create_volume_attachment(pair.a, volume_id=pair.data)
        until(lambda: demo.volumes.volumes.get(pair.data).status == "available")
        assert list(demo.compute.volume_attachments(pair.a)) == []

    def test_a_detach_that_hangs_leaves_the_volume_detaching(
        self, demo: Clients, emulator: EmulatorClient, pair: Pair
    ) -> None:
        attach(demo, pair.a, pair.data)
        emulator.api_fault("detach", "stuck")
        demo.compute.delete_volume_attachment(pair.a, pair.data)
        until(lambda: not emulator.status()["in_flight"])
        assert demo.volumes.volumes.get(pair.data).status == "detaching"
        with pytest.raises(exceptions.BadRequestException, match="Unable to detach"):
            demo.compute.delete_volume_attachment(pair.a, pair.data)

    def test_a_stop_that_fails_leaves_the_server_active(
        self, demo: Clients, emulator: EmulatorClient, pair: Pair
    ) -> None:
        emulator.api_fault("stop", "fail")
        demo.compute.stop_server(pair.a)
        until(lambda: demo.compute.get_server(pair.a).task_state is None)
        assert demo.compute.get_server(pair.a).status == "ACTIVE"

    def test_a_held_request_waits(self, demo: Clients, emulator: EmulatorClient) -> None:
        emulator.api_fault("server_list", "hold", seconds=0.1)
        answer = demo.session.get("/servers", endpoint_filter={"service_type": "compute"})
        assert answer.elapsed.total_seconds() >= 0.1


def test_flavors_are_listed_in_both_ways_of_nova(demo: Clients, pair: Pair) -> None:
    del pair  # its servers have the flavor

    brief = {flavor.id for flavor in demo.compute.flavors(details=False)}
    (tiny,) = [flavor for flavor in demo.compute.flavors() if flavor.name == "m1.tiny"]

    assert "m1.tiny" in brief
    assert (tiny.vcpus, tiny.ram, tiny.is_public) == (1, 512, True)


def test_a_host_knows_for_whom_it_was_broken_until_it_is_repaired(
    emulator: EmulatorClient,
) -> None:
    def broken_for() -> list[str]:
        return list(emulator.status()["hosts"]["cmp1"]["broken_for"])

    emulator.fault("host", "cmp1", "power_off", member="shop/web_a")
    assert broken_for() == ["shop/web_a"]

    emulator.fault("host", "cmp1", "revive", member="shop/web_a")
    assert broken_for() == []
