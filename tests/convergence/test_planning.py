# SPDX-License-Identifier: Apache-2.0
"""Which edges a goal gets: one test per rule of ``convergence.graph``, then whole failovers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from mistral_failover.convergence.errors import GoalCycle, UnknownType
from mistral_failover.convergence.graph import TraversalPlan, plan_traversal
from mistral_failover.convergence.records import Action, Node, Record, Status
from mistral_failover.model.goal import Goal
from mistral_failover.model.types import installed_types, load_type
from support.world import TYPES

ALL_TYPES = {**installed_types(), **{t["name"]: load_type(t) for t in TYPES}}
EPOCHS = {"a": 1, "b": 1}


def want(kind: str, *requires: str, **properties: Any) -> dict[str, Any]:
    return {"type": kind, "properties": properties, "requires": list(requires)}


def goal(resources: Mapping[str, Any], *lost: str) -> Goal:
    fences = {f"fence:{m}": want("fence", member=m, ladder=[{"kind": "stop"}]) for m in lost}
    return Goal({"lost": list(lost), "resources": {**resources, **fences}})


def made(name: str, kind: str, *requires: str, **properties: Any) -> Record:
    """A record that an earlier goal left COMPLETE; its id is its name and a nought."""
    return Record(
        id=f"{name}0",
        group_id="g",
        name=name,
        type=kind,
        member=properties.get("member"),
        epoch=1,
        action=Action.CREATE,
        properties=properties,
        requires=tuple(f"{r}0" for r in requires),
        generation=1,
    )


def drawn(
    target: Goal,
    records: Sequence[Record],
    epochs: Mapping[str, int] = EPOCHS,
    present: Goal | None = None,
) -> TraversalPlan:
    """The plan; new records are called by their name and a one."""
    return plan_traversal(
        *(target, ALL_TYPES, records, epochs),
        group_id="g",
        new_id=lambda n: f"{n}1",
        present=present,
    )


def edges(target: Goal, records: Sequence[Record], **options: Any) -> set[str]:
    return {f"{b} > {a}" for b, a in drawn(target, records, **options).graph.edges()}


FENCE = replace(made("fence:a", "fence", ladder=[]), properties={"member": "a", "ladder": []})
AN_EXCLUSIVE_ONE = made("a", "exclusive", key=1)
BOTH_ANEW = {"cleanup:a0 > update:a1", "cleanup:b0 > update:b1", "update:a1 > update:b1"}
ON_A, ON_B = want("held", member="a"), want("held", member="b")

RULES: dict[str, tuple[Goal, list[Record], set[str]]] = {
    "what is required comes first": (
        goal({"a": want("shared"), "b": want("shared", "a")}),
        [],
        {"update:a1 > update:b1"},
    ),
    "what required something is cleaned up before it": (
        goal({}),
        [made("a", "shared"), made("b", "shared", "a")],
        {"cleanup:b0 > cleanup:a0"},
    ),
    "what is kept turns to a create-first replacement before the old one goes": (
        goal({"a": want("shared", key=2), "b": want("shared", "a")}),
        [made("a", "shared", key=1), made("b", "shared", "a")],
        {"update:a1 > update:b0", "update:b0 > cleanup:a0", "update:a1 > cleanup:a0"},
    ),
    "what is kept turns away from what leaves before that goes": (
        goal({"b": want("exclusive")}),
        [made("a", "exclusive"), made("b", "exclusive", "a")],
        {"update:b0 > cleanup:a0"},
    ),
    "what leaves goes first where its dependent waits for what waits for that": (
        goal({"y": ON_A, "b": want("shared", "y"), "c": want("shared")}),
        [made("x", "held", member="a"), made("b", "shared", "x"), made("c", "shared", "x")],
        {"cleanup:x0 > update:y1", "update:y1 > update:b0"},
    ),
    "while a member is lost, what is new on a member waits for no update": (
        goal({"y": ON_B, "c": want("shared")}, "a"),
        [made("x", "held", member="b"), made("c", "shared", "x")],
        {"update:fence:a1 > update:y1", "cleanup:x0 > update:y1"},
    ),
    "a delete-first type is gone before its replacement comes": (
        goal({"a": want("exclusive", key=2)}),
        [AN_EXCLUSIVE_ONE],
        {"cleanup:a0 > update:a1"},
    ),
    "a create-first type has its replacement before it goes": (
        goal({"a": want("shared", key=2)}),
        [made("a", "shared", key=1)],
        {"update:a1 > cleanup:a0"},
    ),
    "what sits on a lost member is cleaned up after its fence": (
        goal({"x": ON_B}, "a"),
        [made("x", "held", member="a")],
        {
            "cleanup:x0 > update:x1",
            "update:fence:a1 > cleanup:x0",
            "update:fence:a1 > update:x1",
        },
    ),
    "nothing is made on a member before every fence is proven": (
        goal({"x": ON_B, "y": want("shared")}, "a"),
        [],
        {"update:fence:a1 > update:x1"},
    ),
    # Under another name it may be the same application.
    "what no goal wants goes before anything new sits on a member": (
        goal({"new": ON_B, "y": want("shared")}),
        [made("old", "held", member="a")],
        {"cleanup:old0 > update:new1"},
    ),
    # They may share a volume: what the one would find there is what the other takes away.
    "who comes to a member waits for what of its type goes from there": (
        goal({"x": ON_B, "y": ON_A}),
        [made("x", "held", member="a"), made("y", "held", member="b")],
        {f"cleanup:{gone}0 > update:{new}1" for gone in "xy" for new in "xy"},
    ),
    "what is kept on a member waits for nothing that goes from there": (
        goal({"x": ON_B, "y": ON_A}),
        [made("x", "held", member="a"), made("y", "held", member="a")],
        {"cleanup:x0 > update:x1"},
    ),
    "the fence is lifted before anything is made on a member that comes back": (
        goal({"x": ON_A}),
        [made("x", "held", member="b"), FENCE],
        {"cleanup:x0 > update:x1", "cleanup:fence:a0 > update:x1"},
    ),
    "a delete-first dependent of what goes first is replaced, too": (
        goal({"a": want("exclusive", key=2), "b": want("exclusive", "a")}),
        [AN_EXCLUSIVE_ONE, made("b", "exclusive", "a")],
        {*BOTH_ANEW, "cleanup:b0 > cleanup:a0"},
    ),
    "a create-first dependent of what goes first is kept and updated afterwards": (
        goal({"a": want("exclusive", key=2), "b": want("shared", "a")}),
        [AN_EXCLUSIVE_ONE, made("b", "shared", "a")],
        {"cleanup:a0 > update:a1", "update:a1 > update:b0"},
    ),
    "a create-first dependent that is replaced with what goes first goes first itself": (
        goal({"a": want("exclusive", key=2), "b": want("shared", "a", key=2)}),
        [AN_EXCLUSIVE_ONE, made("b", "shared", "a", key=1)],
        {*BOTH_ANEW, "cleanup:b0 > cleanup:a0"},
    ),
    "going first spreads along what was required even where the order is turned round": (
        goal({"a": want("exclusive"), "b": want("exclusive", "a", key=2)}),
        [made("b", "exclusive", key=1), made("a", "exclusive", "b")],
        {*BOTH_ANEW, "cleanup:a0 > cleanup:b0"},
    ),
    "what a replacement left behind does not tie the next goal into a knot": (
        goal({"a": want("shared", "w", key=2), "w": want("exclusive", key=2)}),
        [
            made("w", "exclusive", key=1),
            made("a", "shared", "w", key=1),
            replace(made("a", "shared", "w", key=2), id="a-kept"),
        ],
        {
            "cleanup:a0 > cleanup:w0",
            "cleanup:w0 > update:w1",
            "update:w1 > update:a-kept",
            "cleanup:a0 > update:a-kept",
        },
    ),
}


@pytest.mark.parametrize(("target", "records", "expected"), RULES.values(), ids=RULES)
def test_each_rule_gives_its_edges(target: Goal, records: list[Record], expected: set[str]) -> None:
    assert edges(target, records) == expected


def test_a_fence_that_stood_is_proven_anew_for_what_is_still_on_its_member() -> None:
    found = edges(goal({"x": ON_B}, "a"), [FENCE, made("x", "held", member="a")])

    assert "update:fence:a1 > cleanup:x0" in found


def test_a_failover_is_ordered_by_its_graph_alone() -> None:
    records = [
        made("data", "held", member="a"),
        made("database", "held", "data", member="a"),
        made("routing", "shared", "database", value="a"),
    ]
    target = goal(
        {
            "data": want("held", member="b"),
            "database": want("held", "data", member="b"),
            "routing": want("shared", "database", value="b"),
        },
        "a",
    )

    order = drawn(target, records).in_order()

    assert [node.key for node in order] == [
        "update:fence:a1",
        "cleanup:database0",
        "cleanup:data0",
        "update:data1",
        "update:database1",
        "update:routing0",
    ]


def test_records_that_no_goal_wants_are_cleaned_up() -> None:
    assert drawn(goal({}), [made("a", "shared")]).ready() == [Node("cleanup", "a0")]


def test_a_goal_that_asks_for_nothing_of_an_empty_group_has_no_nodes() -> None:
    assert drawn(goal({}), []).in_order() == []


def test_what_is_as_it_should_be_is_kept() -> None:
    result = drawn(goal({"a": want("shared", key=1)}), [made("a", "shared", key=1)])

    assert (result.kept, result.new, result.replaced) == (("a0",), (), {})


WANTS_A = goal({"a": want("shared")})


@pytest.mark.parametrize(
    ("spoiled", "why"),
    [
        ({"action": Action.DELETE, "status": Status.FAILED}, "its deletion has begun"),
        ({"condemned_for": WANTS_A.version}, "it can not become what is wanted"),
        ({"type": "exclusive"}, "it is of another type"),
    ],
)
def test_a_record_is_not_kept_when(spoiled: dict[str, Any], why: str) -> None:
    record = replace(made("a", "shared"), **spoiled)

    assert drawn(WANTS_A, [record]).replaced == {"a0": "a1"}, why


def test_what_another_goal_had_to_replace_is_kept() -> None:
    record = replace(made("a", "shared"), condemned_for="another goal")

    assert drawn(WANTS_A, [record]).kept == ("a0",)


def test_a_record_of_an_earlier_epoch_of_its_member_is_not_kept() -> None:
    record = made("x", "held", member="a")

    result = drawn(goal({"x": want("held", member="a")}), [record], {"a": 2})

    assert result.replaced == {"x0": "x1"}
    assert result.new[0].epoch == 2


def test_a_record_that_is_gone_counts_for_nothing() -> None:
    gone = replace(made("a", "shared"), action=Action.DELETE)

    assert drawn(goal({}), [gone]).in_order() == []


def test_of_several_records_the_complete_one_is_kept_before_the_failed_one() -> None:
    failed = replace(made("a", "shared"), id="failed", status=Status.FAILED, generation=7)

    result = drawn(goal({"a": want("shared")}), [failed, made("a", "shared")])

    assert result.kept == ("a0",)
    assert Node("cleanup", "failed") in result.in_order()


def test_a_record_that_never_came_to_be_is_taken_over_unless_it_is_for_another_member() -> None:
    planned = replace(made("x", "held", member="b"), action=Action.INIT, properties=None)

    assert drawn(goal({"x": want("held", member="b")}), [planned]).kept == ("x0",)
    assert drawn(goal({"x": want("held", member="a")}), [planned]).kept == ()


def test_a_value_that_is_not_known_yet_replaces_nothing() -> None:
    target = goal({"a": want("shared"), "b": want("shared", "a", key={"get_attr": ["a", "echo"]})})

    records = [made("a", "shared"), made("b", "shared", "a", key=1)]

    assert drawn(target, records).kept == ("a0", "b0")


@pytest.mark.parametrize("status", [Status.IN_PROGRESS, Status.FAILED])
def test_a_fence_that_runs_counts_unless_its_member_was_recovered_meanwhile(status: Status) -> None:
    fence = replace(
        made("fence:a", "fence"),
        properties={"member": "a", "ladder": [{"kind": "stop"}]},
        status=status,
    )
    lost = goal({}, "a")

    assert drawn(lost, [fence], present=lost).kept == (fence.id,)
    assert drawn(lost, [fence], present=goal({})).kept == ()


def test_only_members_that_are_fenced_for_the_first_time_are_named() -> None:
    first = drawn(goal({}, "a"), [])
    fence = replace(
        made("fence:a", "fence"), properties={"member": "a", "ladder": [{"kind": "stop"}]}
    )

    assert first.fenced == ("a",)
    assert drawn(goal({}, "a"), [fence]).fenced == ()


def test_dependencies_in_a_circle_are_refused_by_name() -> None:
    target = goal({"a": want("shared", "b"), "b": want("shared", "a")})

    with pytest.raises(GoalCycle) as refused:
        drawn(target, [])

    assert sorted(refused.value.names) == ["a", "b"]
    assert refused.value.code == "GOAL_CYCLE"
    assert refused.value.remedy


def test_an_undefined_type_is_refused_by_name() -> None:
    with pytest.raises(UnknownType, match="resource a is of type unheard") as refused:
        drawn(goal({"a": want("unheard")}), [])

    assert refused.value.code == "UNKNOWN_TYPE"


def test_nodes_are_read_back_from_their_keys_and_nothing_else_is() -> None:
    assert Node.parse(Node("cleanup", "x").key) == Node("cleanup", "x")
    for wrong in ("x", "update:", "create:x", ""):
        with pytest.raises(ValueError, match="is not a node"):
            Node.parse(wrong)


# -- stages


def stages(target: Goal, records: Sequence[Record], **options: Any) -> dict[str, str]:
    return {key: str(stage) for key, stage in drawn(target, records, **options).stages.items()}


def held(name: str, kind: str, *requires: str, **properties: Any) -> Record:
    """A record of a shipped type on member a, which is lost."""
    member = properties.get("member") or properties.get("server")
    return replace(made(name, kind, *requires, **properties), member=member)


def failover() -> tuple[Goal, list[Record]]:
    """Member a is lost: its volume and its application go to b, and the stack is told."""
    commands = {"start": "up", "stop": "down"}
    records = [
        held("data", "volume_attachment", volume="v", server="a"),
        held("app", "activation", "data", member="a", **commands),
        made("routing", "stack_parameters", "app", parameters={"active": "a"}),
    ]
    target = goal(
        {
            "data": want("volume_attachment", volume="v", server="b"),
            "app": want("activation", "data", member="b", **commands),
            "routing": want("stack_parameters", "app", parameters={"active": "b"}),
        },
        "a",
    )
    return target, records


def test_the_nodes_of_a_failover_are_of_the_stages_of_their_types() -> None:
    assert stages(*failover()) == {
        "update:fence:a1": "fence",
        "cleanup:app0": "quiesce",
        "cleanup:data0": "move_volumes",
        "update:data1": "move_volumes",
        "update:app1": "activate",
        "update:routing0": "update_stack",
    }


def test_a_type_without_a_stage_is_of_the_latest_stage_of_what_it_waits_for() -> None:
    target = goal(
        {
            "data": want("volume_attachment", volume="v", server="a"),
            "mount": want("shared", "data"),
            "apart": want("shared"),
        }
    )

    assert stages(target, []) == {
        "update:data1": "move_volumes",
        "update:mount1": "move_volumes",
        "update:apart1": "fence",
    }


def test_no_node_is_of_an_earlier_stage_than_one_that_it_waits_for() -> None:
    """An application that tells the stack first is started in the stage of the stack's update, so
    that no worker that takes one stage after the other waits for a later one."""
    target = goal(
        {
            "routing": want("stack_parameters", parameters={"active": "a"}),
            "app": want("activation", "routing", member="a", start="up", stop="down"),
        }
    )

    assert stages(target, [])["update:app1"] == "update_stack"


def test_an_update_is_of_the_later_stage_of_its_create_and_its_update() -> None:
    operations = {
        "create": {"workflow": "x.make", "stage": "activate"},
        "update": {"workflow": "x.change", "stage": "quiesce"},
        "delete": {"workflow": "x.remove", "stage": "update_stack"},
    }
    both = load_type({**TYPES[0], "name": "both", "operations": operations})
    found = plan_traversal(
        goal({"new": want("both")}),
        {"both": both},
        [made("old", "both")],
        {},
        group_id="g",
        new_id=lambda name: f"{name}1",
    )

    assert found.stages == {"update:new1": "activate", "cleanup:old0": "update_stack"}
