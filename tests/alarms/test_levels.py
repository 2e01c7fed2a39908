# SPDX-License-Identifier: Apache-2.0
"""What lasts and what ends: alarms whose source says that they are over, alerts that never stopped
firing between two losses, and what a monitor does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import alarms, orders, reports, suspensions
from mistral_failover.alarms import intake
from mistral_failover.alarms.alarm import read
from mistral_failover.convergence.records import Ready
from mistral_failover.orders import held_alarms
from support.alarm_bodies import ALERT, WEBHOOK, aodh


def kept(context: ActionContext, group: str = "payments") -> list[dict[str, Any]]:
    """The incidents of a group, newest first."""
    return list(reports.Status(group).run(context)["incidents"])


@pytest.fixture
def hear(context: ActionContext) -> Callable[..., Any]:
    """Take a body; what the group's newest incident is then. No cloud is configured."""

    def take(body: dict[str, Any], **about: Any) -> Any:
        alarms.AdmitEvent(body, **about).run(context)
        return (kept(context) or [{}])[0]

    return take


def alert(status: str = "firing", began: str = "2026-11-20T10:00:00Z", **labels: str) -> Any:
    """A notification of Alertmanager about a server."""
    one = {**ALERT, "status": status, "startsAt": began, "labels": labels or {"instance_id": "s-a"}}
    return {**WEBHOOK, "status": status, "alerts": [one]}


@pytest.fixture
def held(started: Callable[..., Ready], goal: Any, hear: Any, context: ActionContext) -> Any:
    """An alert about the active member is held."""
    started()
    suspensions.Pause("payments", because="the network is being worked on").run(context)
    found = hear(alert())
    assert found["decision"] == "HELD"
    return found


def over(context: ActionContext) -> list[str]:
    """The held alarms that are over by their source's word; the others must be held, too."""
    rows = alarms.Held().run(context)["held"]
    assert rows
    return [
        each["incident"] for each in rows if "its source says that it is over" in each["sentence"]
    ]


def test_what_is_over_says_so_and_stays_held(held: Any, hear: Any, context: ActionContext) -> None:
    """A source may have lost sight of a host that died."""
    hear(alert("resolved"))

    assert over(context) == [held["id"]]


def test_who_admits_all_admits_nothing_that_is_over(
    held: Any, hear: Any, context: ActionContext
) -> None:
    hear(alert("resolved"))

    answer = alarms.AdmitHeld(because="the storm is over").run(context)

    assert (answer["admitted"], answer["refused"]) == ([], [])
    assert [each["incident"] for each in answer["passed_over"]] == [held["id"]]


def test_what_fires_again_is_not_over(
    started: Callable[..., Ready], hear: Any, context: ActionContext
) -> None:
    """By the order of arrival, where the source gives no times."""
    started()
    suspensions.Pause("payments", because="the network is being worked on").run(context)
    hear(aodh(None), **THRESHOLD)
    hear(aodh(None, previous="alarm", current="ok"), **THRESHOLD)
    assert len(over(context)) == 1

    hear(aodh(None), **THRESHOLD)

    rows = alarms.Held("payments").run(context)["held"]
    assert len(over(context)) == 1, "the first one still is"
    assert len(rows) == 2


def test_the_end_of_an_earlier_occasion_is_not_that_of_a_newer_one(
    held: Any, hear: Any, context: ActionContext
) -> None:
    hear(alert("resolved", began="2026-11-19T10:00:00Z"))

    assert over(context) == []


