# SPDX-License-Identifier: Apache-2.0
"""Groups whose servers and volumes were made without Heat: by Terraform, Ansible, the dashboard.

On the real engine with an emulated cloud.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import groups, reports
from mistral_failover.reports.advice import advice
from support.activation import done
from support.operators import Operator
from support.waiting import patiently, until

CONTEXT = ActionContext(SecurityContext(), ExecutionContext())


@pytest.fixture
def group(loose: Callable[..., Any]) -> Any:
    """A database that serves on db_a."""
    group = loose()
    assert "created" in group.define()
    assert group.activate()["status"] == "COMPLETE", group.told()
    return group


def test_a_failover_moves_the_volume_and_the_application(group: Any) -> None:
    assert (group.runs_on(), group.holders()) == (["db_a"], ["db_a"])
    alarm = group.fails()
    assert "group" not in alarm, "the alarm names the server only"

    patiently(group, "on_alarm", **alarm).assert_succeeded()

    status = group.status()
    assert (status["status"], status["roles"], status["stack"]) == (
        "COMPLETE",
        {"active": "db_b"},
        None,
    )
    assert (group.runs_on(), group.holders()) == (["db_b"], ["db_b"])
    assert status["lost"] == ["db_a"]


def test_it_fails_back_once_the_lost_member_is_well(group: Any) -> None:
    patiently(group, "on_alarm", **group.fails()).assert_succeeded()
    Operator(group.cloud).start_server(group.server("db_a"))
    until(lambda: group.cloud.guests()[group.server("db_a")]["running"])
    group.run("failover", group=group.name, lost=[], recovered=["db_a"]).assert_succeeded()

    group.run("failback", group=group.name).assert_succeeded()

    assert (group.runs_on(), group.holders()) == (["db_a"], ["db_a"])


def test_a_planned_move_that_fails_goes_back(group: Any) -> None:
    group.cloud.api_fault("attach", "error", status=400)

    moved = group.run("switchover", group=group.name, to="db_b")

    assert moved.state == "ERROR"
    until(lambda: group.status()["status"] == "COMPLETE")
    assert group.status()["roles"] == {"active": "db_a"}
    assert (group.runs_on(), group.holders()) == (["db_a"], ["db_a"])


def test_it_rolls_back_to_the_goal_before(group: Any) -> None:
    group.run("switchover", group=group.name, to="db_b").assert_succeeded()

    group.run("rollback", group=group.name).assert_succeeded()

    assert (group.runs_on(), group.holders()) == (["db_a"], ["db_a"])


def test_a_lost_standby_leaves_the_service_alone(group: Any) -> None:
    assert group.observed()["status"] == "SERVING"
    Operator(group.cloud).delete_server(group.server("db_b"))
    until(lambda: group.observed()["status"] == "DEGRADED")
    (need,) = group.status()["service"]["needs"]
    assert need["code"] == "NAME_SERVER"

    group.ids["db_b"] = group.make_server(f"{group.name}-another")
    file = group.file()
    file["members"]["servers"]["db_b"] = {"id": group.server("db_b")}
    answer = group.define(file)

    assert any("ids.members.servers.db_b" in line for line in answer["lines"]), answer
    assert group.activate()["status"] == "COMPLETE"
    assert group.observed()["status"] == "SERVING"
    group.run("switchover", group=group.name, to="db_b").assert_succeeded()
    assert (group.runs_on(), group.holders()) == (["db_b"], ["db_b"])


def test_another_server_takes_over_from_a_deleted_one(loose: Callable[..., Any]) -> None:
    """The only server is deleted; its owner makes another one, and names it."""
    group = loose(("db_a",))
    group.define()
    group.activate()
    group.fails()
    Operator(group.cloud).delete_server(group.server("db_a"))
    until(lambda: group.observed()["status"] == "DOWN")
    assert [each["code"] for each in group.status()["service"]["needs"]] == ["NAME_SERVER"]

    group.ids["db_a"] = group.make_server(f"{group.name}-db_a")
    assert "created" in group.define()
    group.run("activate_first", group=group.name).assert_succeeded()

    assert (group.runs_on(), group.holders()) == (["db_a"], ["db_a"])
    assert group.observed()["reasons"] == ["no member can take over (there is no other member)"]


COLD = {"when_no_standby": "replace", "restart": ["start", "evacuate"]}


def test_a_single_server_is_started_again(loose: Callable[..., Any]) -> None:
    group = loose(("db_a",))
    servers = group.file()["members"]["servers"]
    answer = group.define(group.file(members={"servers": servers, **COLD}))
    assert "created" in answer, answer
    group.activate()

    patiently(group, "on_alarm", **group.fails()).assert_succeeded()

    assert group.status()["status"] == "COMPLETE"
    assert (group.runs_on(), group.holders()) == (["db_a"], ["db_a"])
    assert "Bring back db_a: done" in group.told()


def test_a_single_server_whose_host_is_back_serves_by_the_commands_that_are_shown(
    loose: Callable[..., Any],
) -> None:
    """An operator had confirmed that it is off, so the engine does not know that its host lives."""
    group = loose(("db_a",))
    servers = group.file()["members"]["servers"]
    group.define(group.file(members={"servers": servers, **COLD, "restart": ["start"]}))
    group.activate()
    host = group.cloud.guests()[group.server("db_a")]["host"]
    patiently(group, "on_alarm", **group.fails("power_off")).assert_failed_with("BLOCKED")
    said = {"group": group.name, "member": "db_a", "because": "its power is off"}
    patiently(group, "confirm_fenced", **said).assert_failed_with("BLOCKED")

    group.cloud.fault("host", host, "revive")
    group.run("sweep", group=group.name).assert_succeeded()
    until(lambda: group.status()["status"] == "FAILED")
    shown = [each.command for each in advice(group.status())]
    assert f"failover start {group.name} --lost '' --recovered db_a" in shown
    assert f"failover group update FILE --name {group.name}" in shown
    Operator(group.cloud).start_server(group.server("db_a"))
    until(lambda: group.cloud.guests()[group.server("db_a")]["answers"])
    back = patiently(group, "failover", group=group.name, lost=[], recovered=["db_a"])

    back.assert_succeeded()
    assert (group.runs_on(), group.holders()) == (["db_a"], ["db_a"])
    assert group.cloud.violations() == []


def by(how: str) -> Callable[[Any], dict[str, Any]]:
    def named(group: Any) -> dict[str, Any]:
        file = group.file()
        servers, data = file["members"]["servers"], file["resources"]["data"]["properties"]
        for member in servers:
            servers[member] = {
                "tag": {"tag": f"role={group.name}-{member}"},
                "id": {"id": group.server(member)},
                "text": f"{group.name}-{member}",
            }[how]
        data["volume"] = {
            "tag": {"tag": f"role={group.name}-data"},
            "id": {"id": group.volume()},
            "text": f"{group.name}-data",
        }[how]
        return file

    return named


@pytest.mark.parametrize("how", ["tag", "id", "text"])
def test_every_way_to_name_finds_the_same(loose: Callable[..., Any], how: str) -> None:
    group = loose()

    answer = group.define(by(how)(group))

    assert "created" in answer, answer
    group.activate()
    rows = {row["name"]: row["server"] for row in group.status()["members"]}
    assert rows == {member: group.server(member) for member in group.members}
    assert group.holders() == ["db_a"]


def test_a_list_of_names_means_servers_of_the_project(loose: Callable[..., Any]) -> None:
    group = loose(("db_a",))
    name = f"{group.name}-db_a"
    group.members, group.ids[name] = (name,), group.ids["db_a"]

    assert "created" in group.define(group.file(members={"servers": [name]}))

    assert group.activate()["roles"] == {"active": name}


def problems(answer: dict[str, Any]) -> list[tuple[str, str]]:
    assert answer["code"] == "INVALID_DOCUMENT", answer
    return [(each["field"], each["code"]) for each in answer["problems"]]


def test_all_names_that_lead_nowhere_are_said_at_once_with_the_candidates(
    loose: Callable[..., Any],
) -> None:
    group = loose()
    group.make_server(f"{group.name}-db_b")  # now two have the name
    file = group.file()
    file["members"]["servers"]["db_a"] = {"tag": f"role={group.name}-db_aa"}
    file["resources"]["data"]["properties"]["volume"] = {"name": f"{group.name}-dta"}

    answer = group.define(file)

    assert problems(answer) == [
        ("members.servers.db_a", "NOT_FOUND"),
        ("members.servers.db_b", "BAD_REQUEST"),
        ("resources.data.properties.volume", "NOT_FOUND"),
    ]
    unknown, twice, volume = answer["problems"]
    assert f'Did you mean "role={group.name}-db_a"?' in unknown["remedy"]
    assert group.server("db_b") in twice["message"]
    assert f"{group.name}-data" in volume["message"]
    assert group.name not in done(reports.Status().run(CONTEXT))["groups"]


def test_a_name_that_leads_elsewhere_later_moves_nothing(group: Any) -> None:
    """Only the next definition takes it, and says so."""
    before, name = group.server("db_b"), f"{group.name}-db_b"
    group.api.compute.update_server(before, name="retired")
    another = group.make_server(name)
    (found,) = group.examined_all("stack")
    assert (found["level"], another in found["sentence"]) == ("warn", True)

    patiently(group, "on_alarm", **group.fails()).assert_succeeded()
    assert (group.runs_on(), group.holders()) == (["db_b"], ["db_b"])

    shown = group.define(dry_run=True)
    assert any(before in line and another in line for line in shown["lines"]), shown
    rows = {row["name"]: row["server"] for row in group.status()["members"]}
    assert rows["db_b"] == before


def test_what_was_found_stays_while_nova_does_not_answer(group: Any) -> None:
    group.cloud.api_fault("server_list", times=100)
    answer = group.define(group.file(limits={"cooldown": 5}))
    group.cloud.clear_api_faults()

    assert "created" in answer, answer
    assert {each["field"] for each in answer["unchecked"]} >= {"members.servers.db_a"}
    assert group.activate()["status"] == "COMPLETE"
    assert group.holders() == ["db_a"]


def test_what_was_deleted_since_does_not_keep_an_operator_from_correcting_another_part(
    group: Any,
) -> None:
    Operator(group.cloud).delete_server(group.server("db_b"))
    until(lambda: group.server("db_b") not in group.cloud.guests())

    answer = group.define(group.file(limits={"cooldown": 5}))

    assert "created" in answer, answer
    assert ("members.servers.db_b", "NOT_FOUND") in [
        (each["field"], each["code"]) for each in answer["wrong_before"]
    ]


def test_another_tool_that_attaches_the_volume_back_is_noticed(group: Any) -> None:
    """As a tool does that has the attachment to db_a in its files, after a move to db_b."""
    group.run("switchover", group=group.name, to="db_b").assert_succeeded()
    volume, now = group.volume(), group.server("db_b")
    Operator(group.cloud).stop_server(now)
    until(lambda: not group.cloud.guests()[now]["running"])
    group.api.compute.delete_volume_attachment(now, volume)
    until(lambda: group.holders() == [])
    Operator(group.cloud).attach(volume, group.server("db_a"))
    Operator(group.cloud).start_server(now)
    until(lambda: group.cloud.guests()[now]["running"])

    found = group.observed()

    assert found["status"] == "DOWN"
    assert any("data" in reason for reason in found["reasons"]), found
    assert "DETACH_VOLUME" in [each["code"] for each in group.status()["service"]["needs"]]


def test_a_server_of_another_group_is_refused(group: Any, loose: Callable[..., Any]) -> None:
    other = loose(("db_c",))
    file = other.file()
    file["members"]["servers"]["db_c"] = {"id": group.server("db_b")}

    answer = other.define(file)

    assert (answer["code"], group.name in answer["message"]) == ("INVALID_DOCUMENT", True)


@pytest.mark.parametrize(
    ("order", "inputs"),
    [("adopt_stack", {}), ("replace", {"member": "db_b"})],
)
def test_what_only_heat_does_is_refused(group: Any, order: str, inputs: dict[str, Any]) -> None:
    if order == "adopt_stack":
        error = groups.AdoptStack(group.name).run(CONTEXT).error
    else:
        run = group.run("replace_member", group=group.name, **inputs)
        assert run.state == "ERROR"
        error = run.output["error"]

    assert error["code"] == "NO_STACK", error
    assert group.status()["status"] == "COMPLETE"


def test_it_is_released_and_defined_again_where_it_serves(group: Any) -> None:
    patiently(group, "on_alarm", **group.fails()).assert_succeeded()
    Operator(group.cloud).start_server(group.server("db_a"))
    until(lambda: group.cloud.guests()[group.server("db_a")]["running"])
    group.run("failover", group=group.name, lost=[], recovered=["db_a"]).assert_succeeded()
    done(groups.Undefine(group.name, release=True).run(CONTEXT))
    assert group.holders() == ["db_b"]

    assert group.define()["created"]
    group.activate()

    assert (group.runs_on(), group.holders()) == (["db_b"], ["db_b"])


def test_its_end_takes_the_volume_off_and_leaves_the_servers(group: Any) -> None:
    group.run("remove", group=group.name).assert_succeeded()

    assert (group.runs_on(), group.holders()) == ([], [])
    assert {group.server(member) for member in group.members} <= group.cloud.guests().keys()


def test_a_plan_shows_the_steps_without_a_question_to_heat(group: Any) -> None:
    since = group.cloud.audit()[-1]["seq"]
    plan = group.plan(lost=["db_a"])

    assert [step["resource"] for step in plan["steps"]][:1] == ["fence:db_a"]
    assert group.observed()["status"] == "SERVING"
    asked = [row["path"] for row in group.cloud.audit(since, kind="request")]
    assert not [path for path in asked if "/orchestration/" in path], asked
