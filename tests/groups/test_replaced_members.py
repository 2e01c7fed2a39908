# SPDX-License-Identifier: Apache-2.0
"""A member behind whose name another server is found: the old one is deposed, and the new one gets
nothing that was meant for the old one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import reports
from mistral_failover.agent.channel.interface import ChannelError, Command, CommandResult
from mistral_failover.agent.wire import Address
from mistral_failover.cloud import servers as cloud_servers
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import ServerState
from mistral_failover.cloud.transport import Guard, Unguarded
from mistral_failover.convergence.records import Ready
from mistral_failover.groups import candidates, refresh_members
from mistral_failover.groups.snapshot import group_snapshot
from mistral_failover.model.goal import empty_goal, render_goal
from mistral_failover.orders import failover
from mistral_failover.resources import worker
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups
from support.driving import work, work_all
from support.no_cloud import NoCloud

NEVER: list[Exception] = [
    ChannelError("CONFIG", "no channel is set"),
    ChannelError("UNREACHABLE", "no broker"),
    CloudError("TIMEOUT", "too late"),
]


class Channel:
    """Remembers what goes to whom; asks its guard before, as every driver does."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.guard: Guard = Unguarded()
        self.deposed: list[tuple[str, str, int]] = []
        self.commands: list[Command] = []

    def depose(self, to: Address, epoch: int) -> None:
        if self.error is not None:
            raise self.error
        self.deposed.append((to.member, to.server_id, epoch))

    def heard(self, to: Address) -> None:
        return None

    def run(self, command: Command) -> CommandResult:
        if self.error is not None:
            raise self.error
        self.guard.permit("POST")
        self.commands.append(command)
        return CommandResult(command.id, 0, "", "", False)


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> Channel:
    found = Channel()

    def give(request: Request, cloud: Any, guard: Guard) -> Channel:
        found.guard = guard
        return found

    alive = ServerState("ACTIVE", None, "UP", exists=True)
    monkeypatch.setattr(cloud_servers, "server_state", lambda cloud, server: alive)
    monkeypatch.setattr(Request, "channel", give)
    monkeypatch.setattr(Request, "cloud", lambda self, guard: NoCloud(guard))
    return found


