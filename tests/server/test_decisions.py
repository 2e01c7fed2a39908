# SPDX-License-Identifier: Apache-2.0
"""The webhook decides on alarms itself; Mistral only starts what was admitted, once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import alarms, suspensions
from mistral_failover.alarms import intake
from mistral_failover.convergence.records import Ready
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.server import receiver, secret
from mistral_failover.store import tables
from server.conftest import KEY, Started
from support.alarm_bodies import aodh

TOKEN = secret.Secret(KEY).token


@pytest.fixture
def mistral() -> Started:
    """Stands for Mistral."""
    return Started()


@pytest.fixture
def door(state: Runtime, context: ActionContext, mistral: Started) -> receiver.AlarmReceiver:
    """The webhook's intake, without HTTP."""
    return receiver.AlarmReceiver(secret.Secret(KEY), mistral, Request(state, context))


@pytest.fixture
def rows(state: Runtime, project: str) -> Callable[[], list[Any]]:
    """The incidents of the project."""
    mine = sa.select(tables.incidents).where(tables.incidents.c.project_id == project)
    return lambda: state.database.reading(lambda tx: tx.connection.execute(mine).all())


def signal(identity: str = "w1", **about: str) -> dict[str, str]:
    return {"group": "payments", "member": "db_a", "id": identity, **about}


def delivery(body: Any, query: str = "") -> receiver.Delivery:
    return receiver.Delivery(f"{receiver.PATH}/{TOKEN}", query, {}, json.dumps(body).encode())


def decisions(taken: receiver.AcceptedAlarms) -> list[str]:
    return [each.verdict.decision for each in taken.decisions]


def test_an_admitted_alarm_is_started_by_one_execution_and_its_repeats_by_none(
    begun: Ready, door: receiver.AlarmReceiver, mistral: Started, rows: Any
) -> None:
    first = door.take(delivery(signal()))
    again = door.take(delivery(signal()))

    assert (decisions(first), decisions(again)) == (["ADMITTED"], ["DUPLICATE"])
    (row,) = rows()
    assert mistral.executions == {first.execution: {"incidents": [row.id]}}
    assert again.execution == first.execution, "it is being started"
    assert row.duplicates == 1


@pytest.mark.parametrize("query", ["", "because=sure"])
def test_a_sender_is_no_operator_whatever_it_says(
    begun: Ready, door: receiver.AlarmReceiver, rows: Any, query: str
) -> None:
    """What an operator reports is not taken back by evidence."""
    claims = {"asked_for": True, "because": "sure", "by": "ann", "operator": "ann", "user": "ann"}
    if query:
        with pytest.raises(receiver.Refused):
            door.take(delivery(signal(), query))
        return

    door.take(delivery(signal(**claims)))

    (row,) = rows()
    assert row.source == "signal"
    assert (row.order, row.fact.because) == (None, "")
    assert "ann" not in row.sentence


def test_an_operator_s_reason_is_beside_the_body(
    begun: Ready, context: ActionContext, rows: Any
) -> None:
    alarms.AdmitEvent(signal(because="no"), because="it burned").run(context)

    (row,) = rows()
    assert row.fact.because == "it burned"
    assert "(no) (it burned)" in row.sentence


def test_a_flood_of_one_alarm_is_counted_and_starts_one_execution(
    begun: Ready, door: receiver.AlarmReceiver, mistral: Started, rows: Any
) -> None:
    with ThreadPoolExecutor(16) as pool:
        taken = list(pool.map(lambda _: door.take(delivery(signal())), range(150)))

    found = [decision for each in taken for decision in decisions(each)]
    assert (found.count("ADMITTED"), found.count("DUPLICATE")) == (1, 149)
    assert len(mistral.executions) == 1
    (row,) = rows()
    assert row.duplicates == 149


