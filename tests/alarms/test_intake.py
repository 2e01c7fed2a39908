# SPDX-License-Identifier: Apache-2.0
"""The pass of an alarm: repeats, known facts, old news, alarms without a group, several at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import alarms, orders, reports
from mistral_failover.convergence.records import Ready
from mistral_failover.orders import alarm_failovers
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, incidents, tables
from mistral_failover.store.incidents import Incident
from support.alarm_bodies import ALERT, WEBHOOK, aodh


def kept(context: ActionContext, group: str = "payments") -> list[dict[str, Any]]:
    """The incidents of a group, newest first."""
    return list(reports.Status(group).run(context)["incidents"])


@pytest.fixture
def hear(state: Runtime, context: ActionContext) -> Callable[..., Any]:
    """Admit an alarm of Aodh's. No cloud is configured: what is admitted fails with CONFIG, and
    the answer is what the group's status says of it."""

    def admit(body: dict[str, Any], **about: Any) -> Any:
        answer = alarms.Admit(body, **about).run(context)
        if getattr(answer, "error", None):
            assert answer.error["code"] == "CONFIG"
            (found,) = [i for i in kept(context) if i["decision"] == "ADMITTED"]
            return {**found, "incident": found["id"]}
        return answer

    return admit


def row(state: Runtime, project: str, identity: str) -> Incident:
    found = state.database.for_project(project).reading(lambda tx: incidents.get(tx, identity))
    assert found is not None
    return found


def test_what_is_kept_of_a_body_has_no_secret_in_it(
    begun: Ready, hear: Any, state: Runtime, project: str
) -> None:
    token = "gAAAAAB" + "x" * 40
    data = {"event": {"message_id": "m9", "raw": [{"auth_token": "hidden"}, f"token {token}"]}}

    said = {**aodh(), "alarm_name": f"password=hidden {token}"}
    heard = hear({**said, "reason": f"X-Auth-Token: {token}", "reason_data": data})

    kept_ = row(state, project, heard["incident"])
    payload = kept_.payload
    assert token not in str(payload) + kept_.sentence
    assert "hidden" not in kept_.sentence
    assert "hidden" not in str(payload)
    assert payload["reason_data"]["event"]["message_id"] == "m9"


def test_an_alarm_about_a_server_of_two_groups_is_of_the_one_that_it_names(
    serve: Callable[..., str], hear: Any, context: ActionContext, state: Runtime, project: str
) -> None:
    first, second = serve("first"), serve("second")
    shared = [("db_a", "s-a", 1.0), ("db_b", "s-b", 2.0)]
    for name in (first, second):
        identity = groups.group_id(project, name)
        state.database.atomically(lambda tx, i=identity: groups.record_members(tx, i, shared))

    answer = alarms.Admit(aodh(), group=second).run(context)

    assert getattr(answer, "error", {}).get("code") == "CONFIG", "admitted; no cloud to start in"
    assert [i["decision"] for i in kept(context, second)] == ["ADMITTED"]
    assert kept(context, first) == []


def test_an_alarm_that_was_admitted_brings_no_group_up_that_was_removed_since(
    begun: Ready,
    hear: Any,
    state: Runtime,
    project: str,
    context: ActionContext,
    remove: Callable[[], None],
) -> None:
    heard = hear(aodh())
    remove()

    with pytest.raises(ActionError) as caught:
        alarm_failovers.start(Request(state, context), row(state, project, heard["incident"]))

    assert caught.value.code == "NOT_IN_SERVICE"


# -- repeats


def test_a_repeat_of_what_is_decided_for_good_costs_four_statements_and_locks_no_group(
    begun: Ready, goal: Any, hear: Any, state: Runtime, project: str
) -> None:
    first = hear(aodh())
    goal("db_a", incident=first["incident"])
    said: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        said.append(statement.split()[0])

    sa.event.listen(state.database.engine, "before_cursor_execute", note)
    try:
        again = hear(aodh())
    finally:
        sa.event.remove(state.database.engine, "before_cursor_execute", note)

    assert again["decision"] == "DUPLICATE"
    assert again["incident"] == first["incident"]
    assert said == ["BEGIN", "UPDATE", "SELECT", "INSERT"]
    assert row(state, project, first["incident"]).duplicates == 1


def test_another_alarm_about_a_known_fact_is_recognised_when_it_comes_again(
    begun: Ready, goal: Any, hear: Any, state: Runtime, project: str, context: ActionContext
) -> None:
    first = hear(aodh())
    goal("db_a", incident=first["incident"])

    heard = [hear(aodh("m2")) for _ in range(3)]
    goal()  # db_a is taken back, and it is delivered once more
    late = hear(aodh("m2"))

    assert {each["decision"] for each in [*heard, late]} == {"DUPLICATE"}
    assert {each["incident"] for each in [*heard, late]} == {first["incident"]}
    assert row(state, project, first["incident"]).duplicates == 4
    assert len(kept(context)) == 1


