# SPDX-License-Identifier: Apache-2.0
"""``failover replace``, against a real Mistral."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from mistral_failover.cli.verbs import Replace


def server(deployment: Any, group: str, member: str) -> str:
    """Who is behind a member's name, by Heat's word."""
    return str(deployment.cloud.resources(group)[member]["physical_resource_id"])


def test_a_standby_is_looked_at_then_replaced_and_the_group_serves_on(deployment: Any) -> None:
    group = "replaced"
    deployment.protect(group)
    before = server(deployment, group, "db_b")

    shown = deployment.failover("replace", group, "db_b", "--dry-run", "-f", "json")
    plan = json.loads(shown.stdout)

    assert shown.returncode == 0, shown.stderr
    assert plan["steps"][-1]["resource"] == "replace:db_b"
    assert server(deployment, group, "db_b") == before

    doubted = deployment.failover("replace", group, "db_b", typed="n\n")
    assert doubted.returncode == 1
    assert "Bring back db_b" in doubted.stderr
    assert server(deployment, group, "db_b") == before

    done = deployment.failover(
        "replace", group, "db_b", "--because", "an old image", "--yes", "-f", "json"
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "COMPLETE"
    assert "Bring back db_b: done" in done.stderr
    assert "an old image: db_b is replaced: it was named" in done.stderr
    assert server(deployment, group, "db_b") != before
    assert deployment.status(group)["roles"] == {"active": "db_a"}


def test_all_are_replaced_in_turn_and_people_see_each(deployment: Any) -> None:
    group = "rolling"
    deployment.protect(group)
    before = {member: server(deployment, group, member) for member in ("db_a", "db_b")}

    done = deployment.failover("replace", group, "--all", "--pause", "0", "--yes")

    assert done.returncode == 0, done.stderr
    assert "COMPLETE" in done.stdout
    assert "rolling replacement: 2 of 2 members replaced" in " ".join(done.stderr.split())
    assert all(server(deployment, group, member) != before[member] for member in before)
    assert deployment.status(group)["roles"] == {"active": "db_b"}


@pytest.mark.parametrize(
    "words",
    [
        ("--pause", "5"),
        ("--all", "--resource", "disk"),
        ("--all", "--dry-run"),
    ],
)
def test_what_makes_no_sense_together_is_refused(deployment: Any, words: tuple[str, ...]) -> None:
    done = deployment.failover("replace", deployment.group, *words)

    assert done.returncode == 2
    assert "[USAGE]" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["payments", "db_b", "--resource", "disk"],
        ["payments", "--resource", "disk", "db_b"],
        ["--resource", "disk", "payments", "db_b"],
    ],
)
def test_a_member_may_stand_behind_an_option(words: list[str]) -> None:
    parser = Replace(SimpleNamespace(), None).get_parser("failover replace")

    given = parser.parse_args(words)

    assert (given.group, given.member, given.resource) == ("payments", "db_b", "disk")


def test_two_ways_of_saying_whom_are_one_too_many(deployment: Any) -> None:
    done = deployment.failover("replace", deployment.group, "db_a", "--oldest")

    assert done.returncode == 2
