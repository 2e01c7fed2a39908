# SPDX-License-Identifier: Apache-2.0
"""The whole way of a traversal; starting it; superseding it."""

from __future__ import annotations

from typing import Any

import pytest

from mistral_failover.convergence.errors import UnknownGroup
from mistral_failover.convergence.records import Node, Ready
from mistral_failover.store import views
from support.samples import CHAIN, failing, sample_resource, sentences
from support.simulation import Simulation, failure

# -- the whole way


def test_a_failover_is_convergence_to_a_goal_without_the_lost_member(
    simulation: Simulation,
) -> None:
    simulation.define(CHAIN)
    simulation.converge(simulation.goal("a"))
    simulation.world.log.clear()

    goal = simulation.goal("b", lost=("a",))
    simulation.converge(goal)

    simulation.audit_at_rest(goal)
    assert simulation.world.log == [
        "create fence:a",
        "delete database",
        "delete data",
        "create data",
        "create database",
        "update routing",
    ]


def test_a_goal_that_holds_already_needs_no_operation(simulation: Simulation) -> None:
    simulation.define(CHAIN)
    simulation.converge(simulation.goal())
    simulation.world.log.clear()

    simulation.converge(simulation.goal())

    assert simulation.world.log == []
    simulation.audit_at_rest(simulation.goal())


def test_removing_the_group_leaves_nothing(simulation: Simulation) -> None:
    simulation.define(CHAIN)
    simulation.converge(simulation.goal())

    simulation.converge(simulation.nothing())

    assert (simulation.records(), simulation.world.things) == ([], {})
    assert simulation.status() == "COMPLETE"


def test_a_goal_that_asks_an_empty_group_for_nothing_is_reached_at_once(
    simulation: Simulation,
) -> None:
    simulation.define({})

    assert simulation.start(simulation.nothing()).ready == ()
    assert simulation.status() == "COMPLETE"


def test_a_lost_member_comes_back_in_a_new_epoch(simulation: Simulation) -> None:
    simulation.define(CHAIN)
    simulation.converge(simulation.goal("a"))
    assert simulation.by_name()["data"].epoch == 1
    simulation.converge(simulation.goal("b", lost=("a",)))

    back = simulation.goal("a")
    simulation.converge(back)

    simulation.audit_at_rest(back)
    assert simulation.by_name()["data"].epoch == 2


def test_attributes_travel_along_the_edges(simulation: Simulation) -> None:
    simulation.define(
        {
            "a": sample_resource(value=7),
            "b": sample_resource(value={"get_attr": ["a", "echo"]}),
            "c": sample_resource(value={"get_resource": "b"}),
        }
    )

    simulation.converge(simulation.goal())

    records = simulation.by_name()
    assert records["b"].properties == {"value": 7}
    assert records["c"].properties == {"value": records["b"].physical_id}


def test_an_attribute_that_changes_an_immutable_property_replaces_in_a_follow_up_traversal(
    simulation: Simulation,
) -> None:
    simulation.define(
        {"a": sample_resource(value=1), "b": sample_resource(key={"get_attr": ["a", "echo"]})}
    )
    simulation.converge(simulation.goal())
    before = simulation.by_name()["b"]
    simulation.define(
        {"a": sample_resource(value=2), "b": sample_resource(key={"get_attr": ["a", "echo"]})}
    )
    goal = simulation.goal()
    first = simulation.start(goal)

    simulation.carry(first.ready)

    simulation.audit_at_rest(goal)
    assert simulation.by_name()["b"].replaces == before.id
    assert simulation.current != first.traversal_id
    assert simulation.status(first.traversal_id) == "SUPERSEDED"
    assert "b must be replaced: key cannot change in place" in sentences(simulation)
    assert simulation.world.log[-2:] == ["create b", "delete b"]


def found_late(value: int) -> dict[str, Any]:
    """That ``b`` must be replaced shows when ``a`` has its new value."""
    return {
        "a": sample_resource(value=value),
        "b": sample_resource(key={"get_attr": ["a", "echo"]}),
    }


def test_what_one_goal_has_to_replace_is_kept_where_another_goal_wants_it_as_it_is(
    simulation: Simulation,
) -> None:
    simulation.define(found_late(1))
    home = simulation.goal()
    simulation.converge(home)
    before = simulation.by_name()["b"]
    simulation.define(found_late(2))
    update = simulation.operation(simulation.start(simulation.goal()).ready[0])
    (ready,) = simulation.engine.conclude(update.ticket, simulation.world.operate(update)).ready
    simulation.engine.check(ready, "o")
    assert [r.name for r in simulation.records() if r.replaced_by] == ["b"]

    simulation.converge(home)

    simulation.audit_at_rest(home)
    assert simulation.by_name()["b"].id == before.id
    assert simulation.world.log == ["create a", "create b", "update a", "update a"]


def test_a_goal_that_is_given_again_still_replaces_what_it_had_to(simulation: Simulation) -> None:
    simulation.define(found_late(1))
    simulation.converge(simulation.goal())
    before = simulation.by_name()["b"]
    simulation.define(found_late(2))
    goal = simulation.goal()
    simulation.converge(goal, failing(simulation, "b"))
    assert simulation.status() == "FAILED"

    simulation.converge(goal)

    simulation.audit_at_rest(goal)
    assert simulation.by_name()["b"].replaces == before.id


# -- starting


def test_starting_a_traversal_again_changes_nothing_and_tells_what_is_ready(
    simulation: Simulation,
) -> None:
    simulation.define(CHAIN)
    first = simulation.start(simulation.goal(), "t")

    again = simulation.start(simulation.goal(), "t")

    assert (first.created, again.created) == (True, False)
    assert (again.won, again.ready) == (True, first.ready)
    assert len(simulation.records()) == len(CHAIN)


