# SPDX-License-Identifier: Apache-2.0
"""Pauses and maintenances, what is held, and its dismissal."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import alarms, orders, reports
from mistral_failover.actions import suspensions as suspension_actions
from mistral_failover.convergence.records import Ready
from mistral_failover.orders import suspensions
from mistral_failover.runtime.process import Runtime
from mistral_failover.store import tables


def signal(identity: str = "w1", member: str = "db_a", **more: Any) -> dict[str, Any]:
    return {"group": "payments", "member": member, "id": identity, **more}


@pytest.fixture
def ann(project: str) -> ActionContext:
    """A request of a user with a name."""
    security = SecurityContext(project_id=project, auth_token="t", user_name="ann")
    return ActionContext(security, ExecutionContext(workflow_execution_id="e-ann"))


@pytest.fixture
def hear(state: Runtime, context: ActionContext) -> Callable[..., dict[str, Any]]:
    """Admit a body with one alarm; its admission."""

    def admit(body: dict[str, Any], **about: Any) -> dict[str, Any]:
        (admission,) = alarms.AdmitEvent(body, **about).run(context)["admissions"]
        return dict(admission)

    return admit


def told(context: ActionContext, kind: str) -> list[str]:
    rows = reports.History("payments", limit=1000).run(context)
    return [row["sentence"] for row in rows if row["kind"] == kind]


# -- pause and maintenance


def test_what_arrives_while_a_group_is_paused_is_held_with_who_and_why(
    begun: Ready, hear: Any, ann: ActionContext
) -> None:
    answer = suspension_actions.Pause("payments", "we upgrade").run(ann)

    held = hear(signal())

    assert answer["sentence"] == "paused by ann: we upgrade"
    assert answer["pause"]["by"] == "ann"
    assert held["decision"] == "HELD"
    assert "payments has been paused since" in held["sentence"]
    assert held["sentence"].endswith("by ann: we upgrade")
    assert reports.Status("payments").run(ann)["pause"]["because"] == "we upgrade"
    assert told(ann, "pause") == ["paused by ann: we upgrade"]


def test_after_it_is_resumed_nothing_starts_by_itself_and_what_is_said_again_is_judged_again(
    begun: Ready, hear: Any, ann: ActionContext
) -> None:
    suspension_actions.Pause("payments", "we upgrade").run(ann)
    held = hear(signal())

    answer = suspension_actions.Resume("payments", "done").run(ann)

    assert (answer["pause"], answer["maintenance"]) == (None, None)
    assert told(ann, "resumed") == ["resumed by ann: done"]
    assert [row["incident"] for row in alarms.Held().run(ann)["held"]] == [held["incident"]]
    again = hear(signal())
    assert (again["decision"], again["incident"]) == ("ADMITTED", held["incident"])
    assert again["error"]["code"] == "CONFIG", "no cloud is configured here"
    assert alarms.Held().run(ann)["total"] == 0


def test_a_group_that_was_not_paused_can_be_resumed_and_nothing_is_told(
    begun: Ready, ann: ActionContext
) -> None:
    answer = suspension_actions.Resume("payments", "to be sure").run(ann)

    assert answer["sentence"].endswith("nothing to resume: to be sure")
    assert told(ann, "resumed") == []


def test_a_maintenance_of_one_member_holds_only_alarms_about_it(
    begun: Ready, hear: Any, ann: ActionContext
) -> None:
    suspension_actions.Maintenance("payments", "new disks", minutes=30, members=["db_b"]).run(ann)

    other, its = hear(signal("w1", "db_a")), hear(signal("w2", "db_b"))

    assert other["decision"] == "ADMITTED"
    assert "maintenance of db_b of payments until" in its["sentence"]
    assert its["sentence"].endswith("by ann: new disks")


def test_a_member_alone_is_taken_out_of_a_maintenance_and_the_others_stay_in_it(
    begun: Ready, hear: Any, ann: ActionContext
) -> None:
    suspension_actions.Maintenance("payments", "new disks", minutes=30).run(ann)
    suspension_actions.Pause("payments", "we upgrade").run(ann)

    first = suspension_actions.Resume("payments", "it is done", members=["db_a"]).run(ann)
    again = suspension_actions.Resume("payments", "it is done", members=["db_a"]).run(ann)
    last = suspension_actions.Resume("payments", "all done", members=["db_a", "db_b"]).run(ann)

    assert first["maintenance"]["members"] == ["db_b"]
    assert first["sentence"] == "maintenance of db_a ended by ann: it is done"
    assert again["sentence"].endswith("nothing to resume: it is done")
    assert last["maintenance"] is None
    assert last["pause"]["because"] == "we upgrade", "a pause is something else"


def test_a_maintenance_can_be_ended_without_the_pause_and_the_other_way_round(
    begun: Ready, ann: ActionContext
) -> None:
    suspension_actions.Maintenance("payments", "new disks", minutes=30).run(ann)
    suspension_actions.Pause("payments", "we upgrade").run(ann)

    resumed = suspension_actions.Resume("payments", "upgraded", only="pause").run(ann)
    ended = suspension_actions.Resume("payments", "new", only="maintenance").run(ann)

    assert (resumed["pause"], resumed["maintenance"]["because"]) == (None, "new disks")
    assert ended["maintenance"] is None
    assert ended["sentence"] == "maintenance ended by ann: new"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"only": "sleep"}, "BAD_INPUT"),
        ({"only": "pause", "members": ["db_a"]}, "BAD_INPUT"),
        ({"members": ["db_x"]}, "UNKNOWN_MEMBER"),
    ],
)
def test_what_can_not_be_resumed_is_refused(
    begun: Ready, ann: ActionContext, said: dict[str, Any], code: str
) -> None:
    assert suspension_actions.Resume("payments", "why", **said).run(ann).error["code"] == code


def test_a_misspelt_member_is_answered_with_the_one_that_is_meant(
    begun: Ready, ann: ActionContext
) -> None:
    refused = suspension_actions.Maintenance("payments", "disks", minutes=9, members=["dba"]).run(
        ann
    )

    assert refused.error["remedy"] == 'Did you mean "db_a"? Known: db_a, db_b.'


def test_a_maintenance_ends_by_itself(
    begun: Ready, hear: Any, ann: ActionContext, state: Runtime
) -> None:
    answer = suspension_actions.Maintenance("payments", "new disks", minutes=1).run(ann)
    over = {**answer["maintenance"], "until": answer["maintenance"]["since"] + 0.001}
    here = tables.groups.c.name == "payments"
    state.database.atomically(
        lambda tx: tx.execute(tables.groups.update().where(here).values(maintenance=over))
    )

    assert reports.Status("payments").run(ann)["maintenance"] is None
    assert hear(signal())["decision"] == "ADMITTED"


def test_a_time_says_when_a_maintenance_ends_in_any_zone(begun: Ready, ann: ActionContext) -> None:
    now = reports.Status("payments").run(ann)["now"]
    until = f"{suspensions.format_time(now + 7200)[:-4].replace(' ', 'T')}+01:00"

    answer = suspension_actions.Maintenance("payments", "new disks", until=until).run(ann)

    assert answer["maintenance"]["until"] == pytest.approx(now + 3600, abs=2)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({}, "BAD_INPUT"),
        ({"until": "2099-01-01T00:00:00", "minutes": 3}, "BAD_INPUT"),
        ({"until": "tomorrow"}, "BAD_INPUT"),
        ({"until": "2001-01-01T00:00:00"}, "BAD_INPUT"),
        ({"until": "2999-01-01T00:00:00"}, "BAD_INPUT"),
        ({"minutes": 0}, "BAD_INPUT"),
        ({"minutes": "30"}, "BAD_INPUT"),
        ({"minutes": 30, "members": ["db_z"]}, "UNKNOWN_MEMBER"),
    ],
)
def test_a_maintenance_that_makes_no_sense_is_refused(
    begun: Ready, ann: ActionContext, said: dict[str, Any], code: str
) -> None:
    assert (
        suspension_actions.Maintenance("payments", "new disks", **said).run(ann).error["code"]
        == code
    )
    assert reports.Status("payments").run(ann)["maintenance"] is None


@pytest.mark.parametrize(
    "action",
    [
        suspension_actions.Pause("unknown", "x"),
        suspension_actions.Resume("unknown", "x"),
        suspension_actions.Maintenance("unknown", "x", minutes=3),
        alarms.Held("unknown"),
    ],
)
def test_a_group_that_is_not_there_is_unknown(
    state: Runtime, ann: ActionContext, action: Any
) -> None:
    assert action.run(ann).error["code"] == "UNKNOWN_GROUP"


def test_a_person_s_order_is_no_alarm_and_goes_on(begun: Ready, ann: ActionContext) -> None:
    suspension_actions.Pause("payments", "we upgrade").run(ann)

    answer = orders.Begin("payments", lost=[]).run(ann)

    assert answer.error["code"] == "CONFIG", "it got as far as the cloud, of which there is none"
    assert alarms.Held().run(ann)["total"] == 0


# -- held


@pytest.fixture
def held(begun: Ready, hear: Any, ann: ActionContext) -> str:
    """The id of an alarm that is held."""
    suspension_actions.Pause("payments", "we upgrade").run(ann)
    return str(hear(signal())["incident"])


def test_what_is_held_is_listed_with_all_that_a_person_needs(
    held: str, hear: Any, context: ActionContext
) -> None:
    hear(signal())

    (listed,) = alarms.Held().run(context)["held"]

    assert listed["incident"] == held
    assert (listed["group"], listed["lost"], listed["heard"]) == ("payments", ["db_a"], 2)
    assert (listed["rule"], listed["source"]) == ("paused", "signal")
    assert listed["first_at"] < listed["last_at"]
    assert alarms.Held("payments").run(context)["held"] == [listed]


@pytest.mark.parametrize(
    ("body", "given"),
    [
        (signal("w2"), []),
        ({"group": "payments", "server": "s-unknown"}, ["--lost", "MEMBER"]),
        ({"group": "ledger", "member": "x"}, ["--group", "GROUP", "--lost", "x"]),
    ],
)
def test_the_commands_that_it_comes_with_can_be_typed_as_they_are(
    begun: Ready,
    hear: Any,
    ann: ActionContext,
    body: dict[str, Any],
    given: list[str],
) -> None:
    suspension_actions.Pause("payments", "it's an upgrade").run(ann)
    incident = hear(body)["incident"]

    (listed,) = alarms.Held().run(ann)["held"]

    words = shlex.split(listed["admit"])
    assert words == ["failover", "admit", incident, *given, "--because", "WHY"]
    words = shlex.split(listed["dismiss"])
    assert words == ["failover", "dismiss", incident, "--because", "WHY"]


def test_a_long_list_is_cut_and_says_how_long_it_is(
    held: str, hear: Any, context: ActionContext
) -> None:
    second = hear(signal("w2"))["incident"]

    answer = alarms.Held(limit=1).run(context)

    assert answer["total"] == 2
    assert [row["incident"] for row in answer["held"]] == [second]


def test_an_alarm_that_a_person_admits_passes_by_every_rule_and_the_sentence_says_so(
    held: str, ann: ActionContext
) -> None:
    orders.Begin("payments", incident=held, because="it is dead").run(ann)

    incident = reports.Status("payments").run(ann)["incidents"][0]
    assert incident["decision"] == "ADMITTED"
    assert "payments has been paused since" in incident["sentence"]
    assert incident["sentence"].endswith("by ann: it is dead")
    assert told(ann, "admitted") == [f"ADMITTED: {incident['sentence']}"]


def test_what_is_dismissed_leaves_the_list_and_keeps_who_and_why(
    held: str, hear: Any, ann: ActionContext
) -> None:
    answer = alarms.Dismiss(held, "a drill").run(ann)

    (done,) = answer["dismissed"]
    assert done["incident"] == held
    assert done["sentence"].endswith("; dismissed by ann: a drill")
    assert alarms.Held().run(ann)["held"] == []
    assert reports.Status("payments").run(ann)["incidents"][0]["decision"] == "DISMISSED"
    assert told(ann, "dismissed") == [f"DISMISSED: {done['sentence']}"]
    assert hear(signal())["decision"] == "DUPLICATE"
    assert alarms.Held().run(ann)["total"] == 0


def test_dismissing_twice_is_dismissing_once(held: str, ann: ActionContext) -> None:
    first = alarms.Dismiss(held, "a drill").run(ann)

    assert alarms.Dismiss([held], "again").run(ann) == first


def test_of_an_incident_s_id_the_first_digits_do(
    held: str, hear: Any, ann: ActionContext, context_of: Callable[..., ActionContext]
) -> None:
    second = hear(signal("w2"))["incident"]
    stranger = context_of("another")

    for identity in (held, second):
        assert alarms.Dismiss(identity[:8], "x").run(stranger).error["code"] == "UNKNOWN_ID"
        refused = alarms.Dismiss(identity[:7], "x").run(ann)
        assert refused.error["code"] == "UNKNOWN_ID"
        assert refused.error["message"].startswith("no incident of this project")
    orders.Begin("payments", incident=held[:8], because="it is dead").run(ann)
    (done,) = alarms.Dismiss(second[:8], "a drill").run(ann)["dismissed"]

    assert done["incident"] == second
    rows = reports.Status("payments").run(ann)["incidents"]
    decisions = {row["id"]: row["decision"] for row in rows}
    assert decisions == {held: "ADMITTED", second: "DISMISSED"}


def test_several_are_dismissed_at_once(held: str, hear: Any, ann: ActionContext) -> None:
    second = hear(signal("w2"))["incident"]
    unknown = hear({"server": "s-unknown"})["incident"]

    alarms.Dismiss([held, second, unknown], "a drill").run(ann)

    assert alarms.Held().run(ann)["total"] == 0


@pytest.mark.parametrize(
    ("incident", "code"), [("none", "UNKNOWN_ID"), ([], "BAD_INPUT"), (7, "BAD_INPUT")]
)
def test_what_is_not_there_can_not_be_dismissed(
    state: Runtime, ann: ActionContext, incident: Any, code: str
) -> None:
    assert alarms.Dismiss(incident, "x").run(ann).error["code"] == code


def test_what_is_not_held_can_not_be_dismissed(begun: Ready, hear: Any, ann: ActionContext) -> None:
    admitted = hear(signal())["incident"]

    refused = alarms.Dismiss(admitted, "x").run(ann)

    assert refused.error["code"] == "NOT_HELD"
    assert reports.Status("payments").run(ann)["incidents"][0]["decision"] == "ADMITTED"