def test_what_was_admitted_and_has_not_begun_is_a_known_fact_already(
    begun: Ready, hear: Any, context: ActionContext
) -> None:
    hear(aodh("m1"))
    hear(aodh("m2"))

    assert [(i["decision"], i["duplicates"]) for i in kept(context)] == [("ADMITTED", 1)]


@pytest.mark.parametrize("again", ["m1", "m2"], ids=["the same alarm", "another one"])
def test_an_operator_s_reason_is_kept_with_what_was_admitted_and_has_not_begun(
    begun: Ready, hear: Any, state: Runtime, project: str, context: ActionContext, again: str
) -> None:
    first = hear(aodh("m1"))

    (answer,) = alarms.AdmitEvent(aodh(again), because="I saw it").run(context)["admissions"]

    assert (answer["decision"], answer["incident"]) == ("DUPLICATE", first["incident"])
    kept_ = row(state, project, first["incident"])
    assert (kept_.fact.because, kept_.duplicates) == ("I saw it", 1)


def test_the_repeats_of_repeat_actions_count_on_the_incident_and_start_nothing(
    begun: Ready, goal: Any, hear: Any, state: Runtime, project: str
) -> None:
    first = hear(aodh(None), group="payments", member="db_a")
    goal("db_a", incident=first["incident"])

    while_lost = hear(aodh(None, previous="alarm"), group="payments", member="db_a")

    assert while_lost["decision"] == "DUPLICATE"
    assert row(state, project, first["incident"]).duplicates == 1


def test_a_transition_that_was_missed_is_heard_of_by_its_repeat_once(
    begun: Ready, hear: Any, context: ActionContext
) -> None:
    said = [hear(aodh(None, previous="alarm"), group="payments", member="db_a") for _ in range(3)]

    assert {each["incident"] for each in said} == {said[0]["incident"]}
    (incident,) = kept(context)
    assert (incident["decision"], incident["duplicates"]) == ("ADMITTED", 2)
    assert incident["sentence"].startswith("alarm lost is still alarm: db_a of payments")


def test_after_it_cleared_a_repeat_tells_of_another_transition_that_was_missed(
    begun: Ready, goal: Any, hear: Any, context: ActionContext
) -> None:
    about = {"group": "payments", "member": "db_b"}
    first = hear(aodh(None), **about)
    goal("db_a", incident=first["incident"])
    hear(aodh(None, previous="alarm", current="ok"), **about)

    again = hear(aodh(None, previous="alarm"), **about)

    assert again["incident"] != first["incident"]
    assert again["decision"] == "HELD", "within the cooldown"


def test_a_repeat_that_all_is_well_is_not_written_down(
    begun: Ready, hear: Any, context: ActionContext
) -> None:
    answer = hear(aodh(None, previous="ok", current="ok"), group="payments", member="db_a")

    assert (answer["decision"], answer["incident"]) == ("IGNORED", None)
    assert kept(context) == []


def test_another_event_of_an_alarm_that_never_cleared_is_another_occasion(
    begun: Ready, goal: Any, hear: Any
) -> None:
    first = hear(aodh("m1"))
    goal("db_a", incident=first["incident"])
    goal()

    again = hear(aodh("m2", previous="alarm"))

    assert again["incident"] != first["incident"]
    assert "cooldown" in again["sentence"]


# -- what happened before


@pytest.mark.parametrize(
    ("at", "rule"),
    [("2001-01-01T00:00:00", "old_news"), ("2099-01-01T00:00:00", ""), ("", "")],
    ids=["before it was taken back", "after it", "at an unknown time"],
)
def test_what_happened_before_a_member_was_taken_back_waits_for_a_person(
    at: str,
    rule: str,
    started: Callable[..., Ready],
    goal: Any,
    hear: Any,
    state: Runtime,
    project: str,
) -> None:
    started(limits={"cooldown": 0})
    first = hear(aodh("m1"))
    goal("db_a", incident=first["incident"])
    goal()
    state.database.atomically(
        lambda tx: tx.execute(
            tables.incidents.update()
            .where(tables.incidents.c.id == first["incident"])
            .values(decision="DISMISSED")
        )
    )

    answer = hear(aodh("m2", at=at))

    assert row(state, project, answer["incident"]).rule == rule
    assert answer["decision"] == ("HELD" if rule else "ADMITTED")


def test_what_a_member_never_was_declared_lost_for_is_no_old_news(
    begun: Ready, goal: Any, hear: Any
) -> None:
    goal("db_a")

    assert hear(aodh("m1", server="s-b", at="2001-01-01T00:00:00"))["decision"] == "ADMITTED"


