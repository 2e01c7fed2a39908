# SPDX-License-Identifier: Apache-2.0
"""The failure of a host or a zone: one incident for it, and one for each group with a member there.

No cloud is configured: where the servers run is what the store remembers of the last observation,
and what is admitted can not start.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import alarms, reports, suspensions
from mistral_failover.actions import hosts as host_actions
from mistral_failover.alarms import intake
from mistral_failover.groups import hosts
from mistral_failover.model.observation import Observation, ObservationMemory, Service
from mistral_failover.recovery.sweep import sweep
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, incidents, observations, tables
from mistral_failover.store.incidents import Incident
from mistral_failover.store.transaction import SqlTransaction
from support.alarm_bodies import ALERT, HOST, WEBHOOK
from support.unreadable import unreadable

CMP1, CMP2 = "cmp1", "cmp2"
ZONES = {CMP1: "east", CMP2: "west"}
PLACES = pytest.mark.parametrize("place", [{"host": CMP1}, {"zone": ZONES[CMP1]}], ids=str)
"""A host or a zone with the first members of groups."""


@pytest.fixture
def on_hosts(serve: Any, state: Runtime, project: str) -> Callable[..., str]:
    """Serve a group whose db_a was last seen on the first host, db_b on the second."""

    def make(name: str, a: str = CMP1, b: str = CMP2, **more: Any) -> str:
        serve(name, **more)
        hosts = {f"{name}-a": _where(project, a), f"{name}-b": _where(project, b)}
        identity = groups.group_id(project, name)
        zones = {f"{name}-{x}": ZONES[host] for x, host in (("a", a), ("b", b)) if host in ZONES}
        seen, memory = Observation(Service.SERVING), ObservationMemory(hosts=hosts, zones=zones)
        state.database.atomically(
            lambda tx: observations.save(tx, identity, seen, memory, tx.now())
        )
        return name

    return make


def _where(project: str, host: str) -> list[str]:
    """As a user without an administrator's rights sees it."""
    return [hashlib.sha224((project + host).encode()).hexdigest(), project, ""]


