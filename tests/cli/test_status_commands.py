# SPDX-License-Identifier: Apache-2.0
"""``failover status``, ``watch`` and ``history``, against a real Mistral."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from mistral_failover.cli import follow
from support.closable_address import ClosableProxy
from support.commands import heeds_ctrl_c
from support.operators import Operator
from support.waiting import until


@pytest.fixture(scope="session")
def blocked(deployment: Any) -> str:
    """A group that waits for a person's word."""
    group = "waiting"
    deployment.protect(group, fence=["confirm"])
    deployment.mistral.client.run("failover.on_alarm", deployment.crash(group))
    assert deployment.status(group)["status"] == "BLOCKED"
    return group


def test_the_status_is_one_screen_with_what_a_person_needs(deployment: Any) -> None:
    done = deployment.failover("status", deployment.group)

    assert done.returncode == 0, done.stderr
    head, _, details = done.stdout.partition("\n\n")
    assert head.startswith("payments is ")
    lines = dict(line.split(maxsplit=1) for line in details.splitlines() if line[0] != " ")
    assert lines["stack"] == "payments"
    assert lines["status"].startswith("COMPLETE since 20")
    assert lines["active"].startswith("active on db_b (server ")
    assert lines["volumes"] == "data on db_b as /dev/vdb (there)"
    assert lines["members"].startswith("db_a: epoch 1, agent: last heartbeat ")
    assert len(done.stdout.splitlines()) < 25


def test_what_is_blocked_says_why_and_the_command_that_helps(deployment: Any, blocked: str) -> None:
    done = deployment.failover("status", blocked)

    assert done.returncode == 0, done.stderr
    assert re.search(r"^status +BLOCKED for ", done.stdout, re.MULTILINE)
    assert f"failover confirm-fenced {blocked} db_a --because" in done.stdout
    assert "LOST" in done.stdout


def test_machines_get_the_status_whole(deployment: Any, blocked: str) -> None:
    found = deployment.shown("status", blocked)

    assert found["status"] == "BLOCKED"
    assert {"traversal", "resources", "remedies", "alarms", "agents", "now"} <= set(found)
    assert set(found["agents"]) == {"db_a", "db_b"}


def test_the_exit_code_says_how_well_the_group_serves(deployment: Any) -> None:
    group, operator = "exits", Operator(deployment.cloud)
    deployment.protect(group)

    def code() -> int:
        deployment.failover("sweep", group)
        return int(deployment.failover("status", group, "--exit-code").returncode)

    def stop(member: str) -> None:
        server = deployment.cloud.resources(group)[member]["physical_resource_id"]
        operator.stop_server(server)

    assert code() == 0
    deployment.cloud.api_fault("server_list", times=100)
    assert code() == 7
    deployment.cloud.clear_api_faults()
    stop("db_b")
    assert code() == 5
    stop("db_a")
    assert code() == 6
    assert deployment.failover("status", group).returncode == 0, "only if it is asked for"


def test_without_a_group_all_of_them_stand_there(deployment: Any, blocked: str) -> None:
    people = deployment.failover("status").stdout
    whole = deployment.shown("status")

    row = people[people.index(f"\n{blocked}") :] if people.index(blocked) else people
    assert row.index("BLOCKED since") < row.index("lost: db_a")
    assert f" failover status {blocked}\n" in row
    assert {row["name"] for row in whole["overview"]} >= {blocked, deployment.group}
    assert whole["held"] == len(whole["alarms"]), "as in the status of one group"


def test_an_unknown_group_is_named(deployment: Any) -> None:
    for words in (("status", "unknown"), ("watch", "unknown"), ("history", "unknown")):
        done = deployment.failover(*words)
        assert done.returncode == 1
        assert "[UNKNOWN_GROUP]" in done.stderr


@pytest.mark.parametrize(("group", "code"), [("payments", 0), ("waiting", 3)])
def test_watching_until_rest_ends_with_the_status_as_its_exit_code(
    deployment: Any, blocked: str, group: str, code: int
) -> None:
    done = deployment.failover("watch", group, "--until-rest")

    assert done.returncode == code, done.stderr
    last = done.stdout.splitlines()[-1]
    assert f"-- {group} is " in last
    assert ("confirm-fenced" in last) == (code == 3)


