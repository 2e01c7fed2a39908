# SPDX-License-Identifier: Apache-2.0
"""``failover goals`` and ``failover diff``, against a real Mistral."""

from __future__ import annotations

import json
from typing import Any


def listed(deployment: Any) -> list[dict[str, Any]]:
    done = deployment.failover("goals", deployment.group, "-f", "json")
    assert done.returncode == 0, done.stderr
    goals: list[dict[str, Any]] = json.loads(done.stdout)
    return goals


def test_machines_get_every_goal_whole_the_latest_first(deployment: Any) -> None:
    newer, older = listed(deployment)

    assert (newer["roles"], older["roles"]) == ({"active": "db_b"}, {"active": "db_a"})
    assert (newer["current"], newer["last_complete"], older["current"]) == (True, True, False)
    assert newer["cause"] == "a test of the standby"
    assert len(older["version"]) == 64
    assert older["given_at"] < older["reached_at"] < newer["given_at"]
    answer = deployment.mistral.client.run_action("failover.goals", {"group": deployment.group})
    assert [newer, older] == answer, "its own keys and types"


def test_people_get_a_table_that_says_when_and_why(deployment: Any) -> None:
    done = deployment.failover("goals", deployment.group)

    assert done.returncode == 0, done.stderr
    assert "active: db_b" in done.stdout
    assert "a test of the standby" in done.stdout
    assert "COMPLETE" in done.stdout


def test_the_difference_is_readable_and_begins_with_the_roles(deployment: Any) -> None:
    newer, older = listed(deployment)

    done = deployment.failover(
        "diff", deployment.group, older["version"][:8], newer["version"][:8], "-f", "value"
    )
    readable = deployment.failover("diff", deployment.group, older["version"], newer["version"])

    assert done.stdout.splitlines()[0].split() == ["roles.active", "db_a", "db_b"]
    assert "~ roles.active: db_a -> db_b" in readable.stdout


def test_an_unknown_goal_ends_with_exit_code_1_and_what_helps(deployment: Any) -> None:
    done = deployment.failover("diff", deployment.group, "0" * 8, "1" * 8)

    assert done.returncode == 1
    assert "has no goal 00000000" in done.stderr
    assert "[UNKNOWN_GOAL]" in done.stderr


def test_an_unknown_group_is_named(deployment: Any) -> None:
    done = deployment.failover("goals", "unknown")

    assert done.returncode == 1
    assert "[UNKNOWN_GROUP]" in done.stderr


def test_a_mistral_that_does_not_answer_is_named(deployment: Any) -> None:
    done = deployment.failover("goals", "g", url="http://127.0.0.1:1/v2")

    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
