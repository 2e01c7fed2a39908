# SPDX-License-Identifier: Apache-2.0
"""A stack is changed behind the engine's back: one look sees it, and it is healed, or the status
says what is wrong and the order that it names leads on.

Most tests share a stack that serves before and after each of them. Two share another one: it ends
without a server and without its volume, and is deleted all the same. A group is repaired once in
five minutes, so the other repair has a stack of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.protected_stacks import (
    dies,
    findings,
    holders,
    look,
    ordered,
    refused,
    runs_again,
    service,
)
from testcloud import templates
from testcloud.errors import CloudError
from testcloud.tenant import ProtectedStack, Tenant, until

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("spare")]
MISTYPED = "pg-stpo"


@pytest.fixture(scope="module")
def spare(demo: Tenant) -> Iterator[str]:
    """A volume that belongs to no stack. Every test asks for it, so that it is made before the
    stacks and deleted after them: one of them has it attached at the end."""
    storage = demo.cloud.block_storage
    made = storage.create_volume(name="spare", size=1)
    until(lambda: free(demo, made.id), "a volume", 60)
    yield str(made.id)
    storage.delete_volume(made.id)


@pytest.fixture(scope="module")
def stack(protect: Callable[..., ProtectedStack]) -> ProtectedStack:
    """A stack that was seen to serve."""
    made = protect()
    look(made)
    assert service(made) == ("SERVING", [])
    return made


@pytest.fixture(scope="module")
def doomed(protect: Callable[..., ProtectedStack]) -> ProtectedStack:
    """A stack that loses parts for good."""
    return protect()


def free(tenant: Tenant, volume: str) -> bool:
    """Whether a volume can be attached."""
    return bool(tenant.cloud.block_storage.get_volume(volume).status == "available")


def serves_on(stack: ProtectedStack, member: str) -> None:
    """Assert that this member alone has the group's volume and runs its applications."""
    (volume,) = (row["physical_id"] for row in stack.status()["resources"] if row["name"] == "data")
    assert stack.tenant.holders(volume) == [stack.servers()[member]]
    running = {each: names for each, names in stack.applications().items() if names}
    assert running == {member: ["files", "postgresql"]}
    assert stack.tenant.outputs(stack.name)["active"] == member


def succeeds(stack: ProtectedStack, verb: str, **inputs: Any) -> None:
    """Give an order that is carried out."""
    done = ordered(stack, verb, **inputs)
    assert done["state"] == "SUCCESS", done["output"]


def change(stack: ProtectedStack, resource: str, **properties: str) -> None:
    """``failover group update`` with other properties of a resource."""
    shown = stack.tenant.action("failover.status", group=stack.name, definition=True)
    definition = shown["definition"]["document"]
    definition["resources"][resource]["properties"] |= properties
    stack.tenant.action("failover.define", definition=definition, name=stack.name)


def update_plainly(stack: ProtectedStack) -> None:
    """``openstack stack update -t`` without ``--existing``: parameters get their defaults."""
    found = stack.tenant.stack(stack.name)
    answer = stack.tenant.cloud.orchestration.put(
        f"/stacks/{found.name}/{found.id}",
        json={"template": templates.protected(templates.SERVERS), "parameters": {}},
    )
    assert answer.ok, answer.text
    stack.tenant.wait_for_stack(stack.name)


def test_a_parameter_that_a_stack_update_reset_is_set_again(stack: ProtectedStack) -> None:
    active, _ = holders(stack)
    update_plainly(stack)
    assert stack.tenant.outputs(stack.name)["active"] == "none"

    begun = time.monotonic()
    found = look(stack)

    assert [row["service"] for row in found["observed"]] == ["DEGRADED"]
    assert "parameter active is none" in found["observed"][0]["sentence"]
    until(lambda: stack.tenant.outputs(stack.name)["active"] == active, "its repair", 60)
    print(f"repaired {time.monotonic() - begun:.1f} s after the look began")
    assert stack.wait_until_active() == active
    serves_on(stack, active)
    look(stack)
    assert service(stack) == ("SERVING", [])


@pytest.fixture
def by_hand(protect: Callable[..., ProtectedStack]) -> Iterator[tuple[ProtectedStack, str]]:
    """A stack, and an alarm that was created by hand: it watches the active server, and signals the
    stack by a trust. The group file names it."""
    stack = protect()
    found = stack.tenant.stack(stack.name)
    session = stack.tenant.cloud.session
    heat = session.get_endpoint(service_type="orchestration", interface="public")
    signal = f"{heat}/stacks/{found.name}/{found.id}/resources/on_lost/signal"
    server = stack.servers()[stack.wait_until_active()]
    alarm = {
        "name": f"{stack.name}-by-hand",
        "type": "event",
        "severity": "critical",
        "repeat_actions": True,
        "alarm_actions": [f"trust+{signal}"],
        "event_rule": {
            "event_type": "compute.instance.update",
            "query": [
                {"field": f"traits.{name}", "op": "eq", "type": "string", "value": value}
                for name, value in (("instance_id", server), ("state", "error"))
            ],
        },
    }
    made = str(aodh(stack, "POST", "", alarm)["alarm_id"])
    shown = stack.tenant.action("failover.status", group=stack.name, definition=True)
    definition = shown["definition"]["document"]
    properties = {"alarm": made, "server": {"get_param": "active"}}
    watch = {"type": "alarm", "depends_on": "database", "properties": properties}
    definition["resources"]["watch"] = watch
    stack.tenant.action("failover.define", definition=definition, name=stack.name)
    succeeds(stack, "failover", lost=[], definition="defined")
    yield stack, made
    aodh(stack, "DELETE", f"/{made}")


