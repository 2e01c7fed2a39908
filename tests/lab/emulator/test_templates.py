# SPDX-License-Identifier: Apache-2.0
"""Templates as people have them: networks of their own, volumes that Heat attaches, load balancers,
groups of nested templates, conditions, and HOT's functions."""

from __future__ import annotations

from typing import Any

import heatclient.exc
import pytest
import yaml

from lab.emulator.emulated_clients import Clients
from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.lab.emulator.hot_functions import Scope, TemplateError, resolve
from support.waiting import until

OWN_NETWORK = """
heat_template_version: 2018-08-31
parameters:
  outside: {type: string, default: public}
resources:
  net: {type: OS::Neutron::Net, properties: {name: backend}}
  subnet:
    type: OS::Neutron::Subnet
    properties: {network: {get_resource: net}, cidr: 10.7.0.0/24}
  router:
    type: OS::Neutron::Router
    properties: {name: out, external_gateway_info: {network: {get_param: outside}}}
  interface:
    type: OS::Neutron::RouterInterface
    properties: {router: {get_resource: router}, subnet: {get_resource: subnet}}
  rules: {type: OS::Neutron::SecurityGroup, properties: {rules: [{protocol: tcp}]}}
  port:
    type: OS::Neutron::Port
    properties:
      network: {get_resource: net}
      fixed_ips: [{subnet: {get_resource: subnet}, ip_address: 10.7.0.77}]
      security_groups: [{get_resource: rules}]
  address:
    type: OS::Neutron::FloatingIP
    depends_on: interface
    properties: {floating_network: {get_param: outside}, port_id: {get_resource: port}}
  server:
    type: OS::Nova::Server
    properties: {flavor: m1.tiny, image: tiny, networks: [{port: {get_resource: port}}]}
outputs:
  inside: {value: {get_attr: [server, first_address]}}
  by_name: {value: {get_attr: [server, networks, backend, 0]}}
  of_port: {value: {get_attr: [port, fixed_ips, 0, ip_address]}}
  url:
    value:
      str_replace:
        template: https://HOST/
        params: {HOST: {get_attr: [address, floating_ip_address]}}
"""
WITH_VOLUMES = """
heat_template_version: 2018-08-31
parameters:
  count: {type: number, default: 2, constraints: [{range: {min: 1, max: 3}}]}
resources:
  server: {type: OS::Nova::Server, properties: {flavor: m1.tiny, image: tiny}}
  disks:
    type: OS::Heat::ResourceGroup
    properties:
      count: {get_param: count}
      resource_def:
        type: disk.yaml
        properties: {server: {get_resource: server}, number: '%index%'}
outputs:
  names: {value: {get_attr: [disks, name]}}
  first: {value: {get_attr: [disks, resource.0.name]}}
"""
DISK = """
heat_template_version: 2018-08-31
parameters:
  server: {type: string}
  number: {type: string}
resources:
  volume:
    type: OS::Cinder::Volume
    properties: {size: 1, name: {list_join: ['-', [disk, {get_param: number}]]}}
  attached:
    type: OS::Cinder::VolumeAttachment
    properties: {volume_id: {get_resource: volume}, instance_uuid: {get_param: server}}
outputs:
  name: {value: {get_attr: [volume, name]}}
"""
BALANCED = """
heat_template_version: 2018-08-31
resources:
  balancer: {type: OS::Octavia::LoadBalancer, properties: {vip_subnet: net1-subnet}}
  listener:
    type: OS::Octavia::Listener
    properties: {loadbalancer: {get_resource: balancer}, protocol: HTTP, protocol_port: 80}
  pool:
    type: OS::Octavia::Pool
    properties: {listener: {get_resource: listener}, protocol: HTTP, lb_algorithm: ROUND_ROBIN}
  health: {type: OS::Octavia::HealthMonitor, properties: {pool: {get_resource: pool}, type: TCP}}
  secret: {type: OS::Heat::RandomString, properties: {length: 12}}
  web:
    type: OS::Heat::AutoScalingGroup
    properties:
      min_size: 1
      max_size: 3
      desired_capacity: 2
      resource: {type: web.yaml, properties: {pool: {get_resource: pool}}}
outputs:
  addresses: {value: {get_attr: [web, outputs_list, address]}}
  servers: {value: {get_attr: [web, refs]}}
  size: {value: {get_attr: [web, current_size]}}
  secret: {value: {get_attr: [secret, value]}}
"""
WEB = """
heat_template_version: 2018-08-31
parameters:
  pool: {type: string}
resources:
  server:
    type: OS::Nova::Server
    properties: {flavor: m1.tiny, image: tiny, networks: [{network: net1}]}
  member:
    type: OS::Octavia::PoolMember
    properties:
      pool: {get_param: pool}
      address: {get_attr: [server, first_address]}
      protocol_port: 80
outputs:
  address: {value: {get_attr: [server, first_address]}}
  OS::stack_id: {value: {get_resource: server}}
"""
IN_STAGES = """
heat_template_version: 2018-08-31
parameters:
  stage: {type: string, default: test, constraints: [{allowed_values: [test, live]}]}
conditions:
  live: {equals: [{get_param: stage}, live]}
  trial: {not: live}
resources:
  spare: {type: OS::Heat::TestResource, condition: live, properties: {value: a spare one}}
  note: {type: OS::Heat::TestResource, condition: trial}
  main:
    type: OS::Heat::TestResource
    depends_on: spare
    properties: {value: {if: [live, many, one]}}
outputs:
  main: {value: {get_attr: [main, output]}}
  spare: {condition: live, value: {get_attr: [spare, output]}}
"""