def test_starting_a_superseded_traversal_again_does_not_revive_it(simulation: Simulation) -> None:
    simulation.define(CHAIN)
    simulation.start(simulation.goal("a"), "old")
    simulation.start(simulation.goal("b"), "new")

    again = simulation.start(simulation.goal("a"), "old")

    assert (again.won, again.ready) == (False, ())
    assert simulation.current == "new"


def test_a_start_that_expected_another_current_traversal_loses_and_changes_nothing(
    simulation: Simulation,
) -> None:
    simulation.define(CHAIN)
    simulation.start(simulation.goal("a"), "current")
    before = simulation.records()

    lost = simulation.engine.start(
        simulation.group_id, simulation.goal("b"), traversal_id="late", expected=None, cause="x"
    )

    assert (lost.won, lost.created, lost.traversal_id) == (False, False, "current")
    assert simulation.records() == before
    assert simulation.status("late") == "none"


def test_a_group_that_is_not_there_is_refused(simulation: Simulation) -> None:
    simulation.define({})

    with pytest.raises(UnknownGroup, match="no group nowhere") as refused:
        simulation.engine.start(
            "nowhere", simulation.goal(), traversal_id="t", expected=None, cause="x"
        )
    assert refused.value.code == "UNKNOWN_GROUP"
    with pytest.raises(UnknownGroup):
        simulation.engine.resume("nowhere")


# -- superseding


def test_messages_of_a_superseded_traversal_do_nothing(simulation: Simulation) -> None:
    simulation.define(CHAIN)
    old = simulation.start(simulation.goal("a"))
    simulation.start(simulation.goal("b"))

    step = simulation.engine.check(old.ready[0], "o")

    assert "was superseded by" in step.sentence
    assert (step.operation, step.ready) == (None, ())


def test_a_message_of_a_traversal_that_never_was_does_nothing(simulation: Simulation) -> None:
    simulation.define(CHAIN)

    step = simulation.engine.check(Ready("never", Node("update", "x")), "o")

    assert step.sentence == "there is no traversal never"


def test_the_conclusion_of_a_superseded_operation_wakes_its_node_in_the_newer_traversal(
    simulation: Simulation,
) -> None:
    simulation.define({"a": sample_resource("exclusive", value={"get_param": "active"})})
    old = simulation.operation(simulation.start(simulation.goal("a")).ready[0])
    goal = simulation.goal("b")
    new = simulation.start(goal)
    deferred = simulation.engine.check(new.ready[0], "other")
    assert "o is working on a" in deferred.sentence
    assert (deferred.operation, deferred.ready) == (None, ())

    woken = simulation.engine.conclude(old.ticket, simulation.world.operate(old))

    assert woken.ready == new.ready
    simulation.carry(woken.ready)
    simulation.audit_at_rest(goal)


def test_a_failure_of_a_superseded_operation_wakes_its_node_and_fails_nothing(
    simulation: Simulation,
) -> None:
    simulation.define({"a": sample_resource("exclusive", value={"get_param": "active"})})
    old = simulation.operation(simulation.start(simulation.goal("a")).ready[0])
    goal = simulation.goal("b")
    new = simulation.start(goal)

    woken = simulation.engine.conclude(old.ticket, failure())

    assert woken.ready == new.ready
    assert simulation.status() == "IN_PROGRESS"
    simulation.carry(woken.ready)
    simulation.audit_at_rest(goal)


def test_a_superseded_creation_that_no_goal_wants_any_more_is_cleaned_up_after_it(
    simulation: Simulation,
) -> None:
    simulation.define({"a": sample_resource("exclusive")})
    old = simulation.operation(simulation.start(simulation.goal()).ready[0])
    new = simulation.start(simulation.nothing())

    woken = simulation.engine.conclude(old.ticket, simulation.world.operate(old))

    assert woken.ready == new.ready
    assert woken.ready[0].node.kind == "cleanup"
    simulation.carry(woken.ready)
    assert simulation.world.things == {}


def test_who_waits_for_whom_is_there_to_see(simulation: Simulation) -> None:
    simulation.define({"a": sample_resource("exclusive")})
    simulation.operation(simulation.start(simulation.goal()).ready[0], "slow")
    new = simulation.start(simulation.nothing())

    simulation.engine.check(new.ready[0], "o")

    waiting = simulation.store.reading(lambda tx: views.deferred(tx, [new.traversal_id]))
    assert [(w["node"], w["deferred_to"]) for w in waiting] == [(new.ready[0].node.key, "slow")]


def test_what_is_being_deleted_is_made_anew_when_it_is_wanted_again(
    simulation: Simulation,
) -> None:
    simulation.define({"a": sample_resource("exclusive")})
    simulation.converge(simulation.goal())
    going = simulation.operation(simulation.start(simulation.nothing()).ready[0])
    goal = simulation.goal()
    simulation.start(goal)

    woken = simulation.engine.conclude(going.ticket, simulation.world.operate(going))
    simulation.carry(woken.ready)

    simulation.audit_at_rest(goal)
    assert simulation.by_name()["a"].replaces == going.record.id


def test_there_and_back_again_ends_where_the_last_goal_says(simulation: Simulation) -> None:
    simulation.define(CHAIN)
    there, elsewhere = simulation.goal("a"), simulation.goal("b")
    simulation.converge(there)
    moved = simulation.start(elsewhere)
    under_way = simulation.operation(moved.ready[0])
    simulation.start(there)

    woken = simulation.engine.conclude(under_way.ticket, simulation.world.operate(under_way))
    simulation.carry([*woken.ready, *simulation.sweep()])

    simulation.audit_at_rest(there)