def aodh(stack: ProtectedStack, method: str, path: str, body: Any = None) -> Any:
    """Aodh's answer about the project's alarms."""
    answer = stack.tenant.cloud.session.request(
        f"/v2/alarms{path}",
        method,
        endpoint_filter={"service_type": "alarming", "interface": "public"},
        json=body,
        raise_exc=False,
    )
    assert answer.ok, answer.text
    return answer.json() if answer.content else None


def point(stack: ProtectedStack, alarm: str, server: str) -> None:
    """``openstack alarm update --query traits.instance_id=string::SERVER...``"""
    shown = aodh(stack, "GET", f"/{alarm}")
    for condition in shown["event_rule"]["query"]:
        if condition["field"] == "traits.instance_id":
            condition["value"] = server
    aodh(stack, "PUT", f"/{alarm}", shown)


def watched(stack: ProtectedStack, alarm: str) -> list[str]:
    """The servers that an alarm watches."""
    query = aodh(stack, "GET", f"/{alarm}")["event_rule"]["query"]
    return [each["value"] for each in query if each["field"] == "traits.instance_id"]


def test_an_alarm_that_the_group_file_names_is_repaired_and_follows_the_active_member(
    by_hand: tuple[ProtectedStack, str], operator: Tenant
) -> None:
    stack, alarm = by_hand
    active, standby = holders(stack)
    servers = stack.servers()
    look(stack)
    assert service(stack) == ("SERVING", [])
    before = aodh(stack, "GET", f"/{alarm}")
    point(stack, alarm, servers[standby])

    begun = time.monotonic()
    found = look(stack)

    assert [row["service"] for row in found["observed"]] == ["DEGRADED"]
    words = f"watches {standby}, not {active}"
    assert words in found["observed"][0]["sentence"]
    until(lambda: watched(stack, alarm) == [servers[active]], "its repair", 60)
    print(f"repaired {time.monotonic() - begun:.1f} s after the look began")
    assert stack.wait_until_active() == active
    look(stack)
    assert service(stack) == ("SERVING", [])
    dies(stack, operator, active)
    assert stack.wait_until_active(active) == standby
    serves_on(stack, standby)
    assert watched(stack, alarm) == [servers[standby]]
    after, kept = aodh(stack, "GET", f"/{alarm}"), ("name", "severity", "repeat_actions")
    for key in (*kept, "alarm_actions", "enabled", "project_id"):
        assert after[key] == before[key]


def test_the_doctor_leaves_a_volume_alone_that_the_group_attached(stack: ProtectedStack) -> None:
    change(stack, "data", when_host_is_down="delete_server")
    succeeds(stack, "failover", lost=[], definition="defined")

    assert [row["level"] for row in findings(stack, "volumes")] == ["ok"]


def test_a_mistyped_command_is_refused_before_anything_is_stored(stack: ProtectedStack) -> None:
    active, standby = holders(stack)

    with pytest.raises(CloudError) as wrong:
        change(stack, "database", stop=MISTYPED)

    assert wrong.value.code == "INVALID_DOCUMENT"
    assert MISTYPED in wrong.value.message
    shown = stack.tenant.action("failover.status", group=stack.name, definition=True)
    assert (
        shown["definition"]["document"]["resources"]["database"]["properties"]["stop"] == "pg-stop"
    )
    serves_on(stack, active)
    succeeds(stack, "switchover")
    serves_on(stack, standby)


def test_without_an_alarm_a_deleted_server_is_seen_and_the_order_that_helps_is_named(
    doomed: ProtectedStack, operator: Tenant
) -> None:
    """The standby was lost before, and runs again: to take it back alone is refused as well."""
    standby, active = holders(doomed)
    succeeds(doomed, "failover", lost=[standby])
    serves_on(doomed, active)
    runs_again(doomed, operator, standby)
    server = doomed.servers()[active]
    operator.cloud.compute.delete_server(server)
    until(lambda: not exists(operator, server), "the server to be gone", 60)

    look(doomed)

    found = doomed.status()["service"]
    assert (found["status"], found["gone"]) == ("DOWN", [active])
    for recovered, words in (([], ""), ([standby], f" --recovered {standby}")):
        error = refused(doomed, "failover", lost=[], recovered=recovered)
        assert error["code"] == "HOLDER_GONE"
        assert error["remedy"].endswith(f"failover start {doomed.name} --lost {active}{words}")
    succeeds(doomed, "failover", lost=[active], recovered=[standby])
    serves_on(doomed, standby)


def exists(operator: Tenant, server: str) -> bool:
    """Whether Nova has a server."""
    return any(each.id == server for each in operator.cloud.compute.servers(all_projects=True))


def test_a_group_whose_volume_was_deleted_goes_on_with_another_one(
    doomed: ProtectedStack, demo: Tenant, spare: str
) -> None:
    active = doomed.wait_until_active()
    server, volume = doomed.servers()[active], doomed.volume()
    storage = demo.cloud.block_storage
    demo.guests.fault("server", server, "app")
    demo.cloud.compute.delete_volume_attachment(server, volume)
    until(lambda: free(demo, volume), "the volume to be free", 60)
    storage.delete_volume(volume)
    until(lambda: storage.find_volume(volume) is None, "the volume to be gone", 60)

    look(doomed)

    status, reasons = service(doomed)
    assert status == "DOWN"
    assert any("the volume no longer exists" in reason for reason in reasons), reasons
    change(doomed, "data", volume=spare)
    succeeds(doomed, "failover", lost=[], definition="defined")
    serves_on(doomed, active)
