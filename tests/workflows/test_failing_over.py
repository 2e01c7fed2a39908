# SPDX-License-Identifier: Apache-2.0
"""The shipped workflows with their real actions, a real state store and an emulated cloud."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext
from oslo_config import cfg

from mistral_failover.actions import alarms
from mistral_failover.store import views
from support.operators import Operator
from support.waiting import until

VOLUME = {"volume": "data_volume", "server": {"get_param": "active"}}


@pytest.fixture
def without_channel(state: Any) -> Iterator[None]:
    """No way to the members' agents is configured."""
    url = cfg.CONF.failover.command_channel
    cfg.CONF.set_override("command_channel", None, group="failover")
    yield
    cfg.CONF.set_override("command_channel", url, group="failover")


def test_the_first_activation_brings_the_application_up_on_the_first_member(group: Any) -> None:
    run = group.run("activate_first", group=group.name).assert_succeeded()

    assert run.output["outcome"]["status"] == "COMPLETE"
    assert run.output["outcome"]["roles"] == {"active": "db_a"}
    assert group.holders() == ["db_a"]
    assert group.name in group.cloud.guests()[group.server("db_a")]["applications"]


def test_activating_a_group_that_is_up_changes_nothing(group: Any) -> None:
    group.activate()

    again = group.run("activate_first", group=group.name).assert_succeeded()

    assert again.output["outcome"]["roles"] == {"active": "db_a"}
    assert group.cloud.violations() == []


@pytest.mark.parametrize(
    ("fault", "rung"), [("app", "quiesce"), ("crash", "stop"), ("hang", "stop")]
)
def test_an_alarm_moves_everything_to_the_other_member_once_the_first_is_fenced(
    group: Any, fault: str, rung: str
) -> None:
    group.activate()

    run = group.run("on_alarm", **group.fails(fault)).assert_succeeded()

    assert run.output["admission"]["decision"] == "ADMITTED"
    assert run.output["outcome"]["status"] == "COMPLETE"
    status = group.status()
    assert status["roles"] == {"active": "db_b"}
    assert status["lost"] == ["db_a"]
    fence = next(row for row in status["resources"] if row["type"] == "fence")
    assert fence["attributes"]["rung"] == rung
    assert group.holders() == ["db_b"]
    assert group.cloud.violations() == []


def test_a_task_that_runs_again_because_its_executor_died_starts_the_same_chain(group: Any) -> None:
    group.activate()
    body = group.fails("crash")

    def admit(execution: str) -> Any:
        context = ExecutionContext(workflow_execution_id=execution)
        return alarms.Admit(body).run(ActionContext(SecurityContext(), context))

    first = admit("e")
    again, other = admit("e"), admit("another")

    assert again == first
    assert first["workflow"] == "failover.converge"
    assert (other["decision"], other["workflow"]) == ("DUPLICATE", None)
    assert len(group.traversals()) == 2, "of the activation, and this one"
    group.run("converge", traversal=first["traversal"]).assert_succeeded()
    assert group.status()["roles"] == {"active": "db_b"}


def test_what_is_said_again_of_an_incident_starts_nothing_new(group: Any) -> None:
    group.activate()
    alarm = group.fails("app")
    admission = group.run("on_alarm", **alarm).assert_succeeded().output["admission"]

    again = group.run("on_alarm", **alarm).assert_succeeded()
    again.assert_tasks("admit")
    assert again.output["admission"]["decision"] == "DUPLICATE"
    assert [i["duplicates"] for i in group.status()["incidents"] if "alarm" in i["sentence"]] == [1]

    # Another alarm, about a member that is declared lost, counts on that incident.
    other = group.run("on_alarm", **group.fails("crash")).assert_succeeded()
    other.assert_tasks("admit")
    assert other.output["admission"]["decision"] == "DUPLICATE"

    ordered = group.run("failover", group=group.name, incident=admission["incident"])
    ordered.assert_succeeded()
    assert ordered.output["begun"]["traversal"] == admission["traversal"]

    assert len(group.traversals()) == 2
    assert group.status()["roles"] == {"active": "db_b"}


