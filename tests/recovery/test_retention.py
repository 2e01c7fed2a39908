# SPDX-License-Identifier: Apache-2.0
"""A sender of alarms cannot fill the state store: a sweep keeps it small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import alarms, recovery, suspensions
from mistral_failover.alarms import intake
from mistral_failover.convergence.records import Ready
from mistral_failover.embedded.background_sweep import BackgroundSweep
from mistral_failover.recovery import retention
from mistral_failover.runtime import process
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.store.tables import incidents


def alert(number: int, **labels: str) -> dict[str, Any]:
    return {
        "status": "firing",
        "labels": {"alertname": "down", "number": str(number), **labels},
        "startsAt": "2026-11-22T10:00:00Z",
    }


@pytest.fixture
def rows(state: Runtime, project: str) -> Callable[[], list[Any]]:
    """The incidents of the project."""
    mine = sa.select(incidents).where(incidents.c.project_id == project)
    return lambda: state.database.reading(lambda tx: list(tx.connection.execute(mine)))


@pytest.fixture
def keep(state: Runtime, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set how many incidents are kept."""

    def change(number: int) -> None:
        settings = replace(state.settings, keep_incidents=number)
        monkeypatch.setattr(state, "settings", settings)

    return change


@pytest.fixture
def report(context: ActionContext) -> Callable[..., None]:
    """Report these alarms, all in one body, and dismiss them."""

    def send(*numbers: int) -> None:
        body = {"version": "4", "alerts": [alert(number) for number in numbers]}
        alarms.AdmitEvent(body).run(context)
        alarms.DismissHeld("a flood").run(context)

    return send


def test_a_sweep_deletes_what_a_flood_left(
    context: ActionContext,
    keep: Callable[[int], None],
    report: Callable[..., None],
    rows: Callable[[], list[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep(20)
    monkeypatch.setattr(retention, "BATCH", 7)
    report(*range(50))
    report(*range(50, 100))
    assert len(rows()) == 100

    assert recovery.Sweep().run(context)["unable"] != [], "no Mistral here; the rest is done"

    assert len(rows()) == 20


def test_a_process_does_so_once_a_minute(
    context: ActionContext,
    keep: Callable[[int], None],
    report: Callable[..., None],
    rows: Callable[[], list[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep(1)
    recovery.Sweep().run(context)
    report(1, 2)

    recovery.Sweep().run(context)
    assert len(rows()) == 2
    monkeypatch.setattr(retention, "EVERY", 0.0)
    recovery.Sweep().run(context)
    assert len(rows()) == 1


def test_when_its_time_is_over_the_next_sweep_continues(
    state: Runtime,
    context: ActionContext,
    keep: Callable[[int], None],
    report: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep(1)
    report(1, 2)
    with monkeypatch.context() as hurried:
        hurried.setattr(retention, "LIMIT", 0.0)
        assert retention.forget(Request(state, context)) == 0
    assert retention.forget(Request(state, context)) == 1


def test_an_embedded_mistral_does_so_although_it_starts_no_sweep_in_quiet_times(
    state: Runtime,
    project: str,
    keep: Callable[[int], None],
    report: Callable[..., None],
    rows: Callable[[], list[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep(1)
    monkeypatch.setattr(state, "settings", replace(state.settings, project=project))
    monkeypatch.setattr(process, "runtime", lambda: state)
    report(1, 2)
    quiet: Any = SimpleNamespace(client=None)  # nothing is started
    background = BackgroundSweep(quiet)
    monkeypatch.setattr(background, "look", background._stopped.set)  # finds nothing, and ends

    background._run()

    assert len(rows()) == 1


def test_what_is_held_for_a_group_is_limited_and_a_further_alarm_is_judged_again(
    begun: Ready,
    context: ActionContext,
    rows: Callable[[], list[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(intake, "MOST_HELD", 3)
    suspensions.Pause("payments", "a test").run(context)
    about = {"failover_group": "payments", "failover_member": "db_a"}
    bodies = [{"version": "4", "alerts": [alert(each, **about)]} for each in range(5)]

    answers = [alarms.AdmitEvent(body).run(context)["admissions"][0] for body in bodies]

    assert [each["decision"] for each in answers] == ["HELD"] * 5
    assert "3 alarms of payments are held already" in answers[4]["sentence"]
    assert len(rows()) == 3
    suspensions.Resume("payments", "it is over").run(context)
    again = alarms.AdmitEvent(bodies[4]).run(context)
    assert len(rows()) == 4, again


def test_a_huge_body_is_kept_in_part(context: ActionContext, rows: Callable[[], list[Any]]) -> None:
    huge = {"version": "4", "alerts": [alert(1, noise="x" * 100_000, failover_group="y" * 9000)]}

    alarms.AdmitEvent(huge).run(context)

    (row,) = rows()
    assert row.payload["characters"] > 100_000
    assert len(str(row.payload)) < 2 * intake.LONGEST
    assert len(row.fact.group) == 255
