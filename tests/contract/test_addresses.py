# SPDX-License-Identifier: Apache-2.0
"""Floating IPs, ports and allowed addresses move between servers, one at a time.

Measured on Nova 34, Cinder 29, Heat 27, Keystone 30 and Mistral 23:

Addresses

- Neutron refuses a change with an old ``If-Match: revision_number=N``: 412.
- A floating IP that is associated again moves without an error, so a look comes first.
- Nova waits for the compute service to attach a port. It does not wait for a detach: 202, also on
  a dead host, where the request waits in the queue.
- A port that belongs to a server: 409 "Port ID is still in use."
- A locked server neither gets nor gives a port: 409 "Instance ID is locked".
- A project may set a port's ``device_id`` to "", and Nova then attaches the port elsewhere.
- Allowed addresses are for the network's owner to set, not for the port's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from contract.api import Api
from contract.conftest import Two
from contract.rig import UNKNOWN_ID, Rig
from mistral_failover.cloud import networks
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.load_balancers import PoolMember, member_of
from mistral_failover.cloud.project_listing import ProjectListing
from mistral_failover.cloud.servers import server_fingerprint


@pytest.fixture
def floating(rig: Rig) -> Iterator[str]:
    """A floating IP of the test's own."""
    made = rig.make_floating_ip()
    yield made
    rig.remove_of_neutron("floatingips", made)


@pytest.fixture
def port(rig: Rig, demo: Api, cloud: Cloud) -> Iterator[str]:
    """A port of the test's own, on no server. Whatever server it is on at the end, it goes."""
    made = rig.make_port()
    yield made
    shown = demo.port(made)
    if shown is not None and shown["device_id"]:
        networks.detach_port(cloud, made, shown["device_id"], 60, off=True)
    rig.remove_of_neutron("ports", made)


class Allowed:
    """The addresses that the servers' own ports may use besides, as their owner sets and sees
    them."""

    def __init__(self, demo: Api, ports: Mapping[str, str]) -> None:
        self._demo, self.ports = demo, ports

    def set(self, server: str, *addresses: str) -> None:
        """Allow these on the server's port, and no others."""
        pairs = [{"ip_address": address} for address in addresses]
        body = {"port": {"allowed_address_pairs": pairs}}
        answer = self._demo.neutron("PUT", f"/ports/{self.ports[server]}", body)
        assert answer.status_code == 200, answer.text

    def on(self, server: str) -> set[str]:
        """Those that the server's port may use now."""
        shown = self._demo.port(self.ports[server])
        assert shown is not None
        return {str(pair["ip_address"]) for pair in shown["allowed_address_pairs"]}


@pytest.fixture
def allowed(rig: Rig, demo: Api, linked: Two) -> Iterator[Allowed]:
    """What the servers' ports may use; nothing, before and after the test."""
    found = Allowed(demo, {each: rig.port_of(each) for each in (linked.a, linked.b)})
    yield found
    for server in found.ports:
        found.set(server)


def test_a_floating_ip_is_associated_once_and_taken_away(
    cloud: Cloud, rig: Rig, demo: Api, linked: Two, floating: str
) -> None:
    made = networks.associate(cloud, floating, linked.a, 30)

    shown = demo.floating_ip(floating)
    assert shown is not None
    assert shown["port_id"] == made["port_id"] == rig.port_of(linked.a)
    assert (made["address"], made["fixed_address"]) == (
        shown["floating_ip_address"],
        shown["fixed_ip_address"],
    )
    assert networks.associate(cloud, floating, linked.a, 30) == made
    again = demo.floating_ip(floating)
    assert again is not None
    assert again["revision_number"] == shown["revision_number"], "nothing was sent twice"

    for _ in range(2):
        networks.disassociate(cloud, floating, linked.a, made["port_id"], 30)
        shown = demo.floating_ip(floating)
        assert shown is not None
        assert shown["port_id"] is None