def test_a_recovered_transition_is_ignored(group: Any) -> None:
    group.activate()
    alarm = {**group.fails("app"), "previous": "alarm", "current": "ok"}

    run = group.run("on_alarm", **alarm).assert_succeeded()

    assert run.output["admission"]["decision"] == "IGNORED"
    assert group.status()["roles"] == {"active": "db_a"}


def test_an_alarm_within_the_cooldown_is_held_and_a_person_can_admit_it(group: Any) -> None:
    group.activate()
    group.run("on_alarm", **group.fails("app")).assert_succeeded()
    group.run("failover", group=group.name, lost=[], recovered=["db_a"]).assert_succeeded()

    held = group.run("on_alarm", **group.fails("app", "db_b")).assert_succeeded()

    assert held.output["admission"]["decision"] == "HELD"
    incident = held.output["admission"]["incident"]
    admitted = group.run("failover", group=group.name, incident=incident).assert_succeeded()
    assert admitted.output["begun"]["incident"] == incident
    assert group.status()["roles"] == {"active": "db_a"}
    assert group.status()["lost"] == ["db_b"]


def test_an_alarm_that_the_cooldown_held_starts_after_it_if_the_server_died(
    protect: Callable[..., Any], operator: Operator
) -> None:
    """The next failure seldom waits for the end of a cooldown, and is reported once."""
    group = protect(servers=("db_a", "db_b", "db_c"), limits={"cooldown": 6})
    group.activate()
    group.run("on_alarm", **group.fails("crash")).assert_succeeded()
    operator.stop_server(group.server("db_b"))

    held = group.run("on_alarm", **group.fails("crash", "db_b")).assert_succeeded()
    assert held.output["admission"]["decision"] == "HELD"
    group.run("sweep").assert_succeeded()
    assert group.status()["roles"] == {"active": "db_b"}, "the cooldown is not over"

    def moves() -> bool:
        group.run("sweep").assert_succeeded()
        return bool(group.status()["roles"] == {"active": "db_c"})

    until(moves, limit=30)
    assert group.holders() == ["db_c"]


def test_an_alarm_that_a_person_admits_to_a_named_member_fences_only_whom_it_was_about(
    protect: Callable[..., Any],
) -> None:
    parameters = {"active": {"get_param": "left"}}
    resources = {"routing": {"type": "stack_parameters", "properties": {"parameters": parameters}}}
    group = protect(resources, roles=["left", "right"])
    group.run(
        "activate_first", group=group.name, to={"left": "db_a", "right": "db_b"}
    ).assert_succeeded()
    cleared = {**group.fails("app", "db_a"), "previous": "alarm", "current": "ok"}
    incident = group.run("on_alarm", **cleared).output["admission"]["incident"]

    group.run("failover", group=group.name, incident=incident, to="db_b").assert_succeeded()

    assert group.status()["lost"] == ["db_a"]
    assert group.status()["roles"] == {"left": "db_b", "right": "db_b"}


def test_an_alarm_about_no_group_of_the_project_is_held(group: Any) -> None:
    run = group.run("on_alarm", alarm_id="a", previous="ok", current="alarm").assert_succeeded()

    run.assert_tasks("admit")
    assert run.output["admission"]["decision"] == "HELD"
    assert "it names neither a group nor a server" in run.output["admission"]["sentence"]


def test_a_body_that_is_no_alarm_is_refused_and_says_what_is_wrong(group: Any) -> None:
    run = group.run("on_alarm", alarm_id="a", current=["alarm"])

    run.assert_failed_with("INVALID_DOCUMENT")
    assert "current" in run.output["error"]["message"]


def test_an_incident_that_is_unknown_or_of_another_group_is_refused(
    protect: Callable[..., Any],
) -> None:
    one, other = protect(), protect()
    one.activate()
    other.activate()
    incident = other.run("failover", group=other.name).output["begun"]["incident"]

    for given in (incident, "no such incident"):
        run = one.run("failover", group=one.name, incident=given)
        run.assert_failed_with("UNKNOWN_ID")
    assert len(one.traversals()) == 1