@pytest.fixture
def hear(context: ActionContext) -> Callable[..., list[dict[str, Any]]]:
    """Let an alarm arrive; its admissions."""

    def admit(body: dict[str, Any] = HOST, **about: Any) -> list[dict[str, Any]]:
        return list(alarms.AdmitEvent(body, **about).run(context)["admissions"])

    return admit


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Nova list no server: all that is known is where members were last seen."""
    monkeypatch.setattr(hosts, "_listed", lambda request: {})


def lost(name: str, because: str = "it burned") -> dict[str, Any]:
    return {"host": name, "id": because}


def report(place: dict[str, str]) -> dict[str, Any]:
    return {**place, "id": "it burned"}


def listed(context: ActionContext, group: str | None = None) -> list[dict[str, Any]]:
    return list(alarms.Held(group).run(context)["held"])


def shown(context: ActionContext, identity: str) -> Any:
    return reports.Show(identity).run(context)


def row(state: Runtime, project: str, identity: str) -> Incident:
    found = state.database.for_project(project).reading(lambda tx: incidents.get(tx, identity))
    assert found is not None
    return found


@PLACES
def test_each_group_with_a_member_there_has_a_child_that_is_judged(
    on_hosts: Any,
    hear: Any,
    context: ActionContext,
    state: Runtime,
    project: str,
    place: dict[str, str],
) -> None:
    on_hosts("active")
    on_hosts("standby", CMP2, CMP1)
    on_hosts("elsewhere", CMP2, CMP2)
    suspensions.Pause("standby", "a test").run(context)

    event, *children = hear(report(place))

    assert (event["decision"], event["workflow"]) == ("ADMITTED", None)
    where = "on cmp1" if "host" in place else "in zone east"
    assert f"2 groups have members {where}" in event["sentence"]
    assert [each["decision"] for each in children] == ["ADMITTED", "HELD"]
    found = [row(state, project, each["incident"]) for each in children]
    assert {each.parent for each in found} == {event["incident"]}
    assert [each.fact.lost for each in found] == [("db_a",), ("db_b",)]
    kept = shown(context, event["incident"])
    assert [(each["group"], each["decision"]) for each in kept["children"]] == [
        ("active", "ADMITTED"),
        ("standby", "HELD"),
    ]


@pytest.mark.usefixtures("complete")
def test_a_group_that_cannot_be_read_does_not_stop_the_others_and_is_judged_later(
    on_hosts: Any, hear: Any, context: ActionContext, state: Runtime, project: str
) -> None:
    on_hosts("accounts")
    on_hosts("payments")

    with unreadable(state.database, project, "accounts"):
        event, *children = hear()

    assert [each["decision"] for each in children] == ["ADMITTED"]
    assert "payments" in children[0]["sentence"]

    sweep(Request(state, context), None)

    kept = shown(context, event["incident"])
    assert sorted(each["group"] for each in kept["children"]) == ["accounts", "payments"]


@PLACES
def test_the_members_there_are_listed_before_it_is_reported(
    on_hosts: Any, context: ActionContext, place: dict[str, str]
) -> None:
    on_hosts("active")
    on_hosts("both", CMP1, CMP1, priority=5)
    on_hosts("elsewhere", CMP2, CMP2)

    found = host_actions.MembersOnHost(**place).run(context)

    assert found["groups"] == [
        {"group": "both", "members": ["db_a", "db_b"]},
        {"group": "active", "members": ["db_a"]},
    ]
    assert found["unsure"].startswith("Nova could not be asked [")
    assert listed(context) == []
    assert host_actions.MembersOnHost("cmp9").run(context)["groups"] == []


@PLACES
def test_a_repeat_is_recognised_by_the_event_s_incident(
    on_hosts: Any, hear: Any, place: dict[str, str]
) -> None:
    on_hosts("payments")
    event, child = hear(report(place))

    again, repeated = hear(report(place))

    assert (again["decision"], again["incident"]) == ("DUPLICATE", event["incident"])
    assert repeated["incident"] == child["incident"]


@PLACES
def test_the_same_report_about_another_place_is_another_event(
    on_hosts: Any,
    hear: Any,
    context: ActionContext,
    place: dict[str, str],
) -> None:
    on_hosts("payments")
    event, _ = hear(report(place))

    other, _ = hear(report({"host": CMP2} if "host" in place else {"zone": ZONES[CMP2]}))

    assert (other["decision"], other["incident"] != event["incident"]) == ("ADMITTED", True)
    (child,) = shown(context, other["incident"])["children"]
    assert (child["group"], child["lost"]) == ("payments", ["db_b"])


def test_another_report_about_the_host_finds_the_loss_known(on_hosts: Any, hear: Any) -> None:
    on_hosts("payments")
    _, first = hear()

    event, second = hear(lost(CMP1))

    assert event["decision"] == "ADMITTED"
    assert (second["decision"], second["incident"]) == ("DUPLICATE", first["incident"])


def test_a_process_that_died_among_the_children_is_completed_by_the_repeat(
    on_hosts: Any, hear: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [on_hosts(f"group{n}") for n in range(4)]
    monkeypatch.setattr(intake, "BATCH", 2)
    children, calls = intake._children, []

    def dies(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return children(*given)

    monkeypatch.setattr(intake, "_children", dies)
    with pytest.raises(KeyboardInterrupt):
        hear(lost(CMP1))

    event, *every = hear(lost(CMP1))

    assert event["decision"] == "DUPLICATE"
    assert [each["decision"] for each in every].count("HELD") == len(names) - 2  # a storm


def test_a_process_that_died_among_the_children_is_completed_by_the_sweep(
    on_hosts: Any,
    hear: Any,
    context: ActionContext,
    state: Runtime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_hosts("payments")

    def dies(*given: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(intake, "_children", dies)
        with pytest.raises(KeyboardInterrupt):
            hear(lost(CMP1))

    swept = sweep(Request(state, context), None)

    assert len(swept["refused"]) == 1, "it was admitted, and there is no cloud to start it"


def test_a_repeat_does_not_concern_a_group_that_came_to_the_host_since(
    on_hosts: Any, hear: Any, complete: None
) -> None:
    on_hosts("payments")
    _, child = hear()
    on_hosts("later")

    event, *children = hear()

    assert event["decision"] == "DUPLICATE"
    assert [each["incident"] for each in children] == [child["incident"]]


def test_after_an_hour_no_more_members_are_looked_for(
    on_hosts: Any, hear: Any, context: ActionContext, state: Runtime
) -> None:
    on_hosts("payments", CMP2, CMP2)
    (event,) = hear()
    long_ago = tables.incidents.update().values(first_at=tables.incidents.c.first_at - 3601)
    state.database.atomically(lambda tx: tx.execute(long_ago))
    on_hosts("payments", CMP1, CMP2)

    sweep(Request(state, context), None)

    assert shown(context, event["incident"])["decision"] == "HELD"


def test_a_repeat_of_what_an_operator_dismissed_starts_nothing(
    on_hosts: Any, hear: Any, context: ActionContext
) -> None:
    on_hosts("payments", CMP2, CMP2)
    (event,) = hear()
    alarms.Dismiss(event["incident"], "a drill").run(context)
    on_hosts("payments", CMP1, CMP2)

    (again,) = hear()

    assert (again["decision"], again["incident"]) == ("DUPLICATE", event["incident"])


def test_a_member_that_is_lost_already_does_not_hide_the_loss_of_another(
    on_hosts: Any, hear: Any, state: Runtime, project: str
) -> None:
    on_hosts("payments", CMP1, CMP2, limits={"cooldown": 0})
    hear(lost(CMP1))
    on_hosts("payments", CMP1, CMP1, limits={"cooldown": 0})

    _, child = hear(lost(CMP1, "again"))

    assert child["decision"] == "ADMITTED"
    assert row(state, project, child["incident"]).lost == ("db_b",)


def test_the_lock_on_the_project_s_first_group_is_taken_last(
    on_hosts: Any, hear: Any, state: Runtime, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a single alarm: otherwise an alarm that holds the lock on its group and waits for the
    first one would be waited for."""
    for n in range(3):
        on_hosts(f"group{n}")
    taken: list[str] = []
    lock = SqlTransaction.lock_group

    def noted(tx: SqlTransaction, group_id: str, *, shared: bool) -> Any:
        if group_id not in taken:
            taken.append(group_id)
        return lock(tx, group_id, shared=shared)

    monkeypatch.setattr(SqlTransaction, "lock_group", noted)

    hear()

    ids = sorted(groups.group_id(project, f"group{n}") for n in range(3))
    assert taken == [*ids[1:], ids[0]]


