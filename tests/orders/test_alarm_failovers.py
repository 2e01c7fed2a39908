# SPDX-License-Identifier: Apache-2.0
"""From an alarm to an incident: decided once, recorded with a sentence, and never lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext

from mistral_failover import fault_points
from mistral_failover.actions import alarms, orders, recovery, reports
from mistral_failover.convergence.records import Ready
from mistral_failover.model.alarm_fact import AlarmFact
from mistral_failover.model.decisions import Decision
from mistral_failover.model.goal import render_goal
from mistral_failover.model.order import Order
from mistral_failover.orders import failover
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, incidents, tables
from mistral_failover.store.tables import incidents as table
from support.alarm_bodies import aodh as alarm


def without_event(**more: Any) -> dict[str, Any]:
    """An alarm of a kind that names no server and has no id of its own."""
    return {**alarm(**more), "reason_data": {"type": "threshold"}}


def replace_server(state: Runtime, project: str) -> None:
    """Another server behind db_a, which raises its epoch."""
    identity = groups.group_id(project, "payments")
    state.database.atomically(
        lambda tx: groups.record_members(tx, identity, [("db_a", "new", 9.0)])
    )


@pytest.fixture
def hear(state: Runtime, begun: Ready, context: ActionContext) -> Callable[..., Any]:
    """Admit an alarm for the project in which ``payments`` stands with db_a active."""

    def admit(body: dict[str, Any], **about: Any) -> Any:
        return alarms.Admit(body, **about).run(context)

    return admit


@pytest.fixture
def kept(context: ActionContext) -> Callable[[], list[dict[str, Any]]]:
    """The incidents of ``payments``, newest first."""
    return lambda: reports.Status("payments").run(context)["incidents"]


def test_an_alarm_with_half_a_character_in_it_is_not_lost(
    hear: Callable[..., Any], kept: Callable[[], Any], context: ActionContext
) -> None:
    half = json.loads(r'{"reason": "bad \ud800", "odd \udfff": ["\ud83d\ude00 \ud83d"]}')

    first = hear(alarm("m1", previous="alarm", current="ok", **half))
    event = alarms.AdmitEvent(alarm("m2", "s-b", **half)).run(context)
    signal = {"id": "w-1 \ud800", "group": "payments", "member": "db_b", "reason": "\udfff"}
    signalled = alarms.AdmitEvent(signal).run(context)

    admitted = [first, *event["admissions"], *signalled["admissions"]]
    assert {each["incident"] for each in admitted} == {each["id"] for each in kept()}
    assert len(admitted) == 3


def test_what_asks_for_nothing_is_recorded_with_its_sentence(
    hear: Callable[..., Any], kept: Callable[[], Any]
) -> None:
    answer = hear(alarm(previous="alarm", current="ok"))

    assert (answer["decision"], answer["workflow"]) == ("IGNORED", None)
    (incident,) = kept()
    assert incident["id"] == answer["incident"]
    assert incident["decision"] == "IGNORED"
    assert incident["sentence"] == answer["sentence"]


@pytest.mark.parametrize(
    ("about", "server", "lost"),
    [
        ({}, "s-a", "db_a"),
        ({}, "s-b", "db_b"),
        ({"group": "payments"}, "s-unknown", None),
        ({"group": "payments"}, "s-b", "db_b"),
        ({"group": "payments", "member": "db_b"}, "s-a", "db_b"),
        ({"member": "db_b"}, "s-a", "db_b"),
    ],
    ids=[
        "the server that it names",
        "a standby's server",
        "no member, when the server is unknown",
        "the server, within the group that is given",
        "group and member as given",
        "the member as given, of the server's group",
    ],
)
def test_whom_an_alarm_is_about(
    hear: Callable[..., Any],
    state: Runtime,
    project: str,
    about: dict[str, str],
    server: str,
    lost: str | None,
) -> None:
    answer = hear(alarm(server=server, previous="alarm", current="ok"), **about)

    found = state.database.for_project(project).reading(
        lambda tx: incidents.get(tx, answer["incident"])
    )
    assert found is not None
    assert (found.fact.group, found.fact.lost) == ("payments", (lost,) if lost else ())


def test_an_admitted_alarm_whose_failover_can_not_be_started_is_kept_and_its_repeat_tries_again(
    hear: Callable[..., Any], kept: Callable[[], Any]
) -> None:
    answers = [hear(alarm()), hear(alarm())]

    # No cloud is configured here, so the members cannot be looked at.
    assert [each.error["code"] for each in answers] == ["CONFIG"] * 2
    (incident,) = kept()
    assert (incident["decision"], incident["duplicates"]) == ("ADMITTED", 1)
    assert "db_a of payments is declared lost" in incident["sentence"]


def test_a_replaced_member_s_alarm_is_another_incident(
    hear: Callable[..., Any], state: Runtime, project: str, kept: Callable[[], Any]
) -> None:
    hear(without_event(previous="alarm", current="ok"), group="payments", member="db_a")
    replace_server(state, project)

    hear(without_event(previous="alarm", current="ok"), group="payments", member="db_a")

    assert [i["duplicates"] for i in kept()] == [0, 0]


def test_an_event_that_comes_late_is_still_the_same_incident(
    hear: Callable[..., Any], state: Runtime, project: str, kept: Callable[[], Any]
) -> None:
    """Its own fence raised the member's epoch meanwhile: that makes no new event of it."""
    hear(alarm(previous="alarm", current="ok"), group="payments", member="db_a")
    replace_server(state, project)

    hear(alarm(previous="alarm", current="ok"), group="payments", member="db_a")

    assert [i["duplicates"] for i in kept()] == [1]


