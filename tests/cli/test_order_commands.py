# SPDX-License-Identifier: Apache-2.0
"""``failover rollback`` and ``failover sweep``, against a real Mistral."""

from __future__ import annotations

from typing import Any


def test_a_group_goes_back_to_the_goal_before_and_to_one_that_is_named(deployment: Any) -> None:
    group = "undone"
    deployment.protect(group)
    deployment.run("switchover", group=group)
    first, second = [row["version"] for row in deployment.shown("goals", group)][::-1]

    back = deployment.shown("rollback", group, "--because", "it was wrong")
    named = deployment.failover("rollback", group, "--to-goal", second[:10])

    assert (back["status"], back["roles"]) == ("COMPLETE", {"active": "db_a"})
    assert named.returncode == 0, named.stderr
    assert "active: db_b" in named.stdout
    assert "the goal is reached" in named.stderr
    assert first != second


def test_who_is_lost_is_vouched_for(deployment: Any) -> None:
    group = "vouched-back"
    deployment.protect(group)
    deployment.run("failover", group=group, lost=["db_a"])  # its agent quiesces it: it is well

    told = deployment.failover("rollback", group, "--recovered", "db_a")

    assert told.returncode == 0, told.stdout + told.stderr
    assert deployment.status(group)["roles"] == {"active": "db_a"}
    assert deployment.status(group)["lost"] == []


def test_a_rollback_that_leads_nowhere_is_refused(deployment: Any) -> None:
    done = deployment.failover("rollback", deployment.group, "--to-goal", "0badc0de")

    assert done.returncode == 1
    assert "UNKNOWN_GOAL" in done.stdout


def test_a_sweep_says_what_it_found(deployment: Any) -> None:
    everything = deployment.failover("sweep", "-f", "json")
    one = deployment.failover("sweep", deployment.group)
    unknown = deployment.failover("sweep", "nobody")
    started = deployment.failover("sweep", "--no-wait", "-f", "json")

    assert everything.returncode == 0, everything.stderr
    assert one.returncode == 0, one.stderr
    assert (unknown.returncode, "[UNKNOWN_GROUP]" in unknown.stderr) == (1, True)
    assert "execution" in started.stdout