def test_a_floating_ip_is_not_taken_from_another_port(
    cloud: Cloud, demo: Api, linked: Two, floating: str
) -> None:
    made = networks.associate(cloud, floating, linked.a, 30)

    with pytest.raises(CloudError) as caught:
        networks.associate(cloud, floating, linked.b, 30)
    networks.disassociate(cloud, floating, linked.b, None, 30)

    assert caught.value.code == "ADDRESS_IN_USE"
    assert made["port_id"] in caught.value.message
    shown = demo.floating_ip(floating)
    assert shown is not None
    assert shown["port_id"] == made["port_id"]


def test_a_floating_ip_is_found_by_its_address_and_listed(
    cloud: Cloud, demo: Api, linked: Two, floating: str
) -> None:
    shown = demo.floating_ip(floating)
    assert shown is not None
    assert networks.resolve_floating_ip(cloud, "none", shown["floating_ip_address"]) == floating
    made = networks.associate(cloud, floating, linked.a, 30)

    listing = ProjectListing(cloud)

    found, port = listing.floating_ip(floating), listing.port(made["port_id"])
    assert found is not None
    assert found.port_id == made["port_id"]
    assert port is not None
    assert port.device_id == linked.a
    assert listing.floating_ip(UNKNOWN_ID) is listing.port(UNKNOWN_ID) is None


def test_a_port_moves_from_one_server_to_the_other(
    cloud: Cloud, demo: Api, linked: Two, port: str
) -> None:
    for server in (linked.a, linked.b):
        made = networks.attach_port(cloud, port, server, 60)

        shown = demo.port(port)
        assert shown is not None
        assert (shown["device_id"], shown["status"]) == (server, "ACTIVE")
        assert made["address"] == shown["fixed_ips"][0]["ip_address"]
        assert networks.attach_port(cloud, port, server, 60) == made

        for _ in range(2):
            networks.detach_port(cloud, port, server, 60)
            shown = demo.port(port)
            assert shown is not None
            assert not shown["device_id"]


def test_a_port_is_not_taken_from_another_server(
    cloud: Cloud, demo: Api, linked: Two, port: str
) -> None:
    networks.attach_port(cloud, port, linked.a, 60)

    with pytest.raises(CloudError) as caught:
        networks.attach_port(cloud, port, linked.b, 60)
    networks.detach_port(cloud, port, linked.b, 60)

    assert caught.value.code == "PORT_IN_USE"
    assert linked.a in caught.value.message
    path = f"/servers/{linked.b}/os-interface"
    answer = demo.nova("POST", path, {"interfaceAttachment": {"port_id": port}})
    assert answer.status_code == 409
    assert answer.json()["conflictingRequest"]["message"] == f"Port {port} is still in use."


def test_a_locked_server_gets_no_port_and_gives_none_away_and_it_is_said_what_unlocks_it(
    rig: Rig, cloud: Cloud, demo: Api, linked: Two, port: str
) -> None:
    unlock = f"openstack server unlock {linked.a}"
    path = f"/servers/{linked.a}/os-interface"
    assert demo.act(linked.a, lock=None).ok
    try:
        answer = demo.nova("POST", path, {"interfaceAttachment": {"port_id": port}})
        assert answer.status_code == 409, answer.text
        with pytest.raises(CloudError) as caught:
            networks.attach_port(cloud, port, linked.a, rig.seconds(20))
        assert (caught.value.code, caught.value.transient) == ("TARGET_DOWN", True)
        assert unlock in caught.value.remedy.lower()

        assert demo.act(linked.a, unlock=None).ok
        networks.attach_port(cloud, port, linked.a, 60)
        assert demo.act(linked.a, lock=None).ok

        assert demo.nova("DELETE", f"{path}/{port}").status_code == 409
        with pytest.raises(CloudError) as caught:
            networks.detach_port(cloud, port, linked.a, rig.seconds(20))
        assert (caught.value.code, caught.value.blocked) == ("SERVER_BUSY", True)
        assert unlock in caught.value.remedy.lower()
        about = caught.value.about or {}
        assert about["sight"] == server_fingerprint(cloud, linked.a)
    finally:
        rig.api("admin").act(linked.a, unlock=None)
    assert about["sight"] != server_fingerprint(cloud, linked.a)
    networks.detach_port(cloud, port, linked.a, 60)


