# SPDX-License-Identifier: Apache-2.0
"""Stacks, through python-heatclient."""

from __future__ import annotations

import copy
from typing import Any

import heatclient.exc
import pytest
import yaml

from lab.emulator.emulated_clients import GROUP, PAIR, SERVER, Clients, Pair, clients_of
from mistral_failover.lab.emulator.client import EmulatorClient, EmulatorError
from mistral_failover.lab.emulator.server import EmulatedCloud
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


def test_a_stack_is_found_by_name_by_id_and_by_both(demo: Clients, pair: Pair) -> None:
    found = demo.heat.stacks.get(pair.stack)
    assert demo.heat.stacks.get(found.id).stack_name == pair.stack
    assert demo.heat.stacks.get(f"{pair.stack}/{found.id}").id == found.id
    assert pair.stack in [stack.stack_name for stack in demo.heat.stacks.list()]


def test_a_hidden_parameter_is_not_shown(demo: Clients, pair: Pair) -> None:
    shown = demo.heat.stacks.get(pair.stack).parameters
    assert (shown["active"], shown["password"]) == ("a", "******")


def test_a_patch_of_parameters_keeps_the_others_and_the_servers(demo: Clients, pair: Pair) -> None:
    before = demo.heat.stacks.get(pair.stack)
    demo.heat.stacks.update(pair.stack, existing=True, parameters={"password": "new"})
    demo.heat.stacks.update(pair.stack, existing=True, parameters={"active": "b"})
    stack = settled(demo, pair.stack, "UPDATE_COMPLETE")
    assert stack.parameters["active"] == "b"
    assert before.updated_time is None
    assert demo.compute.get_server(pair.a).id == pair.a
    demo.heat.stacks.update(pair.stack, existing=True, parameters={"active": "a"})
    again = settled(demo, pair.stack, "UPDATE_COMPLETE")
    assert again.updated_time > stack.updated_time


def test_a_patch_may_bring_a_template(demo: Clients, pair: Pair) -> None:
    template = copy.deepcopy(PAIR)
    template["resources"]["c"] = {**SERVER, "depends_on": ["a"]}  # type: ignore[index]
    del template["resources"]["b"]  # type: ignore[attr-defined]
    demo.heat.stacks.update(pair.stack, existing=True, template=template)
    settled(demo, pair.stack, "UPDATE_COMPLETE")
    rows = {row.resource_name for row in demo.heat.resources.list(pair.stack)}
    assert rows == {"a", "c", "data"}
    assert pair.b not in [server.id for server in demo.compute.servers()]


def test_the_newest_of_overlapping_updates_wins(
    demo: Clients, emulator: EmulatorClient, pair: Pair
) -> None:
    emulator.set_latency(stack_patch=60)  # the next one ends it
    try:
        for active in ("b", "a"):
            demo.heat.stacks.update(pair.stack, existing=True, parameters={"active": active})
            assert demo.heat.stacks.get(pair.stack).stack_status == "UPDATE_IN_PROGRESS"
    finally:
        emulator.set_latency(stack_patch=0)
    demo.heat.stacks.update(pair.stack, existing=True, parameters={"active": "b"})
    stack = settled(demo, pair.stack, "UPDATE_COMPLETE")
    assert stack.parameters["active"] == "b"
    patches = [row["outcome"] for row in emulator.critical() if row["ids"] == {"stack": stack.id}]
    assert patches == ["done", "superseded", "superseded", "done"]


def test_an_update_that_fails_says_so(demo: Clients, emulator: EmulatorClient, pair: Pair) -> None:
    emulator.api_fault("stack_patch", "fail")
    demo.heat.stacks.update(pair.stack, existing=True, parameters={"active": "b"})
    stack = settled(demo, pair.stack, "UPDATE_FAILED")
    assert "Injected failure" in stack.stack_status_reason


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


def test_what_does_not_exist_is_a_404_that_names_it(demo: Clients, pair: Pair) -> None:
    with pytest.raises(heatclient.exc.HTTPNotFound, match=r"The Stack \(none\)"):
        demo.heat.stacks.get("none")
    with pytest.raises(heatclient.exc.HTTPNotFound, match=r"The Resource \(x\)"):
        demo.heat.resources.get(pair.stack, "x")


def test_another_project_does_not_see_the_stack(cloud: EmulatedCloud, pair: Pair) -> None:
    other = clients_of(cloud.url, "other")
    assert list(other.heat.stacks.list()) == []
    with pytest.raises(heatclient.exc.HTTPNotFound):
        other.heat.stacks.get(pair.stack)


def test_a_group_is_a_nested_stack_of_members(demo: Clients, group: str) -> None:
    inside = demo.heat.resources.list(group_id(demo, group))
    ids = {row.physical_resource_id for row in inside}
    assert ids == set(members(demo, group).values())
    assert set(demo.heat.stacks.get(group).outputs[0]["output_value"]) == ids
    assert {demo.compute.get_server(each).status for each in ids} == {"ACTIVE"}
    assert group_id(demo, group) not in [stack.id for stack in demo.heat.stacks.list()]


def test_only_the_unhealthy_member_of_a_group_is_replaced(demo: Clients, group: str) -> None:
    before = members(demo, group)
    victim = min(before)
    demo.heat.resources.mark_unhealthy(group_id(demo, group), victim, True, "it is dead")
    marked = demo.heat.resources.get(group_id(demo, group), victim)
    assert marked.resource_status == "CHECK_FAILED"
    assert marked.resource_status_reason == "it is dead"
    demo.heat.stacks.update(group, existing=True)
    settled(demo, group, "UPDATE_COMPLETE")
    after = members(demo, group)
    changed = {name for name in before if before[name] != after.get(name)}
    assert changed == {victim}
    assert before[victim] not in [server.id for server in demo.compute.servers()]
    assert demo.compute.get_server(after[victim]).status == "ACTIVE"


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


def test_a_plain_server_marked_unhealthy_is_replaced(demo: Clients, pair: Pair) -> None:
    demo.heat.resources.mark_unhealthy(pair.stack, "a", True, "dead")
    demo.heat.stacks.update(pair.stack, existing=True)
    settled(demo, pair.stack, "UPDATE_COMPLETE")
    assert demo.heat.resources.get(pair.stack, "a").physical_resource_id != pair.a
    assert demo.heat.resources.get(pair.stack, "b").physical_resource_id == pair.b


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
