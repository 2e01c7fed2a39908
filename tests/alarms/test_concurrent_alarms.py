# SPDX-License-Identifier: Apache-2.0
"""Alarms at the same instant on several executors: each process has a runtime of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.alarms import intake
from mistral_failover.alarms.alarm import Alarm
from mistral_failover.alarms.intake import RecordedAlarm
from mistral_failover.model.goal import render_goal
from mistral_failover.orders import define_group, held_alarms
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.settings import Settings
from mistral_failover.store import groups, incidents
from support.databases import KINDS, empty, fresh_url
from support.together import together

EXECUTORS = 6
PROJECT = "mine"


@pytest.fixture(scope="module", params=KINDS)
def executors(request: pytest.FixtureRequest) -> list[Runtime]:
    """Runtimes on one state store, as of different processes."""
    url = fresh_url(request.param, "together")
    return [Runtime(Settings(database=url), eager=False) for _ in range(EXECUTORS)]


@pytest.fixture
def serve(executors: list[Runtime]) -> Callable[[int], list[str]]:
    """Bring so many groups into service; the servers of each are NAME-a and NAME-b."""
    empty(executors[0].database)

    def bring(count: int) -> list[str]:
        return [_bring(request_of(executors[0]), f"g{number}") for number in range(count)]

    return bring


def _bring(request: Request, name: str) -> str:
    document = {
        "failover_template_version": "2026-11-21",
        "stack": name,
        "members": {"servers": ["db_a", "db_b"]},
        "resources": {},
    }
    identity = define_group.define(request, document, name, None)["id"]
    database, engine = request.runtime.database, request.runtime.engine
    seen = [("db_a", f"{name}-a", 1.0), ("db_b", f"{name}-b", 2.0)]
    database.atomically(lambda tx: groups.record_members(tx, identity, seen))
    state = database.reading(lambda tx: groups.get(tx, identity))
    assert state is not None
    group = database.reading(lambda tx: request.runtime.definitions.group(tx, state))
    engine.start(
        identity,
        render_goal(group, {"active": "db_a"}, []),
        traversal_id=f"t-{name}",
        expected=None,
        cause="a test",
    )
    return name


def request_of(runtime: Runtime) -> Request:
    security = SecurityContext(project_id=PROJECT, auth_token="t")
    return Request(runtime, ActionContext(security, ExecutionContext()))


def alarm(key: str, server: str, *, unique: bool = True) -> Alarm:
    return Alarm("aodh", key, True, unique, f"alarm {key}", (server,), {})


def hear(runtime: Runtime, what: Alarm) -> RecordedAlarm:
    (recorded,) = intake.take(request_of(runtime), what)
    return recorded


def decisions(recorded: list[RecordedAlarm]) -> Counter[str]:
    return Counter(each.verdict.decision for each in recorded)


@pytest.mark.parametrize("unique", [True, False], ids=["an event", "words"])
def test_of_identical_alarms_at_once_one_is_admitted_and_the_others_are_counted(
    executors: list[Runtime], serve: Any, unique: bool
) -> None:
    serve(1)
    same = alarm("k", "g0-a", unique=unique)

    recorded = together(EXECUTORS, lambda n: hear(executors[n], same))

    assert decisions(recorded) == {"ADMITTED": 1, "DUPLICATE": EXECUTORS - 1}
    (identity,) = {each.incident for each in recorded}
    found = (
        executors[0].database.for_project(PROJECT).reading(lambda tx: incidents.get(tx, identity))
    )
    assert found is not None
    assert found.duplicates == EXECUTORS - 1


def test_of_different_alarms_about_one_member_at_once_one_is_admitted(
    executors: list[Runtime], serve: Any
) -> None:
    serve(1)

    recorded = together(EXECUTORS, lambda n: hear(executors[n], alarm(f"k{n}", "g0-a")))

    assert decisions(recorded) == {"ADMITTED": 1, "DUPLICATE": EXECUTORS - 1}
    assert len({each.incident for each in recorded}) == 1


def test_alarms_without_a_group_at_once_are_one_incident(
    executors: list[Runtime], serve: Any
) -> None:
    serve(1)

    recorded = together(EXECUTORS, lambda n: hear(executors[n], alarm("k", "s-unknown")))

    assert decisions(recorded) == {"HELD": EXECUTORS}
    (listed,) = held_alarms.list_held_alarms(request_of(executors[0]), None, 10)["held"]
    assert listed["heard"] == EXECUTORS


def test_a_storm_that_breaks_in_one_instant_is_held_all_the_same(
    executors: list[Runtime], serve: Any
) -> None:
    """Of six groups two may fail over; the third is half of them."""
    every = serve(EXECUTORS)

    recorded = together(EXECUTORS, lambda n: hear(executors[n], alarm(f"k{n}", f"{every[n]}-a")))

    assert decisions(recorded) == {"ADMITTED": 2, "HELD": EXECUTORS - 2}
