# SPDX-License-Identifier: Apache-2.0
"""``failover.metrics``: the numbers of a project, with bounded labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import alarms, recovery, suspensions
from mistral_failover.actions.reports import Metrics
from mistral_failover.convergence.records import Outcome, Ready
from mistral_failover.metrics import numbers as metrics
from mistral_failover.metrics.families import FAMILIES
from mistral_failover.metrics.numbers import of_server
from mistral_failover.metrics.server import Latest
from mistral_failover.runtime.process import Runtime
from mistral_failover.store.counters import BUCKETS, Count
from mistral_failover.store.tables import groups as group_table

Families = dict[str, list[dict[str, Any]]]


def families(context: ActionContext, **inputs: Any) -> Families:
    answer = Metrics(**inputs).run(context)
    assert isinstance(answer, dict), answer.error
    assert answer["bounds"] == list(BUCKETS)
    found: Families = answer["families"]
    return found


def value(found: Families, family: str, /, **labels: str) -> Any:
    """The value of the sample with these labels among its own; None where there is none."""
    rows = [row for row in found.get(family, []) if labels.items() <= row["labels"].items()]
    assert len(rows) <= 1
    return rows[0]["value"] if rows else None


def values(found: Families) -> set[Any]:
    """All values except those of defects, which other tests may have caused in this process."""
    return {row["value"] for name, rows in found.items() if name != "defects" for row in rows}


def test_a_project_without_anything_has_zeroes_where_alerts_look_for_an_increase(
    state: Runtime, context: ActionContext
) -> None:
    found = families(context)

    assert values(found) == {0}
    assert value(found, "incidents", decision="HELD", rule="storm") == 0
    assert value(found, "traversals", outcome="BLOCKED") == 0
    assert value(found, "defects", doing="", error="") == 0


def test_every_family_and_label_is_one_that_prometheus_knows(
    begun: Ready, context: ActionContext
) -> None:
    alarms.Admit({"alarm_name": "x", "alarm_id": "a", "current": "alarm", "previous": "ok"}).run(
        context
    )
    recovery.Sweep().run(context)
    answer = Metrics().run(context)

    for name, rows in answer["families"].items():
        assert all(set(row["labels"]) == set(FAMILIES[name].labels) for row in rows), name
    latest = Latest()
    latest.answered(answer)
    assert b"failover_group_status" in latest.text()


def test_how_a_group_stands_and_what_is_under_way(
    state: Runtime, begun: Ready, context: ActionContext, project: str
) -> None:
    found = families(context)

    assert value(found, "group_status", group="payments", status="IN_PROGRESS") == 1
    assert value(found, "group_under_way_seconds", project=project, group="payments") >= 0
    assert value(found, "group_traversals_last_hour", group="payments") == 1
    assert value(found, "traversals_started") == 1
    assert value(found, "group_blocked_seconds", group="payments") is None
    assert value(found, "left_lying", project=project) == 1


def test_since_when_a_group_is_blocked(
    state: Runtime, begun: Ready, context: ActionContext
) -> None:
    operation = state.engine.check(begun, "o").operation
    assert operation is not None
    error = {"code": "FENCE_UNPROVEN", "message": "no proof", "remedy": "Look."}
    state.engine.conclude(operation.ticket, Outcome(error=error, blocked=True))

    found = families(context)

    assert value(found, "group_status", status="BLOCKED") == 1
    assert value(found, "group_blocked_seconds", group="payments") >= 0
    assert value(found, "traversals", outcome="BLOCKED") == 1
    assert value(found, "group_under_way_seconds", group="payments") is None


def test_held_alarms_of_a_group_and_of_no_known_group(
    serve: Callable[..., str], context: ActionContext
) -> None:
    serve("orders")
    suspensions.Pause("orders", "a test").run(context)
    for server in ("orders-b", "s-unknown"):
        traits = [["instance_id", 1, server]]
        event = {"message_id": server, "traits": traits}
        alarm = {"alarm_name": "lost", "alarm_id": server, "previous": "ok", "current": "alarm"}
        alarms.Admit({**alarm, "reason_data": {"type": "event", "event": event}}).run(context)

    found = families(context)

    assert value(found, "held_alarms", group="orders") == 1
    assert value(found, "held_alarms", group=metrics.UNKNOWN) == 1
    assert value(found, "incidents", decision="HELD", rule="paused", source="alarm") == 1


def test_beyond_the_limit_the_newer_groups_are_one(
    state: Runtime, serve: Callable[..., str], context: ActionContext
) -> None:
    for number in range(4):
        serve(f"g{number}")

    found = families(context, group_limit=2)

    rows = {row["labels"]["group"]: row["value"] for row in found["group_status"]}
    assert rows == {"g0": 1, "g1": 1, "other": 2}
    assert value(families(context, group_limit=0), "group_status", group="other") == 4


def test_beyond_the_limit_the_types_that_were_used_later_are_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "TYPES", 2)
    counters = {
        ("operations", f"{kind}|create|done"): Count(1.0, at)
        for kind, at in [("c", 1.0), ("a", 3.0), ("b", 2.0), ("d", 4.0), ("fence", 9.0)]
    }
    table = metrics._Table()

    metrics._count(table, counters)

    rows = {row["labels"]["type"]: row["value"] for row in table.families["operations"]}
    assert rows == {"b": 1, "c": 1, "fence": 1, "other": 2}


def test_a_type_that_was_counted_first_keeps_its_label(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or its counts would fall."""
    monkeypatch.setattr(metrics, "TYPES", 1)
    counters = {("operations", "quick|create|done"): Count(1.0, 2.0)}

    def values() -> dict[str, float]:
        table = metrics._Table()
        metrics._count(table, counters)
        return {row["labels"]["type"]: row["value"] for row in table.families["operations"]}

    assert values() == {"quick": 1}
    counters["operations", "a slow one|create|done"] = Count(1.0, 3.0)
    assert values() == {"quick": 1, "other": 1}


