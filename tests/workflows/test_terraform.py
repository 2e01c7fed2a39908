# SPDX-License-Identifier: Apache-2.0
"""What Terraform's resources of OpenStack do to a group without a stack after a failover, played
with openstacksdk: Terraform's provider is not at hand.

Each play is what ``terraform apply`` sends for a resource whose attribute differs from its file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from openstack import exceptions

from support.waiting import patiently, until

ACTIVE = {"get_param": "active"}


class Everything:
    """A group with one resource of each kind that a failover changes, serving on db_a."""

    def __init__(self, group: Any) -> None:
        self.group, self.api = group, group.api
        name = group.name
        network = self.api.network.find_network("net1").id
        public = self.api.network.find_network("public").id
        self.ports = {}
        for member in group.members:
            made = self.api.network.create_port(network_id=network, name=f"{name}-{member}")
            self.ports[member] = made.id
            server = self.api.compute.create_server(
                name=f"{name}-{member}",
                image_id="tiny",
                flavor_id="m1.tiny",
                networks=[{"port": made.id}],
            )
            self.api.compute.wait_for_server(server, interval=0.02)
            group.ids[member] = server.id
        self.virtual = self.api.network.create_port(network_id=network, name=f"{name}-virtual")
        self.moving = self.api.network.create_port(network_id=network, name=f"{name}-moving")
        self.floating = self.api.network.create_ip(floating_network_id=public)
        balancer = self.api.load_balancer.create_load_balancer(
            name=f"{name}-lb", vip_network_id=network
        )
        until(lambda: self.balancer(balancer.id) == "ACTIVE")
        self.pool = self.api.load_balancer.create_pool(
            name=f"{name}-pool",
            protocol="TCP",
            lb_algorithm="ROUND_ROBIN",
            loadbalancer_id=balancer.id,
        )
        self.pooled = {}
        for member, port in self.ports.items():
            until(lambda: self.balancer(balancer.id) == "ACTIVE")
            address = self.api.network.get_port(port).fixed_ips[0]["ip_address"]
            self.pooled[member] = self.api.load_balancer.create_member(
                self.pool, address=address, protocol_port=5432, is_admin_state_up=False
            ).id
        until(lambda: self.balancer(balancer.id) == "ACTIVE")
        group.cloud.add_application(f"{name}-ip", start=f"up-{name}", stop=f"down-{name}")

    def balancer(self, identity: str) -> str:
        """The state of a load balancer."""
        return str(self.api.load_balancer.get_load_balancer(identity).provisioning_status)

    def file(self, kinds: tuple[str, ...]) -> dict[str, Any]:
        """The group file, with these resources besides the volume and the application."""
        file: dict[str, Any] = self.group.file()
        name = self.group.name
        more: dict[str, tuple[str, dict[str, Any]]] = {
            "entry": ("floating_ip", {"floating_ip": self.floating.floating_ip_address}),
            "virtual": (
                "virtual_ip",
                {
                    "port": {"name": f"{name}-virtual"},
                    "announce": f"up-{name}",
                    "withdraw": f"down-{name}",
                },
            ),
            "moving": ("port", {"port": {"name": f"{name}-moving"}}),
            "balanced": ("load_balancer_member", {"pool": {"name": f"{name}-pool"}}),
        }
        for resource in kinds:
            kind, properties = more[resource]
            file["resources"][resource] = {
                "type": kind,
                "depends_on": "database",
                "properties": {"server": ACTIVE, **properties},
            }
        return file

    def leads_to(self) -> dict[str, list[str]]:
        """To which members each address leads, by the cloud's own word."""
        members = {port: member for member, port in self.ports.items()}
        floating = self.api.network.get_ip(self.floating.id).port_id
        address = self.address()
        pairs = {
            member
            for member, port in self.ports.items()
            for pair in self.api.network.get_port(port).allowed_address_pairs
            if pair["ip_address"].partition("/")[0] == address
        }
        pooled = [
            member
            for member, one in self.pooled.items()
            if self.api.load_balancer.get_member(one, self.pool).is_admin_state_up
        ]
        servers = {self.group.server(member): member for member in self.group.members}
        holder = servers.get(self.api.network.get_port(self.moving.id).device_id)
        found: dict[str, list[str]] = {"moving": [holder] if holder else []}
        found |= {"entry": [members[floating]] if floating else [], "virtual": sorted(pairs)}
        return {**found, "balanced": pooled, "data": self.group.holders()}

    def address(self) -> str:
        """The virtual address."""
        return str(self.api.network.get_port(self.virtual.id).fixed_ips[0]["ip_address"])


TOGETHER = ("entry", "virtual", "balanced")
"""The kinds that one server can have at once: a port that moves would be a second one."""
ALONE = ("moving",)


def kinds_with(name: str) -> tuple[str, ...]:
    """The resources of a group that has this one."""
    return ALONE if name in ALONE else TOGETHER


@pytest.fixture
def make(loose: Callable[..., Any]) -> Callable[..., Everything]:
    """Make a group with these resources, which serves on db_a."""

    def made(kinds: tuple[str, ...]) -> Everything:
        group = loose(())
        group.members = ("db_a", "db_b")
        everything = Everything(group)
        answer = group.define(everything.file(kinds))
        assert "created" in answer, answer
        assert group.activate()["status"] == "COMPLETE", group.told()
        return everything

    return made