@pytest.mark.parametrize("held", [False, True])
def test_watching_until_rest_waits_for_the_failover_of_an_admitted_alarm(
    deployment: Any, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    group = f"not-started-{held}".lower()
    deployment.protect(group)
    deployment.run("failover", group=group, lost=["db_a"])  # no other member can take over
    incident = deployment.hear(group, "db_b-is-gone", member="db_b")
    assert [row["id"] for row in deployment.status(group)["unstarted"]] == [incident]
    looks = 0

    def look_again(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks > 1:
            return
        if held:  # the sweep holds it, for the group is out of service
            deployment.run("remove", group=group)
        else:
            deployment.run("failover", group=group, lost=[], recovered=["db_a"])
        deployment.run("sweep", group=group)

    monkeypatch.setattr(follow, "time", SimpleNamespace(sleep=look_again))

    done = deployment.failover("watch", group, "--until-rest")

    assert done.returncode == (3 if held else 0), done.stderr
    assert looks > 0
    assert deployment.status(group)["unstarted"] == []
    assert deployment.status(group)["held"] == int(held)
    last = done.stdout.splitlines()[-1]
    assert ("is COMPLETE; 1 alarm held; " if held else "is COMPLETE; active on db_a") in last


def test_watching_until_rest_ends_if_the_failover_of_an_admitted_alarm_does_not_start(
    deployment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = "never-started"
    deployment.protect(group)
    deployment.run("failover", group=group, lost=["db_a"])  # no other member can take over
    deployment.hear(group, "db_b-is-gone", member="db_b")
    monkeypatch.setattr(follow, "PATIENCE", 5.0)
    looks = iter(range(100))

    def soon(_: float) -> None:
        assert next(looks, None) is not None, "it does not end"
        time.sleep(0.1)

    monkeypatch.setattr(follow, "time", SimpleNamespace(sleep=soon))

    done = deployment.failover("watch", group, "--until-rest")

    assert done.returncode == 3, done.stderr
    assert next(looks) > 1, "it was not given up at once"
    last = done.stdout.splitlines()[-1]
    assert "waits for the start of a failover, since " in last
    assert f"failover sweep {group}   (starts the failover of the alarm, or says why" in last


def test_a_watch_that_ends_with_a_held_alarm_says_why_and_which_command_helps(
    deployment: Any, held: tuple[str, str]
) -> None:
    group, incident = held

    done = deployment.failover("watch", group, "--until-rest")

    assert done.returncode == 3, done.stderr
    *_, step, last = done.stdout.splitlines()
    assert "HELD: " in step
    assert "has been paused since" in step
    assert "is COMPLETE; active on db_a; 1 alarm held; failover resume" in last
    assert f"failover alarms {group}" in last
    deployment.shown("dismiss", incident, "--because", "we looked")
    assert deployment.failover("watch", group, "--until-rest").returncode == 0


def test_a_watcher_sees_each_step_and_a_mistral_that_goes_away_for_a_while(
    deployment: Any,
) -> None:
    group = "observed"
    deployment.protect(group)
    words = ("watch", group, "--interval", "0.1")
    with ClosableProxy(deployment.mistral.url) as door:
        process = subprocess.Popen(
            [sys.executable, "-m", "mistral_failover.cli.main", *words],
            env=os.environ | deployment.environment | {"FAILOVER_MISTRAL_URL": door.url},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=heeds_ctrl_c,
        )
        told: list[str] = []
        reading = threading.Thread(target=lambda: told.extend(process.stdout or ()))
        reading.start()
        try:
            until(lambda: any("is COMPLETE; active on db_a" in line for line in told))
            door.shut()
            until(lambda: any("retrying" in line for line in told))
            deployment.run("switchover", group=group)
            door.open()
            until(lambda: any("is COMPLETE; active on db_b" in line for line in told))
            process.send_signal(signal.SIGINT)
            code = process.wait(60)
        finally:
            process.kill()
            reading.join()
            errors = process.stderr.read() if process.stderr else ""

    assert code == 0, errors
    assert sum("Stop database on db_a: done" in line for line in told) == 1
    assert sum("retrying" in line for line in told) == 1


@pytest.fixture(scope="session")
def storied(deployment: Any) -> str:
    """A group that was brought up, and switched over."""
    group = "storied"
    deployment.protect(group)
    deployment.run("switchover", group=group, because="a test of the standby")
    return group


def test_the_history_has_a_sentence_a_step_and_the_stages_durations_for_people(
    deployment: Any, storied: str
) -> None:
    done = deployment.failover("history", storied)
    rows = deployment.shown("history", storied)

    assert done.returncode == 0, done.stderr
    assert "a test of the standby" in done.stdout
    stages = [line.split()[0] for line in done.stderr.splitlines()]
    assert stages == ["quiesce", "move_volumes", "activate", "update_stack", "in"]
    assert [row["sentence"] for row in rows][-1] == "Done: db_b is active"
    assert rows == sorted(rows, key=lambda row: row["id"])


def test_the_history_of_one_traversal_or_after_a_step(deployment: Any, storied: str) -> None:
    rows = deployment.shown("history", storied)
    first = rows[0]["traversal_id"]

    its = deployment.shown("history", storied, "--traversal", first[:8])
    after = deployment.shown("history", storied, "--after", str(rows[2]["id"]))
    last = deployment.shown("history", storied, "--limit", "1")

    assert {row["traversal_id"] for row in its} == {first}
    assert after == rows[3:]
    assert last == rows[-1:]


def test_the_summary_of_a_history_has_a_line_for_each_alarm_and_order(
    deployment: Any, blocked: str
) -> None:
    done = deployment.failover("history", deployment.group, "--summary")
    waiting = deployment.failover("history", blocked, "--summary")
    rows = deployment.shown("history", deployment.group, "--summary")

    assert done.returncode == 0, done.stderr
    assert "COMPLETE" in done.stdout
    assert "operator" in done.stdout
    assert "BLOCKED (not ended)" in waiting.stdout
    asked = {"group": deployment.group}
    assert rows == deployment.mistral.client.run_action("failover.moves", asked)


def test_the_history_of_all_groups_names_each(deployment: Any, blocked: str) -> None:
    rows = deployment.shown("history", "--limit", "1000")

    assert {deployment.group, blocked} <= {row["group"] for row in rows}
    assert deployment.failover("history", "--follow").returncode != 0


def test_a_history_that_is_followed_goes_on_an_object_a_line(deployment: Any) -> None:
    group = "followed"
    deployment.protect(group)
    words = ("history", group, "--follow", "-f", "json")
    process = subprocess.Popen(
        [sys.executable, "-m", "mistral_failover.cli.main", *words],
        env=os.environ | deployment.environment,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=heeds_ctrl_c,
    )
    told: list[str] = []
    reading = threading.Thread(target=lambda: told.extend(process.stdout or ()))
    reading.start()
    try:
        until(lambda: any("Done: " in line for line in told))
        deployment.shown("pause", group, "--because", "we look")
        until(lambda: any("we look" in line for line in told))
        process.send_signal(signal.SIGINT)
        code = process.wait(60)
    finally:
        process.kill()
        reading.join()

    assert code == 0
    assert [json.loads(line)["kind"] for line in told][-1] == "pause"


def test_text_formats_have_no_python_in_them_and_times_of_iso_8601(deployment: Any) -> None:
    done = deployment.failover("status", deployment.group, "-f", "value")
    line = deployment.failover("history", deployment.group, "--limit", "1", "-f", "csv")

    assert "None" not in done.stdout.split()
    assert '{"active": "db_b"}' in done.stdout
    assert re.search(r'"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00"', line.stdout), line.stdout


def test_a_table_fits_a_hundred_columns_where_there_is_no_terminal(
    deployment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    for words in (("history", deployment.group), ("group", "show", deployment.group)):
        done = deployment.failover(*words)

        assert max(map(len, done.stdout.splitlines())) <= 100, words
