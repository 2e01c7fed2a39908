# SPDX-License-Identifier: Apache-2.0
"""At every fault point: a process dies, freezes and wakes up, raises, does its work twice.

Each time the group reaches its goal, and no invariant is broken on the way.
"""

from __future__ import annotations

import pytest

from faults.drill import LIMIT, Drill, Play
from faults.plays import ENDING, STAYING, scenarios
from faults.slot import LEASE, Fault, Slot

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

# What was not written down can not be gone on with: who asked asks again, as Aodh does.
ASKED_AGAIN = frozenset(
    {
        "admit.before",
        "admit.recorded",
        "order.after",
        "confirm.before",
        "launch.before",
        "launch.after",
        "rehearsal.before",
    }
)
# Where no process can continue without the frozen one: only it knows what it was told, or it holds
# SQLite's lock, which lets one process write at a time (other databases lock rows).
ALONE = ASKED_AGAIN | {
    "start.swapped",
    "check.stolen",
    "check.locked",
    "conclude.released",
    "conclude.reported",
    # A worker may be in the middle of a transaction just then.
    "advance.before",
    "advance.after",
    "event.before",
    "event.after",
}


def each(*modes: str) -> pytest.MarkDecorator:
    """Every drill in these modes."""
    return pytest.mark.parametrize(
        ("point", "nth", "play", "mode"),
        [
            pytest.param(*found, id=f"{found[0]}-{found[1]}-{found[3]}-{found[2].name}")
            for found in scenarios(*modes)
        ],
    )


@each(*ENDING)
def test_the_group_reaches_its_goal_without_the_process(
    point: str, nth: int, play: Play, mode: str, slot: Slot
) -> None:
    drill = Drill(slot, play)

    # Who need not go on alone sleeps until the others have finished, however slow the machine is.
    patience = LEASE + 0.5 if point in ALONE else LIMIT
    drill.perform(Fault(point, mode, nth), patience=patience)

    if mode == "freeze" and point not in ALONE:
        assert drill.nurse.finished_without_it, "the survivor finished it while the victim slept"
    assert drill.repeats <= (point in ASKED_AGAIN)
    assert not drill.failures


@each(*STAYING)
def test_the_group_reaches_its_goal_all_the_same(
    point: str, nth: int, play: Play, mode: str, lone_slot: Slot
) -> None:
    drill = Drill(lone_slot, play)

    drill.perform(Fault(point, mode, nth))

    assert drill.repeats <= (point in ASKED_AGAIN)
    # An error within an operation is its outcome, and said in words; nothing else makes it fail.
    assert all("injected at" in reason for reason in drill.failures)
    assert len(drill.failures) <= (mode == "exception")