def test_sweeps_are_counted_and_the_last_one_is_remembered(
    begun: Ready, context: ActionContext, project: str
) -> None:
    assert value(families(context), "last_sweep_seconds", project=project) is None
    recovery.Sweep().run(context)

    found = families(context)

    assert value(found, "sweeps", found="yes") == 1
    assert value(found, "findings", what="triggered") == 1
    assert value(found, "last_sweep_seconds", project=project) >= 0


def test_a_server_shows_its_own_project(
    state: Runtime, begun: Ready, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "settings", replace(state.settings, project=project))
    assert value(of_server(state)["families"], "group_status", project=project) == 1

    monkeypatch.setattr(state, "settings", replace(state.settings, project=f"not-{project}"))
    found = of_server(state)["families"]
    assert values(found) == {0}


def test_a_server_shows_all_projects_if_it_is_told_to(
    state: Runtime, begun: Ready, project: str
) -> None:
    found = of_server(state, all_projects=True)["families"]

    assert value(found, "group_status", project=project, group="payments") == 1


def test_a_channel_that_is_out_of_reach_costs_the_silence_and_nothing_else(
    state: Runtime,
    define: Callable[..., str],
    serve: Callable[..., str],
    context: ActionContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serve("commanding")
    monkeypatch.setattr(metrics, "sends_commands", lambda group: True)
    monkeypatch.setattr(state, "settings", replace(state.settings, command_channel="no://such"))

    found = families(context)

    assert "agent_silence_seconds" not in found
    assert value(found, "group_status", group="commanding") == 1


@pytest.mark.parametrize("limit", [-1, 10_001, "many", True])
def test_a_limit_that_is_none_is_refused(
    context: ActionContext, state: Runtime, limit: Any
) -> None:
    assert Metrics(limit).run(context).error["code"] == "BAD_INPUT"


def test_the_oldest_groups_keep_their_labels_whatever_comes(
    state: Runtime, serve: Callable[..., str], context: ActionContext
) -> None:
    serve("b")
    serve("a")
    aged = group_table.update().where(group_table.c.name == "b").values(created_at=1.0)
    state.database.atomically(lambda tx: tx.execute(aged))

    found = families(context, group_limit=1)

    assert {row["labels"]["group"] for row in found["group_status"]} == {"b", "other"}
