# SPDX-License-Identifier: Apache-2.0
"""Members that come back after they were fenced, and members that are slow, but well."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import agents
from support.waiting import until

QUIESCE = {"kind": "quiesce", "limit": 0.2}


@pytest.fixture
def slow(cloud: Any) -> Iterator[None]:
    """Stopping an application takes much longer than an agent may be silent."""
    cloud.set_latency(command_stop=1.0)
    yield
    cloud.set_latency(command_stop=0)


def heard_of_db_a(group: Any) -> str:
    """What failover.agents says of it."""
    rows = agents.Agents(group.name).run(ActionContext(SecurityContext(), ExecutionContext()))
    return str(rows[0]["sentence"])


def fence_of(group: Any) -> dict[str, Any]:
    (found,) = [r for r in group.status()["resources"] if r["type"] == "fence"]
    return dict(found)


def test_a_member_that_is_slow_but_well_is_waited_for(
    protect: Callable[..., Any], slow: None
) -> None:
    group = protect(fence=[QUIESCE, "stop"])
    group.activate()

    group.run("failover", group=group.name, lost=["db_a"]).assert_succeeded()

    assert fence_of(group)["attributes"]["rung"] == "quiesce"
    assert group.runs_on() == ["db_b"]


def test_one_that_is_at_work_for_too_long_is_fenced_and_this_is_said(
    protect: Callable[..., Any], slow: None
) -> None:
    group = protect(fence=[{**QUIESCE, "longest": 0.5}])
    group.activate()

    group.run("failover", group=group.name, lost=["db_a"])

    words = r"quiesce: db_a's agent reports that stop is still running after \d s;"
    assert re.search(words, group.status()["reason"])


def test_one_that_hung_and_comes_back_finds_itself_deposed(protect: Callable[..., Any]) -> None:
    group = protect(fence=[QUIESCE])
    group.activate()
    group.workflows.run("failover.on_alarm", group.fails("hang"), timeout=20)
    status = group.status()
    assert status["status"] == "BLOCKED"
    said = r"quiesce: db_a's agent did not answer for 0.2 s \(its last heartbeat came \d s ago\);"
    assert re.search(said, status["reason"])
    assert group.runs_on() == ["db_a"], "it writes on"
    assert "notice of epoch 2" in heard_of_db_a(group)

    group.cloud.fault("server", group.server("db_a"), "thaw")

    assert group.runs_on() == []
    said = heard_of_db_a(group)
    assert said.startswith("last heartbeat 0 s ago; was deposed: stopped before epoch 2 began: ")


def test_what_a_fenced_member_was_doing_takes_no_effect_any_more(
    protect: Callable[..., Any], cloud: Any
) -> None:
    """Its application was being started when it was declared lost."""
    group = protect(fence=[QUIESCE])
    cloud.set_latency(command_start=3.0)
    try:
        first = group.start("activate_first", group=group.name)
        server = group.server("db_a")
        until(lambda: server in {e["server"] for e in cloud.audit(kind="command_started")})
        group.start("failover", group=group.name, lost=["db_a"])
        until(lambda: server in {e["server"] for e in cloud.audit(kind="deposed")})
    finally:
        cloud.set_latency(command_start=0)
    group.ended(first)

    started = [e for e in cloud.audit(kind="application_started") if e["server"] == server]
    assert started == []