def test_starting_the_same_execution_again_starts_one_traversal(group: Any) -> None:
    group.activate()
    group.fails("app")
    execution = "0f1e2d3c-0000-4000-8000-" + group.name[5:].rjust(12, "0")
    inputs = {"group": group.name}

    started = [
        group.workflows.start("failover.failover", inputs, wf_ex_id=execution) for _ in range(2)
    ]

    assert started == [execution, execution]
    group.workflows.wait(execution).assert_succeeded()
    assert len(group.traversals()) == 2


def test_a_member_that_is_not_lost_cannot_be_confirmed_as_fenced(group: Any) -> None:
    group.activate()

    run = group.run("confirm_fenced", group=group.name, member="db_a", because="sure")

    run.assert_failed_with("NOT_LOST")
    run.assert_tasks("confirm")


def test_a_failover_that_failed_is_tried_again_and_declares_no_other_member_lost(
    group: Any,
) -> None:
    """The member that was to take over never came up; that is no reason to fence it."""
    group.activate()
    group.cloud.api_fault("attach", "error", status=400)
    failed = group.run("on_alarm", **group.fails("app")).assert_failed_with("FAILED")
    assert "TARGET_DOWN" in failed.output["error"]["message"]
    assert failed.output["outcome"] is None

    again = group.run("failover", group=group.name).assert_succeeded()

    assert again.output["outcome"]["lost"] == ["db_a"]
    assert again.output["outcome"]["roles"] == {"active": "db_b"}
    assert group.holders() == ["db_b"]
    assert group.cloud.violations() == []


def test_a_start_command_that_fails_is_reported_with_its_own_words(group: Any) -> None:
    group.cloud.api_fault("command_start", "fail")

    run = group.run("activate_first", group=group.name)

    run.assert_failed_with("FAILED")
    assert "COMMAND_FAILED" in run.output["error"]["message"]
    assert "injected failure of start" in run.output["error"]["message"]
    assert run.output["error"]["report"]["status"] == "FAILED"


def test_without_an_eligible_member_the_failover_says_why_each_cannot(group: Any) -> None:
    group.activate()

    run = group.run("failover", group=group.name, lost=["db_a", "db_b"])

    run.assert_failed_with("NO_ELIGIBLE_MEMBER")
    run.assert_tasks("begin")
    assert run.output["error"]["reasons"] == {
        "db_a": "it is declared lost",
        "db_b": "it is declared lost",
    }
    assert group.status()["roles"] == {"active": "db_a"}


def test_a_failover_and_its_plan_say_why_a_member_is_passed_over(protect: Any) -> None:
    group = protect(servers=("db_a", "db_b", "db_c"))
    group.activate()
    Operator(group.cloud).stop_server(group.server("db_b"))
    said = "db_b is passed over: its server is SHUTOFF"

    risks = group.plan(lost=["db_a"])["risks"]
    group.run("failover", group=group.name, lost=["db_a"]).assert_succeeded()

    assert any(row["sentence"].startswith(said) for row in risks)
    assert said in group.traversals()[-1]
    assert group.status()["roles"] == {"active": "db_c"}


def test_while_a_fence_has_no_proof_the_group_is_down_and_says_where_the_volume_is(
    protect: Any,
) -> None:
    group = protect(fence=["confirm"])
    group.activate()
    assert group.observed()["status"] == "SERVING"
    group.run("failover", group=group.name, lost=["db_a"]).assert_failed_with("BLOCKED")

    status = group.status()
    service = status["service"]

    (tried,) = status["failure"]["tried"]
    assert tried["what"] == "confirm"
    assert status["traversal"]["started_at"] <= tried["at"] <= status["now"]
    where = "data is not in service (still on db_a, which is lost; not yet on db_b)"
    assert service["status"] == "DOWN"
    assert where in service["reasons"]


