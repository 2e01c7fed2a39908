# SPDX-License-Identifier: Apache-2.0
"""What is asked about the members that may take a role, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import suspensions
from mistral_failover.agent.channel.interface import ChannelError, Heartbeat
from mistral_failover.agent.wire import Address
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import ServerState
from mistral_failover.groups import agent_health, candidates
from mistral_failover.groups.candidates import HeatMember
from mistral_failover.groups.snapshot import group_snapshot
from mistral_failover.model.assignment import MemberFact
from mistral_failover.model.ids import group_id
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups
from support.no_cloud import NoCloud

DATABASE = {
    "type": "activation",
    "properties": {"member": {"get_param": "active"}, "start": "up", "stop": "down"},
}
NAMES = ("db_a", "db_b", "db_c")


def active(host: str = "h", **more: Any) -> ServerState:
    return ServerState("ACTIVE", None, None, exists=True, host_id=host, **more)


@dataclass
class World:
    """What Nova and the agents answer, and what they were asked, by member."""

    look: Callable[..., dict[str, MemberFact]]
    servers: dict[str, Any] = field(default_factory=dict)
    heard: dict[str, Any] = field(default_factory=dict)
    looked_at: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def world(
    state: Runtime,
    context: ActionContext,
    define: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> World:
    """A group of three members, whose application agents start; all are well."""
    define(members={"servers": list(NAMES)}, resources={"database": DATABASE})

    def look(
        *lost: str, members: tuple[str, ...] = NAMES, marked: str = "", thorough: bool = False
    ) -> dict[str, MemberFact]:
        request = Request(state, context)
        snapshot = group_snapshot(request, "payments")
        seen = [
            HeatMember(name, name, 1.0, "CHECK_FAILED" if name == marked else "CREATE_COMPLETE")
            for name in members
        ]
        cloud: Any = SimpleNamespace()
        found = candidates.member_facts(
            request,
            cloud,
            snapshot.group,
            snapshot.state.id,
            seen,
            frozenset(lost),
            thorough=thorough,
        )
        assert [fact.name for fact in found] == list(members)
        return {fact.name: fact for fact in found}

    made = World(look, {name: active(name) for name in NAMES})

    def answer(asked: list[str], given: dict[str, Any], name: str) -> Any:
        asked.append(name)
        if isinstance(given.get(name), Exception):
            raise given[name]
        return given.get(name)

    class Channel:
        def heard(self, to: Address) -> Heartbeat | None:
            return answer(made.asked, made.heard, to.member)

    monkeypatch.setattr(
        candidates, "server_state", lambda cloud, name: answer(made.looked_at, made.servers, name)
    )
    monkeypatch.setattr(candidates, "rows_of", lambda cloud, stack: [])
    monkeypatch.setattr(Request, "channel", lambda self, cloud, guard: Channel())
    monkeypatch.setattr(Request, "cloud", lambda self, guard: NoCloud(guard))
    return made


def beat(ago: float) -> Heartbeat:
    return Heartbeat(1, ago, (), None)


def test_with_one_candidate_left_nothing_is_asked_that_would_speak_for_another(
    world: World,
) -> None:
    found = world.look("db_a", members=("db_a", "db_b"))

    assert (world.looked_at, world.asked) == (["db_b"], ["db_b"])
    assert found["db_b"].healthy
    assert found["db_a"].host is None


def test_where_several_are_left_their_agents_are_asked_once_and_the_lost_one_s_host(
    world: World,
) -> None:
    world.servers["db_b"] = active("db_a")
    world.heard |= {"db_b": beat(3.0), "db_c": beat(agent_health.SILENT + 30)}

    found = world.look("db_a")

    assert sorted(world.looked_at) == list(NAMES)
    assert world.asked == ["db_b", "db_c"]
    assert found["db_a"].host == found["db_b"].host == "db_a"
    assert found["db_b"].silent is None
    assert found["db_c"].silent == "its agent has sent no heartbeat for 90 s"


@pytest.mark.parametrize("members", [NAMES, ("db_a", "db_b")], ids=["of several", "the only one"])
def test_a_member_whose_agent_says_that_it_is_not_ready_takes_no_role(
    world: World, members: tuple[str, ...]
) -> None:
    full = replace(beat(3.0), not_ready="its journal cannot be written: disk full")
    world.heard |= {"db_b": full, "db_c": beat(3.0)}

    found = world.look("db_a", members=members)

    why = "its agent is not ready: its journal cannot be written: disk full"
    assert (found["db_b"].healthy, found["db_b"].why_not) == (False, why)
    assert all(fact.healthy for name, fact in found.items() if name != "db_b")


def test_an_agent_that_is_silent_now_is_not_judged_by_what_it_said_before(world: World) -> None:
    before = replace(beat(agent_health.SILENT + 30), not_ready="disk full")
    world.heard |= {"db_b": before, "db_c": beat(3.0)}

    found = world.look("db_a")

    assert found["db_b"].healthy
    assert found["db_b"].silent == "its agent has sent no heartbeat for 90 s"


def test_an_agent_that_does_not_know_a_command_of_a_role_is_told(world: World) -> None:
    world.heard |= {
        "db_b": Heartbeat(1, 3.0, (), None, frozenset({"up", "dwon"})),
        "db_c": Heartbeat(1, 3.0, (), None, frozenset({"up", "down", "more"})),
    }

    found = world.look("db_a")

    assert found["db_b"].lacks == {"active": "its agent does not know the command down"}
    assert found["db_c"].lacks == {}


def test_of_an_agent_that_does_not_report_its_commands_none_is_missing(world: World) -> None:
    world.heard |= {"db_b": beat(3.0), "db_c": beat(3.0)}

    assert [fact.lacks for fact in world.look("db_a").values()] == [{}, {}, {}]


@pytest.mark.parametrize(
    "heard",
    [
        {},
        {"db_a": beat(900.0), "db_b": beat(70.0)},
        {"db_a": beat(1.0), "db_b": None},
        {"db_a": beat(900.0), "db_b": ChannelError("UNREACHABLE", "no broker")},
    ],
    ids=["of none", "all of them", "one may be new", "the channel is out of reach"],
)
def test_who_is_not_heard_is_not_silent_unless_another_is(
    world: World, heard: dict[str, Any]
) -> None:
    world.heard |= heard

    assert {fact.silent for fact in world.look().values()} == {None}


def test_a_group_that_sends_no_commands_asks_no_agents(
    world: World, define: Callable[..., str]
) -> None:
    define(members={"servers": list(NAMES)})

    world.look()

    assert world.asked == []


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (ServerState("", None, None, exists=False), "its server does not exist"),
        (ServerState("SHUTOFF", None, None, exists=True), "its server is SHUTOFF"),
        (ServerState("ACTIVE", None, "UNKNOWN", exists=True), "its host is UNKNOWN"),
        (CloudError("TIMEOUT", "too late"), "its server could not be checked: "),
    ],
)
def test_who_is_unwell_is_told_with_the_reason(world: World, server: Any, why: str) -> None:
    world.servers["db_b"] = server

    found = world.look()

    assert (found["db_a"].healthy, found["db_b"].healthy) == (True, False)
    assert str(found["db_b"].why_not).startswith(why)
    assert "db_b" not in world.asked


def test_who_shares_a_host_that_is_known_to_be_down_is_seen_to(world: World) -> None:
    world.servers["db_a"] = ServerState("ACTIVE", None, "DOWN", exists=True, host_id="h")

    found = world.look("db_a")

    assert (found["db_a"].host, found["db_a"].host_down) == ("h", True)


def test_a_lost_server_that_cannot_be_looked_at_delays_no_other_member(world: World) -> None:
    world.servers["db_a"] = CloudError("UNREACHABLE", "no Nova")

    assert world.look("db_a")["db_a"].host is None


def test_what_heat_will_replace_takes_no_role(world: World) -> None:
    found = world.look(marked="db_c")

    assert "marked it as unhealthy" in str(found["db_c"].why_not)
    assert "db_c" not in world.looked_at


def test_a_member_in_maintenance_is_reported_and_a_maintenance_of_all_excludes_no_member(
    world: World, state: Runtime, context: ActionContext
) -> None:
    suspensions.Maintenance("payments", "all disks", minutes=5).run(context)
    assert {fact.maintenance for fact in world.look().values()} == {None}

    identity = group_id(Request(state, context).project_id, "payments")
    met = [(name, name, 1.0) for name in NAMES]
    state.database.atomically(lambda tx: groups.record_members(tx, identity, met))
    suspensions.Maintenance("payments", "a disk", minutes=5, members=["db_b"]).run(context)
    found = world.look()

    assert found["db_a"].maintenance is None
    assert "it is in maintenance until" in str(found["db_b"].maintenance)
    assert "a disk" in str(found["db_b"].maintenance)


def test_however_many_there_are_the_time_to_look_is_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "LOOK", -1.0)
    monkeypatch.setattr(agent_health, "ASK", -1.0)

    found = world.look("db_a", thorough=True)

    assert (world.looked_at, world.asked) == ([], [])
    assert "was not checked" in str(found["db_b"].why_not)