@pytest.fixture
def look(
    state: Runtime, context: ActionContext, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Look at the members of ``payments``, whose servers are these by now."""
    alive = ServerState("ACTIVE", None, "UP", exists=True)
    monkeypatch.setattr(candidates, "server_state", lambda cloud, server: alive)
    monkeypatch.setattr(candidates, "rows_of", lambda cloud, stack: [])
    monkeypatch.setattr(refresh_members, "stack_id", lambda cloud, stack: "the same")

    def at(*, remember: bool = True, **servers: str) -> None:
        found = [
            SimpleNamespace(name=name, server_id=server, created_at=None, status="CREATE_COMPLETE")
            for name, server in servers.items()
        ]
        monkeypatch.setattr(refresh_members, "stack_members", lambda *given, **more: found)
        request = Request(state, context)
        snapshot = group_snapshot(request, "payments")
        failover.read_members(request, snapshot, remember=remember)

    return at


def test_the_agent_of_a_replaced_server_is_deposed_once(
    begun: Ready, channel: Channel, look: Callable[..., None]
) -> None:
    look(db_a="s-a", db_b="s-b")
    assert channel.deposed == []

    look(db_a="s-new", db_b="s-b")
    look(db_a="s-new", db_b="s-b")

    assert channel.deposed == [("db_a", "s-a", 2)]


def test_a_look_deposes_no_agent(begun: Ready, channel: Channel, look: Callable[..., None]) -> None:
    look(remember=False, db_a="s-new", db_b="s-b")

    assert channel.deposed == []


@pytest.mark.parametrize("error", NEVER, ids=lambda e: e.code)
def test_an_unreachable_agent_does_not_delay_the_new_epoch(
    state: Runtime,
    project: str,
    begun: Ready,
    channel: Channel,
    look: Callable[..., None],
    error: Exception,
) -> None:
    channel.error = error

    look(db_a="s-new", db_b="s-b")

    identity = groups.group_id(project, "payments")
    member = state.database.reading(lambda tx: groups.members_of(tx, identity))["db_a"]
    assert (member.server_id, member.epoch) == ("s-new", 2)


APPLICATION = {
    "type": "activation",
    "properties": {"member": {"get_param": "active"}, "start": "pg-start", "stop": "pg-stop"},
}


@pytest.fixture
def replace(state: Runtime, project: str) -> Callable[[], None]:
    """Another server is found behind db_a."""

    def now() -> None:
        identity = groups.group_id(project, "payments")
        new = [("db_a", "s-new", 9.0)]
        state.database.atomically(lambda tx: groups.record_members(tx, identity, new))

    return now


def before(place: Any, name: str, first: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    """Have something happen right before a function is called."""
    function = getattr(place, name)

    def later(*given: Any) -> Any:
        first()
        return function(*given)

    patch.setattr(place, name, later)


@pytest.mark.parametrize(
    ("place", "name"), [(worker, "described"), (worker, "carried_out"), (Channel, "run")]
)
def test_a_new_server_never_gets_a_start_that_was_meant_for_its_predecessor(
    state: Runtime,
    context: ActionContext,
    started: Callable[..., Ready],
    channel: Channel,
    replace: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    place: Any,
    name: str,
) -> None:
    ready = started(resources={"database": APPLICATION})
    before(place, name, replace, monkeypatch)

    work_all(state, lambda: context, ready.traversal_id)

    told = [row["sentence"] for row in reports.History("payments").run(context)]
    assert any("lease was lost" in sentence for sentence in told)
    starts = [c for c in channel.commands if c.name == "pg-start"]
    assert [(c.to.server_id, c.epoch) for c in starts] == [("s-new", 2)], "decided anew"
    stops = {(c.to.server_id, c.epoch) for c in channel.commands} - {("s-new", 2)}
    assert stops == {("s-a", 2)}, "where it may have been started"


def test_nor_does_it_get_a_stop(
    state: Runtime,
    project: str,
    context: ActionContext,
    started: Callable[..., Ready],
    channel: Channel,
    replace: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ready = started(resources={"database": APPLICATION})
    channel.error = ChannelError("NO_ANSWER", "silent")  # so it is not known where it runs
    work(state, context, ready)
    channel.error = None
    identity = groups.group_id(project, "payments")
    found = state.database.reading(lambda tx: groups.get(tx, identity))
    assert found is not None
    (cleanup,) = state.engine.start(
        identity,
        empty_goal(state.database.reading(lambda tx: state.definitions.group(tx, found))),
        traversal_id=f"removed-{project}",
        expected=found.current_traversal,
        cause="a test",
    ).ready
    before(worker, "carried_out", replace, monkeypatch)

    work_all(state, lambda: context, cleanup.traversal_id)

    assert ("s-new", 1) not in {(c.to.server_id, c.epoch) for c in channel.commands}


def test_a_start_without_an_answer_is_fenced_on_the_server_that_it_was_sent_to(
    state: Runtime,
    project: str,
    context: ActionContext,
    started: Callable[..., Ready],
    channel: Channel,
    replace: Callable[[], None],
) -> None:
    ready = started(resources={"database": APPLICATION}, fence=["quiesce"])
    channel.error = ChannelError("NO_ANSWER", "it was sent, and nothing was heard")
    work(state, context, ready)
    channel.error = None
    replace()
    identity = groups.group_id(project, "payments")
    found = state.database.reading(lambda tx: groups.get(tx, identity))
    assert found is not None
    group = state.database.reading(lambda tx: state.definitions.group(tx, found))

    lost = state.engine.start(
        identity,
        render_goal(group, {"active": "db_b"}, ["db_a"]),
        traversal_id=f"lost-{project}",
        expected=found.current_traversal,
        cause="a test",
    )
    work_all(state, lambda: context, lost.traversal_id)

    told = [(c.name, c.to.server_id) for c in channel.commands]
    assert told[0] == ("pg-stop", "s-a")
    assert ("db_a", "s-a", 3) in channel.deposed