def led(everything: Everything, kinds: tuple[str, ...]) -> set[tuple[str, ...]]:
    """The members that the group's resources lead to; one of all if they agree."""
    found = everything.leads_to()
    return {tuple(found[name]) for name in (*kinds, "data")}


@pytest.mark.parametrize("kinds", [TOGETHER, ALONE], ids="-".join)
def test_every_kind_follows_a_failover_without_a_stack(
    make: Callable[..., Everything], kinds: tuple[str, ...]
) -> None:
    everything = make(kinds)
    group = everything.group
    assert led(everything, kinds) == {("db_a",)}

    patiently(group, "on_alarm", **group.fails()).assert_succeeded()

    assert group.status()["status"] == "COMPLETE"
    assert led(everything, kinds) == {("db_b",)}
    assert group.runs_on() == ["db_b"]


@pytest.mark.parametrize("kinds", [TOGETHER, ALONE], ids="-".join)
def test_every_kind_follows_a_planned_move_and_its_way_back(
    make: Callable[..., Everything], kinds: tuple[str, ...]
) -> None:
    everything = make(kinds)
    group = everything.group
    for there in ("db_b", "db_a"):
        group.run("switchover", group=group.name, to=there).assert_succeeded()
        assert led(everything, kinds) == {(there,)}
        assert group.observed()["status"] == "SERVING"


def attach_volume(given: Everything) -> None:
    """``openstack_compute_volume_attach_v2``, whose attachment is gone."""
    given.api.compute.create_volume_attachment(
        given.group.server("db_a"), volume_id=given.group.volume()
    )


def associate(given: Everything) -> None:
    """``openstack_networking_floatingip_associate_v2``, or ``port_id`` of the address."""
    given.api.network.update_ip(given.floating.id, port_id=given.ports["db_a"])


def attach_interface(given: Everything) -> None:
    """``openstack_compute_interface_attach_v2``, whose attachment is gone."""
    given.api.compute.create_server_interface(given.group.server("db_a"), port_id=given.moving.id)


def set_device(given: Everything) -> None:
    """``device_id`` of ``openstack_networking_port_v2``."""
    given.api.network.update_port(given.moving.id, device_id=given.group.server("db_a"))


def set_pairs(given: Everything) -> None:
    """``allowed_address_pairs`` of the members' ports, as they were first."""
    pairs = {"db_a": [{"ip_address": given.address()}], "db_b": []}
    for member, wanted in pairs.items():
        given.api.network.update_port(given.ports[member], allowed_address_pairs=wanted)


def enable(given: Everything) -> None:
    """``admin_state_up`` of ``openstack_lb_member_v2``."""
    given.api.load_balancer.update_member(given.pooled["db_a"], given.pool, is_admin_state_up=True)


def start(given: Everything) -> None:
    """``power_state`` of ``openstack_compute_instance_v2``."""
    given.api.compute.start_server(given.group.server("db_a"))


REFUSED = {"data": attach_volume, "moving": attach_interface}
"""What Nova refuses: the volume, or the port, is in use on the member that serves."""
MOVED = {"moving": set_device, "entry": associate, "virtual": set_pairs, "balanced": enable}
"""What moves back."""
BACK = {
    "moving": ["DETACH_PORT", "ATTACH_PORT"],
    "entry": ["ASSIGN_FLOATING_IP"],
    "virtual": ["ALLOW_ADDRESS"],
    "balanced": ["DISABLE_POOL_MEMBER"],
}
"""The remedies that are named then."""


@pytest.mark.parametrize("name", REFUSED)
def test_an_attachment_that_terraform_makes_again_is_refused(
    make: Callable[..., Everything], name: str
) -> None:
    everything = make(kinds_with(name))
    group = everything.group
    patiently(group, "on_alarm", **group.fails()).assert_succeeded()

    with pytest.raises((exceptions.BadRequestException, exceptions.ConflictException)):
        REFUSED[name](everything)

    assert everything.leads_to()[name] == ["db_b"]
    assert group.observed()["status"] == "DEGRADED", "the lost member is to be recovered"


@pytest.mark.parametrize("name", MOVED)
def test_what_terraform_moves_back_is_reported_with_its_place(
    make: Callable[..., Everything], name: str
) -> None:
    everything = make(kinds_with(name))
    group = everything.group
    patiently(group, "on_alarm", **group.fails()).assert_succeeded()

    MOVED[name](everything)

    assert "db_a" in everything.leads_to()[name]
    service = group.observed()
    assert service["status"] == "DOWN"
    assert any(reason.startswith(f"{name} on db_b") for reason in service["reasons"]), service
    codes = [each["code"] for each in group.status()["service"]["needs"]]
    assert codes == BACK[name]


def test_a_fenced_server_that_terraform_starts_does_not_serve(
    make: Callable[..., Everything],
) -> None:
    everything = make(TOGETHER)
    group = everything.group
    patiently(group, "on_alarm", **group.fails()).assert_succeeded()

    start(everything)
    until(lambda: group.cloud.guests()[group.server("db_a")]["running"])

    assert group.observed()["status"] == "DEGRADED"
    assert group.runs_on() == ["db_b"]
    assert [each["code"] for each in group.status()["service"]["needs"]] == ["RECOVER"]
