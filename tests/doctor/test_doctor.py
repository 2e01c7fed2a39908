# SPDX-License-Identifier: Apache-2.0
"""The doctor: each thing that is amiss is a finding with its remedy, and nothing makes it fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import base, doctor, suspensions
from mistral_failover.agent.channel.interface import ChannelError, Heartbeat
from mistral_failover.agent.wire import Address
from mistral_failover.cloud.errors import CloudError
from mistral_failover.convergence.records import Ready
from mistral_failover.doctor import agents
from mistral_failover.doctor import store as store_checks
from mistral_failover.doctor.checks import Examination, Finding, examine, ok
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.settings import Settings
from mistral_failover.store import schema
from support.no_cloud import NoCloud

COMMANDED = {
    "database": {
        "type": "activation",
        "properties": {"member": {"get_param": "active"}, "start": "on", "stop": "off"},
    }
}


def findings(context: ActionContext, group: str | None = None) -> list[dict[str, Any]]:
    answer = doctor.Doctor(group).run(context)
    assert not isinstance(answer, Result), answer.error
    return list(answer["findings"])


def of(found: list[dict[str, Any]], check: str) -> list[tuple[str, str]]:
    return [(row["level"], row["sentence"]) for row in found if row["check"] == check]


def test_without_a_cloud_and_mistral_everything_else_is_looked_at_all_the_same(
    serve: Callable[..., str], context: ActionContext
) -> None:
    group = serve("patient")
    suspensions.Pause(group, because="work on it").run(context)

    found = findings(context, group)

    (store,) = of(found, "store")
    assert store[0] == "ok"
    assert [level for level, _ in of(found, "rights")] == ["error"]
    paused = of(found, "alarms")[0]
    assert (paused[0], "work on it" in paused[1]) == ("warn", True)
    assert all(row["remedy"] for row in found if row["level"] != "ok")
    (fence,) = of(found, "fence")
    assert fence[0] == "ok"
    assert "quiesce, stop, confirm" in fence[1]
    assert of(found, "goal")[0][0] == "warn"  # its traversal is under way


def test_a_store_of_a_later_version_is_told(state: Runtime, context: ActionContext) -> None:
    has = sa.table(schema.VERSION_TABLE, sa.column("version_num")).update()

    def become(revision: str) -> None:
        with state.database.engine.begin() as connection:
            connection.execute(has.values(version_num=revision))

    become("9999_later")
    try:
        found = of(findings(context), "store")
    finally:
        become(schema.head())

    assert found[0][0] == "error"


def test_a_ladder_without_a_rung_for_a_dead_host_is_told(
    serve: Callable[..., str], context: ActionContext
) -> None:
    found = findings(context, serve("short", fence=["quiesce", "stop"]))

    ((level, sentence),) = of(found, "fence")
    assert level == "warn"
    assert "BLOCKED" in sentence


def test_a_missing_stack_of_a_group_out_of_service_is_no_finding(
    begun: Ready, remove: Callable[[], None], context: ActionContext
) -> None:
    remove()

    found = findings(context, "payments")

    assert of(found, "goal")[0] == ("warn", "it is out of service")
    assert of(found, "stack") + of(found, "members") + of(found, "volumes") == []


def test_a_group_that_is_not_there_is_a_finding(state: Runtime, context: ActionContext) -> None:
    ((level, sentence),) = of(findings(context, "unknown"), "group")

    assert level == "error"
    assert "[UNKNOWN_GROUP]" in sentence


def test_a_state_store_that_can_not_be_opened_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, context_of: Callable[..., ActionContext]
) -> None:
    def refuse() -> Runtime:
        raise ActionError("CONFIG", "no state store is configured", "Set [failover] database.")

    monkeypatch.setattr(base, "runtime", refuse)

    (found,) = findings(context_of("p"))

    assert (found["check"], found["level"]) == ("store", "error")
    assert found["remedy"] == "Set [failover] database."


def test_what_several_checks_meet_is_told_once_and_the_time_is_bounded(
    state: Runtime, context: ActionContext
) -> None:
    def away(examination: Examination) -> Iterator[Finding]:
        yield ok("begun")
        raise CloudError("UNREACHABLE", "Nova does not answer.")

    request = Request(state, context)
    twice = examine(Examination(request), "unknown", [("a", away), ("b", away)], [])
    late = examine(Examination(request, limit=0.0), "unknown", [("a", away)], [])

    assert [f.check for f in twice if "Nova" in f.sentence] == ["a"]
    assert [(f.level, f.sentence[:11]) for f in late] == [("warn", "not checked")] * 3


class Line:
    """A channel whose agents' last words are of these ages, look after examination."""

    def __init__(self, **ages: list[float]) -> None:
        self.ages = ages

    def heard(self, to: Address) -> Heartbeat | None:
        ages = self.ages.get(to.member)
        if ages is None:
            return None
        return Heartbeat(1, ages.pop(0) if len(ages) > 1 else ages[0], (), None)


