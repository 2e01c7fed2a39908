# SPDX-License-Identifier: Apache-2.0
"""``failover confirm-fenced``: what lets a blocked failover go on, against a real Mistral."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any

import pytest


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
    assert "nobody has confirmed it yet" in remedy["reason"]
    assert remedy["command"] in status["reason"]
    program, *words = shlex.split(remedy["command"])
    assert program == "failover"

    done = deployment.failover(*words, "-f", "json")

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["state"], told["status"]) == ("SUCCESS", "COMPLETE")
    assert told["roles"] == {"active": "db_b"}
    after = deployment.status(group)
    assert after["remedies"] == []
    (fence,) = [r for r in after["resources"] if r["name"] == "fence:db_a"]
    assert fence["attributes"]["observed"] == "a person confirmed it: ..."


def test_what_does_not_become_complete_ends_with_exit_code_1(deployment: Any) -> None:
    done = deployment.failover("confirm-fenced", deployment.group, "db_b", "--because", "I saw it")

    assert done.returncode == 1
    assert "NOT_LOST" in done.stdout
    assert "ERROR" in done.stdout


def test_nobody_waits_who_does_not_want_to(deployment: Any, blocked: Callable[[str], str]) -> None:
    group = blocked("unwatched")
    words = ("confirm-fenced", group, "db_a", "--because", "its plug is pulled")

    done = deployment.failover(*words, "--no-wait", "-f", "json")

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    ended = deployment.mistral.client.wait(told["execution"])
    assert ended["output"]["outcome"]["status"] == "COMPLETE"


def test_without_a_reason_nothing_is_confirmed(deployment: Any) -> None:
    done = deployment.failover("confirm-fenced", deployment.group, "db_a")

    assert done.returncode == 2
    assert "--because" in done.stderr


def test_a_mistral_that_does_not_answer_confirms_nothing(deployment: Any) -> None:
    words = ("confirm-fenced", "g", "m", "--because", "b")
    done = deployment.failover(*words, url="http://127.0.0.1:1/v2")

    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
