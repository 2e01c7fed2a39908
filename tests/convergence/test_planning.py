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
    target: Goal, records: Sequence[Record], epochs: Mapping[str, int] = EPOCHS
) -> TraversalPlan:
    """The plan; new records are called by their name and a one."""
    return plan_traversal(
        target, ALL_TYPES, records, epochs, group_id="g", new_id=lambda n: f"{n}1"
    )


def edges(target: Goal, records: Sequence[Record], **options: Any) -> set[str]:
    return {f"{b} > {a}" for b, a in drawn(target, records, **options).graph.edges()}


def test_what_is_required_comes_first() -> None:
    target = goal({"a": want("shared"), "b": want("shared", "a")})

    assert edges(target, []) == {"update:a1 > update:b1"}


def test_what_required_something_is_cleaned_up_before_it() -> None:
    records = [made("a", "shared"), made("b", "shared", "a")]

    assert edges(goal({}), records) == {"cleanup:b0 > cleanup:a0"}


def test_what_is_kept_turns_to_a_create_first_replacement_before_the_old_one_goes() -> None:
    records = [made("a", "shared", key=1), made("b", "shared", "a")]
    target = goal({"a": want("shared", key=2), "b": want("shared", "a")})

    assert edges(target, records) == {
        "update:a1 > update:b0",
        "update:b0 > cleanup:a0",
        "update:a1 > cleanup:a0",
    }


def test_what_is_kept_turns_away_from_what_leaves_before_that_goes() -> None:
    records = [made("a", "exclusive"), made("b", "exclusive", "a")]

    assert edges(goal({"b": want("exclusive")}), records) == {"update:b0 > cleanup:a0"}


def test_what_leaves_goes_first_where_its_dependent_waits_for_what_waits_for_that() -> None:
    records = [made("x", "held", member="a"), made("b", "shared", "x"), made("c", "shared", "x")]
    target = goal(
        {"y": want("held", member="a"), "b": want("shared", "y"), "c": want("shared")},
    )

    assert edges(target, records) == {"cleanup:x0 > update:y1", "update:y1 > update:b0"}


def test_while_a_member_is_lost_what_is_new_on_a_member_waits_for_no_update() -> None:
    records = [made("x", "held", member="b"), made("c", "shared", "x")]
    target = goal({"y": want("held", member="b"), "c": want("shared")}, "a")

    assert edges(target, records) == {
        "update:fence:a1 > update:y1",
        "cleanup:x0 > update:y1",
    }


def test_a_delete_first_type_is_gone_before_its_replacement_comes() -> None:
    target = goal({"a": want("exclusive", key=2)})

    assert edges(target, [made("a", "exclusive", key=1)]) == {"cleanup:a0 > update:a1"}


def test_a_create_first_type_has_its_replacement_before_it_goes() -> None:
    target = goal({"a": want("shared", key=2)})

    assert edges(target, [made("a", "shared", key=1)]) == {"update:a1 > cleanup:a0"}


def test_what_sits_on_a_lost_member_is_cleaned_up_after_its_fence() -> None:
    target = goal({"x": want("held", member="b")}, "a")

    assert edges(target, [made("x", "held", member="a")]) == {
        "cleanup:x0 > update:x1",
        "update:fence:a1 > cleanup:x0",
        "update:fence:a1 > update:x1",
    }


def test_nothing_is_made_on_a_member_before_every_fence_is_proven() -> None:
    target = goal({"x": want("held", member="b"), "y": want("shared")}, "a")

    assert edges(target, []) == {"update:fence:a1 > update:x1"}


def test_what_no_goal_wants_goes_before_anything_new_sits_on_a_member() -> None:
    """Under another name it may be the same application."""
    target = goal({"new": want("held", member="b"), "y": want("shared")})

    assert edges(target, [made("old", "held", member="a")]) == {"cleanup:old0 > update:new1"}