def test_a_member_that_was_lost_and_back_before_it_happened_can_be_lost_again(
    state: Runtime, begun: Ready, goal: Any, project: str
) -> None:
    identity = groups.group_id(project, "payments")
    goal("db_a")
    goal()

    def lost_since(at: float) -> bool:
        return state.database.reading(
            lambda tx: groups.declared_lost_since(tx, identity, "db_a", at)
        )

    now = state.database.reading(lambda tx: tx.now())
    assert lost_since(now - 3600)
    assert not lost_since(now + 1)


# -- alarms without a group


def test_an_alarm_without_a_group_is_listed_and_counted(hear: Any, context: ActionContext) -> None:
    for _ in range(3):
        answer = hear(aodh(server="s-unknown"))

    assert (answer["decision"], answer["traversal"]) == ("HELD", None)
    (listed,) = alarms.Held().run(context)["held"]
    assert (listed["incident"], listed["heard"]) == (answer["incident"], 3)
    assert (listed["group"], listed["rule"]) == (None, "unknown")


def test_repeats_of_an_alarm_without_a_group_are_one_incident(
    hear: Any, context: ActionContext
) -> None:
    for _ in range(3):
        hear(aodh(None, previous="alarm"), group="ghosts\nand more", member="db_a")

    (listed,) = alarms.Held().run(context)["held"]
    assert (listed["heard"], listed["lost"]) == (3, ["db_a"])
    assert "this project has no group ghosts and more" in listed["sentence"]


def test_a_resolved_alarm_of_no_group_is_not_recorded(hear: Any, context: ActionContext) -> None:
    answer = hear(aodh(server="s-unknown", previous="alarm", current="ok"))

    assert (answer["decision"], answer["incident"]) == ("IGNORED", None)
    assert alarms.Held().run(context)["total"] == 0


def test_an_alarm_without_a_group_that_repeats_when_a_group_has_the_server_is_of_that_group(
    hear: Any, serve: Any, context: ActionContext
) -> None:
    held = hear(aodh(server="ledger-a"))
    serve("ledger")

    alarms.Admit(aodh(server="ledger-a")).run(context)

    (incident,) = kept(context, "ledger")
    assert (incident["id"], incident["decision"]) == (held["incident"], "ADMITTED")
    assert alarms.Held().run(context)["total"] == 0


def test_an_operator_can_give_an_alarm_without_a_group_to_a_group(
    hear: Any, serve: Any, context: ActionContext
) -> None:
    held = hear(aodh(server="s-unknown"))
    serve("ledger")
    serve("other")

    answer = orders.Begin("ledger", lost=["db_a"], incident=held["incident"]).run(context)

    assert answer.error["code"] == "CONFIG", "no cloud is configured: admitted, and not started"
    assert [i["id"] for i in kept(context, "ledger")] == [held["incident"]]
    other = orders.Begin("other", lost=["db_a"], incident=held["incident"]).run(context)
    assert other.error["code"] == "UNKNOWN_ID"


def test_a_member_that_the_group_does_not_have_is_a_stranger(begun: Ready, hear: Any) -> None:
    answer = hear(aodh(None), group="payments", member="db_z")

    assert answer["decision"] == "HELD"
    assert "db_z is not a known member of payments" in answer["sentence"]


# -- several alarms in one body


def alert(fingerprint: str, **labels: str) -> dict[str, Any]:
    return {**ALERT, "fingerprint": fingerprint, "labels": {"alertname": "down", **labels}}


def test_each_alarm_of_a_body_is_decided_on_and_none_stops_the_others(
    begun: Ready, define: Any, context: ActionContext
) -> None:
    define("idle")
    alerts = [
        alert("f1", failover_group="payments", failover_member="db_a"),
        alert("f2", failover_group="payments", failover_member="db_a"),
        alert("f3", failover_group="idle"),
        alert("f4", instance_id="s-unknown"),
        {**alert("f5", failover_group="payments"), "status": "resolved"},
    ]

    answer = alarms.AdmitEvent({**WEBHOOK, "alerts": alerts}).run(context)

    decided = [row["decision"] for row in answer["admissions"]]
    assert decided == ["ADMITTED", "DUPLICATE", "IGNORED", "HELD", "IGNORED"]
    first, second = answer["admissions"][:2]
    assert second["incident"] == first["incident"]
    # No cloud is configured here, so what is admitted can not be started.
    assert [row["error"]["code"] for row in answer["refused"]] == ["CONFIG"]
    assert answer["started"] == []


def test_a_body_that_is_no_alarm_is_refused(state: Runtime, context: ActionContext) -> None:
    refused = alarms.AdmitEvent({"what": "ever"}).run(context)

    assert refused.error["code"] == "INVALID_DOCUMENT"
    assert "alertmanager" in refused.error["remedy"]