@pytest.fixture
def make(demo: Clients, emulator: EmulatorClient) -> Any:
    """Makes a stack, waits for it, and returns its outputs."""

    def made(name: str, text: str, files: dict[str, str] | None = None, **given: Any) -> Any:
        emulator.create_stack(name, text, parameters=given, files=files or {})
        return outputs(demo, name)

    return made


def outputs(demo: Clients, name: str) -> dict[str, Any]:
    rows = demo.heat.stacks.get(name).outputs
    return {row["output_key"]: row["output_value"] for row in rows}


def ids(demo: Clients, stack: str) -> dict[str, str]:
    rows = demo.heat.resources.list(stack)
    return {row.resource_name: row.physical_resource_id for row in rows}


def gone(demo: Clients, name: str) -> None:
    demo.heat.stacks.delete(name)
    until(lambda: name not in [each.stack_name for each in demo.heat.stacks.list()])


def neutron(demo: Clients, kind: str) -> list[dict[str, Any]]:
    found = demo.session.get(f"/v2.0/{kind}", endpoint_filter={"service_type": "network"})
    return list(found.json()[kind])


def test_a_network_of_its_own_gives_the_server_its_address(demo: Clients, make: Any) -> None:
    shown = make("backend", OWN_NETWORK)

    assert shown["inside"] == shown["by_name"] == shown["of_port"] == "10.7.0.77"
    floating = next(e for e in neutron(demo, "floatingips") if e["fixed_ip_address"] == "10.7.0.77")
    assert shown["url"] == f"https://{floating['floating_ip_address']}/"
    assert [each["name"] for each in neutron(demo, "routers")] == ["out"]
    assert "10.7.0.0/24" in [each["cidr"] for each in neutron(demo, "subnets")]

    gone(demo, "backend")

    assert neutron(demo, "routers") == []
    assert "backend" not in [each["name"] for each in neutron(demo, "networks")]


def test_heat_attaches_the_volumes_of_a_group_and_detaches_them(demo: Clients, make: Any) -> None:
    shown = make("disks", WITH_VOLUMES, {"disk.yaml": DISK})
    server = ids(demo, "disks")["server"]

    assert shown == {"names": ["disk-0", "disk-1"], "first": "disk-0"}
    named = [v for v in demo.volumes.volumes.list() if v.name in shown["names"]]
    assert [each.attachments[0]["server_id"] for each in named] == [server, server]

    gone(demo, "disks")

    assert not {v.name for v in demo.volumes.volumes.list()} & {*shown["names"]}


def test_another_server_gets_the_volume_of_an_attachment_that_changes(
    demo: Clients, emulator: EmulatorClient
) -> None:
    server = {"type": "OS::Nova::Server", "properties": {"flavor": "m1.tiny", "image": "tiny"}}
    attached = {"volume_id": {"get_resource": "data"}, "instance_uuid": {"get_param": "server"}}
    template = {
        "heat_template_version": "2018-08-31",
        "parameters": {"server": {"type": "string"}},
        "resources": {
            "data": {"type": "OS::Cinder::Volume", "properties": {"size": 1}},
            "attached": {"type": "OS::Cinder::VolumeAttachment", "properties": attached},
        },
    }
    emulator.create_stack(
        "two", {**template, "parameters": {}, "resources": {"a": server, "b": server}}
    )
    a, b = (ids(demo, "two")[each] for each in "ab")
    emulator.create_stack("moving", template, parameters={"server": a})

    demo.heat.stacks.update("moving", existing=True, parameters={"server": b})
    until(lambda: demo.heat.stacks.get("moving").stack_status == "UPDATE_COMPLETE")

    volume = demo.volumes.volumes.get(ids(demo, "moving")["data"])
    assert [each["server_id"] for each in volume.attachments] == [b]
    gone(demo, "moving")


def test_members_of_a_scaled_template_are_told_by_its_outputs(
    demo: Clients, emulator: EmulatorClient, make: Any
) -> None:
    shown = make("web", BALANCED, {"web.yaml": WEB})

    assert shown["size"] == 2
    assert len(shown["secret"]) == 12
    assert set(shown["servers"]) <= set(emulator.guests())
    members = {each["fixed_ips"][0]["ip_address"] for each in neutron(demo, "ports")}
    assert set(shown["addresses"]) <= members


