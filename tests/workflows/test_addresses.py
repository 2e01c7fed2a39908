# SPDX-License-Identifier: Apache-2.0
"""Addresses follow the active member: never do two members answer at one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import doctor
from mistral_failover.lab.emulator.client import EmulatorClient
from support.operators import Operator
from support.waiting import until

EXAMPLES = Path(__file__).parents[2] / "examples"
COMMANDS = {"": ("pg-start", "pg-stop"), "-ip": ("address-up", "address-down")}
ACTIVE = {"get_param": "active"}
DATABASE = {
    "type": "activation",
    "properties": {"member": ACTIVE, "start": "start", "stop": "stop"},
}
FLOATING = {
    "type": "floating_ip",
    "depends_on": "database",
    "properties": {"floating_ip": "entry", "server": ACTIVE, "network": "net1"},
}
PORT = {"type": "port", "properties": {"port": "inside", "server": ACTIVE}}
VIRTUAL = {
    "type": "virtual_ip",
    "depends_on": "database",
    "properties": {"port": "inside", "server": ACTIVE, "announce": "up", "withdraw": "down"},
}
NET = {"network": "net1"}


def with_addresses(stack: dict[str, Any]) -> dict[str, Any]:
    """The template, with a floating IP, a port on no server, and a port for each server."""
    for one in stack["resources"].values():
        if one["type"] == "OS::Nova::Server":
            one["properties"] = {**one["properties"], "networks": [NET]}
    stack["resources"] |= {
        "entry": {"type": "OS::Neutron::FloatingIP", "properties": {"floating_network": "public"}},
        "inside": {"type": "OS::Neutron::Port", "properties": NET},
    }
    return stack


@pytest.fixture
def defined(protect: Callable[..., Any]) -> Callable[..., Any]:
    """Make a group whose resources include an address."""

    def make(*, unresolved: bool = False, **resources: Any) -> Any:
        group = protect(
            {"database": DATABASE, **resources}, template=with_addresses, unresolved=unresolved
        )
        group.cloud.add_application(f"{group.name}-ip", start="up", stop="down", stack=group.name)
        group.cloud.add_application(group.name, start="start", stop="stop", stack=group.name)
        return group

    return make


@pytest.fixture
def moving(defined: Callable[..., Any]) -> Callable[..., Any]:
    """Make a group whose resources include an address, and bring it up on db_a."""

    def make(**resources: Any) -> Any:
        group = defined(**resources)
        outcome = group.activate()
        assert outcome["status"] == "COMPLETE", outcome
        return group

    return make


def address(group: Any, name: str) -> str:
    """The address of the group's resource."""
    (row,) = [
        row
        for row in group.status()["resources"]
        if row["name"] == name
        and row["status"].endswith("COMPLETE")
        and "DELETE" not in row["status"]
    ]
    return str(row["attributes"]["address"])


def answers(group: Any, name: str) -> list[str]:
    """The members that answer at the address."""
    servers = {group.server(member): member for member in group.members}
    return [servers[each] for each in group.cloud.answering(address(group, name))]


def two_at_once(group: Any) -> list[dict[str, Any]]:
    """What the cloud saw of an address that two servers answer at."""
    servers = {group.server(member) for member in group.members}
    return [
        each
        for each in group.cloud.violations()
        if each["rule"] == "address_on_two_servers" and servers & set(each["servers"])
    ]


KINDS = {"floating": FLOATING, "inside": PORT, "virtual": VIRTUAL}