def test_each_of_many_groups_is_started_once(
    serve: Any,
    door: receiver.AlarmReceiver,
    mistral: Started,
    rows: Any,
    state: Runtime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state, "settings", replace(state.settings, storm_groups=0))
    names = [serve(f"g{number}") for number in range(6)]
    todo = [delivery(signal(group=name)) for name in names for _ in range(10)]

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(door.take, todo))

    started = [each for given in mistral.executions.values() for each in given["incidents"]]
    assert sorted(started) == sorted(row.id for row in rows())
    assert [row.decision for row in rows()] == ["ADMITTED"] * 6
    assert [row.duplicates for row in rows()] == [9] * 6


def test_what_mistral_did_not_take_is_recorded_and_started_when_it_is_sent_again(
    begun: Ready, door: receiver.AlarmReceiver, mistral: Started, rows: Any
) -> None:
    mistral.away = True
    with pytest.raises(receiver.Refused) as refused:
        door.take(delivery(signal()))
    assert refused.value.status == 503
    (row,) = rows()
    assert (row.decision, row.traversal_id) == ("ADMITTED", None)

    mistral.away = False
    again = door.take(delivery(signal()))

    assert decisions(again) == ["DUPLICATE"]
    assert list(mistral.executions.values()) == [{"incidents": [row.id]}]


def test_a_signed_repeat_that_mistral_did_not_take_may_be_sent_again_as_it_was(
    begun: Ready, door: receiver.AlarmReceiver, mistral: Started
) -> None:
    body = json.dumps(signal()).encode()
    at = str(int(time.time()))
    signature = secret.signed(KEY, at, body)
    headers = {secret.TIMESTAMP: at, secret.SIGNATURE: signature}
    mistral.away = True
    for _ in range(2):
        with pytest.raises(receiver.Refused, match="Mistral does not answer"):
            door.take(receiver.Delivery(receiver.PATH, "", headers, body))
    mistral.away = False

    assert door.take(receiver.Delivery(receiver.PATH, "", headers, body)).execution
    with pytest.raises(receiver.Refused, match="taken before"):
        door.take(receiver.Delivery(receiver.PATH, "", headers, body))


def test_several_alarms_in_one_body_have_a_decision_each_and_start_together(
    serve: Any, door: receiver.AlarmReceiver, mistral: Started
) -> None:
    alert = {"status": "firing", "startsAt": "2099-01-01T00:00:00Z"}
    labels = [{"failover_group": serve(name), "failover_member": "db_a"} for name in ("g", "h")]
    alerts = [{**alert, "labels": {"alertname": "down", **each}} for each in labels]
    unknown = {**alert, "labels": {"alertname": "down", "instance_id": "unknown"}}

    taken = door.take(delivery({"version": "4", "alerts": [*alerts, unknown]}))

    assert decisions(taken) == ["ADMITTED", "ADMITTED", "HELD"]
    (given,) = mistral.executions.values()
    assert given == {"incidents": [each.incident for each in taken.decisions[:2]]}


