# SPDX-License-Identifier: Apache-2.0
"""Whole templates as projects write them, of servers, volumes and networks: each is made, shows its
outputs, and goes without a rest; what is not emulated is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import openstack.connection
import pytest

from lab.emulator.emulated_clients import Clients
from mistral_failover.lab.emulator.client import EmulatorClient
from support.waiting import until

PAIR_IN_ITS_NETWORK = """
heat_template_version: 2018-08-31
parameters:
  image: {type: string, default: tiny, constraints: [{custom_constraint: glance.image}]}
  public: {type: string, default: public, constraints: [{custom_constraint: neutron.network}]}
  sizes: {type: json, default: {data: 2}}
resources:
  net: {type: OS::Neutron::Net, properties: {port_security_enabled: true}}
  subnet:
    type: OS::Neutron::Subnet
    properties:
      network: {get_resource: net}
      cidr: 10.20.0.0/24
      gateway_ip: 10.20.0.1
      dns_nameservers: [9.9.9.9]
      allocation_pools: [{start: 10.20.0.10, end: 10.20.0.100}]
  router:
    type: OS::Neutron::Router
    properties: {external_gateway_info: {network: {get_param: public}}}
  uplink:
    type: OS::Neutron::RouterInterface
    properties: {router: {get_resource: router}, subnet: {get_resource: subnet}}
  rules:
    type: OS::Neutron::SecurityGroup
    properties:
      rules:
        - {protocol: icmp}
        - {protocol: tcp, port_range_min: 5432, port_range_max: 5432, remote_mode: remote_group_id}
  apart: {type: OS::Nova::ServerGroup, properties: {policies: [soft-anti-affinity]}}
  port_a:
    type: OS::Neutron::Port
    properties: {network: {get_resource: net}, security_groups: [{get_resource: rules}]}
  port_b:
    type: OS::Neutron::Port
    properties:
      network: {get_resource: net}
      fixed_ips: [{subnet: {get_resource: subnet}, ip_address: 10.20.0.51}]
  a:
    type: OS::Nova::Server
    properties:
      name: db-a
      image: {get_param: image}
      flavor: m1.tiny
      networks: [{port: {get_resource: port_a}}]
      scheduler_hints: {group: {get_resource: apart}}
  b:
    type: OS::Nova::Server
    depends_on: [a, uplink]
    properties:
      image: {get_param: image}
      flavor: m1.tiny
      networks: [{port: {get_resource: port_b}}]
      scheduler_hints: {group: {get_resource: apart}}
  data: {type: OS::Cinder::Volume, properties: {size: {get_param: [sizes, data]}}}
  entry:
    type: OS::Neutron::FloatingIP
    depends_on: uplink
    properties: {floating_network: {get_param: public}, port_id: {get_resource: port_a}}
outputs:
  entry: {value: {get_attr: [entry, floating_ip_address]}}
  fixed: {value: {get_attr: [port_b, fixed_ips, 0, ip_address]}}
  own: {value: {get_attr: [b, addresses]}}
  size: {value: {get_attr: [data, size]}}
"""
DISKS = """
heat_template_version: rocky
resources:
  root: {type: OS::Cinder::Volume, properties: {size: 3, image: tiny}}
  data: {type: OS::Cinder::Volume, properties: {size: 1}}
  old: {type: OS::Cinder::Volume, properties: {size: 1}}
  from_volume:
    type: OS::Nova::Server
    properties:
      flavor: m1.tiny
      networks: [{network: net1}]
      block_device_mapping_v2:
        - {volume_id: {get_resource: root}, boot_index: 0}
        - {volume_id: {get_resource: data}, boot_index: -1}
  from_image:
    type: OS::Nova::Server
    properties:
      flavor: m1.tiny
      networks: [{network: net1, fixed_ip: 10.99.0.177}]
      block_device_mapping_v2:
        - {image: tiny, volume_size: 2, boot_index: 0, delete_on_termination: true}
  in_the_old_form:
    type: OS::Nova::Server
    properties:
      image: tiny
      flavor: m1.tiny
      block_device_mapping: [{device_name: vdb, volume_id: {get_resource: old}}]
outputs:
  bootable: {value: {get_attr: [root, bootable]}}
  attached: {value: {get_attr: [data, attachments_list, 0, device]}}
  as_text: {value: {get_attr: [data, attachments]}}
  address: {value: {get_attr: [from_image, first_address]}}
