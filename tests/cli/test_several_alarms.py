# SPDX-License-Identifier: Apache-2.0
"""``failover admit`` and ``dismiss`` of several alarms at once: of a host, of a zone, of all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cli.conftest import Deployment, deploy
from support.operators import Operator

ONLY = {"admitted": [], "refused": {}, "passed_over": {}, "left": 0}
"""What admitting several alarms answers, if there was none."""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A deployment of this file's own: each test holds the alarms of all other groups."""
    with deploy(tmp_path_factory) as deployment:
        yield deployment


@pytest.fixture
def on_a_host(deployment: Any, request: pytest.FixtureRequest) -> tuple[str, str]:
    """A paused group, and the host of its db_a."""
    group = f"h-{request.node.name.replace('_', '-')[5:35].strip('-')}"
    deployment.protect(group)
    deployment.shown("pause", group, "--because", "we look")
    servers = {row["member"]: row["server"] for row in deployment.shown("member", "list", group)}
    return group, str(deployment.cloud.guests()[servers["db_a"]]["host"])


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
    deployment.hear(group, f"again-{group}", member="db_a")

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
    deployment.hear(group, f"again-{group}", member="db_a")
    deployment.protect("no-standby", priority=9)
    deployment.shown("pause", "no-standby", "--because", "we look")
    standby = deployment.cloud.resources("no-standby")["db_b"]["physical_resource_id"]
    operator = Operator(deployment.cloud)
    operator.stop_server(standby)
    for number in range(2):
        deployment.hear("no-standby", f"w-no-standby-{number}", member="db_a")

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
    deployment.hear(group, f"again-{group}", member="db_a")
    deployment.protect("unclear")
    deployment.shown("pause", "unclear", "--because", "we look")
    unclear = deployment.hear("unclear", "w-unclear", host="cmp-nowhere", member="db_x")
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
