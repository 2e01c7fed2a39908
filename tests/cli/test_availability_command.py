# SPDX-License-Identifier: Apache-2.0
"""``failover availability``, against a real Mistral."""

from __future__ import annotations

from typing import Any

import pytest

from mistral_failover.cli.availability import lines
from support.ui_answers import availability


def test_people_get_a_bar_percent_and_the_times_that_were_not_served(deployment: Any) -> None:
    done = deployment.failover("availability", deployment.group, "--last", "90m")

    assert done.returncode == 0, done.stderr
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if line[0] != " ")
    assert set(lines["bar"]) <= set("=-X?.")
    assert len(lines["bar"]) in (3, 4)
    assert "of the time" in lines["not"], "not known"


def test_all_groups_have_a_line_each(deployment: Any) -> None:
    done = deployment.failover("availability", "--last", "30d")

    assert done.returncode == 0, done.stderr
    assert f"\ngroup {deployment.group} " in done.stdout


def test_machines_get_the_report_whole(deployment: Any) -> None:
    found = deployment.shown("availability", deployment.group, "--last", "30d")

    assert found["group"] == deployment.group
    assert sum(found["seconds"].values()) == pytest.approx(30 * 86400, abs=1)
    assert len(found["slots"]) in (30, 31)
    assert found["until"] - found["since"] == pytest.approx(30 * 86400)
    answer = deployment.mistral.client.run_action(
        "failover.availability", {"group": deployment.group, "seconds": 86400}
    )
    assert answer.keys() == found.keys()


def of_groups(*names: str, more: int = 0) -> Any:
    """A report of all groups: of these, and of so many that have no line."""
    report: Any = availability("payments", down=0.0)
    rows = [{"name": name, "availability": 1.0, "seconds": report["seconds"]} for name in names]
    seconds = {word: time * (len(names) + more) for word, time in report["seconds"].items()}
    return {**report, "group": None, "seconds": seconds, "groups": rows}


def test_the_shares_of_the_time_are_of_all_groups_also_of_those_without_a_line() -> None:
    told = dict(lines(of_groups("payments", more=599)))

    assert "(87.5 % of the time)" in told["served"]
    assert "(12.5 % of the time)" in told["not known"]


def test_a_group_may_be_named_as_what_another_line_is_about() -> None:
    told = list(lines(of_groups("bar", "down", "time")))

    assert len(dict(told)) == len(told)
    assert "group bar" in dict(told)


@pytest.mark.parametrize("time", ["soon", "5", "40d", "0m"])
def test_a_time_that_cannot_be_shown_is_refused(deployment: Any, time: str) -> None:
    done = deployment.failover("availability", "--last", time)

    assert done.returncode != 0
    assert "90m, 24h or 30d" in done.stderr or "seconds" in done.stderr
