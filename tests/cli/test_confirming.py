# SPDX-License-Identifier: Apache-2.0
"""``failover confirm-fenced``: what lets a blocked failover go on, against a real Mistral."""

from __future__ import annotations

import json
import re
import shlex
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from support.closable_address import ClosableProxy


@pytest.fixture
def blocked(deployment: Any) -> Callable[[str], str]:
    """Bring a group up whose ladder has no other rung than a person's word, and let its active
    member die; returns the group."""

    def make(group: str) -> str:
        deployment.protect(group, fence=["confirm"])
        server = deployment.cloud.resources(group)["db_a"]["physical_resource_id"]
        deployment.cloud.fault("server", server, "crash")
        deployment.mistral.client.run("failover.on_alarm", deployment.cloud.alarm_body(server))
        assert deployment.status(group)["status"] == "BLOCKED"
        return group

    return make


def test_the_command_that_status_names_lets_the_failover_go_on(
    deployment: Any, blocked: Callable[[str], str]
) -> None:
    group = blocked("vouched")
    status = deployment.status(group)
    (remedy,) = status["remedies"]
    assert (remedy["resource"], remedy["member"]) == ("fence:db_a", "db_a")
    assert "no operator has confirmed it yet" in remedy["reason"]
    assert remedy["command"] in status["reason"]
    program, *words = shlex.split(remedy["command"])
    assert program == "failover"

    doubted = deployment.failover(*words, typed="n\n")
    unasked = deployment.failover(*words)
    assert [each.returncode for each in (doubted, unasked)] == [1, 1]
    assert "server: Nova says" in doubted.stderr
    assert deployment.status(group)["status"] == "BLOCKED"

    done = deployment.failover(*words, "-f", "json", typed="y\n")

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["state"], told["status"]) == ("SUCCESS", "COMPLETE")
    assert told["roles"] == {"active": "db_b"}
    after = deployment.status(group)
    assert after["remedies"] == []
    (fence,) = [r for r in after["resources"] if r["name"] == "fence:db_a"]
    assert fence["attributes"]["observed"] == "an operator confirmed it: ..."


def test_a_failover_that_has_not_ended_is_taken_back_only_when_asked_for(
    deployment: Any, blocked: Callable[[str], str]
) -> None:
    group = blocked("hasty-recovery")

    unasked = deployment.failover("recover", group, "db_a")
    doubted = deployment.failover("recover", group, "db_a", typed="n\n")

    assert [each.returncode for each in (unasked, doubted)] == [1, 1]
    assert "treats db_a as lost" in doubted.stderr
    assert deployment.status(group)["lost"] == ["db_a"]


def test_a_fence_that_is_still_being_climbed_hears_the_word_and_is_followed_to_its_end(
    deployment: Any,
) -> None:
    group = "hasty"
    deployment.protect(group, fence=[{"kind": "quiesce", "limit": 5}, "confirm"])
    server = deployment.cloud.resources(group)["db_a"]["physical_resource_id"]
    deployment.cloud.fault("server", server, "crash")
    alarm = deployment.cloud.alarm_body(server)
    deployment.mistral.client.start("failover.on_alarm", alarm)
    deadline = time.monotonic() + 30
    while not deployment.status(group)["under_way"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)

    done = deployment.failover(
        "confirm-fenced", group, "db_a", "--because", "its plug is pulled", "--yes", "-f", "json"
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "COMPLETE"
    assert deployment.status(group)["roles"] == {"active": "db_b"}


def test_a_mistral_that_goes_away_leaves_the_execution_s_id(
    deployment: Any, blocked: Callable[[str], str]
) -> None:
    group = blocked("forsaken")
    words = ("confirm-fenced", group, "db_a", "--because", "its plug is pulled", "--yes")
    with ClosableProxy(deployment.mistral.url, shuts_after=b"POST /v2/executions ") as door:
        done = deployment.failover(*words, "--timeout", "2", url=door.url)

    assert done.returncode == 1
    found = re.search(r"was started as execution (\S+), which could not be followed", done.stderr)
    assert found, done.stderr
    assert "it continues; retrying" in done.stderr
    ended = deployment.mistral.client.wait(found[1])
    assert ended["output"]["outcome"]["status"] == "COMPLETE"


def test_a_mistral_that_comes_back_is_followed_on(
    deployment: Any, blocked: Callable[[str], str]
) -> None:
    group = blocked("patient")
    words = ("confirm-fenced", group, "db_a", "--because", "its plug is pulled", "--yes")
    with ClosableProxy(deployment.mistral.url, shuts_after=b"POST /v2/executions ") as door:

        def come_back() -> None:
            door.shut_by_itself.wait(60)
            door.open_again()

        coming = threading.Thread(target=come_back)
        coming.start()
        done = deployment.failover(*words, "-f", "json", url=door.url)
        coming.join()

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "COMPLETE"


def test_what_does_not_become_complete_ends_with_exit_code_1(deployment: Any) -> None:
    done = deployment.failover(
        "confirm-fenced", deployment.group, "db_b", "--because", "I saw it", "--yes"
    )

    assert done.returncode == 1
    assert "NOT_LOST" in done.stdout
    assert "ERROR" in done.stdout


def test_without_wait_the_command_returns_at_once(
    deployment: Any, blocked: Callable[[str], str]
) -> None:
    group = blocked("unwatched")
    words = ("confirm-fenced", group, "db_a", "--because", "its plug is pulled", "--yes")

    done = deployment.failover(*words, "--no-wait", "-f", "json")

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["next"] == f"failover watch {group}"
    ended = deployment.mistral.client.wait(told["execution"])
    assert ended["output"]["outcome"]["status"] == "COMPLETE"


def test_without_a_reason_nothing_is_confirmed(deployment: Any) -> None:
    done = deployment.failover("confirm-fenced", deployment.group, "db_a")

    assert done.returncode == 2
    assert "--because" in done.stderr


def test_a_mistral_that_does_not_answer_confirms_nothing(deployment: Any) -> None:
    words = ("confirm-fenced", "g", "m", "--because", "b", "--yes")
    done = deployment.failover(*words, url="http://127.0.0.1:1/v2")

    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