def test_an_alarm_about_an_unknown_server_is_held_and_judged_again_when_it_repeats(
    hear: Callable[..., Any], state: Runtime, project: str, kept: Callable[[], Any]
) -> None:
    held = hear(alarm("m1", server="late"), group="payments")
    assert held["decision"] == "HELD"
    assert "late is not a known member of payments" in held["sentence"]
    identity = groups.group_id(project, "payments")
    state.database.atomically(
        lambda tx: groups.record_members(tx, identity, [("db_c", "late", 9.0)])
    )

    again = hear(alarm("m1", server="late"), group="payments")

    # No cloud is configured here: it was admitted, and could not be started.
    assert again.error["code"] == "CONFIG"
    (incident,) = kept()
    assert (incident["decision"], incident["duplicates"]) == ("ADMITTED", 1)
    found = state.database.for_project(project).reading(
        lambda tx: incidents.get(tx, incident["id"])
    )
    assert found is not None
    assert found.fact.lost == ("db_c",), "not the active member"


def test_admitting_an_alarm_that_names_no_member_needs_a_name(
    hear: Callable[..., Any], context: ActionContext, kept: Callable[[], Any]
) -> None:
    held = hear(alarm(server="unknown"), group="payments")

    answer = orders.Begin("payments", incident=held["incident"]).run(context)

    assert answer.error["code"] == "BAD_INPUT"
    assert "does not say which member is lost" in answer.error["message"]
    assert [i["decision"] for i in kept()] == ["HELD"]


@pytest.mark.parametrize(
    ("said", "order"),
    [
        (
            {"lost": ["db_a"], "to": "db_b"},
            Order("failover", to="db_b", lost=("db_a",), from_alarm=True),
        ),
        (
            {"recovered": ["db_b"]},
            Order("failover", lost=("db_a",), recovered=("db_b",), from_alarm=True),
        ),
        (
            {"to": {"active": "db_b"}},
            Order("failover", to={"active": "db_b"}, lost=("db_a",), from_alarm=True),
        ),
    ],
)
def test_a_sweep_starts_what_a_person_admitted_with_all_that_they_said(
    hear: Callable[..., Any],
    context: ActionContext,
    monkeypatch: pytest.MonkeyPatch,
    said: Any,
    order: Order,
) -> None:
    """Their process died before the traversal began."""
    hear(alarm("m1", server="s-b"))
    held = hear(alarm("m2", server="s-a"))
    assert held["decision"] == "HELD"
    started = []

    def die(request: Any, order: Order) -> Any:
        started.append(order)
        raise ConnectionError("the process died")

    monkeypatch.setattr(failover, "goal_function", die)
    orders.Begin("payments", incident=held["incident"], **said).run(context)
    swept = recovery.Sweep("payments").run(context)

    assert held["incident"] in [row["incident"] for row in swept["refused"]]
    assert started[0] == order
    assert order in started[1:]


