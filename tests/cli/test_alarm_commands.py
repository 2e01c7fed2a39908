# SPDX-License-Identifier: Apache-2.0
"""``failover alarms``, ``admit``, ``dismiss``, ``pause``, ``resume`` and ``maintenance``."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest


def test_a_held_alarm_is_listed_with_commands_that_can_be_typed_and_admitted_by_them(
    deployment: Any, held: tuple[str, str]
) -> None:
    group, incident = held

    (row,) = deployment.shown("alarms", group)
    people = deployment.failover("alarms", group).stdout
    program, *words = shlex.split(row["admit"].replace(incident, incident[:8]))
    done = deployment.failover(*words, "-f", "json")

    assert (row["incident"], row["lost"]) == (incident, ["db_a"])
    assert row["admit"] in people.splitlines()
    assert row["dismiss"] in people.splitlines()
    assert program == "failover"
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["status"], told["lost"]) == ("COMPLETE", ["db_a"])
    assert deployment.shown("alarms", group) == []
    again = deployment.failover(*words)
    assert again.returncode == 1
    assert "[NOT_HELD]" in again.stderr


def test_an_alarm_is_dismissed_with_a_reason(deployment: Any, held: tuple[str, str]) -> None:
    group, incident = held

    without = deployment.failover("dismiss", incident)
    (row,) = deployment.shown("dismiss", incident[:8], "--because", "a drill")

    assert without.returncode == 2
    assert row["incident"] == incident
    assert row["sentence"].endswith(": a drill")
    done = deployment.failover("alarms", group)
    assert (done.returncode, "No alarm is held." in done.stderr) == (0, True)
    for command in ("dismiss", "admit"):
        wrong = deployment.failover(command, "0badc0de", "--because", "noise")
        assert (wrong.returncode, "[UNKNOWN_ID]" in wrong.stderr) == (1, True), wrong.stderr


def test_admitting_an_alarm_about_no_member_must_name_one(deployment: Any) -> None:
    group = "claimed"
    deployment.protect(group)
    incident = deployment.hear("unknown-host", "w-unknown", member="db_a")

    unsaid = deployment.failover("admit", incident, "--because", "it is dead")
    said = deployment.failover(
        *("admit", incident, "--because", "it is dead", "-f", "json"),
        *("--group", group, "--lost", "db_a"),
    )

    assert unsaid.returncode == 1
    assert "--group GROUP --lost db_a" in unsaid.stderr
    assert said.returncode == 0, said.stderr
    assert deployment.status(group)["lost"] == ["db_a"]


def test_a_refused_order_is_no_alarm_and_can_not_be_admitted(deployment: Any) -> None:
    group = "careful"
    deployment.protect(group)
    refused = deployment.failover("rollback", group, "--goal", "0badc0de")
    assert refused.returncode == 1
    (order,) = [i for i in deployment.status(group)["incidents"] if i["decision"] == "REFUSED"]

    listed = deployment.failover("admit", order["id"], "--because", "it was listed")
    forced = deployment.failover(
        "admit", order["id"], "--group", group, "--because", "it was listed"
    )

    assert (listed.returncode, "[NOT_HELD]" in listed.stderr) == (1, True)
    assert f"it is the incident {order['id']}, which is REFUSED" in listed.stderr
    assert (forced.returncode, "NOT_AN_ALARM" in forced.stdout) == (1, True)
    assert deployment.status(group)["lost"] == []


def test_a_pause_holds_until_it_is_resumed_and_a_maintenance_is_something_else(
    deployment: Any,
) -> None:
    group = "resting"
    deployment.protect(group)
    paused = deployment.shown("pause", group, "--because", "we upgrade")
    working = deployment.shown(
        "maintenance", "on", group, "db_a", "--minutes", "30", "--because", "disks", "db_b"
    )
    screen = deployment.failover("status", group).stdout
    one = deployment.shown("maintenance", "off", group, "db_a")
    resumed = deployment.shown("resume", group)
    off = deployment.failover("maintenance", "off", group)

    assert paused["pause"]["because"] == "we upgrade"
    assert working["maintenance"]["members"] == ["db_a", "db_b"]
    assert "paused since" in screen
    assert "maintenance of db_a, db_b until" in screen
    assert one["maintenance"]["members"] == ["db_b"]
    assert (resumed["pause"], resumed["maintenance"]["members"]) == (None, ["db_b"])
    assert "are judged as they come" in off.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("pause", "payments"), 2, "--because"),
        (("maintenance", "on", "payments", "--because", "disks"), 2, "--minutes"),
        (
            ("maintenance", "on", "payments", "--until", "soon", "--because", "disks"),
            1,
            "[BAD_INPUT]",
        ),
        (("maintenance", "off", "payments", "db_x"), 1, "[UNKNOWN_MEMBER]"),
        (("resume", "unknown"), 1, "[UNKNOWN_GROUP]"),
        (("alarms", "unknown"), 1, "[UNKNOWN_GROUP]"),
        (("admit", "--because", "x"), 2, "--all"),
        (("admit", "--all", "--host", "cmp1", "--because", "x"), 2, "--all"),
        (("admit", "--all", "--lost", "db_a", "--because", "x"), 2, "single alarm"),
        (("admit", "--all", "--rate", "0", "--because", "x"), 2, "--rate"),
        (("admit", "--host", "cmp9", "--because", "x"), 1, "[UNKNOWN_HOST]"),
        (("admit", "--zone", "moon", "--because", "x"), 1, "[UNKNOWN_ZONE]"),
        (("admit", "--zone", "nova", "--host", "cmp1", "--because", "x"), 2, "--zone"),
        (("dismiss", "--because", "x"), 2, "--all"),
        (("dismiss", "--host", "cmp9", "--because", "x"), 1, "[UNKNOWN_HOST]"),
        (("host-lost", "cmp1"), 2, "--because"),
        (("zone-lost", "nova"), 2, "--because"),
    ],
)
def test_what_is_missing_or_wrong_is_said(
    deployment: Any, words: tuple[str, ...], code: int, said: str
) -> None:
    done = deployment.failover(*words)

    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
