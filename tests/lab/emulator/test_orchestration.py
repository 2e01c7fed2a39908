# SPDX-License-Identifier: Apache-2.0
"""Stacks, through python-heatclient."""

from __future__ import annotations

from typing import Any

import heatclient.exc
import pytest
import yaml

from lab.emulator.emulated_clients import GROUP, PAIR, SERVER, Clients, Pair
from mistral_failover.lab.emulator.client import EmulatorClient, EmulatorError
from support.waiting import until


def settled(demo: Clients, stack: str, status: str) -> Any:
    return until(lambda: (s := demo.heat.stacks.get(stack)).stack_status == status and s)


def members(demo: Clients, stack: str) -> dict[str, str]:
    rows = demo.heat.resources.list(stack, nested_depth=2)
    return {
        row.resource_name: row.physical_resource_id
        for row in rows
        if getattr(row, "parent_resource", None)
    }


def group_id(demo: Clients, stack: str) -> str:
    return str(demo.heat.resources.get(stack, "members").physical_resource_id)


def test_the_list_of_resources_has_the_filters_of_heat(demo: Clients, group: str) -> None:
    def names(**filters: str | list[str]) -> list[str]:
        return [row.resource_name for row in demo.heat.resources.list(group, filters=filters)]

    assert names(status="COMPLETE") == names()
    assert names(status="FAILED") == []
    assert names(name="members") == ["members"]
    assert names(name="members", action="UPDATE") == []
    assert names(status=["FAILED", "COMPLETE"]) == names()
    with pytest.raises(heatclient.exc.HTTPBadRequest, match="Invalid filter parameters"):
        names(colour="red")


@pytest.fixture
def group(emulator: EmulatorClient, request: pytest.FixtureRequest) -> str:
    name = f"group-{abs(hash(request.node.name))}"
    emulator.create_stack(name, GROUP)
    return name


def test_a_stack_boots_what_its_template_says(demo: Clients, emulator: EmulatorClient) -> None:
    made = demo.heat.stacks.create(
        stack_name="made", template=yaml.safe_dump(PAIR), parameters={"active": "b"}
    )
    stack = settled(demo, "made", "CREATE_COMPLETE")
    assert stack.id == made["stack"]["id"]
    assert stack.outputs[0]["output_value"] == "b"
    rows = {row.resource_name: row for row in demo.heat.resources.list("made")}
    assert emulator.guests()[rows["a"].physical_resource_id]["host"] == "cmp1"
    assert demo.volumes.volumes.get(rows["data"].physical_resource_id).status == "available"
    assert {row.resource_status for row in rows.values()} == {"CREATE_COMPLETE"}


def test_the_servers_of_a_server_group_are_on_hosts_of_their_own(
    demo: Clients, emulator: EmulatorClient
) -> None:
    """Also if one host has fewer servers. Once every host has one of the group, they share."""
    emulator.create_stack(
        "ballast",
        {
            "heat_template_version": "2021-04-16",
            "resources": {
                name: {
                    "type": "OS::Nova::Server",
                    "properties": {**SERVER["properties"], "availability_zone": "cmp1"},
                }
                for name in ("x", "y", "z")
            },
        },
    )
    hints = {"scheduler_hints": {"group": {"get_resource": "spread"}}}
    server = {**SERVER, "properties": {**SERVER["properties"], **hints}}
    spread = {"type": "OS::Nova::ServerGroup", "properties": {"policies": ["anti-affinity"]}}
    emulator.create_stack(
        "spread",
        {
            "heat_template_version": "2021-04-16",
            "resources": {"spread": spread, **dict.fromkeys(("a", "b", "c"), server)},
        },
    )
    rows = emulator.resources("spread")
    nodes = emulator.guests()
    hosts = [nodes[rows[name]["physical_resource_id"]]["host"] for name in ("a", "b", "c")]
    assert sorted(hosts) == ["cmp1", "cmp2", "cmp2"]