def test_all_members_of_a_group_on_the_host_are_lost_together(
    on_hosts: Any, hear: Any, state: Runtime, project: str
) -> None:
    on_hosts("payments", CMP1, CMP1)

    _, child = hear()

    assert row(state, project, child["incident"]).lost == ("db_a", "db_b")
    assert "db_a and db_b of payments are declared lost" in child["sentence"]


def test_groups_with_a_higher_priority_are_judged_and_started_first(
    on_hosts: Any, hear: Any
) -> None:
    on_hosts("low", priority=-1)
    on_hosts("middle")
    on_hosts("high", priority=5)

    _, *children = hear()

    sentences = [each["sentence"] for each in children]
    assert ["of high" in sentences[0], "of middle" in sentences[1]] == [True, True]
    assert children[2]["decision"] == "HELD"


@PLACES
def test_a_place_with_no_known_member_is_held_and_looked_at_again_by_the_sweep(
    on_hosts: Any,
    hear: Any,
    context: ActionContext,
    state: Runtime,
    place: dict[str, str],
) -> None:
    on_hosts("payments", CMP2, CMP2)
    (event,) = hear(report(place))
    assert event["decision"] == "HELD"
    assert "no group of this project is known to have a member" in event["sentence"]
    (waiting,) = listed(context)
    assert (waiting["rule"], {**waiting, **place}) == ("nowhere", waiting)

    on_hosts("payments", CMP1, CMP2)
    swept = sweep(Request(state, context), None)

    assert listed(context) == []
    assert shown(context, event["incident"])["decision"] == "ADMITTED"
    assert [each["group"] for each in shown(context, event["incident"])["children"]] == ["payments"]
    assert len(swept["refused"]) == 1, "it was admitted, and there is no cloud to start it"