def test_an_alarm_that_is_over_a_moment_after_it_was_selected_is_not_admitted(
    held: Any, hear: Any, context: ActionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    select = held_alarms.selected

    def slowly(*about: Any) -> Any:
        found = select(*about)
        hear(alert("resolved"))
        return found

    monkeypatch.setattr(held_alarms, "selected", slowly)
    answer = alarms.AdmitHeld(because="all of them").run(context)

    assert answer["admitted"] == []
    assert [row["error"]["code"] for row in answer["refused"]] == ["NOT_ADMITTED"]
    assert [i["decision"] for i in kept(context) if i["id"] == held["id"]] == ["HELD"]


def test_that_an_operator_admits_an_alarm_once_more_is_journalled(
    held: Any, context: ActionContext
) -> None:
    for because in ("we looked", "we looked again"):
        orders.Begin("payments", incident=held["id"], because=because).run(context)

    said = [line["sentence"] for line in reports.History("payments").run(context)]
    assert [sum(why in line for line in said) for why in ("we looked again", "we looked")] == [1, 2]


def test_another_alert_that_is_over_says_nothing_of_it(
    held: Any, hear: Any, context: ActionContext
) -> None:
    other = alert("resolved")
    other["alerts"][0]["fingerprint"] = "another"
    hear(other)

    assert over(context) == []


def test_what_an_operator_reported_is_not_over_by_an_alert(
    started: Callable[..., Ready], hear: Any, context: ActionContext
) -> None:
    started()
    suspensions.Pause("payments", because="the network is being worked on").run(context)
    hear(alert(), because="I saw it burn")

    hear(alert("resolved"))

    assert over(context) == []


def test_an_alarm_without_a_group_that_is_over_says_so(
    begun: Ready, hear: Any, context: ActionContext
) -> None:
    hear(alert(instance_id="s-unknown"))
    assert over(context) == []

    hear(alert("resolved", instance_id="s-unknown"))

    assert len(over(context)) == 1


@pytest.mark.parametrize(("state", "over"), [("ok", True), ("insufficient data", False)])
def test_an_alarm_of_aodh_is_over_when_it_is_ok(state: str, over: bool) -> None:
    (alarm,) = read({**aodh(), "previous": "alarm", "current": state})

    assert alarm.over is over


THRESHOLD = {"group": "payments", "member": "db_a"}
"""What is said beside an alarm of Aodh that names no server."""


def of_prometheus(hear: Any, context: ActionContext) -> str:
    return str(hear(alert())["id"])


def of_aodh(hear: Any, context: ActionContext) -> str:
    """The transition, then what Aodh repeats at each evaluation, in other words each time."""
    previous = "alarm" if kept(context) else "ok"
    return str(hear(aodh(None, previous=previous), **THRESHOLD)["id"])


LASTING = pytest.mark.parametrize("fires", [of_prometheus, of_aodh])
"""Sources that report an alarm for as long as it lasts."""


def rules(context: ActionContext) -> dict[str, str]:
    """The rules that hold the group's alarms, by incident."""
    return {each["incident"]: each["rule"] for each in alarms.Held("payments").run(context)["held"]}


@LASTING
def test_an_alarm_that_never_ended_is_no_repeat_once_its_member_was_taken_back(
    started: Callable[..., Ready], goal: Any, hear: Any, context: ActionContext, fires: Any
) -> None:
    started(limits={"cooldown": 0})
    first = fires(hear, context)
    goal("db_a", incident=first)
    assert fires(hear, context) == first, "db_a is still lost: a repeat"
    goal()  # db_a is taken back

    again = fires(hear, context)

    assert again != first
    assert rules(context) == {again: "still_firing"}
    assert fires(hear, context) == again, "counted on the same"
    assert rules(context) == {again: "still_firing"}, "and still held"


@LASTING
def test_nor_is_a_third_loss_a_repeat_of_the_second(
    started: Callable[..., Ready], goal: Any, hear: Any, context: ActionContext, fires: Any
) -> None:
    started(limits={"cooldown": 0})
    known: list[str] = []
    for _ in range(3):
        known.append(fires(hear, context))
        orders.Begin("payments", incident=known[-1], because="we looked").run(context)
        goal("db_a", incident=known[-1])
        goal()

    assert len(set(known)) == 3


@LASTING
def test_while_nothing_was_done_about_a_loss_its_alarm_is_a_repeat(
    started: Callable[..., Ready], hear: Any, context: ActionContext, fires: Any
) -> None:
    started(limits={"cooldown": 0})

    assert len({fires(hear, context) for _ in range(3)}) == 1


def test_a_threshold_that_went_on_for_another_member_reports_no_loss_of_it(
    started: Callable[..., Ready], goal: Any, hear: Any, context: ActionContext
) -> None:
    """It names none, so it is about the active member, which another one is by now."""
    started(limits={"cooldown": 0})
    first = hear(aodh(None), group="payments")["id"]
    goal("db_a", incident=first)

    assert hear(aodh(None, previous="alarm"), group="payments")["id"] == first
    assert rules(context) == {}


def test_a_host_that_a_monitor_lost_sight_of_is_doubted() -> None:
    payload = {"event": "STOPPED", "cluster_status": "OFFLINE", "host_status": "UNKNOWN"}
    body = {"type": "COMPUTE_HOST", "hostname": "compute-1", "payload": payload}

    (unknown,) = read({"notification": {**body, "generated_time": "2026-11-20T10:00:00"}})
    payload["host_status"] = "NORMAL"
    (stopped,) = read({"notification": {**body, "generated_time": "2026-11-20T10:00:00"}})

    assert (unknown.firing, stopped.firing) == (True, True)
    assert ("lost sight of the host" in unknown.doubt, stopped.doubt) == (True, "")
    assert "host_status is UNKNOWN" in unknown.sentence


def test_alerts_that_were_cut_off_are_said_with_the_setting() -> None:
    (alarm,) = read({**alert(), "truncatedAlerts": 7})

    assert "7 further alerts" in alarm.sentence
    assert "max_alerts" in alarm.sentence


# -- what arrives after the report that it is over


ENDED = "2026-11-20T10:05:00Z"


def resolved(**more: Any) -> Any:
    """The notification that the alert ended, which Alertmanager tells with the time."""
    body = alert("resolved", **more)
    body["alerts"][0]["endsAt"] = ENDED
    return body


def signal(state: str, at: str) -> dict[str, Any]:
    return {"group": "payments", "member": "db_a", "id": "w-7", "state": state, "at": at}


LATE = pytest.mark.parametrize(
    ("end", "late"),
    [
        (resolved(), alert()),
        (signal("ok", "2026-11-20T10:05:00Z"), signal("lost", "2026-11-20T10:00:00Z")),
    ],
    ids=["alertmanager", "signal"],
)


@LATE
def test_an_alarm_that_comes_after_its_own_end_is_over_and_starts_nothing(
    started: Callable[..., Ready], hear: Any, context: ActionContext, end: Any, late: Any
) -> None:
    started()
    hear(end)

    found = hear(late)

    assert found["decision"] == "HELD"
    assert rules(context) == {found["id"]: "over"}
    assert over(context) == [found["id"]]
    assert hear(late)["id"] == found["id"]
    assert over(context) == [found["id"]], "by its repeat as well"
    assert alarms.AdmitHeld(because="all of them").run(context)["admitted"] == []


def test_what_its_source_reports_for_a_later_time_is_not_over(
    started: Callable[..., Ready], hear: Any, context: ActionContext
) -> None:
    started()
    hear(resolved())

    assert hear(alert(began="2026-11-20T10:06:00Z"))["decision"] == "ADMITTED"


def test_without_the_source_s_times_the_order_of_arrival_counts(
    started: Callable[..., Ready], hear: Any, context: ActionContext
) -> None:
    """Aodh's bodies have none."""
    started()
    hear(aodh(None, previous="alarm", current="ok"), **THRESHOLD)

    assert hear(aodh(None), **THRESHOLD)["decision"] == "ADMITTED"


def test_what_an_operator_reports_is_not_over_by_an_earlier_end(
    started: Callable[..., Ready], hear: Any
) -> None:
    started()
    hear(resolved())

    assert hear(alert(), because="I saw it burn")["decision"] == "ADMITTED"


def test_an_alert_that_its_source_had_lost_sight_of_fires_again_and_counts(
    started: Callable[..., Ready], hear: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alertmanager that hears nothing of an alert calls it over; when Prometheus is back, the alert
    fires with the time at which it began."""
    started()
    hear(resolved())
    monkeypatch.setattr(intake, "LATE", -1.0)

    assert hear(alert())["decision"] == "ADMITTED"
