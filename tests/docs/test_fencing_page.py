# SPDX-License-Identifier: Apache-2.0
"""docs/fencing.md: its drills end as it says, and the one that it shows reports what is shown."""

from __future__ import annotations

import re

import pytest

from support.drills import drill
from support.pages import blocks, page, section

_TIME = re.compile(r"^ +\d+\.\d\d s  ")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UNTIMED = re.compile(r"triggered by a sweep| is (SERVING|DEGRADED|DOWN)\b")
_SECONDS = re.compile(r"\d+(\.\d+)? s\b")


def plain(sentence: str) -> str:
    """A sentence without what differs from one drill to the next."""
    return _SECONDS.sub("N s", _UUID.sub("SERVER", " ".join(sentence.split())))


def shown() -> list[str]:
    """The sentences of the drill on the page; a line without a time continues the last."""
    (text,) = blocks(section(page("fencing"), "Drills"), "text")
    joined = re.sub(r"\n {11}(?=\S)", " ", text)
    return [plain(_TIME.sub("", line)) for line in joined.splitlines()]


OUTCOMES = {
    "host": {"status": "BLOCKED", "holders": {"data": "db_a"}},  # nothing moves without a proof
    "hang": {"status": "COMPLETE", "active": "db_b", "holders": {"data": "db_b"}, "violations": []},
    "confirmed": {"status": "COMPLETE", "active": "db_b", "violations": []},
    "returns": {"status": "COMPLETE", "active": "db_b", "violations": []},
}


def told(lines: str) -> list[str]:
    """What a drill tells from the fault on; not what sweeps do where the machine is slow, nor what
    observations report: they have their own times."""
    timed = [line for line in lines.splitlines() if _TIME.match(line)]
    return [plain(_TIME.sub("", line)) for line in timed if not _UNTIMED.search(line)]


DECISIVE = {
    "host": ["Blocked: an operator must act before it can continue"],
    "hang": [
        "proven by stop: Nova's compute service reports server SERVER SHUTOFF.",
        "Done: db_b is active",
    ],
    "returns": [
        "the agent on db_a learns that it was deposed: epoch 1 has ended (nothing ran)",
        "a command of epoch 1 reaches db_a late: OLD_EPOCH, it did not run",
    ],
}
"""Sentences of the drills that the page does not show."""


@pytest.mark.drills
@pytest.mark.parametrize("fault", OUTCOMES)
def test_a_drill_tells_what_the_page_says_and_ends_so(fault: str) -> None:
    code, outcome, lines = drill("--latency", "zero", "--fault", fault)

    assert code == 0, lines
    if fault in DECISIVE:
        assert [each for each in DECISIVE[fault] if each not in told(lines)] == []
    else:
        assert told(lines) == shown()
    assert {key: outcome[key] for key in OUTCOMES[fault]} == OUTCOMES[fault]


def test_every_drill_on_the_page_is_played() -> None:
    named = set(re.findall(r"`(\w+)`(?: \(|, and |\.)", section(page("fencing"), "Drills")))

    assert set(OUTCOMES) <= named