def test_events_that_are_settled_do_not_hide_one_that_is_not(
    on_hosts: Any,
    hear: Any,
    context: ActionContext,
    state: Runtime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(intake, "UNSETTLED", 1)
    monkeypatch.setattr(incidents, "PAGE", 2)
    on_hosts("payments")
    events = [hear(lost(CMP1, f"report {number}"))[0]["incident"] for number in range(4)]
    store = Request(state, context).store

    def settle(tx: SqlTransaction) -> None:
        for identity in events[:3]:
            known = incidents.get(tx, identity)
            assert known is not None
            incidents.replace_host_event_fact(tx, identity, replace(known.fact, open=False))

    store.atomically(settle)

    found = store.reading(intake.unsettled)

    assert [each.id for each in found] == events[3:]


def test_the_name_may_be_with_or_without_its_domain(on_hosts: Any, hear: Any) -> None:
    on_hosts("payments", "node7", CMP2)

    assert len(hear(lost("node7.example.org"))) == 2
    assert len(hear(lost("node8.example.org"))) == 1


def test_a_group_that_is_given_with_the_alarm_is_the_only_one(on_hosts: Any, hear: Any) -> None:
    on_hosts("one")
    on_hosts("two")

    _, child = hear(group="two")

    assert "db_a of two" in child["sentence"]


def test_with_its_member_given_it_is_an_alarm_about_this_member(on_hosts: Any, hear: Any) -> None:
    on_hosts("payments")

    (only,) = hear(group="payments", member="db_b")

    assert "db_b of payments is declared lost" in only["sentence"]


def test_another_project_s_groups_are_not_concerned(
    on_hosts: Any, context_of: Callable[..., ActionContext]
) -> None:
    on_hosts("payments")

    (only,) = alarms.AdmitEvent(lost(CMP1)).run(context_of("elsewhere"))["admissions"]

    assert only["decision"] == "HELD"


# -- the list, and decisions about all of it


@pytest.fixture
def held(on_hosts: Any, hear: Any, context: ActionContext) -> str:
    """Hold the alarms of three groups after the failure of a host; returns its incident."""
    for n in range(3):
        name = on_hosts(f"group{n}", priority=n)
        suspensions.Pause(name, "a test").run(context)
    event, *_ = hear()
    return str(event["incident"])


def test_the_list_shows_the_host_once_with_the_number_of_its_groups(
    held: str, context: ActionContext
) -> None:
    (one,) = listed(context)
    (of_group,) = listed(context, "group1")

    assert (one["incident"], one["host"], one["children"]) == (held, CMP1, 3)
    assert one["admit"] == f"failover admit {held} --because WHY"
    assert of_group["group"] == "group1"


def test_the_host_s_alarm_shows_each_group_with_its_reason_and_its_turn(
    held: str, context: ActionContext
) -> None:
    before = shown(context, held)
    alarms.DismissHeld("a drill", group="group2").run(context)
    after = shown(context, held)

    groups = [(each["group"], each["turn"]) for each in before["children"]]
    assert groups == [("group0", 3), ("group1", 2), ("group2", 1)], "by priority"
    for each in before["children"]:
        assert each["lost"] == ["db_a"]
        assert (each["rule"], each["evidence"]) == ("paused", None)
        assert "has been paused" in each["sentence"]
    assert [each["turn"] for each in after["children"]] == [2, 1, None]


def test_an_alarm_shows_the_commands_for_it_while_it_is_held(
    held: str, context: ActionContext
) -> None:
    (one,) = listed(context)
    before = shown(context, held)
    assert (before["admit"], before["dismiss"]) == (one["admit"], one["dismiss"])

    alarms.Dismiss(held, "a drill").run(context)

    after = shown(context, held)
    assert (after["admit"], after["dismiss"]) == (None, None)


def test_to_dismiss_the_host_s_alarm_dismisses_its_children(
    held: str, context: ActionContext
) -> None:
    answer = alarms.Dismiss(held[:8], "a drill").run(context)

    assert len(answer["dismissed"]) == 3
    assert listed(context) == []


@pytest.mark.parametrize("by", ["all", "host", "incident", "group"])
def test_held_alarms_are_dismissed_in_batches(by: str, held: str, context: ActionContext) -> None:
    one = by == "group"
    given = {"host": CMP1, "incident": held, "group": "group2"}
    chosen = {by: given[by]} if by in given else {}

    first = alarms.DismissHeld("a drill", limit=2, **chosen).run(context)
    second = alarms.DismissHeld("a drill", limit=2, **chosen).run(context)

    numbers = [(len(each["dismissed"]), each["left"]) for each in (first, second)]
    assert numbers == ([(1, 0), (0, 0)] if one else [(2, 1), (1, 0)])


def test_held_alarms_are_admitted_by_priority_and_so_many_at_once(
    held: str, context: ActionContext
) -> None:
    answer = alarms.AdmitHeld("it burned", host=CMP1, limit=2).run(context)

    assert [each["group"] for each in answer["refused"]] == ["group2", "group1"]
    assert (answer["admitted"], answer["left"]) == ([], 1)
    (rest,) = listed(context)
    assert rest["children"] == 1


@pytest.mark.parametrize("decide", [alarms.AdmitHeld, alarms.DismissHeld])
def test_a_host_whose_alarms_were_all_decided_in_the_meantime_is_no_error(
    held: str, context: ActionContext, decide: Any
) -> None:
    alarms.DismissHeld("a drill", host=CMP1).run(context)

    answer = decide("it burned", host=CMP1).run(context)

    assert answer["left"] == 0
    assert not answer.get("admitted")
    assert not answer.get("dismissed")


def test_a_host_and_an_incident_of_another_host_admit_nothing(
    held: str, on_hosts: Any, hear: Any, context: ActionContext
) -> None:
    suspensions.Pause(on_hosts("elsewhere", CMP2, CMP2), "a test").run(context)
    hear(lost(CMP2))
    before = [each["incident"] for each in listed(context)]

    answer = alarms.AdmitHeld("it burned", host=CMP2, incident=held).run(context)

    assert (answer["admitted"], answer["refused"], answer["left"]) == ([], [], 0)
    assert [each["incident"] for each in listed(context)] == before


def test_a_host_without_an_alarm_is_an_error(context: ActionContext, state: Runtime) -> None:
    answer: Any = alarms.AdmitHeld("it burned", host="cmp9").run(context)

    assert answer.error["code"] == "UNKNOWN_HOST"


@pytest.mark.parametrize("given", [{}, {"host": CMP1, "zone": "east"}])
def test_members_are_listed_of_a_host_or_of_a_zone(
    given: dict[str, str], state: Runtime, context: ActionContext
) -> None:
    assert host_actions.MembersOnHost(**given).run(context).error["code"] == "BAD_INPUT"


def test_a_report_is_about_a_host_or_about_a_zone(state: Runtime, context: ActionContext) -> None:
    both = alarms.AdmitEvent({"host": CMP1, "zone": "east"}, kind="signal").run(context)

    assert "zone" in both.error["message"]


UNSEEN = {"event": "STOPPED", "cluster_status": "OFFLINE", "host_status": "UNKNOWN"}
"""What a monitor of Masakari says of a host of which it has lost sight."""


def of_masakari(**payload: str) -> dict[str, Any]:
    return {"notification": {**HOST["notification"], "payload": payload}}


def test_a_host_that_a_monitor_has_lost_sight_of_is_held_for_each_group(
    on_hosts: Any, hear: Any, context: ActionContext
) -> None:
    on_hosts("payments")

    event, child = hear(of_masakari(**UNSEEN))

    assert (event["decision"], child["decision"]) == ("ADMITTED", "HELD")
    (listed_,) = listed(context, "payments")
    assert (listed_["rule"], listed_["lost"]) == ("doubted", ["db_a"])
    assert "host_status is UNKNOWN" in listed_["sentence"]
    assert listed(context), "also without the group's name"
    incidents_ = reports.Status("payments").run(context)["incidents"]
    assert [each["decision"] for each in incidents_] == ["HELD"]
    assert hear(of_masakari(**UNSEEN))[1]["decision"] == "HELD", "it stays doubted"


def test_members_that_are_found_later_on_a_doubted_host_are_held_too(
    on_hosts: Any, hear: Any, context: ActionContext, state: Runtime
) -> None:
    on_hosts("payments", CMP2, CMP2)
    (event,) = hear(of_masakari(**UNSEEN))
    assert event["decision"] == "HELD", "no member is known to be there"

    on_hosts("payments", CMP1, CMP2)
    sweep(Request(state, context), None)

    (child,) = listed(context, "payments")
    assert child["rule"] == "doubted"


def test_a_monitor_that_then_sees_the_host_off_starts_the_failover(
    on_hosts: Any, hear: Any
) -> None:
    on_hosts("payments")
    hear(of_masakari(**UNSEEN))

    _, child = hear(of_masakari(**{**UNSEEN, "host_status": "NORMAL"}))

    assert child["decision"] == "ADMITTED"


def of_a_host(status: str) -> dict[str, Any]:
    """An alert about a host, and that it ended."""
    one = {**ALERT, "status": status, "labels": {"host": CMP1}}
    one["endsAt"] = "2026-11-21T08:05:00Z" if status == "resolved" else "0001-01-01T00:00:00Z"
    return {**WEBHOOK, "alerts": [one]}


def test_the_failure_of_a_host_that_is_reported_after_its_end_is_held_for_each_group(
    on_hosts: Any, hear: Any, context: ActionContext
) -> None:
    on_hosts("payments")
    (end,) = hear(of_a_host("resolved"))
    assert (end["decision"], listed(context)) == ("IGNORED", [])

    _, child = hear(of_a_host("firing"))

    assert child["decision"] == "HELD"
    (held,) = listed(context, "payments")
    assert held["rule"] == "over"
    assert "its source says that it is over" in held["sentence"]