def test_a_failover_shows_the_steps_to_come_and_what_each_waits_for(protect: Any) -> None:
    group = protect(fence=["confirm"])
    group.activate()
    assert group.shown()["ahead"] == []
    group.run("failover", group=group.name, lost=["db_a"]).assert_failed_with("BLOCKED")

    found = group.shown()
    ahead = {row["what"]: row for row in found["ahead"]}

    assert "Fence db_a" not in ahead, "it was tried"
    assert ahead["Stop database on db_a"]["waits_for"] == ["Fence db_a"]
    assert ahead["Detach data from db_a"]["waits_for"] == ["Stop database on db_a"]
    assert ahead["Attach data to db_b"]["waits_for"] == ["Detach data from db_a"]
    assert ahead["Attach data to db_b"]["expected"] is not None, "it was attached before"
    keys = {row["what"]: row["key"] for row in (*found["operations"], *found["ahead"])}
    for row in found["ahead"]:
        assert sorted(keys[each] for each in row["waits_for"]) == sorted(row["after"])
    order = list(ahead)
    for row in found["ahead"]:
        for before in row["waits_for"]:
            assert before not in ahead or order.index(before) < order.index(row["what"])
    assert found["last_failover"] is None, "it is the first"


def test_a_failover_knows_how_long_the_one_before_it_took(group: Any) -> None:
    group.activate()
    group.run("on_alarm", **group.fails("crash")).assert_succeeded()
    first = group.shown()
    Operator(group.cloud).start_server(group.server("db_a"))
    group.run("failback", group=group.name, recovered=["db_a"]).assert_succeeded()
    assert group.shown()["last_failover"] is None, "a planned move is no failover"

    group.run("failover", group=group.name, lost=["db_a"]).assert_succeeded()

    assert group.shown()["last_failover"] == pytest.approx(first["seconds"])


def test_the_last_look_says_how_each_member_and_volume_was_found(group: Any) -> None:
    group.activate()
    Operator(group.cloud).stop_server(group.server("db_b"))
    group.observed()

    status = group.status()

    found = {row["name"]: row["condition"] for row in status["members"]}
    assert found == {"db_a": "runs", "db_b": "stopped"}
    (data,) = (row for row in status["resources"] if row["name"] == "data")
    assert data["presence"] == "present"


def test_a_plan_tells_the_steps_in_order_and_touches_nothing(group: Any) -> None:
    group.activate()
    server = group.server("db_a")

    plan = group.plan()

    assert plan["roles"] == {"active": "db_b"}
    assert plan["lost"] == ["db_a"]
    assert [step["what"] for step in plan["steps"]] == [
        "Fence db_a",
        "Stop database on db_a",
        "Detach data from db_a",
        "Attach data to db_b",
        "Start database on db_b",
        "Update the stack (routing)",
    ]
    assert [step["after"] for step in plan["steps"]][0] == []
    assert group.status()["roles"] == {"active": "db_a"}
    assert group.cloud.guests()[server]["applications"] != {}


def test_a_plan_remembers_nothing_of_the_members_that_it_looked_at(group: Any) -> None:
    plan = group.plan(lost=[])

    assert plan["roles"] == {"active": "db_a"}
    assert group.status()["members"] == []


def test_a_quiesce_proves_nothing_of_volumes_that_no_application_stands_on(
    protect: Callable[..., Any],
) -> None:
    resources = {"data": {"type": "volume_attachment", "properties": VOLUME}}
    group = protect(resources, fence=["quiesce"])
    group.activate()

    run = group.run("failover", group=group.name)

    run.assert_failed_with("BLOCKED")
    assert "no stop command on db_a covers data" in run.output["error"]["message"]
    assert group.holders() == ["db_a"]


def test_volumes_move_without_any_command_channel(
    protect: Callable[..., Any], without_channel: None
) -> None:
    resources = {"data": {"type": "volume_attachment", "properties": VOLUME}}
    group = protect(resources)
    group.activate()

    group.run("failover", group=group.name).assert_succeeded()

    assert group.holders() == ["db_b"]


