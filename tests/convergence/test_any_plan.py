# SPDX-License-Identifier: Apache-2.0
"""Whatever the goals are: what of the first one stays in the second, and when the rest goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from mistral_failover.convergence.graph import TraversalPlan, plan_traversal
from mistral_failover.convergence.records import Action, Kind, Node, Record, Status
from mistral_failover.model.goal import FENCE_TYPE, Goal, goal_resources, render_goal
from mistral_failover.model.group import Group, parse_group
from mistral_failover.model.references import resolve_attributes
from mistral_failover.model.types import load_type
from support.strategies import MEMBERS, changed, group_resources, roles
from support.world import TYPES

STATES = [
    (Action.CREATE, Status.COMPLETE),
    (Action.UPDATE, Status.COMPLETE),
    (Action.CREATE, Status.FAILED),
    (Action.UPDATE, Status.FAILED),
    (Action.CREATE, Status.IN_PROGRESS),
    (Action.DELETE, Status.FAILED),
]
LOADED = [load_type(document) for document in TYPES]
"""Once, and not for each group that is drawn."""
STANDING = ((Action.CREATE, Status.COMPLETE), (Action.UPDATE, Status.COMPLETE))


@dataclass(frozen=True)
class Way:
    """From the ``records`` that a first goal left to a second one."""

    goal: Goal
    records: Sequence[Record]
    plan: TraversalPlan

    def __repr__(self) -> str:
        edges = [f"{first} > {then}" for first, then in self.plan.graph.edges()]
        return f"from {self.records} to {self.goal.document}: {edges}"

    def updates(self, name: str) -> str:
        """The update node of a resource of the goal."""
        (identity,) = (i for i, wanted in self.plan.wanted.items() if wanted.name == name)
        return Node("update", identity).key

    def users(self, used: Record) -> list[Record]:
        """The records that required one, or required such a one."""
        found = [r for r in self.records if used.id in r.requires]
        return found + [above for record in found for above in self.users(record)]

    def comes_before(self, first: str, then: str) -> bool:
        return bool(nx.has_path(self.plan.graph, first, then))


def group_of(resources: Mapping[str, Any]) -> Group:
    document = {
        "failover_template_version": "2026-11-21",
        "stack": "s",
        "members": {"servers": list(MEMBERS)},
        "resources": dict(resources),
    }
    return parse_group(document, name="g", types=LOADED)


def goal_of(resources: Mapping[str, Any], active: str, lost: Sequence[str]) -> Goal:
    return render_goal(group_of(resources), {"active": active}, lost)


EVERY_TYPE = group_of({}).types


def left_by(goal: Goal, states: Mapping[str, tuple[Action, Status]]) -> list[Record]:
    """A record for each resource of a goal; those without a state are as they should be."""
    wanted = {w.name: w for w in goal_resources(goal)}
    inputs: dict[str, dict[str, Any]] = {}
    records: dict[str, Record] = {}
    while len(records) < len(wanted):
        for name, resource in wanted.items():
            if name in records or not inputs.keys() >= set(resource.requires):
                continue
            properties = resolve_attributes(resource.properties, inputs)
            action, status = states.get(name, STANDING[0])
            records[name] = Record(
                id=f"{name}-old",
                group_id="g",
                name=name,
                type=resource.type,
                member=properties.get(EVERY_TYPE[resource.type].member_property),
                action=action,
                status=status,
                properties=properties,
                requires=tuple(f"{r}-old" for r in resource.requires),
                generation=1,
            )
            inputs[name] = {"id": f"{name}-id", "attributes": {"echo": properties.get("value")}}
    return list(records.values())


@st.composite
def ways(draw: st.DrawFn) -> Way:
    """From any goal, reached but for some records, to that of a changed group file."""
    resources = draw(group_resources(6))
    first, then = draw(roles()), draw(roles())
    before = goal_of(resources, *first)
    after = goal_of(draw(changed(resources)), *draw(st.sampled_from([first, then])))
    names = st.sampled_from(sorted(before.document["resources"]) or ["none"])
    records = left_by(before, draw(st.dictionaries(names, st.sampled_from(STATES), max_size=2)))
    drawn = plan_traversal(
        after, EVERY_TYPE, records, {}, group_id="g", new_id=lambda name: f"{name}-new"
    )
    return Way(after, records, drawn)


def may_go_first(way: Way, record: Record) -> bool:
    """Of what is delete-first, is replaced by such a thing, or required one that goes first."""
    wanted = way.goal.document["resources"].get(record.name, {"type": record.type})
    if "exclusive" in (record.type, wanted["type"]) or "held" in (record.type, wanted["type"]):
        return True
    return any(may_go_first(way, r) for r in way.records if r.id in record.requires)


@settings(max_examples=300)
@given(ways())
def test_what_stands_is_kept_and_what_leaves_goes_in_the_order_that_its_users_need(
    way: Way,
) -> None:
    """One test: drawing a way and planning it cost far more than the three checks."""
    check_that_what_need_not_go_first_goes_after_all_that_used_it_have_turned_away(way)
    check_that_without_a_fence_what_leaves_goes_first_only_where_its_users_wait_for_that(way)
    check_that_what_stands_as_wanted_upon_what_stands_as_wanted_is_kept(way)


def check_that_what_need_not_go_first_goes_after_all_that_used_it_have_turned_away(
    way: Way,
) -> None:
    for used in way.records:
        cleanup = Node("cleanup", used.id).key
        if cleanup not in way.plan.graph or may_go_first(way, used):
            continue
        for user in way.records:
            if used.id not in user.requires:
                continue
            kind: Kind = "update" if user.id in way.plan.kept else "cleanup"
            assert way.comes_before(Node(kind, user.id).key, cleanup), (user.name, used.name)


def check_that_without_a_fence_what_leaves_goes_first_only_where_its_users_wait_for_that(
    way: Way,
) -> None:
    if way.goal.document["lost"]:
        return
    wanted = way.goal.document["resources"]
    for used in way.records:
        cleanup = Node("cleanup", used.id).key
        stay = [
            Node("update", r.id).key
            for r in way.records
            if used.id in r.requires and r.id in way.plan.kept
        ]
        if used.name in wanted or all(way.comes_before(node, cleanup) for node in stay):
            continue
        users = [way.updates(r.name) for r in way.users(used) if r.name in wanted]
        assert any(way.comes_before(cleanup, node) for node in users), used.name


def check_that_what_stands_as_wanted_upon_what_stands_as_wanted_is_kept(way: Way) -> None:
    standing: dict[str, Record] = {}
    inputs: dict[str, dict[str, Any]] = {}
    by_name = {r.name: r for r in way.records}
    wanted = {w.name: w for w in goal_resources(way.goal)}
    known = -1
    while known < len(standing):
        known = len(standing)
        for name, resource in wanted.items():
            record = by_name.get(name)
            if record is None or not inputs.keys() >= set(resource.requires):
                continue
            if (record.action, record.status) in STANDING and (
                record.type,
                record.requires,
                record.properties,
            ) == (
                resource.type,
                tuple(f"{r}-old" for r in resource.requires),
                resolve_attributes(resource.properties, inputs),
            ):
                standing[name] = record
                echo = (record.properties or {}).get("value")
                inputs[name] = {"id": f"{name}-id", "attributes": {"echo": echo}}

    proven = {r.id for r in standing.values() if r.type != FENCE_TYPE}  # which may be outdated
    assert proven <= set(way.plan.kept)
