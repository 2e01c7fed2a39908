# SPDX-License-Identifier: Apache-2.0
"""Old goals are forgotten when a new one is given, as far as the settings allow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import orders, reports
from mistral_failover.orders import old_goals
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups
from mistral_failover.store.tables import goals, traversals


@pytest.fixture
def given(
    state: Runtime,
    context_of: Callable[..., ActionContext],
    project: str,
    define: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., list[str]]:
    """Remove a group so many times, each time from another definition; the goals it has then."""

    def give(times: int, **settings: Any) -> list[str]:
        monkeypatch.setattr(state, "settings", replace(state.settings, **settings))
        for number in range(times):
            define(stack=f"stack-{number}")
            answer = orders.Remove("payments").run(context_of(project))
            assert isinstance(answer, dict), answer.error
        return [row["version"] for row in reports.Goals("payments").run(context_of(project))]

    return give


def test_as_many_are_kept_as_the_settings_say(given: Callable[..., list[str]]) -> None:
    assert len(given(6, keep_goals=3, keep_days=0.0)) == 3


def test_young_goals_are_kept_however_many(given: Callable[..., list[str]]) -> None:
    assert len(given(6, keep_goals=3, keep_days=1.0)) == 6


def test_an_order_whose_goal_is_forgotten_and_that_is_delivered_again_starts_nothing(
    state: Runtime,
    context_of: Callable[..., ActionContext],
    project: str,
    given: Callable[..., list[str]],
    define: Callable[..., str],
) -> None:
    define(stack="first")
    context = context_of(project, execution="delivered-twice")
    first = orders.Remove("payments").run(context)
    latest = given(6, keep_goals=3, keep_days=0.0)[0]

    again = orders.Remove("payments").run(context)

    assert again["traversal"] == first["traversal"]
    assert again["goal"] is None
    assert "records were deleted" in again["sentence"]
    identity = groups.group_id(project, "payments")
    current = sa.select(traversals.c.goal_version).join(
        goals,
        sa.and_(goals.c.version == traversals.c.goal_version, goals.c.group_id == identity),
    )
    versions = state.database.reading(lambda tx: tx.connection.execute(current).scalars().all())
    assert latest in versions
    assert first["goal"] not in versions


def test_a_database_that_is_away_costs_the_tidying_and_nothing_else(
    state: Runtime, context: ActionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(function: Any) -> None:
        raise sa.exc.OperationalError("DELETE", {}, Exception("the server has gone away"))

    monkeypatch.setattr(state.database, "atomically", away)

    assert old_goals.forget(Request(state, context), "g") == 0
