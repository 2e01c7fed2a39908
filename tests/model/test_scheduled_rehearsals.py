# SPDX-License-Identifier: Apache-2.0
"""When a rehearsal begins by itself, and when one was missed."""

from __future__ import annotations

from typing import Any

import pytest

from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.rehearsals import RehearsalSchedule, read_rehearsal

HOUR, DAY = 3600.0, 86400.0


def schedule(**given: Any) -> RehearsalSchedule:
    found = read_rehearsal(given, ["active"]).schedule
    assert found is not None
    return found


def begins(of: RehearsalSchedule, group: str, day: float, last: float | None) -> float | None:
    """The first minute of a day at which a rehearsal of a group is due."""
    minutes = (day + 60.0 * each for each in range(24 * 60))
    return next((at for at in minutes if of.is_due(group, at, last)), None)


@pytest.mark.parametrize(
    ("between", "first", "end"),
    [
        ("02:00-05:00", 2 * HOUR, 5 * HOUR),
        ("00:00-24:00", 0.0, DAY),
        (None, 0.0, DAY),
    ],
)
def test_groups_begin_in_their_window_each_at_its_own_time(
    between: str | None, first: float, end: float
) -> None:
    of = schedule(every="7d", **({"between": between} if between else {}))
    times = [begins(of, f"group{each}", 100 * DAY, None) for each in range(40)]
    assert all(at is not None and first <= at - 100 * DAY < end for at in times)
    assert len(set(times)) > 20


def test_a_window_goes_over_midnight() -> None:
    of = schedule(every="1d", between="23:00-01:00")
    due = {at for at in range(48) if of.is_due("any", 100 * DAY + at * HOUR / 2, None)}
    assert due
    assert due <= {0, 1, 46, 47}


def test_the_next_one_begins_an_interval_later_in_the_same_window() -> None:
    of = schedule(every="7d", between="02:00-05:00")
    at = begins(of, "any", 100 * DAY, None)
    for week in range(1, 20):
        for day in range(1, 7):
            assert begins(of, "any", (100 + 7 * (week - 1) + day) * DAY, at) is None
        at = begins(of, "any", (100 + 7 * week) * DAY, at)
        assert at is not None, "it never leaves its day"


def test_one_that_did_not_begin_in_its_window_is_missed() -> None:
    of = schedule(every="7d", between="02:00-05:00")
    last = 100 * DAY + 3 * HOUR
    assert of.missed_since(last + 7 * DAY + 23 * HOUR, last) is None
    assert of.missed_since(last + 8 * DAY, last) == last + 7 * DAY
    assert of.missed_since(last + 15 * DAY, last, turns=2) is None
    assert of.missed_since(last + 16 * DAY, last, turns=2) == last + 14 * DAY


def test_without_an_interval_none_begins_and_a_window_is_refused() -> None:
    assert read_rehearsal({}, ["active"]).schedule is None
    with pytest.raises(InvalidDocument, match=r"rehearsal\.between"):
        read_rehearsal({"between": "02:00-05:00"}, ["active"])
