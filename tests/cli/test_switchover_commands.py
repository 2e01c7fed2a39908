# SPDX-License-Identifier: Apache-2.0
"""``failover member list``, ``failover switchover`` and ``failover failback``, against a real
Mistral."""

from __future__ import annotations

import json
from typing import Any

import pytest

GROUP = "moves"


@pytest.fixture(scope="module")
def moving(deployment: Any) -> Any:
    """A group of this file's own, which is up on db_a."""
    deployment.protect(GROUP)
    return deployment


@pytest.fixture
def at_home(moving: Any) -> Any:
    """The group on db_a again, whatever another test did."""
    if moving.status(GROUP)["roles"] != {"active": "db_a"}:
        moving.run("failover", group=GROUP, lost=[], to="db_a")
    return moving


def said(done: Any) -> Any:
    return json.loads(done.stdout)


def test_the_members_are_listed_for_machines_and_for_people(at_home: Any) -> None:
    machines = at_home.failover("member", "list", GROUP, "-f", "json")
    people = at_home.failover("member", "list", GROUP)

    assert machines.returncode == people.returncode == 0, machines.stderr
    first, second = said(machines)
    assert (first["member"], first["roles"], first["eligible"]) == ("db_a", ["active"], True)
    assert (second["member"], second["roles"], second["epoch"]) == ("db_b", [], 1)
    assert len(first["server"]) == 36
    assert "takes a role" in people.stdout
    assert "yes" in people.stdout


def test_a_dry_run_shows_the_steps_and_moves_nothing(at_home: Any) -> None:
    there = at_home.failover("switchover", GROUP, "--to", "db_b", "--dry-run", "-f", "json")
    home = at_home.failover("failback", GROUP, "--dry-run", "-f", "json")

    assert there.returncode == home.returncode == 0, there.stderr + home.stderr
    plan = said(there)
    assert (plan["verb"], plan["roles"]) == ("switchover", {"active": "db_b"})
    assert "Start database on db_b" in [step["what"] for step in plan["steps"]]
    assert "at home" in home.stdout
    assert at_home.status(GROUP)["roles"] == {"active": "db_a"}


def test_there_and_home_again(at_home: Any) -> None:
    there = at_home.failover("switchover", GROUP, "--because", "a disk", "-f", "json")
    planned = at_home.failover("failback", GROUP, "--dry-run", "-f", "json")
    home = at_home.failover("failback", GROUP, "--role", "active", "-f", "json")
    again = at_home.failover("failback", GROUP, "-f", "json")

    assert there.returncode == 0, there.stderr
    assert said(there)["roles"] == {"active": "db_b"}
    assert "Start database on db_b: done" in there.stderr
    assert (said(planned)["verb"], said(planned)["roles"]) == ("failback", {"active": "db_a"})
    assert home.returncode == again.returncode == 0, home.stderr + again.stderr
    assert said(home)["roles"] == {"active": "db_a"}
    assert at_home.status(GROUP)["roles"] == {"active": "db_a"}


def test_what_can_not_be_done_ends_with_1_and_the_reason(at_home: Any) -> None:
    unknown = at_home.failover("failback", GROUP, "--recovered", "unknown", "-f", "json")
    nowhere = at_home.failover("switchover", GROUP, "--to", "db_c", "-f", "json")

    assert unknown.returncode == nowhere.returncode == 1
    assert said(unknown)["code"] == "UNKNOWN_MEMBER"
    assert said(nowhere)["code"] == "NO_ELIGIBLE_MEMBER"


def test_an_order_that_is_refused_says_why_once_with_the_remedy(deployment: Any) -> None:
    group = "not-complete"
    deployment.protect(group)
    deployment.cloud.api_fault("stack_patch", "fail")
    deployment.failover("start", group, "--lost", "", "--to", "db_b")
    step = deployment.status(group)["failure"]

    done = deployment.failover("switchover", group, "--to", "db_a", "-f", "json")

    assert done.returncode == 1
    assert said(done)["code"] == "NOT_COMPLETE"
    shown = json.dumps(said(done)) + json.dumps(done.stderr)
    for words in (step["message"], step["remedy"]):
        assert shown.count(json.dumps(words)[1:-1]) == 1, shown
