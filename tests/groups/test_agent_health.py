# SPDX-License-Identifier: Apache-2.0
"""What the agents of a group last said, for people and for machines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import agents
from mistral_failover.agent.channel.interface import ChannelError, Heartbeat, RehearsalCapability
from mistral_failover.agent.wire import Address
from mistral_failover.groups.agent_health import not_rehearsable
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from support.no_cloud import NoCloud


class Channel:
    """Answers as it was told to, by server."""

    def __init__(self) -> None:
        self.asked: list[Address] = []
        self.answers: dict[str, Any] = {}

    def heard(self, to: Address) -> Heartbeat | None:
        self.asked.append(to)
        answer: Heartbeat | ChannelError | None = self.answers.get(to.server_id)
        if isinstance(answer, ChannelError):
            raise answer
        return answer


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> Channel:
    found = Channel()
    monkeypatch.setattr(Request, "channel", lambda self, cloud, guard: found)
    monkeypatch.setattr(Request, "cloud", lambda self, guard: NoCloud(guard))
    return found


def test_each_member_s_last_word_is_told(
    channel: Channel, serve: Callable[..., str], context: ActionContext
) -> None:
    name = serve("heard")
    channel.answers["heard-b"] = Heartbeat(1, 3.4, ("pg-start",), None, frozenset({"pg-start"}))

    first, second = agents.Agents(name).run(context)

    assert first == {
        "member": "db_a",
        "server": "heard-a",
        "epoch": 1,
        "agent": None,
        "lacks": None,
        "sentence": "no heartbeat received",
    }
    assert second["agent"] == {
        "epoch": 1,
        "ago": 3.4,
        "running": ["pg-start"],
        "deposed": None,
        "commands": ["pg-start"],
        "not_ready": None,
        "boot": None,
        "rehearsals": None,
    }
    assert second["sentence"] == "last heartbeat 3 s ago; runs pg-start"
    assert [(a.group, a.member) for a in channel.asked] == [(name, "db_a"), (name, "db_b")]


def test_one_that_was_fenced_is_told_apart_from_one_that_knows_it(
    channel: Channel,
    serve: Callable[..., str],
    goal: Callable[..., None],
    context: ActionContext,
) -> None:
    name = serve("fenced")
    goal("db_a", group=name)
    channel.answers["fenced-a"] = Heartbeat(1, 90.0, (), None)

    (before, _) = agents.Agents(name).run(context)
    channel.answers["fenced-a"] = Heartbeat(2, 1.0, (), "stopped pg")
    (after, _) = agents.Agents(name).run(context)

    assert before["epoch"] == 2
    assert (
        before["sentence"] == "last heartbeat 90 s ago; has not received the notice of epoch 2 yet"
    )
    assert after["sentence"] == "last heartbeat 1 s ago; was deposed: stopped pg"


def test_a_channel_out_of_reach_is_asked_once_and_said_in_words(
    channel: Channel, serve: Callable[..., str], context: ActionContext
) -> None:
    name = serve("unreached")
    channel.answers["unreached-a"] = ChannelError("UNREACHABLE", "no broker answers.")

    rows = agents.Agents(name).run(context)

    assert {row["sentence"] for row in rows} == {"UNREACHABLE: no broker answers."}
    assert [row["agent"] for row in rows] == [None, None]
    assert len(channel.asked) == 1


def test_a_group_that_is_not_there_is_named(
    state: Runtime, channel: Channel, context: ActionContext
) -> None:
    assert agents.Agents("unknown").run(context).error["code"] == "UNKNOWN_GROUP"


ABLE = RehearsalCapability(None, None, frozenset({"up"}), None)


def beat(able: RehearsalCapability | None, ago: float = 1.0) -> Heartbeat:
    return Heartbeat(1, ago, (), None, frozenset({"up", "down"}), rehearsals=able)


@pytest.mark.parametrize(
    ("heard", "why"),
    [
        (beat(ABLE), ""),
        (beat(replace(ABLE, commands=None)), ""),
        (None, "its agent has never sent a heartbeat"),
        (beat(ABLE, 90.0), "its agent has sent no heartbeat for 90 s"),
        (beat(None), "its agent does not know rehearsals: upgrade it"),
        (
            beat(replace(ABLE, not_isolated="the agent does not run as root")),
            "its agent cannot isolate a rehearsal: the agent does not run as root",
        ),
        (
            beat(replace(ABLE, commands=frozenset())),
            "its agent may not rehearse the command up: the file there has no rehearse for it",
        ),
    ],
)
def test_why_a_member_cannot_rehearse_is_said(heard: Heartbeat | None, why: str) -> None:
    assert not_rehearsable(heard, ["up"]) == why
