# SPDX-License-Identifier: Apache-2.0
"""docs/tutorial.md: the drills of its faults end as it says."""

from __future__ import annotations

import re

import pytest

from support.drills import drill
from support.pages import page, section

_TIME = re.compile(r"^ +\d+\.\d\d s  ")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

OUTCOMES = {
    "host": {"status": "BLOCKED", "holders": {"data": "db_a"}},  # nothing moves without a proof
    "hang": {"status": "COMPLETE", "active": "db_b", "holders": {"data": "db_b"}, "violations": []},
    "confirmed": {"status": "COMPLETE", "active": "db_b", "violations": []},
    "returns": {"status": "COMPLETE", "active": "db_b", "violations": []},
}
DECISIVE = {
    "host": ["Blocked: an operator must act before it can continue"],
    "hang": [
        "proven by stop: Nova's compute service reports server SERVER SHUTOFF.",
        "Stop database on db_a: done",
        "Detach data from db_a: done",
        "Attach data to db_b: done",
        "Start database on db_b: done",
        "Done: db_b is active",
    ],
    "confirmed": [
        "Blocked: an operator must act before it can continue",
        "proven by confirm: an operator confirmed it: the power of its host is off",
        "Detach data from db_a: done",
        "Done: db_b is active",
    ],
    "returns": [
        "proven by confirm: an operator confirmed it: the power of its host is off",
        "Done: db_b is active",
        "the agent on db_a learns that it was deposed: epoch 1 has ended "
        "(stopped before epoch 2 began: pg-stop)",
        "a command of epoch 1 reaches db_a late: OLD_EPOCH, it did not run",
    ],
}
"""What each drill reports, in this order, among other things."""


def told(lines: str) -> list[str]:
    """The sentences of a drill, without times and ids."""
    timed = [line for line in lines.splitlines() if _TIME.match(line)]
    return [_UUID.sub("SERVER", " ".join(_TIME.sub("", line).split())) for line in timed]


@pytest.mark.drills
@pytest.mark.parametrize("fault", OUTCOMES)
def test_a_drill_tells_what_decides_and_ends_as_the_page_says(fault: str) -> None:
    code, outcome, lines = drill("--latency", "zero", "--fault", fault)

    assert code == 0, lines
    assert [each for each in told(lines) if each in DECISIVE[fault]] == DECISIVE[fault]
    assert {key: outcome[key] for key in OUTCOMES[fault]} == OUTCOMES[fault]


def test_every_drill_that_is_played_is_on_the_page() -> None:
    named = set(re.findall(r"`(\w+)` \(", section(page("tutorial"), "Options of the drill")))

    assert set(OUTCOMES) <= named
