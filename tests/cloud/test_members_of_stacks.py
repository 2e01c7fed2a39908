# SPDX-License-Identifier: Apache-2.0
"""Which resources of a stack are servers does not depend on what their types are called. What the
real Heat is asked as well is in ``tests/contract/test_stacks.py``."""

from __future__ import annotations

from typing import Any

import pytest

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.heat_replacements import predicted_replacements, rows_of
from mistral_failover.cloud.stack_members import members
from mistral_failover.cloud.stacks import own_type, stack_map
from mistral_failover.lab.emulator.client import EmulatorClient
from support.nova import nova_of

SERVER = {"properties": {"flavor": "1", "image": "tiny"}}
NOVA = {"type": "OS::Nova::Server", **SERVER}
OPERATORS = {"type": "Operators::Server", **SERVER}


@pytest.fixture
def stack(emulator: EmulatorClient) -> Any:
    """Makes a stack of these resources. The cloud's operator has a name for servers that no stack's
    environment shows."""
    emulator.configure(resource_registry={"Operators::Server": "OS::Nova::Server"})

    def make(files: dict[str, dict[str, Any]] | None = None, **resources: Any) -> str:
        texts = {name: template(of) for name, of in (files or {}).items()}
        environment = {"resource_registry": {"OS::Nova::Server": "one.yaml"}} if files else {}
        emulator.create_stack("own", template(resources), files=texts, environment=environment)
        return "own"

    return make


def template(resources: dict[str, Any]) -> dict[str, Any]:
    return {"heat_template_version": "2021-04-16", "resources": resources}


def test_a_named_server_of_the_operators_type_stays_a_member_if_nova_loses_it(
    cloud: Cloud, emulator: EmulatorClient, stack: Any
) -> None:
    name = stack(a=OPERATORS)
    assert stack_map(cloud, name)["a"].type == "Operators::Server"
    (found,) = members(cloud, name, servers=["a"])
    nova_of(cloud).delete_server(found.server_id)
    assert [each.server_id for each in members(cloud, name, servers=["a"])] == [found.server_id]


def test_the_operators_type_within_a_members_stack_is_a_server_because_nova_knows_it(
    cloud: Cloud, stack: Any
) -> None:
    name = stack({"one.yaml": {"node": OPERATORS}}, a=NOVA)
    (found,) = members(cloud, name, servers=["a"])
    assert nova_of(cloud).get_server(found.server_id).status == "ACTIVE"


def test_a_stack_behind_the_type_of_servers_is_no_server_but_has_one(
    cloud: Cloud, stack: Any
) -> None:
    name = stack({"one.yaml": {"node": NOVA}}, a=NOVA)
    (found,) = members(cloud, name, servers=["a"])
    assert found.server_id != stack_map(cloud, name)["a"].physical_id
    assert nova_of(cloud).get_server(found.server_id).status == "ACTIVE"
    assert found.server_id in {row.resource.physical_id for row in rows_of(cloud, name)}


def test_a_member_with_two_servers_is_refused_with_both(cloud: Cloud, stack: Any) -> None:
    name = stack({"one.yaml": {"node": NOVA, "helper": NOVA}}, a=NOVA)
    with pytest.raises(CloudError) as raised:
        members(cloud, name, servers=["a"])
    assert raised.value.code == "BAD_REQUEST"
    ids = [row.resource.physical_id for row in rows_of(cloud, name) if row.stack != name]
    assert sum(each in raised.value.message for each in ids) == 2


def test_a_named_stack_without_a_server_is_refused_with_what_it_has(
    cloud: Cloud, stack: Any
) -> None:
    name = stack({"one.yaml": {"net": {"type": "OS::Neutron::Net"}}}, a=NOVA)
    with pytest.raises(CloudError) as raised:
        members(cloud, name, servers=["a"])
    assert "net (OS::Neutron::Net)" in raised.value.message


def test_a_marked_server_behind_an_alias_is_replaced_like_any_other(
    cloud: Cloud, emulator: EmulatorClient
) -> None:
    environment = {"resource_registry": {"Own::Server": "OS::Nova::Server"}}
    own = {"type": "Own::Server", **SERVER}
    emulator.create_stack("own", template({"a": own, "b": own}), environment=environment)
    ids = {name: each.physical_id for name, each in stack_map(cloud, "own").items()}
    cloud.heat.resources.mark_unhealthy("own", "a", True, "a test")
    going = predicted_replacements(cloud, rows_of(cloud, "own"), set(ids.values()))
    assert set(going) == {ids["a"]}


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("Own::Server", "OS::Nova::Server"),
        ("Own::Chain", "OS::Nova::Server"),
        ("Own::Nova::Server", "OS::Nova::Server"),
        ("Own::Node", "Own::Node"),
        ("Own::Loop", "Own::Loop"),
        ("Own::Unknown", "Own::Unknown"),
        ("Own::Of", "OS::Cinder::Volume"),
        ("OS::Nova::Server", "OS::Nova::Server"),
    ],
)
def test_an_environment_explains_a_type_by_name_by_pattern_and_for_one_resource(
    kind: str, found: str
) -> None:
    registry = {
        "Own::Server": "OS::Nova::Server",
        "Own::Chain": "Own::Server",
        "Own::Nova::*": "OS::Nova::*",
        "Own::Node": "node.yaml",
        "Own::Loop": "Own::Loop",
        "resources": {"a": {"Own::Of": "OS::Cinder::Volume", "hooks": "pre-create"}},
    }
    assert own_type(kind, "a", registry) == found