def test_a_condition_decides_what_is_made_and_an_update_what_stays(
    demo: Clients, make: Any
) -> None:
    assert make("stages", IN_STAGES) == {"main": "one", "spare": None}
    assert set(ids(demo, "stages")) == {"main", "note"}

    demo.heat.stacks.update("stages", existing=True, parameters={"stage": "live"})
    until(lambda: demo.heat.stacks.get("stages").stack_status == "UPDATE_COMPLETE")

    assert outputs(demo, "stages") == {"main": "many", "spare": "a spare one"}
    assert set(ids(demo, "stages")) == {"main", "spare"}


def test_all_that_is_missing_for_a_template_is_said_at_once(demo: Clients) -> None:
    group = {"count": 2, "resource_def": {"type": "OS::Manila::Share"}}
    template = {
        "heat_template_version": "2018-08-31",
        "resources": {
            "queue": {"type": "OS::Zaqar::Queue"},
            "shares": {"type": "OS::Heat::ResourceGroup", "properties": group},
        },
    }

    with pytest.raises(heatclient.exc.HTTPBadRequest) as refused:
        demo.heat.stacks.create(stack_name="missing", template=yaml.safe_dump(template))

    assert "does not have OS::Zaqar::Queue, OS::Manila::Share" in str(refused.value)


def test_a_server_on_a_network_that_does_not_exist_fails(
    demo: Clients, emulator: EmulatorClient
) -> None:
    properties = {"flavor": "m1.tiny", "networks": [{"network": "elsewhere"}]}
    server = {"type": "OS::Nova::Server", "properties": properties}
    template = {"heat_template_version": "2018-08-31", "resources": {"a": server}}
    demo.heat.stacks.create(stack_name="elsewhere", template=yaml.safe_dump(template))

    stack = until(
        lambda: (s := demo.heat.stacks.get("elsewhere")).stack_status == "CREATE_FAILED" and s
    )

    assert "elsewhere" in stack.stack_status_reason


def test_the_console_shows_a_guest_that_crashed(
    demo: Clients, emulator: EmulatorClient, make: Any
) -> None:
    make("console", WITH_VOLUMES, {"disk.yaml": DISK}, count=1)
    server = ids(demo, "console")["server"]
    assert "login" in demo.compute.get_server_console_output(server)["output"]

    emulator.fault("server", server, "crash")

    assert "panic" in demo.compute.get_server_console_output(server)["output"]
    gone(demo, "console")


SCOPE = Scope(
    values={"list": ["a", "b"], "map": {"k": {"deep": 7}}, "word": "two"},
    physical_id={"server": "id-1"}.get,
    attribute=lambda name, path: [name, *path],
    files={"script.sh": "#!/bin/sh"},
    conditions={"yes": True, "no": {"not": "yes"}},
)


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ({"get_param": ["map", "k", "deep"]}, 7),
        ({"get_param": ["list", 1]}, "b"),
        (
            {"get_attr": ["server", "networks", {"get_param": "word"}]},
            ["server", "networks", "two"],
        ),
        ({"get_file": "script.sh"}, "#!/bin/sh"),
        ({"str_replace": {"template": "$ab $a", "params": {"$a": "1", "$ab": "$a"}}}, "$a 1"),
        ({"list_join": [",", {"get_param": "list"}, ["c", None, {"d": 1}]]}, 'a,b,c,,{"d": 1}'),
        ({"str_split": [",", "x,y", 1]}, "y"),
        ({"list_concat_unique": [["a"], {"get_param": "list"}]}, ["a", "b"]),
        ({"map_merge": [{"a": 1}, {"a": 2, "b": 3}, None]}, {"a": 2, "b": 3}),
        ({"map_replace": [{"a": "x"}, {"keys": {"a": "b"}, "values": {"x": "y"}}]}, {"b": "y"}),
        ({"repeat": {"for_each": {"%n%": ["1", "2"]}, "template": "n-%n%"}}, ["n-1", "n-2"]),
        ({"digest": ["md5", "a"]}, "0cc175b9c0f1b6a831c399e269772661"),
        ({"filter": [["a"], {"get_param": "list"}]}, ["b"]),
        ({"if": ["no", 1, 2]}, 2),
        ({"if": [{"and": ["yes", {"or": ["no", {"contains": ["a", ["a"]]}]}]}, 1, 2]}, 1),
        ({"plain": [{"get_resource": "server"}]}, {"plain": ["id-1"]}),
    ],
)
def test_functions_have_the_values_of_the_template_guide(given: Any, value: Any) -> None:
    assert resolve(given, SCOPE) == value


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"get_param": "unknown"}, "unknown"),
        ({"get_file": "nothing.sh"}, "nothing.sh"),
        ({"if": ["perhaps", 1, 2]}, "perhaps"),
        ({"str_replace": {"template": "a"}}, "str_replace"),
        ({"digest": ["sha7", "a"]}, "digest"),
    ],
)
def test_a_function_that_is_wrong_is_named(given: Any, said: str) -> None:
    with pytest.raises(TemplateError, match=said):
        resolve(given, SCOPE)
