# SPDX-License-Identifier: Apache-2.0
"""However many alarms are sent, the rows of a project stay bounded; and what an operator still has
to decide is never deleted: what has no room is refused with words, and counted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import alarms, reports, suspensions
from mistral_failover.alarms import intake
from mistral_failover.recovery import retry_held_alarms
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.store import incidents
from mistral_failover.store.tables import incidents as table


@pytest.fixture
def hear(state: Runtime, context: ActionContext) -> Callable[..., dict[str, Any]]:
    """Let an alarm arrive; its admission."""

    def admit(number: int, **about: str) -> dict[str, Any]:
        body = {"id": str(number), **about}
        answer = alarms.AdmitEvent(body, kind="signal").run(context)
        (admission,) = answer["admissions"]
        return dict(admission)

    return admit


@pytest.fixture
def rows(state: Runtime, project: str) -> Callable[[], int]:
    """How many incidents the project has."""
    mine = sa.select(sa.func.count()).where(table.c.project_id == project)
    return lambda: state.database.reading(lambda tx: tx.connection.execute(mine).scalar_one())


@pytest.fixture
def paused(serve: Any, context: ActionContext) -> Callable[[str], str]:
    """Serve a group whose alarms are held."""

    def make(name: str) -> str:
        serve(name)
        suspensions.Pause(name, "a test").run(context)
        return name

    return make


@pytest.mark.parametrize("about", ["server", "host"])
def test_alarms_of_no_known_group_are_limited_and_a_further_one_is_refused_with_words(
    about: str, hear: Any, rows: Any, context: ActionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "MOST_WITHOUT_GROUP", 3)

    answers = [hear(number, **{about: f"unknown-{number}"}) for number in range(5)]

    assert rows() == 3
    assert [answer["incident"] is None for answer in answers] == [False] * 3 + [True] * 2
    assert "3 alarms that name no known group are held already" in answers[4]["sentence"]
    assert "admit or dismiss some, then send it again" in answers[4]["sentence"]
    found = alarms.Held().run(context)
    assert (found["total"], found["unlisted"]) == (3, 2)
    assert found["unlisted_at"] is not None
    counted = reports.Metrics().run(context)["families"]["unlisted"]
    assert sum(each["value"] for each in counted) == 2


def test_unknown_servers_leave_room_for_unknown_hosts(
    hear: Any, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "MOST_WITHOUT_GROUP", 2)
    for number in range(5):
        hear(number, server=f"unknown-{number}")

    assert hear(9, host="cmp9")["incident"] is not None


def test_a_full_list_is_emptied_by_one_command(
    hear: Any, context: ActionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "MOST_WITHOUT_GROUP", 3)
    for number in range(5):
        hear(number, server=f"unknown-{number}")

    answer = alarms.DismissHeld("the monitoring was wrong").run(context)

    assert (len(answer["dismissed"]), answer["left"]) == (3, 0)
    assert alarms.Held().run(context)["total"] == 0
    assert hear(4, server="unknown-4")["incident"] is not None


def test_one_noisy_group_leaves_room_for_the_others(
    paused: Any, hear: Any, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "MOST_OF_PROJECT", 5)
    monkeypatch.setattr(intake, "ALWAYS", 2)
    noisy, quiet = paused("noisy"), paused("quiet")
    for number in range(9):
        last = hear(number, group=noisy, member="db_a")
    assert rows() == 5
    assert "5 alarms of the project are held already" in last["sentence"]

    answers = [hear(number, group=quiet, member="db_a") for number in range(9)]

    assert rows() == 5 + 2
    assert [answer["incident"] is None for answer in answers] == [False] * 2 + [True] * 7


def test_a_long_list_is_read_in_pages(
    paused: Any,
    hear: Any,
    state: Runtime,
    project: str,
    context: ActionContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(incidents, "PAGE", 2)
    name = paused("payments")
    ids = [hear(number, group=name, member="db_a")["incident"] for number in range(5)]

    found = state.database.for_project(project).reading(
        lambda tx: [row.incident.id for row in incidents.held_of_groups(tx)]
    )

    assert found == ids
    assert alarms.DismissHeld("done", limit=4).run(context)["left"] == 1


@pytest.fixture
def cleared(
    paused: Any, hear: Any, state: Runtime, context: ActionContext, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], dict[str, Any]]:
    """The causes of three held alarms have cleared; judge them."""
    name = paused("payments")
    for number in range(3):
        hear(number, group=name, member="db_a")
    runs = retry_held_alarms.Judgement(retry_held_alarms.HeldAlarmStep.DISMISS, "it runs")
    monkeypatch.setattr(retry_held_alarms, "is_of_server", lambda source, payload: True)
    monkeypatch.setattr(retry_held_alarms, "gather", lambda request, wanted: None)
    monkeypatch.setattr(
        retry_held_alarms, "judge", lambda held, evidence: {each.id: runs for each in held}
    )
    return lambda: retry_held_alarms.retry_held(Request(state, context), None, math.inf)


def test_a_sweep_dismisses_a_limited_number_and_the_next_one_continues(
    cleared: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_held_alarms, "DECIDED", 2)

    assert len(cleared()["dismissed"]) == 2
    assert len(cleared()["dismissed"]) == 1


def test_a_sweep_acts_on_no_evidence_that_has_become_old(
    cleared: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_held_alarms, "FRESH", -1.0)

    assert cleared()["dismissed"] == []


def fails_first(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """The first dismissal raises an error."""
    dismiss, errors = retry_held_alarms._dismiss, [error]

    def failing(*given: Any) -> Any:
        if errors:
            raise errors.pop()
        return dismiss(*given)

    monkeypatch.setattr(retry_held_alarms, "_dismiss", failing)


def test_an_alarm_that_can_not_be_dismissed_does_not_stop_the_others(
    cleared: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_first(monkeypatch, sa.exc.DataError("UPDATE", {}, Exception(1406, "Data too long")))

    found = cleared()

    assert len(found["dismissed"]) == 2
    assert len(found["unable"]) == 1


def test_a_store_that_is_away_ends_the_judging(
    cleared: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each alarm would wait for it, and by then the evidence is old."""
    fails_first(monkeypatch, sa.exc.OperationalError("UPDATE", {}, Exception(2003, "no server")))

    with pytest.raises(sa.exc.OperationalError):
        cleared()