def test_what_a_person_orders_for_an_admitted_alarm_that_has_not_begun_counts(
    hear: Callable[..., Any], context: ActionContext, state: Runtime, project: str
) -> None:
    hear(alarm("m1", server="s-a"))  # it cannot begin, because no cloud is configured
    (waiting,) = reports.Status("payments").run(context)["unstarted"]

    orders.Begin("payments", incident=waiting["id"], to="db_b").run(context)

    found = state.database.for_project(project).reading(lambda tx: incidents.get(tx, waiting["id"]))
    assert found is not None
    assert found.order == Order("failover", to="db_b", lost=("db_a",), from_alarm=True)


def test_the_cooldown_counts_from_the_admission_of_what_was_held_before(
    hear: Callable[..., Any], state: Runtime, project: str
) -> None:
    held = hear(alarm("m1", server="late"), group="payments")
    identity = groups.group_id(project, "payments")

    def make_old(tx: Any) -> None:
        tx.execute(
            tables.incidents.update()
            .where(tables.incidents.c.id == held["incident"])
            .values(first_at=1.0, decided_at=1.0)
        )
        groups.record_members(tx, identity, [("db_c", "late", 9.0)])

    state.database.atomically(make_old)
    hear(alarm("m1", server="late"), group="payments")

    assert hear(alarm("m2"))["decision"] == "HELD"


@pytest.mark.parametrize("lost", [None, ["db_a"]])
def test_what_a_person_is_starting_is_not_started_by_an_alarm_about_the_same(
    hear: Callable[..., Any],
    state: Runtime,
    begun: Ready,
    project: str,
    lost: Any,
) -> None:
    identity = groups.group_id(project, "payments")
    group = state.database.reading(
        lambda tx: state.definitions.group(tx, tx.lock_group(identity, shared=True))
    )
    asked = incidents.Incident(
        f"asked-in-{project}",
        project,
        identity,
        incidents.OPERATOR,
        AlarmFact("payments"),
        {},
        "ADMITTED",
        "by hand",
        order=Order("failover", lost=lost),
    )
    state.database.atomically(lambda tx: incidents.add(tx, asked))
    state.engine.start(
        identity,
        render_goal(group, {"active": "db_b"}, ["db_a"]),
        traversal_id=f"by-hand-in-{project}",
        expected=begun.traversal_id,
        cause="by hand",
        incident_id=asked.id,
    )

    # The person's own action has not come to linking the two yet.
    answer = hear(alarm())

    assert answer["decision"] == "DUPLICATE"
    assert answer["incident"] == asked.id
    assert answer["workflow"] is None


def test_a_person_s_start_that_fails_leaves_an_incident_that_no_sweep_takes_up(
    begun: Ready, context: ActionContext, kept: Callable[[], Any]
) -> None:
    assert orders.Begin("payments").run(context).error["code"] == "CONFIG"

    assert [i["decision"] for i in kept()] == ["REFUSED"]
    swept = recovery.Sweep("payments").run(context)
    assert (swept["started"], swept["refused"]) == ([], [])


def test_a_sweep_keeps_on_about_an_alarm_whose_failover_can_not_be_started(
    hear: Callable[..., Any], begun: Ready, context: ActionContext
) -> None:
    hear(alarm())

    swept = recovery.Sweep("payments").run(context)

    assert [r["error"]["code"] for r in swept["refused"]] == ["CONFIG"]
    assert [row["traversal"] for row in swept["chains"]] == [begun.traversal_id]


