# SPDX-License-Identifier: Apache-2.0
"""The agent of a new server starts after the first command was sent to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.resources import commands
from support.operators import Operator
from support.waiting import until


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command waits for a message of the agent for a moment only."""
    monkeypatch.setattr(commands, "SILENCE", 0.2)


def wait_until_it_waits(group: Any) -> dict[str, Any]:
    """The one step that waits, as the status shows it."""
    (row,) = until(lambda: group.status()["waiting"])
    return dict(row)


def started(group: Any) -> list[str]:
    """The commands that began on the group's servers, in order."""
    servers = {group.server(member) for member in group.members}
    events = group.cloud.audit(kind="command_started")
    return [event["command"] for event in events if event["server"] in servers]


def test_the_first_activation_waits_for_an_agent_that_was_never_heard(group: Any) -> None:
    group.fails("booting")
    execution = group.start("activate_first", group=group.name)

    row = wait_until_it_waits(group)

    assert (row["resource"], row["member"], row["verb"]) == ("database", "db_a", "create")
    assert row["waiting_for"].startswith("the agent of db_a: not heard since server")
    assert group.server("db_a") in row["waiting_for"]
    assert "failover-agent" in row["waiting_for"], "what to look at"
    assert group.status()["status"] == "IN_PROGRESS"

    group.cloud.fault("server", group.server("db_a"), "revive")

    group.ended(execution).assert_succeeded()
    assert group.runs_on() == ["db_a"]
    assert started(group) == ["start"], "the command of every try is the same"


def test_it_waits_no_longer_than_the_group_s_patience(protect: Callable[..., Any]) -> None:
    group = protect(limits={"patience": 0})
    group.fails("booting")

    run = group.ended(group.start("activate_first", group=group.name))

    run.assert_failed_with("FAILED")
    failure = group.status()["failure"]
    assert (failure["resource"], failure["code"]) == ("database", "NO_ANSWER")
    assert "repair its agent" in failure["remedy"]


def test_an_agent_that_was_heard_and_fell_silent_is_not_waited_for(group: Any) -> None:
    group.fails("hang")

    group.ended(group.start("activate_first", group=group.name)).assert_failed_with("FAILED")

    assert group.status()["failure"]["code"] == "NO_ANSWER"


def test_the_agent_of_a_new_server_is_another_than_its_predecessor_s(
    group: Any, cloud: Any
) -> None:
    """Heat has replaced the server since the group was created: the old agent was heard."""
    old = group.server("db_a")
    Operator(cloud).replace_server(group.name, "db_a")
    group.fails("booting")
    # Without an order the oldest member is chosen, and Heat tells ages in whole seconds.
    execution = group.start("activate_first", group=group.name, to="db_a")

    assert group.server("db_a") in wait_until_it_waits(group)["waiting_for"]
    group.cloud.fault("server", group.server("db_a"), "revive")

    group.ended(execution).assert_succeeded()
    assert group.runs_on() == ["db_a"]
    assert not [e for e in group.cloud.audit(kind="command_started") if e["server"] == old]
