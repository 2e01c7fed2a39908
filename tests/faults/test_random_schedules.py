# SPDX-License-Identifier: Apache-2.0
"""Random schedules of faults and events, for ``FAULT_SECONDS`` (30) seconds.

``FAULT_SEED`` is printed at the start and gives the same schedules again; one of them alone is
played by its own seed, which is printed when it fails.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest

from faults.conftest import LANES, Slots
from faults.plays import WIDE
from faults.schedule import Schedule
from faults.slot import Fault

pytestmark = [pytest.mark.faults, pytest.mark.timeout(0)]


def seeds(lane: int) -> Iterator[str]:
    """The seeds of a lane's schedules, until the time is over."""
    given = os.environ["FAULT_SEED"]
    if "." in given:
        yield from [given] if given.split(".")[1] == str(lane) else []
        return
    deadline = time.monotonic() + float(os.environ.get("FAULT_SECONDS", "30"))
    number = 0
    while time.monotonic() < deadline:
        yield f"{given}.{lane}.{number}"
        number += 1


# A schedule that once did not come to rest: the play and its faults.
KEPT = (
    WIDE,
    (
        Fault("attach.before", "kill", 2),
        Fault("detach.after", "duplicate", 1),
        Fault("detach.after", "kill", 1),
    ),
)


def test_a_schedule_that_once_did_not_come_to_rest_does(slots: Slots) -> None:
    schedule = Schedule(slots.get(), "kept")
    schedule.play, schedule.faults = KEPT
    schedule.events = []

    schedule.play_it()


@pytest.mark.parametrize("lane", range(LANES))
def test_whatever_happens_the_group_comes_to_rest_and_no_invariant_is_broken(
    lane: int, slots: Slots, record_property: Callable[[str, object], None]
) -> None:
    played = 0
    for seed in seeds(lane):
        schedule = Schedule(slots.get(), seed)
        try:
            schedule.play_it()
        except BaseException:
            slots.discard()
            print(f"schedule {seed}: {schedule}")
            print(f"again: FAULT_SEED={seed} .venv/bin/pytest -m faults {__file__}")
            raise
        played += 1
    record_property("schedules", played)