"""
NODES = """
heat_template_version: 2021-04-16
parameters: {count: {type: number, default: 2}}
resources:
  net: {type: OS::Neutron::Net}
  subnet:
    type: OS::Neutron::Subnet
    properties: {network: {get_resource: net}, cidr: 10.30.0.0/24}
  nodes:
    type: OS::Heat::ResourceGroup
    depends_on: subnet
    properties:
      count: {get_param: count}
      index_var: '%i%'
      resource_def:
        type: node.yaml
        properties: {name: 'node-%i%', network: {get_resource: net}, zones: [nova, nova]}
outputs:
  names: {value: {get_attr: [nodes, name]}}
  addresses: {value: {get_attr: [nodes, attributes, address]}}
  servers: {value: {get_attr: [nodes, refs_map]}}
"""
NODE = """
heat_template_version: 2021-04-16
parameters:
  name: {type: string}
  network: {type: string}
  zones: {type: comma_delimited_list}
resources:
  port: {type: OS::Neutron::Port, properties: {network: {get_param: network}}}
  server:
    type: OS::Nova::Server
    properties:
      name: {get_param: name}
      image: tiny
      flavor: m1.tiny
      availability_zone: {get_param: [zones, 0]}
      networks: [{port: {get_resource: port}}]
  disk: {type: OS::Cinder::Volume, properties: {size: 1}}
  attached:
    type: OS::Cinder::VolumeAttachment
    properties: {instance_uuid: {get_resource: server}, volume_id: {get_resource: disk}}
outputs:
  name: {value: {get_attr: [server, name]}}
  address: {value: {get_attr: [server, first_address]}}
  OS::stack_id: {value: {get_resource: server}}
"""
SCALED = """
heat_template_version: 2018-08-31
resources:
  web:
    type: OS::Heat::AutoScalingGroup
    properties:
      min_size: 1
      max_size: 4
      desired_capacity: 2
      rolling_updates: {min_in_service: 1}
      resource: {type: node.yaml, properties: {name: web, network: net1, zones: nova}}
  more:
    type: OS::Heat::ScalingPolicy
    properties:
      adjustment_type: change_in_capacity
      auto_scaling_group_id: {get_resource: web}
      scaling_adjustment: 1
outputs:
  addresses: {value: {get_attr: [web, outputs_list, address]}}
  servers: {value: {get_attr: [web, refs_map]}}
  webhook: {value: {get_attr: [more, alarm_url]}}
"""
CONDITIONAL = """
heat_template_version: 2021-04-16
parameters:
  live: {type: boolean, default: true}
  address: {type: string, default: 203.0.0.77}
  disks: {type: comma_delimited_list, default: '1,2'}
conditions:
  is_live: {get_param: live}
  reached: {and: [is_live, {not: {equals: [{get_param: address}, '']}}]}
resources:
  port: {type: OS::Neutron::Port, properties: {network: net1}}
  server:
    type: OS::Nova::Server
    properties:
      name: {if: [is_live, live-db, test-db]}
      image: tiny
      flavor: {if: [is_live, m1.medium, m1.tiny]}
      networks: [{port: {get_resource: port}}]
  entry:
    type: OS::Neutron::FloatingIP
    condition: reached
    properties:
      floating_network: public
      floating_ip_address: {get_param: address}
      port_id: {get_resource: port}
  sizes:
    type: OS::Heat::Value
    properties:
      type: json
      value:
        repeat: {for_each: {<%size%>: {get_param: disks}}, template: {size: <%size%>}}
  disk: {type: OS::Cinder::Volume, properties: {size: {get_attr: [sizes, value, 1, size]}}}
outputs:
  name: {value: {get_attr: [server, name]}}
  size: {value: {get_attr: [disk, size]}}
  url:
    condition: reached
    value:
      str_replace_strict:
        template: https://IP/
        params: {IP: {get_attr: [entry, floating_ip_address]}}
"""
ADOPTED = """
heat_template_version: 2018-08-31
parameters: {existing: {type: string}}
resources:
  server: {type: OS::Nova::Server, external_id: {get_param: existing}}
  data: {type: OS::Cinder::Volume, properties: {size: 1}}
  attached:
    type: OS::Cinder::VolumeAttachment
    properties: {instance_uuid: {get_resource: server}, volume_id: {get_resource: data}}
