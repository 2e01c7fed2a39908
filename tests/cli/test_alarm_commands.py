# SPDX-License-Identifier: Apache-2.0
"""``failover alarms``, ``admit``, ``dismiss``, ``pause``, ``resume`` and ``maintenance``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from support.operators import Operator

ONLY = {"admitted": [], "refused": {}, "passed_over": {}, "left": 0}
"""What admitting several alarms answers, if there was none."""


def hear(deployment: Any, group: str, identity: str, **more: Any) -> str:
    """Let an alarm about a group arrive; the incident that it is."""
    body = {"group": group, "id": identity, **more}
    ended = deployment.mistral.client.run("failover.on_event", {"body": body})
    (admission,) = ended["output"]["admissions"]
    return str(admission["incident"])


@pytest.fixture
def held(deployment: Any, request: pytest.FixtureRequest) -> tuple[str, str]:
    """A group with an alarm about db_a that is held, for the group is paused."""
    group = request.node.name.replace("_", "-")[5:40].strip("-")
    deployment.protect(group)
    deployment.shown("pause", group, "--because", "we look")
    return group, hear(deployment, group, f"w-{group}", member="db_a")


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
    incident = hear(deployment, "unknown-host", "w-unknown", member="db_a")

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
    refused = deployment.failover("rollback", group, "--to-goal", "0badc0de")
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


# -- hosts, and several alarms at once


@pytest.fixture
def on_a_host(deployment: Any, request: pytest.FixtureRequest) -> tuple[str, str]:
    """A paused group, and the host of its db_a."""
    group = f"h-{request.node.name.replace('_', '-')[5:35].strip('-')}"
    deployment.protect(group)
    deployment.shown("pause", group, "--because", "we look")
    servers = {row["member"]: row["server"] for row in deployment.shown("member", "list", group)}
    return group, str(deployment.cloud.nodes()[servers["db_a"]]["host"])


@pytest.fixture
def alone(deployment: Any) -> Iterator[None]:
    """Hold the alarms of other tests' groups, which have members on the host too."""
    paused = []
    for row in deployment.shown("group", "list"):
        if deployment.status(row["name"])["pause"] is None:
            deployment.shown("pause", row["name"], "--because", "not of this test")
            paused.append(row["name"])
    deployment.shown("dismiss", "--all", "--because", "not of this test")
    yield
    deployment.shown("dismiss", "--all", "--because", "not of this test")
    for name in paused:
        deployment.shown("resume", name)


