# SPDX-License-Identifier: Apache-2.0
"""Rehearsals that begin by themselves, on the real engine with an emulated cloud."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.actions import alarms, orders, recovery, rehearsals, suspensions
from mistral_failover.cli import status_screen
from mistral_failover.cli.rehearsals import lines
from mistral_failover.model import rehearsals as model
from mistral_failover.runtime.request import DEFAULT_PROJECT
from mistral_failover.store import tables
from support.activation import done
from support.rehearsed import CONTEXT, latest, rehearsed
from support.unreadable import unreadable
from support.waiting import until


@pytest.fixture
def scheduled(protect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A group that is up on db_a, and whose rehearsals begin by themselves, at any time of day."""
    monkeypatch.setattr(model, "_fraction", lambda _: 0.0)
    swept()  # those of other tests begin first
    made = protect(rehearsal={"every": "2h"})
    made.activate()
    return made


def swept() -> list[str]:
    """The groups whose rehearsal sweeps begin, one after the other."""
    found: list[str] = []
    while rows := done(recovery.Sweep().run(CONTEXT))["rehearsals"]:
        found += [row["group"] for row in rows]
    return found


def is_due(group: Any) -> bool:
    return group.name in swept()


def ended(group: Any) -> bool:
    return any(row["clean"] for row in rehearsed(group))


def earlier(state: Any, seconds: float) -> None:
    """Let the store have its rehearsals, and what its journals say, from so long ago."""
    times = (
        (tables.rehearsals, "began_at"),
        (tables.rehearsed_roles, "at"),
        (tables.rehearsed_roles, "tried_at"),
        (tables.journal, "at"),
    )
    with state.database.engine.begin() as connection:
        for table, column in times:
            connection.execute(table.update().values({column: table.c[column] - seconds}))


def test_a_rehearsal_begins_by_itself_when_its_time_has_come(scheduled: Any, state: Any) -> None:
    assert "never yet" in status_screen.facts(scheduled.status())["rehearsed"]

    # A sweep that finds other work leaves it to the next one.
    begun = until(lambda: scheduled.run("sweep").output["swept"]["rehearsals"], "none began")

    assert [row["group"] for row in begun] == [scheduled.name]
    until(lambda: ended(scheduled), "it was not rehearsed")
    assert (latest(scheduled)["status"], "every 2h" in latest(scheduled)["because"]) == (
        "PASSED",
        True,
    )
    assert not is_due(scheduled), "the next one is not due"
    earlier(state, 2 * 3600)
    assert is_due(scheduled)
    assert not is_due(scheduled), "another sweep began it"


def test_none_begins_by_itself_while_something_else_counts_more(scheduled: Any) -> None:
    group, name = scheduled, scheduled.name
    done(suspensions.Pause(name, because="work").run(CONTEXT))
    assert not is_due(group), "it is paused"
    group.run("on_alarm", **group.cloud.alarm_body(group.server("db_b")))
    done(suspensions.Resume(name, because="done").run(CONTEXT))
    assert not is_due(group), "an alarm is held"
    done(alarms.DismissHeld(group=name, because="tried").run(CONTEXT))

    running = done(orders.Rehearse(name).run(CONTEXT))
    assert not is_due(group), "one is under way"
    assert running["group"] == name
    until(lambda: group.run("sweep") and ended(group), "sweeps did not end it")


def test_a_group_whose_file_cannot_be_read_does_not_keep_the_others_from_it(
    scheduled: Any, protect: Callable[..., Any], state: Any
) -> None:
    other = protect(rehearsal={"every": "2h"})
    other.activate()

    with unreadable(state.database, DEFAULT_PROJECT, other.name):
        begun = swept()

    assert begun == [scheduled.name]


def test_a_member_whose_own_turn_was_missed_is_said(
    protect: Callable[..., Any], state: Any
) -> None:
    group = protect(servers=("db_a", "db_b", "db_c"), rehearsal={"every": "2h", "members": "each"})
    group.activate()
    for member in ("db_b", "db_c"):
        assert group.run("rehearse", group=group.name, to=member).state == "SUCCESS"
    earlier(state, 3 * 86400)
    group.cloud.fault("server", group.server("db_b"), "not_isolated")
    planned = rehearsals.PreviewRehearsal(group.name)
    until(lambda: done(planned.run(CONTEXT))["roles"] == {"active": "db_c"}, "it is db_b's turn")
    assert group.run("rehearse", group=group.name).state == "SUCCESS"

    found = group.status()["rehearsal"]

    assert found["missed_since"] is None, "one has just begun"
    rows = {row["member"]: row for row in found["members"]}
    assert rows["db_b"]["missed_since"] is not None
    assert "db_b cannot rehearse" in rows["db_b"]["passed_over"]
    assert (rows["db_c"]["missed_since"], rows["db_c"]["passed_over"]) == (None, "")
    said = status_screen.facts(group.status())["rehearsed"]
    assert "late" in said
    assert "passed over" in said
    assert "passed over" in dict(lines(latest(group)))
    group.cloud.fault("server", group.server("db_b"), "repaired")


def test_a_rehearsal_that_should_have_begun_is_said(scheduled: Any, state: Any) -> None:
    assert scheduled.run("rehearse", group=scheduled.name).state == "SUCCESS"
    assert scheduled.status()["rehearsal"]["missed_since"] is None

    earlier(state, 3 * 86400)

    assert scheduled.status()["rehearsal"]["missed_since"] is not None
    assert "late" in status_screen.facts(scheduled.status())["rehearsed"]