@pytest.mark.parametrize(
    ("template", "parameters", "message"),
    [
        (PAIR, {"nope": 1}, r"Parameter \(nope\) was not defined in template"),
        ({**PAIR, "parameters": {"active": {"type": "string"}}}, {}, "was not provided"),
        ({**PAIR, "resources": {"x": {"type": "OS::No::Such"}}}, {}, "could not be found"),
        ({**PAIR, "resources": {"x": {**SERVER, "depends_on": "y"}}}, {}, "reference"),
        ({**PAIR, "resources": {"x": {"type": "OS::Cinder::Volume"}}}, {}, "size not assigned"),
        ({"resources": {}}, {}, "version not found"),
    ],
)
def test_a_template_that_is_wrong_is_a_400_with_the_reason(
    demo: Clients, template: Any, parameters: Any, message: str
) -> None:
    with pytest.raises(heatclient.exc.HTTPBadRequest, match=message):
        demo.heat.stacks.create(stack_name="bad", template=template, parameters=parameters)
    assert "bad" not in [stack.stack_name for stack in demo.heat.stacks.list()]


def test_a_name_is_given_once(demo: Clients, pair: Pair) -> None:
    with pytest.raises(heatclient.exc.HTTPConflict, match="already exists"):
        demo.heat.stacks.create(stack_name=pair.stack, template=PAIR)


def test_a_group_shrinks_by_its_unhealthy_member_first(demo: Clients, group: str) -> None:
    newest = list(members(demo, group))[-1]
    demo.heat.resources.mark_unhealthy(group_id(demo, group), newest, True, "dead")
    demo.heat.stacks.update(group, existing=True, parameters={"size": 1})
    settled(demo, group, "UPDATE_COMPLETE")
    assert newest not in members(demo, group)
    demo.heat.stacks.update(group, existing=True, parameters={"size": 3})
    settled(demo, group, "UPDATE_COMPLETE")
    assert len(members(demo, group)) == 3


def test_a_member_on_a_dead_host_can_be_replaced(
    demo: Clients, emulator: EmulatorClient, group: str
) -> None:
    before = members(demo, group)
    victim = min(before)
    lost = emulator.guests()[before[victim]]["host"]
    emulator.fault("host", lost, "power_off")
    demo.heat.resources.mark_unhealthy(group_id(demo, group), victim, True, "dead")
    demo.heat.stacks.update(group, existing=True)
    settled(demo, group, "UPDATE_COMPLETE")
    assert emulator.guests()[members(demo, group)[victim]]["host"] != lost


def test_a_boot_that_fails_fails_the_stack(demo: Clients, emulator: EmulatorClient) -> None:
    emulator.api_fault("boot", "fail")
    with pytest.raises(EmulatorError, match="Went to status ERROR") as failed:
        emulator.create_stack("ill", PAIR)
    assert failed.value.code == "STACK_FAILED"
    assert settled(demo, "ill", "CREATE_FAILED")


def test_deleting_a_stack_takes_everything_with_it(
    demo: Clients, emulator: EmulatorClient, pair: Pair, group: str
) -> None:
    demo.compute.create_volume_attachment(pair.a, volume_id=pair.data)
    gone = [pair.a, pair.b, *members(demo, group).values()]
    for name in (pair.stack, group):
        stack_id = demo.heat.stacks.get(name).id
        demo.heat.stacks.delete(name)
        settled(demo, f"{name}/{stack_id}", "DELETE_COMPLETE")
        with pytest.raises(heatclient.exc.HTTPNotFound):
            demo.heat.stacks.get(name)
    assert not {server.id for server in demo.compute.servers()} & set(gone)
    assert pair.data not in [volume.id for volume in demo.volumes.volumes.list()]


def test_events_tell_what_happened_in_order(demo: Clients, pair: Pair) -> None:
    demo.heat.stacks.update(pair.stack, existing=True, parameters={"active": "b"})
    settled(demo, pair.stack, "UPDATE_COMPLETE")
    events = demo.heat.events.list(pair.stack, sort_dir="asc")
    own = [e.resource_status for e in events if e.resource_name == pair.stack]
    assert own == [
        "CREATE_IN_PROGRESS",
        "CREATE_COMPLETE",
        "UPDATE_IN_PROGRESS",
        "UPDATE_COMPLETE",
    ]
    assert [e.resource_status for e in demo.heat.events.list(pair.stack, "a")][0].startswith("CRE")
