# SPDX-License-Identifier: Apache-2.0
"""Alarms of any kind through failover.on_event; pauses and maintenances; what was held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions import Result

from mistral_failover.lab.testing.workflows import Workflows
from mistral_failover.orders import alarm_failovers
from support.alarm_bodies import ALERT, VERSIONED, WEBHOOK

PARAMETERS = {"parameters": {"active": {"get_param": "active"}}}
ROUTING = {"routing": {"type": "stack_parameters", "properties": PARAMETERS}}
ADVANCED = {"state": "COMPLETE", "said": [], "again": False, "outcome": {"status": "COMPLETE"}}
STARTED = {
    "decision": "ADMITTED",
    "group": "g",
    "traversal": "t",
    "workflow": "failover.converge",
}
REFUSED = {"decision": "ADMITTED", "error": {"code": "NO_ELIGIBLE_MEMBER"}, "workflow": None}
HELD = {"decision": "HELD", "workflow": None}


def event(*admissions: dict[str, Any]) -> dict[str, Any]:
    """What failover.admit_event answers."""
    return {
        "admissions": list(admissions),
        "started": [each for each in admissions if each["workflow"]],
        "refused": [each for each in admissions if "error" in each],
    }


def webhook(*alerts: dict[str, Any]) -> dict[str, Any]:
    return {**WEBHOOK, "alerts": list(alerts)}


def alert(group: Any, **more: Any) -> dict[str, Any]:
    """A body of Alertmanager's about the active member."""
    group.cloud.fault("server", group.server("db_a"), "app")
    labels = {"alertname": "down", "instance_id": group.server("db_a")}
    now = "2099-01-01T00:00:00Z"  # no member was declared lost since
    return {**ALERT, "labels": labels, "fingerprint": group.name, "startsAt": now, **more}


@pytest.fixture
def light(protect: Callable[..., Any]) -> Callable[..., Any]:
    """Make a group of little work, in service."""

    def make(**more: Any) -> Any:
        group = protect(ROUTING, fence=["stop"], **more)
        group.activate()
        return group

    return make


def test_a_webhook_with_several_alerts_fails_over_each_group_and_counts_the_rest(
    light: Callable[..., Any],
) -> None:
    one, two = light(), light()
    body = webhook(alert(one), alert(two), alert(one, fingerprint="of the same"))

    run = one.run("on_event", body=body).assert_succeeded()

    run.assert_tasks("admit", "converge", "report")
    decided = [row["decision"] for row in run.output["admissions"]]
    assert decided == ["ADMITTED", "ADMITTED", "DUPLICATE"]
    assert [row["group"] for row in run.output["outcomes"]] == [one.name, two.name]
    assert {row["status"] for row in run.output["outcomes"]} == {"COMPLETE"}
    assert [g.status()["roles"] for g in (one, two)] == [{"active": "db_b"}] * 2
    again = one.run("on_event", body=body).assert_succeeded()
    again.assert_tasks("admit")
    assert {row["decision"] for row in again.output["admissions"]} == {"DUPLICATE"}
    assert len(one.traversals()) == 2


def test_what_our_own_stop_tells_of_the_server_starts_nothing(light: Callable[..., Any]) -> None:
    group = light()
    server = group.server("db_a")
    group.run("on_event", body=webhook(alert(group))).assert_succeeded()
    stopped = {"uuid": server, "state": "stopped", "power_state": "shutdown", "task_state": None}
    broken = {**stopped, "state": "error"}

    def told(message: str, data: dict[str, Any]) -> Any:
        body = {**VERSIONED, "message_id": message, "payload": {"nova_object.data": data}}
        (admission,) = group.run("on_event", body=body).assert_succeeded().output["admissions"]
        return admission

    of_stop, of_failure = told(f"{server}-1", stopped), told(f"{server}-2", broken)
    group.run("failover", group=group.name, lost=[], recovered=["db_a"]).assert_succeeded()
    late, much_later = told(f"{server}-2", broken), told(f"{server}-3", broken)

    assert (of_stop["decision"], of_stop["incident"]) == ("IGNORED", None)
    assert of_failure["decision"] == late["decision"] == "DUPLICATE"
    assert much_later["decision"] == "HELD", "it happened in the morning, before all this"
    assert "db_a has been declared lost and recovered" in much_later["sentence"]
    assert group.status()["lost"] == []


def test_one_that_can_not_start_does_not_stop_the_others_and_is_told_at_the_end(
    light: Callable[..., Any],
) -> None:
    alone, other = light(servers=("db_a",)), light()

    run = other.run("on_event", body=webhook(alert(alone), alert(other)))

    run.assert_failed_with("NO_ELIGIBLE_MEMBER")
    assert [row["error"]["code"] for row in run.output["refused"]] == ["NO_ELIGIBLE_MEMBER"]
    assert [row["status"] for row in run.output["outcomes"]] == ["COMPLETE"]
    assert other.status()["roles"] == {"active": "db_b"}
    assert alone.status()["incidents"][0]["decision"] == "ADMITTED", "for the sweep"