@pytest.fixture
def heard(
    state: Runtime, monkeypatch: pytest.MonkeyPatch, serve: Callable[..., str], context: Any
) -> Callable[..., list[tuple[str, str]]]:
    """What the doctor says of the agents on a channel."""

    def ask(line: Any, listen: float = 0.0) -> list[tuple[str, str]]:
        monkeypatch.setattr(Request, "channel", lambda self, cloud, guard: line)
        monkeypatch.setattr(Request, "cloud", lambda self, guard: NoCloud(guard))
        monkeypatch.setattr(agents, "_PAUSE", 0.0)
        monkeypatch.setattr(agents, "FIRST", listen)
        examination = Examination(Request(state, context))
        examination.settings = replace(examination.settings, command_channel="memory://")
        group = serve("commanded", resources=COMMANDED)
        found = examine(examination, group, [], [("agents", agents.agents)])
        return [(f.level, f.sentence) for f in found if f.check == "agents"]

    return ask


def test_silent_and_unknown_agents_are_told_apart(heard: Callable[..., Any]) -> None:
    first, second = heard(Line(db_a=[90.0]))

    assert (first[0], "db_a" in first[1], "for 90 s" in first[1]) == ("error", True, True)
    assert (second[0], "db_b" in second[1], " s" in second[1].split("db_b")[1]) == (
        "error",
        True,
        False,
    )


def test_an_agent_that_is_heard_but_not_ready_is_an_error(heard: Callable[..., Any]) -> None:
    class Full(Line):
        def heard(self, to: Address) -> Heartbeat | None:
            beat = super().heard(to)
            return beat and replace(beat, not_ready="its journal cannot be written: disk full")

    first, _ = heard(Full(db_a=[3.0], db_b=[3.0]))

    assert first[0] == "error"
    assert "disk full" in first[1]


def test_an_agent_whose_clock_is_wrong_is_not_taken_for_silent(heard: Callable[..., Any]) -> None:
    first, second = heard(Line(db_a=[49.0, 40.0], db_b=[1.0]), listen=60.0)

    assert first[0] == "warn"
    assert "40 s old" in first[1]
    assert (second[0], "1 s ago, epoch 1" in second[1]) == ("ok", True)


def test_a_broker_out_of_reach_is_told_once(heard: Callable[..., Any]) -> None:
    def heard_of_none(to: Address) -> Heartbeat | None:
        raise ChannelError("UNREACHABLE", "no broker answers.")

    ((level, sentence),) = heard(SimpleNamespace(heard=heard_of_none))

    assert level == "error"
    assert "no broker answers" in sentence


def levels(found: Iterable[Finding]) -> list[str]:
    return [each.level for each in found]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, ["ok"]),
        ({"command_channel": "emulator+http://127.0.0.1:1"}, ["ok"]),
        ({"command_channel": "amqp://u:s@127.0.0.1/", "agent_key_file": "k"}, ["ok"]),
        ({"command_channel": "amqps://u:s@broker.example.org/", "agent_key_file": "k"}, ["ok"]),
        ({"command_channel": "amqp://u:s@broker.example.org/"}, ["error", "warn"]),
    ],
)
def test_a_channel_must_be_signed_and_should_be_encrypted(
    options: dict[str, Any], found: list[str]
) -> None:
    examination: Any = SimpleNamespace(settings=Settings(**options))

    assert levels(agents.channel(examination)) == found
    assert "s@" not in str(list(agents.channel(examination)))


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, ["ok"]),
        ({"http_timeout": 30.0}, ["warn"]),
        ({"hang_after": 20.0, "storm_groups": 0}, ["error", "warn"]),
        ({"poll_ceiling": 20.0}, ["warn"]),
    ],
)
def test_options_that_do_not_fit_each_other_are_told(
    options: dict[str, Any], found: list[str]
) -> None:
    examination: Any = SimpleNamespace(settings=Settings(**options))

    assert levels(store_checks.settings(examination)) == found
