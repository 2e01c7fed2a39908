# SPDX-License-Identifier: Apache-2.0
"""What a plan foretells beside its steps, held against the ledger before and the state after."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import networkx as nx
import pytest
import sqlalchemy as sa

from mistral_failover.model.ids import group_id
from mistral_failover.runtime.request import DEFAULT_PROJECT
from mistral_failover.store import details
from mistral_failover.store.tables import edges, operations, resources
from mistral_failover.store.transaction import ProjectTransaction
from support.planned_groups import PlannedGroup

Plan = Mapping[str, Any]


def refuse_disorder(plan: Plan, started: list[str]) -> None:
    """What began did so behind all that it waits for."""
    places = {what: place for place, what in enumerate(started)}
    by_number = {step["number"]: step for step in plan["steps"]}
    for step in plan["steps"]:
        for number in step["after"]:
            before, after = by_number[number]["what"], step["what"]
            if before in places and after in places:
                assert places[before] < places[after], (before, after, started)


# -- in parallel


def refuse_other_waves(plan: Plan) -> None:
    """Every step stands in the first wave that is behind all that it waits for."""
    waves = {number: place for place, wave in enumerate(plan["parallel"]) for number in wave}
    assert list(waves) == [step["number"] for step in plan["steps"]]
    for step in plan["steps"]:
        assert waves[step["number"]] == max((waves[n] + 1 for n in step["after"]), default=0), plan


def refuse_order_within_waves(group: PlannedGroup, plan: Plan, traversal: str) -> None:
    """Of the operations that were carried out, those of one wave wait for each other nowhere in
    the graph that the traversal really had."""

    def read(tx: ProjectTransaction) -> tuple[list[sa.Row[Any]], list[sa.Row[Any]]]:
        drawn = sa.select(edges.c.predecessor, edges.c.node)
        drawn = drawn.where(edges.c.traversal_id == traversal)
        ids = {row["resource_id"] for row in details.operations_of(tx, traversal_id=traversal)}
        named = sa.select(resources.c.id, resources.c.name, resources.c.member)
        named = named.where(resources.c.id.in_(ids))
        return list(tx.connection.execute(drawn)), list(tx.connection.execute(named))

    drawn, named = group.state.database.for_project(DEFAULT_PROJECT).reading(read)
    graph = nx.DiGraph([(row.predecessor, row.node) for row in drawn])
    ids = {(row.name, row.member): row.id for row in named}
    steps = {step["number"]: step for step in plan["steps"]}
    for wave in plan["parallel"]:
        nodes = [_node(graph, steps[number], ids) for number in wave]
        for one, other in combinations([node for node in nodes if node is not None], 2):
            assert not nx.has_path(graph, one, other), (one, other, plan)
            assert not nx.has_path(graph, other, one), (one, other, plan)


def _node(graph: nx.DiGraph, step: Mapping[str, Any], ids: Mapping[Any, str]) -> str | None:
    """The node that carried a step out, if somebody did."""
    identity = ids.get((step["resource"], step["member"]))
    kinds = ("cleanup", "update") if step["verb"] == "delete" else ("update",)
    return next((f"{kind}:{identity}" for kind in kinds if f"{kind}:{identity}" in graph), None)


# -- how long


def refuse_other_times(group: PlannedGroup, plan: Plan) -> None:
    """A step is expected to take as long as its like did in this group, and the whole as long as
    the longest way through the steps that are certain."""
    identity = group_id(DEFAULT_PROJECT, group.name)
    lasted = (operations.c.ended_at - operations.c.started_at).label("seconds")
    query = (
        sa.select(resources.c.type, operations.c.verb, lasted)
        .join(resources, resources.c.id == operations.c.resource_id)
        .where(operations.c.group_id == identity, operations.c.status == "done")
    )
    known: dict[tuple[str, str], list[float]] = {}
    for row in group.state.database.reading(lambda tx: list(tx.connection.execute(query))):
        known.setdefault((row.type, row.verb), []).append(max(0.0, row.seconds))
    for step in plan["steps"]:
        if like := known.get((step["type"], step["verb"])):
            assert min(like) <= step["expected"] <= max(like), (step, like)
    certain = [step["expected"] for step in plan["steps"] if step["certain"]]
    expected = None if None in certain else pytest.approx(_longest(plan["steps"]))
    assert plan["seconds"] == expected


def _longest(steps: list[Mapping[str, Any]]) -> float:
    graph = nx.DiGraph()
    for step in steps:
        for before in [0, *step["after"]]:
            own = step["expected"] if step["certain"] else 0.0
            graph.add_edge(before, step["number"], weight=own)
    return float(nx.dag_longest_path_length(graph, weight="weight"))


# -- who is fenced


def fences_of(group: PlannedGroup) -> dict[str, Mapping[str, Any]]:
    """The group's fences by member, as its status shows them."""
    rows = group.status()["resources"]
    return {r["name"].removeprefix("fence:"): r for r in rows if r["type"] == "fence"}


def refuse_other_fences(
    plan: Plan,
    before: Mapping[str, Mapping[str, Any]],
    after: Mapping[str, Mapping[str, Any]],
    started: list[str],
    *,
    arrived: bool,
) -> None:
    """Who was to climb the ladder was proven fenced by one of its rungs, who stood fenced by the
    same proof as before, and no other member was fenced. ``before`` and ``after``: as
    :func:`fences_of`; ``arrived``: the goal was reached."""
    told = {row["member"]: row for row in plan["fences"]}
    climbed = {what.removeprefix("Fence ") for what in started if what.startswith("Fence ")}
    assert set(plan["lost"]) == {m for m, row in told.items() if row["state"] != "lifted"}
    assert climbed <= {m for m, row in told.items() if row["state"] == "climbs"}
    for member, row in told.items():
        assert (row["longest"] is None) == (row["state"] != "climbs"), row
        if row["state"] == "stands":
            assert before[member]["attributes"]["observed"] in row["sentence"]
            assert after[member]["attributes"] == before[member]["attributes"]
        elif row["state"] == "climbs":
            assert [rung["kind"] for rung in row["ladder"]] == ["quiesce", "stop", "confirm"]
            if arrived:
                assert member in climbed
                assert after[member]["attributes"]["rung"] in ("quiesce", "stop")
        elif arrived:
            assert member in before
            assert member not in after