def test_why_a_failover_can_not_be_started_is_kept_with_its_alarm(
    hear: Callable[..., Any], begun: Ready, context: ActionContext
) -> None:
    """An operator sees it in the status, although no command follows the execution."""
    hear(alarm())

    (row,) = reports.Status("payments").run(context)["unstarted"]

    assert "Keystone" in row["refusal"], "no cloud is configured here"
    assert row["refusal"] not in row["sentence"]


@pytest.fixture
def movable(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let failovers move to db_b without a cloud. ``meanwhile`` runs while the goal is derived."""

    def move(meanwhile: Callable[[], None] = lambda: None) -> None:
        def moving(request: Any, order: Order) -> Any:
            def derive(snapshot: Any) -> Any:
                meanwhile()
                return render_goal(snapshot.group, {"active": "db_b"}, ["db_a"])

            return derive

        monkeypatch.setattr(failover, "goal_function", moving)

    return move


@pytest.mark.parametrize("decision", ["DISMISSED", "HELD"])
@pytest.mark.parametrize("starter", ["the sweep", "the batch", "a repeat of the alarm"])
def test_an_alarm_that_is_no_longer_admitted_starts_nothing(
    hear: Callable[..., Any],
    movable: Callable[..., None],
    state: Runtime,
    begun: Ready,
    context: ActionContext,
    kept: Callable[[], Any],
    decision: Decision,
    starter: str,
) -> None:
    """Another sweep decides after this one has read what is to be started."""
    hear(alarm())
    (incident,) = kept()
    movable(
        lambda: Request(state, context).store.atomically(
            lambda tx: incidents.decide(tx, incident["id"], decision, "its server is well")
        )
    )

    if starter == "the sweep":
        (row,) = recovery.Sweep("payments").run(context)["refused"]
        error = row["error"]
    elif starter == "the batch":
        (row,) = alarms.StartAdmitted([incident["id"]]).run(context)["refused"]
        error = row["error"]
    else:
        error = hear(alarm()).error

    assert error["code"] == "NOT_ADMITTED"
    assert f"is now {decision}" in error["message"]
    status = reports.Status("payments").run(context)
    assert status["traversal"]["id"] == begun.traversal_id
    assert status["lost"] == []
    assert kept()[0]["decision"] == decision


def test_a_failover_that_has_started_is_not_held_although_its_alarm_does_not_name_it_yet(
    hear: Callable[..., Any],
    movable: Callable[..., None],
    state: Runtime,
    context: ActionContext,
    kept: Callable[[], Any],
) -> None:
    """The process died after the start, and the sweep comes long after that."""

    def die(point: str) -> None:
        if point == "link.before":
            raise ConnectionError("the process died")

    movable()
    fault_points.arm(die)
    try:
        hear(alarm())
    finally:
        fault_points.disarm()
    old = table.update().where(table.c.id == kept()[0]["id"])
    times = ("first_at", "last_at", "decided_at")
    state.database.atomically(
        lambda tx: tx.execute(old.values(dict.fromkeys(times, tx.now() - 3600)))
    )

    swept = recovery.Sweep("payments").run(context)

    assert swept["held"] == []
    (row,) = swept["started"]
    current = reports.Status("payments").run(context)["traversal"]["id"]
    assert (kept()[0]["decision"], row["traversal"]) == ("ADMITTED", current)


def test_a_sweep_of_one_group_leaves_the_others_alone(
    hear: Callable[..., Any], define: Callable[..., str], context: ActionContext
) -> None:
    define("other")
    hear(alarm())

    swept = recovery.Sweep("other").run(context)

    assert not any(rows for key, rows in swept.items() if key != "unable"), swept


def test_no_incident_keeps_the_request_s_token(hear: Callable[..., Any], state: Runtime) -> None:
    hear(alarm(auth_token="s3cret"))

    with state.database.engine.connect() as connection:
        assert "s3cret" not in str(connection.execute(table.select()).all())
