# SPDX-License-Identifier: Apache-2.0
"""States in which something of a group is gone for good: an order that works leads out of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import doctor, groups, orders, recovery, reports
from support.operators import Operator


@pytest.fixture
def without_volume(group: Any, operator: Operator) -> Any:
    """A group that served on db_a, whose data volume was deleted."""
    group.activate()
    server = group.server("db_a")
    volume = str(group.cloud.resources(group.name)["data_volume"]["physical_resource_id"])
    (epoch,) = (row["epoch"] for row in group.status()["members"] if row["name"] == "db_a")
    group.cloud.run_command(server, "stop", command_id=f"by-hand-{group.name}", epoch=epoch)
    operator.detach(volume, server)
    operator.delete_volume(volume)
    return group


CONTEXT = ActionContext(SecurityContext(), ExecutionContext())


def change(group: Any, resource: str, **properties: str) -> None:
    """Give the group file other properties of a resource."""
    definition = group.document()
    definition["resources"][resource]["properties"] |= properties
    changed = groups.Define(definition, name=group.name).run(CONTEXT)
    assert not isinstance(changed, Result), changed.error


def mistype(group: Any, **names: str) -> None:
    """Give the group file commands that no agent offers: they did when the file was given."""
    name = f"former-{group.name}"
    offered = {"start": "former-start", "stop": "former-stop"}
    group.cloud.add_application(name, **(offered | names), stack=group.name)
    change(group, "database", **names)
    group.cloud.add_application(name, **offered, stack=group.name)


def test_the_volume_of_a_deleted_server_is_moved_by_a_failover(
    group: Any, operator: Operator
) -> None:
    group.activate()
    operator.delete_server(group.server("db_a"))

    volume = group.examined("volumes")

    assert (volume["level"], volume["remedy"]) == (
        "error",
        f"failover start {group.name} --lost db_a",
    )
    group.run("failover", group=group.name, lost=["db_a"]).assert_succeeded()
    assert group.examined("volumes")["level"] == "ok"


def test_a_mistyped_stop_command_is_seen_and_its_correction_leads_on(group: Any) -> None:
    group.activate()
    mistype(group, stop="stpo")
    group.run("activate_first", group=group.name).assert_succeeded()

    unknown = "its agent does not know the command stpo"
    recovery.Observe(group.name).run(CONTEXT)
    service = group.status()["service"]
    assert service["status"] == "DEGRADED"
    assert any(unknown in reason for reason in service["reasons"])
    assert unknown in group.member_list()["db_b"]["doubt"]
    findings = doctor.Doctor(group.name).run(CONTEXT)["findings"]
    assert any(unknown in row["sentence"] for row in findings if row["level"] == "error")
    refused = group.run("switchover", group=group.name)
    assert refused.output["error"]["code"] == "CANNOT_QUIESCE"
    assert group.runs_on() == ["db_a"], "nothing was disturbed"

    change(group, "database", stop="stop")
    group.run("activate_first", group=group.name).assert_succeeded()
    group.run("switchover", group=group.name).assert_succeeded()

    assert group.runs_on() == ["db_b"]
    assert group.told("fenced") == []


def test_what_was_started_with_a_mistyped_stop_command_is_fenced_by_the_corrected_one(
    protect: Any,
) -> None:
    group = protect(fence=["quiesce"])
    group.activate()
    mistype(group, stop="stpo")
    group.run("activate_first", group=group.name).assert_succeeded()
    blocked = group.run("failover", group=group.name, lost=["db_a"])
    assert blocked.state == "ERROR"
    assert group.status()["status"] == "BLOCKED"

    change(group, "database", stop="stop")
    corrected = {"lost": ["db_a"], "definition": "defined"}
    group.run("failover", group=group.name, **corrected).assert_succeeded()

    assert group.status()["roles"] == {"active": "db_b"}
    assert group.runs_on() == ["db_b"]


@pytest.fixture
def mistyped(protect: Any) -> Callable[..., Any]:
    """Make a group whose activation names commands that the agents may not know."""

    def make(**names: str) -> Any:
        group = protect()
        mistype(group, **names)
        return group

    return make


def fails_to_start(group: Any) -> None:
    """Start the group, which fails."""
    assert group.run("activate_first", group=group.name).state == "ERROR"
    assert group.status()["status"] == "FAILED"


def test_a_group_serves_as_soon_as_what_a_look_missed_was_made(mistyped: Any) -> None:
    """The volume was attached before that look, which saw it."""
    group = mistyped(start="strt")
    fails_to_start(group)
    assert group.observed()["status"] == "DOWN"

    change(group, "database", start="start")
    group.run("activate_first", group=group.name).assert_succeeded()

    assert group.runs_on() == ["db_a"]
    service = group.status()["service"]
    assert (service["status"], service["seen_at"]) == ("DEGRADED", None)
    assert "no member can take over (db_b: " in str(service["reasons"]), "it was not seen since"
    overview = {row["name"]: row for row in reports.Status().run(CONTEXT)["overview"]}
    assert overview[group.name]["service"] == "DEGRADED", "it says the same of all groups"
    assert group.observed()["status"] == "SERVING"


def test_both_names_of_what_never_started_can_be_corrected(mistyped: Any) -> None:
    group = mistyped(start="strt", stop="stpo")
    fails_to_start(group)

    change(group, "database", start="start", stop="stop")
    group.run("activate_first", group=group.name).assert_succeeded()

    assert group.runs_on() == ["db_a"]


def test_what_never_started_needs_no_stop_command(mistyped: Any) -> None:
    group = mistyped(start="strt", stop="stpo")
    fails_to_start(group)

    group.run("remove", group=group.name).assert_succeeded()

    assert group.status()["roles"] == {}
    assert group.holders() == []


def test_what_started_and_failed_is_not_left_without_a_stop(mistyped: Any) -> None:
    group = mistyped(stop="stpo")
    group.cloud.api_fault("command_start", "fail", times=100)  # others may take some
    fails_to_start(group)
    group.cloud.clear_api_faults()

    removal = group.run("remove", group=group.name)

    assert removal.state == "ERROR"
    assert "stpo is not on the member's allow-list" in str(removal.output["error"])
    assert group.holders() == ["db_a"]


def test_a_start_that_was_refused_for_another_reason_needs_its_stop(mistyped: Any) -> None:
    group = mistyped(stop="stpo")
    group.cloud.api_fault("command", status=401, times=100)  # others may take some
    fails_to_start(group)
    group.cloud.clear_api_faults()
    assert "REFUSED" in group.status()["reason"]

    assert group.run("remove", group=group.name).state == "ERROR"


def test_both_names_can_be_corrected_while_the_application_runs(mistyped: Any) -> None:
    group = mistyped(stop="stpo")
    group.activate()
    group.cloud.add_application(
        group.name, start="begin", stop="end", needs_volume=True, stack=group.name
    )

    change(group, "database", start="begin", stop="end")
    group.run("activate_first", group=group.name).assert_succeeded()

    assert group.runs_on() == ["db_a"]
    assert "Stop database on db_a: done" in group.told("done")


def test_a_group_without_its_volume_can_be_taken_out_of_service(without_volume: Any) -> None:
    without_volume.run("remove", group=without_volume.name).assert_succeeded()
    assert without_volume.status()["roles"] == {}


def test_a_deleted_volume_names_the_command_that_gives_the_group_another_one(
    without_volume: Any,
) -> None:
    group, command = without_volume, "failover group update FILE"
    findings = doctor.Doctor(group.name).run(CONTEXT)["findings"]
    (found,) = (row for row in findings if row["check"] == "volumes" and row["level"] == "error")
    assert command in found["remedy"]

    refused = group.run("failover", group=group.name, lost=[], definition="defined", to="db_b")

    assert refused.state == "ERROR"
    assert command in group.status()["reason"]


def test_a_group_goes_on_with_another_volume(without_volume: Any, operator: Operator) -> None:
    group = without_volume
    other = operator.make_volume()
    change(group, "data", volume=other)

    group.run("activate_first", group=group.name).assert_succeeded()

    assert group.status()["status"] == "COMPLETE"
    nodes = group.cloud.guests()
    assert other in nodes[group.server("db_a")]["volumes"]
    assert group.runs_on() == ["db_a"]


def test_an_order_that_moves_nothing_is_refused_where_the_holder_s_server_is_gone(
    group: Any, operator: Operator
) -> None:
    group.activate()
    operator.delete_server(group.server("db_a"))

    for recovered, words in (([], "--lost db_a"), (["db_b"], "--lost db_a --recovered db_b")):
        words += " --definition defined"
        refused = group.run(
            "failover", group=group.name, lost=[], definition="defined", recovered=recovered
        )
        error = refused.assert_failed_with("HOLDER_GONE").output["error"]
        assert error["remedy"].endswith(f"failover start {group.name} {words}")

    lost = {"lost": ["db_a"], "recovered": ["db_b"]}
    group.run("failover", group=group.name, **lost).assert_succeeded()
    assert group.status()["roles"] == {"active": "db_b"}


def test_a_member_that_comes_back_is_not_told_to_serve_where_the_holder_s_server_is_gone(
    group: Any, operator: Operator
) -> None:
    """The holder of the role was deleted, and the only order was to take db_a back."""
    group.activate()
    group.run("failover", group=group.name, lost=["db_a"]).assert_succeeded()
    operator.delete_server(group.server("db_b"))
    assert group.observed()["status"] == "DOWN"

    refused = group.run(
        "failover", group=group.name, lost=[], definition="defined", recovered=["db_a"]
    )

    error = refused.output["error"]
    assert error["code"] == "HOLDER_GONE"
    order = f"{group.name} --lost db_b --recovered db_a --definition defined"
    assert error["remedy"].endswith(order)
    named = {"lost": ["db_b"], "recovered": ["db_a"]}
    group.run("failover", group=group.name, **named).assert_succeeded()
    assert group.name in group.cloud.guests()[group.server("db_a")]["applications"]
    assert group.observed()["status"] == "DEGRADED", "it serves, without a standby"


def test_the_doctor_leaves_a_volume_alone_that_the_group_attached(group: Any) -> None:
    group.activate()
    change(group, "data", when_host_is_down="delete_server")
    group.run("activate_first", group=group.name).assert_succeeded()

    findings = doctor.Doctor(group.name).run(CONTEXT)["findings"]

    assert [row["level"] for row in findings if row["check"] == "volumes"] == ["ok"]


# -- what is gone for good


def forget(group: Any, resource: str) -> Any:
    """What failover.forget answers, or the error that it ends with."""
    found = groups.Forget(group.name, resource, "the array burnt down").run(CONTEXT)
    return found.error if isinstance(found, Result) else found


@pytest.mark.parametrize("resource", ["data", "database"])
def test_what_is_there_is_not_forgotten(group: Any, resource: str) -> None:
    group.activate()

    assert forget(group, resource)["code"] == "STILL_THERE"

    assert group.told("forgotten") == []
    assert group.status()["service"]["status"] == "SERVING"


def test_a_resource_that_the_group_never_had_is_not_known(group: Any) -> None:
    group.activate()

    refused = forget(group, "databse")

    assert refused["code"] == "UNKNOWN_RESOURCE"
    assert '"database"' in refused["remedy"]


def test_while_a_goal_is_under_way_nothing_is_forgotten(group: Any, operator: Operator) -> None:
    group.activate()
    operator.delete_server(group.server("db_a"))
    begun = orders.Begin(group.name, lost=["db_a"]).run(CONTEXT)
    assert not isinstance(begun, Result)

    assert forget(group, "database")["code"] == "UNDER_WAY"


def test_what_was_on_a_deleted_server_can_be_forgotten_and_is_made_elsewhere(
    group: Any, operator: Operator
) -> None:
    group.activate()
    operator.delete_server(group.server("db_a"))

    answers = [forget(group, resource) for resource in ("database", "data")]
    again = forget(group, "database")

    assert [len(answer["forgotten"]) for answer in answers] == [1, 1]
    assert again["forgotten"] == [], "a repeat is harmless"
    assert len(group.told("forgotten")) == 2
    assert all("the array burnt down" in sentence for sentence in group.told("forgotten"))
    group.run("failover", group=group.name, lost=["db_a"]).assert_succeeded()
    assert group.status()["roles"] == {"active": "db_b"}
    assert group.status()["service"]["status"] == "DEGRADED"


@pytest.mark.parametrize("way", ["delete_server", "evacuate"])
@pytest.mark.parametrize("resource", ["data", "database"])
def test_what_a_guest_may_still_use_is_not_forgotten(
    group: Any, operator: Operator, resource: str, way: str
) -> None:
    """Nova deletes the server of a dead host from its database alone, and makes it again elsewhere
    without a word to that host: the guest may run on."""
    group.activate()
    group.fails("power_off")  # which Nova alone does not tell from a host that it cannot reach
    getattr(operator, way)(group.server("db_a"))

    refused = forget(group, resource)

    assert refused["code"] == "NOT_CHECKED"
    assert f"failover start {group.name} --lost db_a" in refused["remedy"], "it has it fenced"
    assert group.told("forgotten") == []


UNDELETABLE = {
    "failover_type_version": "2026-11-21",
    "name": "licence",
    "description": "A seat at a server that was switched off for good",
    "properties": {"seat": {"type": "string", "required": True, "immutable": True}},
    "operations": {
        "create": {"workflow": "house.take_seat"},
        "delete": {"workflow": "house.return_seat"},
    },
}
TAKE_SEAT = """
version: '2.0'
house.take_seat:
  input: [operation]
  tasks:
    only:
      action: std.noop
"""
RETURN_SEAT = """
version: '2.0'
house.return_seat:
  input: [operation]
  tasks:
    only:
      action: std.fail
"""


def test_a_group_whose_resource_cannot_be_deleted_any_more_ends_all_the_same(protect: Any) -> None:
    licence = {"type": "licence", "properties": {"seat": "one"}}
    group = protect(resources={"licence": licence}, types=[UNDELETABLE])
    group.workflows.load(TAKE_SEAT)
    group.workflows.load(RETURN_SEAT)
    group.activate()
    assert group.run("remove", group=group.name).state == "ERROR"
    assert group.status()["status"] == "FAILED"

    assert len(forget(group, "licence")["forgotten"]) == 1

    group.run("remove", group=group.name).assert_succeeded()
    assert not isinstance(groups.Undefine(group.name).run(CONTEXT), Result)