def test_of_a_body_with_many_alarms_the_repeats_are_counted_together(
    begun: Ready, door: receiver.AlarmReceiver, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    alert = {"status": "firing", "startsAt": "2099-01-01T00:00:00Z"}
    numbered = [{**alert, "labels": {"alertname": "down", "n": str(n)}} for n in range(5)]
    about = {"alertname": "down", "failover_group": "payments", "failover_member": "db_a"}
    known = [{**alert, "fingerprint": f"f{n}", "labels": about} for n in range(3)]
    door.take(delivery({"version": "4", "alerts": known}))
    judged: list[Any] = []
    real = intake.take

    def counted(*given: Any) -> Any:
        judged.append(given)
        return real(*given)

    monkeypatch.setattr(intake, "take", counted)
    taken = door.take(delivery({"version": "4", "alerts": [*known, *numbered]}))

    assert decisions(taken) == ["DUPLICATE"] * 3 + ["HELD"] * 5
    assert len(judged) == 5
    assert len(rows()) == 8


def test_group_and_member_of_the_address_count(begun: Ready, door: receiver.AlarmReceiver) -> None:
    taken = door.take(delivery({"server": "s-x", "id": "1"}, "group=payments&member=db_b"))

    assert "db_b of payments is declared lost" in taken.decisions[0].verdict.sentence


def test_one_alarm_that_can_not_be_decided_stops_no_other_one(
    begun: Ready, door: receiver.AlarmReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = intake.take

    def fails(request: Request, alarm: Any) -> Any:
        if "broken" in alarm.sentence:
            raise RuntimeError("an unexpected error")
        return real(request, alarm)

    monkeypatch.setattr(intake, "take", fails)

    def code(reason: str) -> int:
        try:
            door.take(delivery(signal(reason, reason=reason)))
        except receiver.Refused as refused:
            return refused.status
        return 202

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(code, ("one", "broken", "two"))) == [202, 503, 202]


def test_repeats_of_an_incident_with_a_final_decision_hardly_count_for_the_rate(
    begun: Ready, door: receiver.AlarmReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "RATE", 0.0)
    monkeypatch.setattr(receiver, "BURST", 10.0)

    for _ in range(100):
        door.take(delivery(signal()))


def test_the_first_alarm_about_a_member_is_taken_whatever_else_its_sender_sends(
    serve: Any, door: receiver.AlarmReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Aodh sends each alarm once: one that is refused is lost."""
    names = [serve(f"g{number}") for number in range(4)]
    monkeypatch.setattr(receiver, "RATE", 0.0)
    monkeypatch.setattr(receiver, "BURST", 3.0)
    for number in range(3):
        door.take(delivery({"server": f"s-{number}", "id": f"noise-{number}"}))

    def refused(body: dict[str, Any], query: str = "") -> bool:
        try:
            door.take(delivery(body, query))
        except receiver.Refused as found:
            return found.status == 429
        return False

    by_name = [refused(signal(f"f-{name}", group=name)) for name in names]
    by_server = [refused(aodh(f"m-{name}", server=f"{name}-b")) for name in names]
    cleared = refused({**aodh("m", server="g0-a"), "current": "ok", "previous": "alarm"})
    again = refused(signal("another", group="g0"))
    strangers = [
        refused({"server": "s-x", "id": "x"}),
        refused(signal("y", group="g0", member="db_x")),
        refused(signal("z", group="gx")),
    ]

    assert not any(by_name + by_server)
    assert cleared
    assert again, "it is another one about the same member, within a minute"
    assert all(strangers)


def test_a_first_alarm_that_could_not_be_decided_is_taken_when_it_is_repeated(
    begun: Ready, door: receiver.AlarmReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "RATE", 0.0)
    monkeypatch.setattr(receiver, "BURST", 0.0)
    away = {"away": True}
    decide = intake.take

    def record(*arguments: Any) -> Any:
        if away.pop("away", False):
            raise OSError("the store is away")
        return decide(*arguments)

    monkeypatch.setattr(intake, "take", record)
    with pytest.raises(receiver.Refused) as refused:
        door.take(delivery(signal()))
    assert refused.value.status == 503

    assert decisions(door.take(delivery(signal()))) == ["ADMITTED"]


def test_a_held_alarm_starts_nothing_until_it_is_judged_again(
    begun: Ready, door: receiver.AlarmReceiver, mistral: Started, context: ActionContext
) -> None:
    suspensions.Pause("payments", "a test").run(context)
    held = door.take(delivery(signal()))
    assert (decisions(held), held.execution) == (["HELD"], None)
    suspensions.Resume("payments", "it is over").run(context)

    again = door.take(delivery(signal()))

    assert decisions(again) == ["ADMITTED"]
    assert len(mistral.executions) == 1


def test_the_execution_starts_what_is_admitted_and_leaves_out_everything_else(
    begun: Ready, door: receiver.AlarmReceiver, mistral: Started, context: ActionContext
) -> None:
    door.take(delivery(signal()))
    unknown = door.take(delivery({"server": "s-x", "id": "2"}))
    ((admitted,),) = [given["incidents"] for given in mistral.executions.values()]

    answer = alarms.StartAdmitted([admitted, unknown.decisions[0].incident, "no-such-id"]).run(
        context
    )

    assert answer["started"] == []
    (refused,) = answer["refused"]
    assert (refused["incident"], refused["error"]["code"]) == (admitted, "CONFIG"), "no cloud here"