@pytest.fixture(params=[("floating", "virtual"), ("inside",)], ids="-".join)
def names(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The kinds of the group's addresses: those that one server can have at once."""
    return tuple(request.param)


@pytest.fixture
def group(moving: Callable[..., Any], names: tuple[str, ...]) -> Any:
    """A group with these addresses, active on db_a."""
    return moving(**{name: KINDS[name] for name in names})


def all_answer(group: Any, names: tuple[str, ...]) -> list[str]:
    """The members that answer at the addresses; each of these at each of those."""
    (members,) = {tuple(answers(group, name)) for name in names}
    return list(members)


def test_addresses_follow_the_application_of_a_planned_move(
    group: Any, names: tuple[str, ...]
) -> None:
    assert all_answer(group, names) == ["db_a"]

    group.run("switchover", group=group.name).assert_succeeded()

    assert all_answer(group, names) == group.runs_on() == ["db_b"]
    assert two_at_once(group) == []


def test_addresses_leave_a_lost_member_after_its_fence(group: Any, names: tuple[str, ...]) -> None:
    old = group.server("db_a")
    before = group.cloud.audit()[-1]["seq"]
    group.fails("hang")

    group.run("failover", group=group.name).assert_succeeded()

    assert all_answer(group, names) == ["db_b"]
    assert two_at_once(group) == []
    assert group.changes_after_stop(before, old, "/network/", "/os-interface")


def test_a_port_leaves_a_locked_server_once_it_is_unlocked(moving: Callable[..., Any]) -> None:
    group = moving(inside=PORT)
    operator, old = Operator(group.cloud), group.server("db_a")
    operator.act(old, "lock")

    run = group.run("failover", group=group.name, lost=[], to="db_b").assert_failed_with("BLOCKED")

    message = run.output["error"]["message"]
    assert "SERVER_BUSY" in message
    assert f"openstack server unlock {old}" in message.lower()
    group.run("sweep", group=group.name).assert_succeeded()
    assert group.status()["status"] == "BLOCKED", "it is locked still"
    operator.act(old, "unlock")
    group.run("sweep", group=group.name).assert_succeeded()

    assert group.status()["status"] == "COMPLETE"
    assert answers(group, "inside") == group.runs_on() == ["db_b"]


def test_a_port_waits_for_the_only_standby_until_it_is_unlocked(
    moving: Callable[..., Any],
) -> None:
    group = moving(inside=PORT)
    operator, new = Operator(group.cloud), group.server("db_b")
    operator.act(new, "lock")

    execution = group.start("failover", group=group.name, lost=["db_a"])
    until(lambda: group.status()["waiting"])
    (waiting,) = group.status()["waiting"]
    operator.act(new, "unlock")

    assert f"openstack server unlock {new}" in str(waiting)
    group.ended(execution).assert_succeeded()
    assert answers(group, "inside") == group.runs_on() == ["db_b"]


def test_addresses_stay_until_it_is_proven_that_their_member_is_off(
    group: Any, names: tuple[str, ...]
) -> None:
    where = [address(group, name) for name in names]
    group.fails("compute_down")  # the guest still runs, and nothing can prove otherwise
    group.cloud.fault("server", group.server("db_a"), "hang")

    blocked = group.run("failover", group=group.name)

    assert blocked.state == "ERROR"
    assert group.status()["traversal"]["status"] == "BLOCKED"
    assert [group.cloud.answering(each) for each in where] == [[group.server("db_a")]] * len(names)

    host = group.cloud.guests()[group.server("db_a")]["host"]
    group.cloud.fault("host", host, "power_off")
    said = {"group": group.name, "member": "db_a", "because": "its power is off"}
    group.run("confirm_fenced", **said).assert_succeeded()

    assert all_answer(group, names) == ["db_b"]
    assert two_at_once(group) == []
    group.cloud.fault("host", host, "revive")
    assert two_at_once(group) == [], "the old server comes back without the addresses"


def test_an_address_that_was_taken_away_by_hand_is_seen(group: Any, names: tuple[str, ...]) -> None:
    assert group.observed()["status"] == "SERVING"
    for name in names:
        Operator(group.cloud).take_address(group.server("db_a"), address(group, name))
        found = group.observed()
        assert found["status"] == "DOWN"
        assert any(reason.startswith(f"{name} on db_a: ") for reason in found["reasons"]), found


WRONG = {
    "floating": {"floating_ip": "etnry"},
    "inside": {"port": "insdie"},
    "virtual": {"port": "insdie"},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_name_of_an_address_is_corrected_in_the_group_file(
    defined: Callable[..., Any], name: str
) -> None:
    """What was never made need not be found to be deleted."""
    right = KINDS[name]
    wrong = {**right, "properties": {**right["properties"], **WRONG[name]}}
    group = defined(unresolved=True, **{name: wrong})
    group.run("activate_first", group=group.name).assert_failed_with("FAILED")
    assert "NOT_FOUND" in str(group.status()["traversal"])

    group.redefine({"database": DATABASE, name: right})
    outcome = group.activate()
    assert outcome["status"] == "COMPLETE", group.told()
    assert answers(group, name) == ["db_a"]


def test_the_example_moves_both_of_its_addresses(
    cloud: EmulatorClient, protect: Callable[..., Any]
) -> None:
    text = (EXAMPLES / "addresses.yaml").read_text("utf-8")
    stack = yaml.safe_load((EXAMPLES / "addresses-stack.yaml").read_text("utf-8"))
    definition = yaml.safe_load(text)
    group = protect(
        definition["resources"],
        template=lambda _: stack,
        fence=definition["fence"],
        unresolved=True,  # its commands are made known below
    )
    for name, (start, stop) in COMMANDS.items():
        cloud.add_application(f"{group.name}{name}", start=start, stop=stop, stack=group.name)
    assert group.activate()["status"] == "COMPLETE"
    group.fails("hang")

    group.run("failover", group=group.name).assert_succeeded()

    assert answers(group, "inside") == answers(group, "outside") == ["db_b"]
    assert two_at_once(group) == []


@pytest.mark.parametrize(
    ("name", "property", "value", "words"),
    [
        ("floating", "network", "public", "NO_PORT"),
        ("floating", "floating_ip", "203.0.250.9", "NOT_FOUND"),
        ("inside", "port", "entry", "BAD_REQUEST"),
        ("virtual", "port", "nothing", "NOT_FOUND"),
    ],
)
def test_the_doctor_names_an_address_that_could_not_move(
    protect: Callable[..., Any], name: str, property: str, value: str, words: str
) -> None:
    well, ill = KINDS[name], {**KINDS[name]}
    ill["properties"] = {**well["properties"], property: value}
    resources = {"database": DATABASE, "well": well, "ill": ill}
    group = protect(resources, template=with_addresses, unresolved=True)

    found = {row["sentence"].split(":")[0]: row for row in examined(group)}

    assert found["well"]["level"] == "ok"
    assert found["ill"]["level"] == "error"
    assert words in found["ill"]["sentence"]
    assert found["ill"]["remedy"]


def test_the_doctor_names_a_virtual_ip_that_another_server_has(
    protect: Callable[..., Any], cloud: EmulatorClient
) -> None:
    group = protect({"database": DATABASE, "virtual": VIRTUAL}, template=with_addresses)
    operator = Operator(cloud)
    parts = cloud.resources(group.name)
    reserved = str(parts["inside"]["physical_resource_id"])

    for server in (group.server("db_a"), group.server("db_b")):
        cloud.fault("server", server, "crash")  # neither answers at the address of the other
        operator.allow_address(server, reserved)
    (both,) = examined(group)
    operator.give_port(group.server("db_a"), reserved)
    (given,) = examined(group)
    # With its host, the other one would boot in a later test, and answer at the address, too.
    operator.delete_server(group.server("db_b"))

    assert (both["level"], given["level"]) == ("error", "error")
    assert "ADDRESS_IN_USE" in both["sentence"]
    assert f"server {group.server('db_a')} has its port {reserved}" in given["sentence"]


def test_the_doctor_accepts_a_virtual_ip_that_a_member_has(moving: Callable[..., Any]) -> None:
    group = moving(virtual=VIRTUAL)

    (found,) = examined(group)

    assert found["level"] == "ok"


def examined(group: Any) -> list[dict[str, Any]]:
    """What the doctor finds of the group's addresses."""
    answer = doctor.Doctor(group.name).run(ActionContext(SecurityContext(), ExecutionContext()))
    assert isinstance(answer, dict), answer
    return [row for row in answer["findings"] if row["check"] == "addresses"]