outputs:
  name: {value: {get_attr: [server, name]}}
"""


@dataclass
class Made:
    """A stack: its outputs, and why some cannot be told."""

    demo: Clients
    name: str

    @property
    def shown(self) -> dict[str, Any]:
        rows = self.demo.heat.stacks.get(self.name).outputs
        return {row["output_key"]: row["output_value"] for row in rows}

    @property
    def untold(self) -> dict[str, str]:
        rows = self.demo.heat.stacks.get(self.name).outputs
        return {row["output_key"]: row["output_error"] for row in rows if "output_error" in row}

    @property
    def ids(self) -> dict[str, str]:
        rows = self.demo.heat.resources.list(self.name)
        return {row.resource_name: row.physical_resource_id for row in rows}

    def gone(self) -> None:
        """Delete it, if it is there."""
        names = [each.stack_name for each in self.demo.heat.stacks.list()]
        if self.name in names:
            self.demo.heat.stacks.delete(self.name)
        until(lambda: self.name not in [e.stack_name for e in self.demo.heat.stacks.list()])

    def updated(self, **parameters: Any) -> None:
        self.demo.heat.stacks.update(self.name, existing=True, parameters=parameters)
        until(lambda: self.demo.heat.stacks.get(self.name).stack_status == "UPDATE_COMPLETE")


def everything(demo: Clients) -> dict[str, set[str]]:
    """All servers, volumes, ports, networks and floating IPs of the project."""
    found = {
        kind: {
            row["id"]
            for row in demo.session.get(
                f"/v2.0/{kind}", endpoint_filter={"service_type": "network"}
            ).json()[kind]
        }
        for kind in ("ports", "networks", "routers", "floatingips")
    }
    found["servers"] = {each.id for each in demo.compute.servers()}
    found["volumes"] = {each.id for each in demo.volumes.volumes.list()}
    return found


@pytest.fixture
def make(demo: Clients, emulator: EmulatorClient) -> Any:
    """Makes a stack; at the end it is deleted, and nothing of it is left."""
    before = everything(demo)
    stacks: list[Made] = []

    def made(name: str, text: str, files: dict[str, str] | None = None, **given: Any) -> Made:
        emulator.create_stack(name, text, parameters=given, files=files or {})
        stacks.append(Made(demo, name))
        return stacks[-1]

    yield made
    for each in stacks:
        each.gone()
    assert everything(demo) == before


Make = Callable[..., Made]


def test_a_pair_in_a_network_of_its_own_with_an_address_outside(make: Make) -> None:
    shown = make("pair-in-network", PAIR_IN_ITS_NETWORK).shown

    assert shown["entry"].startswith("203.0.")
    assert shown["fixed"] == "10.20.0.51"
    ((network, (address,)),) = shown["own"].items()
    assert (network, address["addr"]) == ("pair-in-network-net", "10.20.0.51")
    assert shown["size"] == "2"


def test_servers_with_volumes_that_nova_attaches_when_it_makes_them(
    demo: Clients, make: Make
) -> None:
    made = make("disks", DISKS)
    ids, shown = made.ids, made.shown

    assert shown["bootable"] == "true"
    assert shown["address"] == "10.99.0.177"
    assert shown["attached"] == "/dev/vdb"
    assert json.loads(shown["as_text"])[0]["server_id"] == ids["from_volume"]
    volumes = {
        name: {each.volume_id for each in demo.compute.volume_attachments(ids[name])}
        for name in ("from_volume", "from_image", "in_the_old_form")
    }
    assert volumes["from_volume"] == {ids["root"], ids["data"]}
    assert volumes["in_the_old_form"] == {ids["old"]}
    (of_image,) = volumes["from_image"]
    assert demo.volumes.volumes.get(of_image).size == 2


def test_nodes_of_a_nested_template_with_an_index_of_another_name(make: Make) -> None:
    made = make("nodes", NODES, {"node.yaml": NODE})

    assert made.shown["names"] == ["node-0", "node-1"]
    assert made.shown["addresses"] == {"0": "10.30.0.11", "1": "10.30.0.12"}
    assert set(made.shown["servers"]) == {"0", "1"}
    made.updated(count=3)
    assert made.shown["names"] == ["node-0", "node-1", "node-2"]


def test_scaled_nodes_and_an_output_that_is_not_emulated(make: Make) -> None:
    made = make("scaled", SCALED, {"node.yaml": NODE})

    assert len(made.shown["addresses"]) == len(made.shown["servers"]) == 2
    assert made.shown["webhook"] is None
    assert made.untold == {
        "webhook": "The emulated cloud does not have the attribute alarm_url of "
        "OS::Heat::ScalingPolicy."
    }


def test_conditions_values_and_an_address_that_is_asked_for(make: Make) -> None:
    made = make("conditional", CONDITIONAL)

    assert made.shown == {"name": "live-db", "size": "2", "url": "https://203.0.0.77/"}
    assert made.untold == {}
    made.updated(address="")
    assert made.shown["url"] is None


def test_a_server_of_before_is_part_of_a_stack_and_stays(demo: Clients, make: Make) -> None:
    server = demo.compute.create_server(
        name="of-before", image_id="tiny", flavor_id="m1.tiny", networks="none"
    )
    demo.compute.wait_for_server(server, interval=0.02)

    made = make("adopted", ADOPTED, existing=server.id)

    assert made.shown == {"name": "of-before"}
    (attached,) = demo.compute.volume_attachments(server)
    assert attached.volume_id == made.ids["data"]
    made.gone()
    assert list(demo.compute.volume_attachments(server)) == []
    assert demo.compute.get_server(server.id).status == "ACTIVE"
    demo.compute.delete_server(server)
    demo.compute.wait_for_delete(server, interval=0.02)


# -- what tools ask before they make something


@pytest.fixture
def connection(demo: Clients) -> Any:
    return openstack.connection.Connection(session=demo.session, region_name="RegionOne")


def test_an_image_is_found_by_its_name_and_listed(connection: Any) -> None:
    assert connection.image.find_image("debian-12").id == "debian-12"
    assert "tiny" in [each.name for each in connection.image.images()]
    assert [each.name for each in connection.image.images(name="debian-12")] == ["debian-12"]


def test_an_image_that_was_deleted_is_not_found(connection: Any, emulator: EmulatorClient) -> None:
    emulator.configure(gone=["tiny"])
    try:
        assert connection.image.find_image("tiny") is None
        assert list(connection.image.images()) == []
    finally:
        emulator.configure(gone=[])


def test_a_port_has_the_address_that_is_asked_for_once(connection: Any) -> None:
    network = connection.network.find_network("net1").id
    asked = {"network_id": network, "fixed_ips": [{"ip_address": "10.99.0.200"}]}
    port = connection.network.create_port(**asked)
    try:
        assert port.fixed_ips[0]["ip_address"] == "10.99.0.200"
        with pytest.raises(openstack.exceptions.ConflictException):
            connection.network.create_port(**asked)
    finally:
        connection.network.delete_port(port)


def test_a_floating_ip_leads_to_a_port_from_the_first_and_only_administrators_choose_its_address(
    connection: Any,
) -> None:
    network = connection.network.find_network("net1").id
    public = connection.network.find_network("public").id
    port = connection.network.create_port(network_id=network)
    made = connection.network.create_ip(floating_network_id=public, port_id=port.id)
    try:
        assert made.fixed_ip_address == port.fixed_ips[0]["ip_address"]
        with pytest.raises(openstack.exceptions.ForbiddenException, match="floating_ip_address"):
            connection.network.create_ip(
                floating_network_id=public, floating_ip_address="203.0.0.99"
            )
        with pytest.raises(openstack.exceptions.NotFoundException):
            connection.network.create_ip(floating_network_id=public, port_id="unknown")
        assert [each.id for each in connection.network.ips()] == [made.id]
    finally:
        connection.network.delete_ip(made)
        connection.network.delete_port(port)


def test_a_server_boots_from_a_volume_that_nova_makes_of_an_image(connection: Any) -> None:
    server = connection.create_server(
        "own-disk",
        image="tiny",
        flavor="m1.tiny",
        network="net1",
        boot_from_volume=True,
        volume_size=4,
        terminate_volume=True,
        auto_ip=False,
        wait=True,
    )

    (attached,) = connection.compute.volume_attachments(server)
    assert connection.block_storage.get_volume(attached.volume_id).size == 4
    connection.delete_server(server.id, wait=True)
    until(lambda: connection.block_storage.find_volume(attached.volume_id) is None)