def test_the_port_of_a_server_is_not_deleted_by_a_project(
    cloud: Cloud, demo: Api, linked: Two, port: str
) -> None:
    networks.attach_port(cloud, port, linked.a, 60)

    assert demo.neutron("DELETE", f"/ports/{port}").status_code == 403
    assert demo.port(port) is not None


def test_neutron_releases_the_port_of_a_server_that_is_off(
    cloud: Cloud, demo: Api, linked: Two, port: str
) -> None:
    networks.attach_port(cloud, port, linked.a, 60)

    networks.detach_port(cloud, port, linked.a, 60, off=True)

    assert networks.attach_port(cloud, port, linked.b, 60)["server_id"] == linked.b


def test_an_address_is_allowed_on_one_server_s_port_at_a_time(
    cloud: Cloud, linked: Two, port: str, allowed: Allowed
) -> None:
    made = networks.allow_address(cloud, port, linked.a, 30)
    with pytest.raises(CloudError) as caught:
        networks.allow_address(cloud, port, linked.b, 30)
    assert caught.value.code == "ADDRESS_IN_USE"
    assert networks.allow_address(cloud, port, linked.a, 30) == made

    for _ in range(2):
        networks.forbid_address(cloud, made["address"], made["port_id"], 30)
        assert allowed.on(linked.a) == set()


def test_an_address_that_the_port_has_already_is_refused_if_another_server_may_use_it_too(
    cloud: Cloud, linked: Two, port: str, allowed: Allowed
) -> None:
    """A template for keepalived allows it on all."""
    address = networks.address_of(cloud, port)
    for server in (linked.a, linked.b):
        allowed.set(server, address)

    with pytest.raises(CloudError) as caught:
        networks.allow_address(cloud, port, linked.a, 30)

    assert caught.value.code == "ADDRESS_IN_USE"
    assert linked.b in caught.value.message


def test_the_addresses_that_others_allowed_stay(
    cloud: Cloud, linked: Two, port: str, allowed: Allowed
) -> None:
    allowed.set(linked.a, "192.0.2.7")

    made = networks.allow_address(cloud, port, linked.a, 30)
    assert allowed.on(linked.a) == {"192.0.2.7", made["address"]}

    networks.forbid_address(cloud, made["address"], made["port_id"], 30)
    assert allowed.on(linked.a) == {"192.0.2.7"}