def test_a_lost_host_is_an_alarm_about_each_group_there_and_all_are_admitted_together(
    deployment: Any, on_a_host: tuple[str, str], alone: None
) -> None:
    group, host = on_a_host

    table = deployment.failover("host-lost", host, "--because", "it burned")
    for row in deployment.shown("alarms"):
        if row["children"]:
            deployment.shown("dismiss", row["incident"], "--because", "once is enough")
    event, *children = deployment.shown("host-lost", host, "--because", "it burned down")

    assert table.returncode == 0, table.stderr
    assert "it burned" in table.stdout
    assert event["decision"] == "ADMITTED"
    (listed,) = [row for row in deployment.shown("alarms") if row["children"]]
    assert (listed["incident"], listed["host"]) == (event["incident"], host)
    assert f"{listed['children']} group" in deployment.failover("alarms").stdout
    (mine,) = deployment.shown("alarms", group)
    held = {row["incident"] for row in children if row["decision"] == "HELD"}
    assert mine["incident"] in held
    others = sorted(held - {mine["incident"]})
    if others:
        deployment.shown("dismiss", *others, "--because", "not of this test")

    done = deployment.failover(
        "admit", "--host", host, "--rate", "600", "--because", "it is off", "-f", "json"
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ONLY | {"admitted": [group]}
    assert f"{group}: its failover started; 0 alarms left" in done.stderr
    assert deployment.status(group)["lost"] == mine["lost"]
    assert deployment.shown("alarms", group) == []


def test_all_held_alarms_are_admitted_at_once(
    deployment: Any, held: tuple[str, str], alone: None
) -> None:
    group, _ = held
    hear(deployment, group, f"again-{group}", member="db_a")

    done = deployment.failover(
        "admit", "--all", "--rate", "600", "--because", "it is off", "-f", "json"
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ONLY | {"admitted": [group]}
    assert deployment.status(group)["lost"] == ["db_a"]
    assert deployment.shown("alarms") == []


def test_two_alarms_of_a_group_that_can_not_start_do_not_keep_other_groups_from_it(
    deployment: Any, held: tuple[str, str], alone: None
) -> None:
    group, _ = held
    hear(deployment, group, f"again-{group}", member="db_a")
    deployment.protect("no-standby", priority=9)
    deployment.shown("pause", "no-standby", "--because", "we look")
    standby = deployment.cloud.resources("no-standby")["db_b"]["physical_resource_id"]
    operator = Operator(deployment.cloud)
    operator.stop_server(standby)
    for number in range(2):
        hear(deployment, "no-standby", f"w-no-standby-{number}", member="db_a")

    done = deployment.failover(
        "admit", "--all", "--rate", "600", "--because", "it is off", "-f", "json"
    )

    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert (told["admitted"], list(told["refused"]), told["left"]) == ([group], ["no-standby"], 0)
    operator.start_server(standby)
    deployment.run("sweep", group="no-standby")  # for the other tests, which look at this host too


def test_all_held_alarms_are_dismissed_at_once(
    deployment: Any, on_a_host: tuple[str, str], alone: None
) -> None:
    group, host = on_a_host
    deployment.shown("host-lost", host, "--because", "it burned")

    rows = deployment.shown("dismiss", "--host", host, "--because", "a drill")
    again = deployment.failover("dismiss", "--all", "--because", "a drill")

    assert {row["sentence"].rpartition(": ")[2] for row in rows} == {"a drill"}
    assert (again.returncode, deployment.shown("alarms", group)) == (0, [])


def test_the_held_alarms_of_a_zone_are_admitted_or_dismissed(
    deployment: Any, held: tuple[str, str], alone: None
) -> None:
    group, _ = held
    hear(deployment, group, f"again-{group}", member="db_a")
    deployment.protect("unclear")
    deployment.shown("pause", "unclear", "--because", "we look")
    unclear = hear(deployment, "unclear", "w-unclear", host="cmp-nowhere", member="db_x")
    words = ("--zone", "nova", "--because", "its power failed")

    done = deployment.failover("admit", *words, "--rate", "600", "-f", "json")
    dismissed = deployment.failover("dismiss", *words, "-f", "json")

    why = {"unclear": "it does not say which member is lost"}
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ONLY | {"admitted": [group], "passed_over": why}
    assert deployment.status(group)["lost"] == ["db_a"]
    assert json.loads(dismissed.stdout) == []
    assert "unclear: passed over, because it does not say" in dismissed.stderr
    assert [row["incident"] for row in deployment.shown("alarms", "unclear")] == [unclear]


def test_a_lost_zone_is_an_alarm_about_each_group_there(
    deployment: Any, held: tuple[str, str], alone: None
) -> None:
    group, _ = held

    table = deployment.failover("zone-lost", "nova", "--because", "its power failed")
    (listed,) = [row for row in deployment.shown("alarms") if row["children"]]
    told = deployment.failover("alarms").stdout
    deployment.shown("dismiss", listed["incident"], "--because", "a drill")
    event, *_ = deployment.shown("zone-lost", "moon", "--because", "a typing error")
    deployment.shown("dismiss", event["incident"], "--because", "a drill")

    assert event["decision"] == "HELD"
    assert table.returncode == 0, table.stderr
    assert "its power failed" in table.stdout
    assert (listed["host"], listed["zone"]) == (None, "nova")
    assert "zone nova" in told
    assert deployment.shown("alarms", group) == []


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