def test_many_failovers_start_in_several_executions(
    light: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [light(), light(), light()]
    monkeypatch.setattr(alarm_failovers, "BATCH", 1)

    run = groups[0].run("on_event", body=webhook(*map(alert, groups))).assert_succeeded()

    first, second = run.output, run.output["others"]
    found = [*first["outcomes"], *second["outcomes"], *second["others"]["outcomes"]]
    assert [row["group"] for row in found] == [group.name for group in groups]
    assert {row["status"] for row in found} == {"COMPLETE"}
    assert [row["workflow"] for row in first["admissions"]] == ["failover.converge", None, None]


def test_a_paused_group_s_alarm_waits_for_a_person_who_admits_it(light: Callable[..., Any]) -> None:
    group = light()
    group.run("pause", group=group.name, because="a test").assert_succeeded()
    body = webhook(alert(group))
    (held,) = group.run("on_event", body=body).assert_succeeded().output["admissions"]

    admitted = group.run("failover", group=group.name, incident=held["incident"], because="now")

    assert held["decision"] == "HELD"
    assert admitted.assert_succeeded().output["outcome"]["roles"] == {"active": "db_b"}
    resumed = group.run("resume", group=group.name, because="over").assert_succeeded()
    assert resumed.output["said"]["pause"] is None


def test_what_a_maintenance_held_is_dismissed(light: Callable[..., Any]) -> None:
    group = light()
    said = group.run(
        "maintenance", group=group.name, because="disks", minutes=5, members=["db_a"]
    ).assert_succeeded()
    run = group.run("on_event", body={"group": group.name, "member": "db_a"}, kind="signal")
    (held,) = run.assert_succeeded().output["admissions"]

    done = group.run("dismiss", incident=held["incident"], because="expected").assert_succeeded()

    assert said.output["said"]["maintenance"]["members"] == ["db_a"]
    assert held["decision"] == "HELD"
    assert done.output["dismissed"][0]["sentence"].endswith(": expected")
    assert group.run("dismiss", incident="none", because="x").output["error"]["code"] == (
        "UNKNOWN_ID"
    )


# -- the flow alone


@pytest.fixture
def flow(pack: Workflows) -> Callable[..., Any]:
    """Run failover.on_event with replaced actions."""

    def run(answer: Any, report: Any = None) -> Any:
        pack.replace("failover.admit_event", answer)
        pack.replace("failover.advance", ADVANCED)
        pack.replace("failover.report", report or {"status": "COMPLETE"})
        return pack.run("failover.on_event", {"body": {"alerts": []}, "kind": "k", "group": "g"})

    return run


def test_the_body_reaches_the_admission_as_it_came(pack: Workflows, flow: Any) -> None:
    flow(event(HELD)).assert_succeeded().assert_tasks("admit")

    body = {"alerts": []}
    assert pack.calls("failover.admit_event") == [
        {"body": body, "kind": "k", "group": "g", "member": "", "because": ""}
    ]


def test_the_chain_of_every_traversal_is_run_and_its_end_reported(
    pack: Workflows, flow: Any
) -> None:
    run = flow(event(STARTED, HELD, {**STARTED, "group": "h"})).assert_succeeded()

    run.assert_tasks("admit", "converge", "report")
    assert len(run.task("converge").subs) == 2
    reported = [call["group"] for call in pack.calls("failover.report")]
    assert sorted(reported) == ["g", "h"]


@pytest.mark.parametrize(
    ("admissions", "tasks"),
    [((REFUSED, HELD), ["admit"]), ((REFUSED, STARTED), ["admit", "converge", "report"])],
)
def test_what_was_admitted_and_could_not_start_makes_the_execution_fail(
    flow: Any, admissions: Any, tasks: list[str]
) -> None:
    run = flow(event(*admissions))

    run.assert_failed_with("NO_ELIGIBLE_MEMBER").assert_tasks(*tasks)
    assert run.output["admissions"] == list(admissions)


@pytest.mark.parametrize(
    ("admissions", "tasks", "error"),
    [
        ((STARTED, {**STARTED, "group": "h"}), ["begin", "converge", "report"], None),
        ((REFUSED, STARTED), ["begin", "converge", "report"], "NO_ELIGIBLE_MEMBER"),
        ((REFUSED,), ["begin"], "NO_ELIGIBLE_MEMBER"),
        ((), ["begin"], None),
    ],
    ids=["started", "one is refused", "all are refused", "another one was faster"],
)
def test_what_a_webhook_admitted_is_carried_out(
    pack: Workflows, admissions: Any, tasks: list[str], error: str | None
) -> None:
    pack.replace("failover.start_admitted", event(*admissions))
    pack.replace("failover.advance", ADVANCED)
    pack.replace("failover.report", {"status": "COMPLETE"})

    run = pack.run("failover.start_admitted", {"incidents": ["i1", "i2"]})

    if error is None:
        run.assert_succeeded()
    else:
        run.assert_failed_with(error)
    run.assert_tasks(*tasks)
    assert pack.calls("failover.start_admitted") == [{"incidents": ["i1", "i2"]}]


def test_a_goal_that_was_not_reached_makes_the_execution_fail(flow: Any) -> None:
    blocked = Result(error={"code": "BLOCKED", "message": "m", "remedy": "r"})

    flow(event(STARTED), blocked).assert_failed_with("BLOCKED")


def test_an_admission_that_is_refused_fails_with_its_code(flow: Any) -> None:
    wrong = Result(error={"code": "INVALID_DOCUMENT", "message": "m", "remedy": "r"})

    run = flow(wrong).assert_failed_with("INVALID_DOCUMENT")

    run.assert_tasks("admit")
    assert run.task("admit").attempts == 1
    assert run.output["admissions"] is None