def test_who_comes_to_a_member_waits_for_what_of_its_type_goes_from_there() -> None:
    """They may share a volume: what the one would find there is what the other takes away."""
    records = [made("x", "held", member="a"), made("y", "held", member="b")]
    target = goal({"x": want("held", member="b"), "y": want("held", member="a")})

    assert edges(target, records) == {
        "cleanup:x0 > update:x1",
        "cleanup:y0 > update:y1",
        "cleanup:x0 > update:y1",
        "cleanup:y0 > update:x1",
    }


def test_what_is_kept_on_a_member_waits_for_nothing_that_goes_from_there() -> None:
    records = [made("x", "held", member="a"), made("y", "held", member="a")]
    target = goal({"x": want("held", member="b"), "y": want("held", member="a")})

    assert edges(target, records) == {"cleanup:x0 > update:x1"}


def test_a_fence_that_stood_is_proven_anew_for_what_is_still_on_its_member() -> None:
    fence = replace(made("fence:a", "fence", ladder=[]), properties={"member": "a", "ladder": []})
    target = goal({"x": want("held", member="b")}, "a")

    found = edges(target, [fence, made("x", "held", member="a")])

    assert "update:fence:a1 > cleanup:x0" in found


def test_the_fence_is_lifted_before_anything_is_made_on_a_member_that_comes_back() -> None:
    records = [
        made("x", "held", member="b"),
        replace(made("fence:a", "fence", ladder=[]), properties={"member": "a", "ladder": []}),
    ]
    target = goal({"x": want("held", member="a")})

    assert edges(target, records) == {
        "cleanup:x0 > update:x1",
        "cleanup:fence:a0 > update:x1",
    }


def test_a_delete_first_dependent_of_what_goes_first_is_replaced_too() -> None:
    records = [made("a", "exclusive", key=1), made("b", "exclusive", "a")]
    target = goal({"a": want("exclusive", key=2), "b": want("exclusive", "a")})

    assert edges(target, records) == {
        "cleanup:b0 > cleanup:a0",
        "cleanup:a0 > update:a1",
        "cleanup:b0 > update:b1",
        "update:a1 > update:b1",
    }


def test_a_create_first_dependent_of_what_goes_first_is_kept_and_updated_afterwards() -> None:
    records = [made("a", "exclusive", key=1), made("b", "shared", "a")]
    target = goal({"a": want("exclusive", key=2), "b": want("shared", "a")})

    assert edges(target, records) == {"cleanup:a0 > update:a1", "update:a1 > update:b0"}


def test_a_create_first_dependent_that_is_replaced_with_what_goes_first_goes_first_itself() -> None:
    records = [made("a", "exclusive", key=1), made("b", "shared", "a", key=1)]
    target = goal({"a": want("exclusive", key=2), "b": want("shared", "a", key=2)})

    assert edges(target, records) == {
        "cleanup:b0 > cleanup:a0",
        "cleanup:a0 > update:a1",
        "cleanup:b0 > update:b1",
        "update:a1 > update:b1",
    }


def test_going_first_spreads_along_what_was_required_even_where_the_order_is_turned_round() -> None:
    records = [made("b", "exclusive", key=1), made("a", "exclusive", "b")]
    target = goal({"a": want("exclusive"), "b": want("exclusive", "a", key=2)})

    assert edges(target, records) == {
        "cleanup:a0 > cleanup:b0",
        "cleanup:a0 > update:a1",
        "cleanup:b0 > update:b1",
        "update:a1 > update:b1",
    }


def test_what_a_replacement_left_behind_does_not_tie_the_next_goal_into_a_knot() -> None:
    behind = made("a", "shared", "w", key=1)
    kept = replace(made("a", "shared", "w", key=2), id="a-kept")
    target = goal({"a": want("shared", "w", key=2), "w": want("exclusive", key=2)})

    assert edges(target, [made("w", "exclusive", key=1), behind, kept]) == {
        "cleanup:a0 > cleanup:w0",
        "cleanup:w0 > update:w1",
        "update:w1 > update:a-kept",
        "cleanup:a0 > update:a-kept",
    }


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