@pytest.mark.parametrize(("fault", "rung"), [("hang", "quiesce"), ("power_off", "stop")])
def test_a_confirmation_ends_the_rung_that_is_under_way(
    protect: Callable[..., Any], fault: str, rung: str
) -> None:
    limit = 60.0
    group = protect(fence=[{"kind": rung, "limit": limit}, "confirm"])
    group.activate()
    execution = group.workflows.start("failover.on_alarm", group.fails(fault))
    until(lambda: any("fence" in row["name"] for row in under_way(group)))

    confirmed = time.monotonic()
    early = group.run(
        "confirm_fenced", group=group.name, member="db_a", because="I pulled the plug"
    )
    early.assert_tasks("confirm", "converge")
    group.ended(execution)
    took = time.monotonic() - confirmed

    fence = next(row for row in group.status()["resources"] if row["type"] == "fence")
    assert fence["attributes"]["rung"] == "confirm"
    assert fence["attributes"]["observed"] == "an operator confirmed it: I pulled the plug"
    assert took < limit / 3


def under_way(group: Any) -> list[dict[str, Any]]:
    """The resources on which an operation is under way."""
    return [row for row in group.status()["resources"] if row["status"].endswith("IN_PROGRESS")]


def test_an_alarm_that_finds_no_eligible_member_is_kept_and_started_by_the_sweep_once_there_is_one(
    group: Any,
) -> None:
    group.activate()
    group.run("failover", group=group.name).assert_succeeded()
    group.run("on_alarm", **group.fails("app", "db_b")).assert_failed_with("NO_ELIGIBLE_MEMBER")
    kept = group.status()["incidents"][0]
    assert kept["decision"] == "ADMITTED"
    assert [row["id"] for row in group.status()["unstarted"]] == [kept["id"]]
    (refused,) = group.run("sweep", group=group.name).assert_succeeded().output["swept"]["refused"]
    assert (refused["incident"], refused["group"]) == (kept["id"], group.name)
    assert refused["error"]["code"] == "NO_ELIGIBLE_MEMBER"
    assert "db_a: it is declared lost" in refused["sentence"]
    group.cloud.fault("server", group.server("db_a"), "revive")
    group.run("failover", group=group.name, lost=[], recovered=["db_a"]).assert_succeeded()

    swept = group.run("sweep", group=group.name).assert_succeeded().output["swept"]

    assert len(swept["started"]) == 1
    status = group.status()
    assert (status["status"], status["unstarted"]) == ("COMPLETE", [])
    assert status["roles"] == {"active": "db_a"}


def test_a_status_shows_a_failover_that_begins_meanwhile_as_unstarted_or_as_begun(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.activate()
    group.run("failover", group=group.name).assert_succeeded()
    group.run("on_alarm", **group.fails("app", "db_b")).assert_failed_with("NO_ELIGIBLE_MEMBER")
    group.cloud.fault("server", group.server("db_a"), "revive")
    group.run("failover", group=group.name, lost=[], recovered=["db_a"]).assert_succeeded()
    before = group.status()["traversal"]["id"]
    read = views.traversal

    def begin(tx: Any, traversal: str) -> Any:
        monkeypatch.setattr(views, "traversal", read)
        group.run("sweep", group=group.name).assert_succeeded()
        return read(tx, traversal)

    monkeypatch.setattr(views, "traversal", begin)
    found = group.status()

    assert group.status()["traversal"]["id"] != before
    assert found["traversal"]["id"] != before or found["unstarted"]


def test_the_doctor_advises_of_a_blocked_group_what_its_status_does(protect: Any) -> None:
    group = protect(fence=["confirm"])
    group.activate()
    group.run("failover", group=group.name, lost=["db_a"]).assert_failed_with("BLOCKED")

    rows = group.examined_all("service")

    assert rows
    assert all("failover confirm-fenced" in row["remedy"] for row in rows), rows
