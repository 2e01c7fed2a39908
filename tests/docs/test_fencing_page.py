# SPDX-License-Identifier: Apache-2.0
"""docs/fencing.md: each of its drills reports what the page shows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from support.pages import page, section

DRILLS = section(page("fencing"), "Four drills")
_TIME = re.compile(r"^ +\d+\.\d\d s  ")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UNTIMED = re.compile(r"triggered by a sweep| is (SERVING|DEGRADED|DOWN)\b")
_SECONDS = re.compile(r"\d+(\.\d+)? s\b")


def plain(sentence: str) -> str:
    """A sentence without what differs from one drill to the next."""
    return _SECONDS.sub("N s", _UUID.sub("SERVER", " ".join(sentence.split())))


def shown() -> dict[str, list[str]]:
    """The sentences of each drill on the page; a line without a time goes on with the last."""
    found = {}
    for name, text in re.findall(r"`--fault (\w+)`:.*?```text\n(.*?)^```$", DRILLS, re.S | re.M):
        joined = re.sub(r"\n {11}(?=\S)", " ", text)
        found[name] = [plain(_TIME.sub("", line)) for line in joined.splitlines()]
    return found


def played(fault: str) -> tuple[list[str], dict[str, Any]]:
    """What a drill tells from the fault on, and its outcome; not what sweeps do where the machine
    is slow, nor what observations report: they have their own times."""
    command = [sys.executable, "-m", "mistral_failover.cli.main", "drill", "-f", "json"]
    done = subprocess.run(
        [*command, "--latency", "zero", "--fault", fault],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if _TIME.match(line)]
    told = [plain(_TIME.sub("", line)) for line in lines if not _UNTIMED.search(line)]
    return told, json.loads(done.stdout)


@pytest.mark.drills
@pytest.mark.parametrize("fault", ["hang", "confirmed", "host", "returns"])
def test_a_drill_tells_what_the_page_says(fault: str) -> None:
    told, outcome = played(fault)
    assert told == shown()[fault]
    if fault == "host":
        assert outcome["status"] == "BLOCKED"
        assert "it is not proven that db_a has stopped writing" in outcome["reason"]
        assert "failover.confirm_fenced" in outcome["reason"]
        assert outcome["holders"] == {"data": "db_a"}, "nothing moved without a proof"
    if fault == "hang":
        assert outcome["status"] == "COMPLETE"
        assert outcome["active"] == "db_b"
        assert outcome["holders"] == {"data": "db_b"}
        assert outcome["violations"] == []


def test_every_drill_on_the_page_is_played() -> None:
    assert set(shown()) == {"hang", "confirmed", "host", "returns"}
