# SPDX-License-Identifier: Apache-2.0
"""A command of which not even the agent knows whether it took effect: the failover fails and says
how a person settles it, and a repeat meets what they said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import reports
from mistral_failover.agent.channel.interface import (
    ChannelError,
    Command,
    CommandResult,
    Heartbeat,
)
from mistral_failover.agent.wire import Address
from mistral_failover.convergence.records import Ready
from mistral_failover.model.goal import render_goal
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups
from support.driving import work
from support.no_cloud import NoCloud

APPLICATION = {
    "type": "activation",
    "properties": {"member": {"get_param": "active"}, "start": "pg-start", "stop": "pg-stop"},
}


class Channel:
    """To an agent that died over the command, until a person settles it."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.settled = False

    def run(self, command: Command) -> CommandResult:
        self.commands.append(command)
        if not self.settled:
            raise ChannelError("UNKNOWN_OUTCOME", "the agent died while pg-start ran.")
        return CommandResult(command.id, 0, "", "", True)

    def heard(self, to: Address) -> Heartbeat:
        return Heartbeat(0, 1.0, (), None)


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> Channel:
    found = Channel()
    monkeypatch.setattr(Request, "channel", lambda self, cloud, guard: found)
    monkeypatch.setattr(Request, "cloud", lambda self, guard: NoCloud(guard))
    return found


def again(state: Runtime, project: str) -> Ready:
    """The same goal once more; the one node that is ready."""
    identity = groups.group_id(project, "payments")
    found = state.database.reading(lambda tx: groups.get(tx, identity))
    assert found is not None
    group = state.database.reading(lambda tx: state.definitions.group(tx, found))
    (ready,) = state.engine.start(
        identity,
        render_goal(group, {"active": "db_a"}, []),
        traversal_id=f"again-{project}",
        expected=found.current_traversal,
        cause="a person said what happened",
    ).ready
    return ready


def test_it_fails_with_the_command_that_settles_it_and_goes_on_under_the_same_id(
    state: Runtime,
    project: str,
    context: ActionContext,
    started: Callable[..., Ready],
    channel: Channel,
) -> None:
    ready = started(resources={"database": APPLICATION})

    work(state, context, ready)

    status: dict[str, Any] = reports.Status("payments").run(context)
    (command,) = channel.commands
    assert status["status"] == "FAILED"
    assert "the agent died while pg-start ran" in status["reason"]
    assert f"`failover-agent settle {command.id} --done` or `--not-done`" in status["reason"]
    assert "[UNKNOWN_OUTCOME]" in status["reason"]
    assert status["remedies"] == [], "no person is waited for: nothing is blocked"

    channel.settled = True
    ready = again(state, project)
    work(state, context, ready)

    assert reports.Status("payments").run(context)["status"] == "COMPLETE"
    assert [each.id for each in channel.commands] == [command.id] * 2