def test_a_change_between_the_look_and_the_request_is_not_overwritten(
    cloud: Cloud, linked: Two, port: str, allowed: Allowed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neutron refuses the request with 412, and the next look decides again."""
    real, looks = networks.port, []

    def look(cloud: Cloud, port_id: str) -> networks.Port:
        found = real(cloud, port_id)
        if port_id == allowed.ports[linked.a]:
            looks.append(port_id)
            if len(looks) == 1:
                allowed.set(linked.a, "192.0.2.8")
        return found

    monkeypatch.setattr(networks, "port", look)
    made = networks.allow_address(cloud, port, linked.a, 30)

    assert allowed.on(linked.a) == {"192.0.2.8", made["address"]}


def test_the_floating_ip_of_another_project_is_not_found(rig: Rig, other: Api) -> None:
    """Not even by an administrator, to whom Neutron lists all projects' floating IPs."""
    made = rig.make_floating_ip("other")
    try:
        shown = other.floating_ip(made)
        assert shown is not None
        cloud = rig.connect("admin", token=rig.api("admin").session.get_token())
        with pytest.raises(CloudError) as caught:
            networks.resolve_floating_ip(cloud, "none", shown["floating_ip_address"])
    finally:
        rig.remove_of_neutron("floatingips", made, "other")

    assert caught.value.code == "NOT_FOUND"


def test_a_listing_is_read_page_by_page(
    cloud: Cloud, linked: Two, port: str, allowed: Allowed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(networks, "PAGE", 1)

    found = [str(row["id"]) for row in networks.listed(cloud, "ports")]

    assert {port, *allowed.ports.values()} <= set(found)
    assert len(found) == len(set(found))


@pytest.mark.parametrize("kind", ["ports", "floatingips"])
def test_a_listing_goes_on_where_the_last_row_of_a_page_was_deleted(
    cloud: Cloud, rig: Rig, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(networks, "PAGE", 1)
    make = rig.make_port if kind == "ports" else rig.make_floating_ip
    made = {make() for _ in range(3)}
    seen: list[str] = []
    read = cloud.read

    def delete_the_second(*what: Any, **how: Any) -> Any:
        answer = read(*what, **how)
        seen.extend(row["id"] for row in answer.get(kind, ()) if row["id"] in made)
        if len(seen) == 2 and seen[1] in made:
            made.remove(seen[1])
            rig.remove_of_neutron(kind, seen[1])
        return answer

    monkeypatch.setattr(cloud, "read", delete_the_second)
    try:
        found = [str(row["id"]) for row in networks.listed(cloud, kind)]
    finally:
        for one in made:
            rig.remove_of_neutron(kind, one)

    assert len(made) == 2
    assert made <= set(found)
    assert len(found) == len(set(found))


def test_a_server_without_the_one_port_that_is_needed_is_named(
    cloud: Cloud, two: Two, linked: Two, floating: str
) -> None:
    for server, network in ((two.a, None), (linked.a, "public")):
        with pytest.raises(CloudError) as caught:
            networks.associate(cloud, floating, server, 30, network)
        assert caught.value.code == "NO_PORT"
        assert server in caught.value.message


def test_what_does_not_exist_has_left_every_server(cloud: Cloud, linked: Two) -> None:
    networks.disassociate(cloud, UNKNOWN_ID, linked.a, None, 30)
    networks.detach_port(cloud, UNKNOWN_ID, linked.a, 30)
    networks.forbid_address(cloud, "192.0.2.1", UNKNOWN_ID, 30)
    with pytest.raises(CloudError) as caught:
        networks.attach_port(cloud, UNKNOWN_ID, linked.a, 30)
    assert caught.value.code == "NOT_FOUND"


@pytest.fixture
def imposter(rig: Rig, linked: Two) -> Iterator[dict[str, Any]]:
    """A port of another project on demo's network, which says that it is a server's of demo."""
    administrator = rig.api("admin")
    asked = {"network_id": rig.network_id, "project_id": rig.project_id("other")}
    claim = {"device_id": linked.a, "device_owner": "compute:nova"}
    answer = administrator.neutron("POST", "/ports", {"port": asked | claim})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()["port"]
    yield made
    free = {"port": {"device_id": "", "device_owner": ""}}
    administrator.neutron("PUT", f"/ports/{made['id']}", free)
    rig.remove_of_neutron("ports", made["id"], "admin")


@pytest.mark.parametrize("user", ["demo", "admin"])
def test_a_port_of_another_project_is_no_port_of_the_server(
    rig: Rig, linked: Two, floating: str, imposter: dict[str, Any], user: str
) -> None:
    """The owner of the network sees it, and so does an administrator."""
    rows = rig.api(user).neutron("GET", f"/ports?device_id={linked.a}").json()["ports"]
    (own,) = (row["id"] for row in rows if row["id"] != imposter["id"])
    assert len(rows) == 2
    cloud = rig.within_demo(user)

    assert networks.port_of(cloud, linked.a).id == own
    assert networks.associate(cloud, floating, linked.a, 30)["port_id"] == own
    networks.disassociate(cloud, floating, linked.a, None, 30)
    assert ProjectListing(cloud).port(imposter["id"]) is None
    address = imposter["fixed_ips"][0]["ip_address"]
    member = PoolMember(UNKNOWN_ID, UNKNOWN_ID, address, 80, 1, True, "ACTIVE")
    with pytest.raises(CloudError) as caught:
        member_of(cloud, [member], linked.a)
    assert caught.value.code == "NO_POOL_MEMBER"
    with pytest.raises(CloudError) as caught:
        networks.attach_port(cloud, imposter["id"], linked.a, 30)
    assert caught.value.code == "FORBIDDEN"
