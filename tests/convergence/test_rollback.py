# SPDX-License-Identifier: Apache-2.0
"""Back to the last reached goal, after whatever failed or overlapped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.convergence.records import Operation, Outcome
from mistral_failover.convergence.traversals import goes_back, rollback_goal
from mistral_failover.model.goal import Goal, render_goal, restored_goal
from mistral_failover.store.tables import definitions, groups
from mistral_failover.store.transaction import SqlTransaction
from support.samples import CHAIN, failing, sample_resource, sentences
from support.simulation import Simulation, failure
from support.world import TYPES, type_file

# -- to which goal


def goal_before(simulation: Simulation, **options: Any) -> Goal | None:
    """The goal that the group goes back to."""

    def read(tx: SqlTransaction) -> Goal | None:
        group = tx.lock_group(simulation.group_id, shared=True)
        assert group is not None
        return rollback_goal(tx, group, **options)

    return simulation.database.reading(read)


def test_from_a_goal_that_was_reached_it_is_the_one_before(simulation: Simulation) -> None:
    simulation.define(CHAIN)
    assert goal_before(simulation) is None
    home = simulation.goal("a")
    simulation.converge(home)
    assert goal_before(simulation) is None

    simulation.converge(simulation.goal("b"))

    assert goal_before(simulation) == home


def test_from_a_goal_that_was_not_reached_it_is_the_last_one_that_was(
    simulation: Simulation,
) -> None:
    simulation.define(CHAIN)
    home = simulation.goal("a")
    simulation.converge(home)
    simulation.converge(simulation.goal("b"), failing(simulation, "database"))
    assert goal_before(simulation) == home

    simulation.start(home)

    assert goal_before(simulation) == home, "which may well be the same again"


def test_a_goal_that_asks_for_the_same_is_not_the_one_before(simulation: Simulation) -> None:
    """A planned move's goal and the same without its promise to return."""
    group = simulation.define(CHAIN)
    home, there = simulation.goal("a"), simulation.goal("b")
    for goal in (home, there, render_goal(group, {"active": "b"}, (), returns=True)):
        simulation.clock.seconds += 1
        simulation.converge(goal)

    assert goal_before(simulation) == home


def test_who_recovered_is_lost_no_more_in_the_goal_before(simulation: Simulation) -> None:
    simulation.define(CHAIN)
    there, standby_lost = simulation.goal("b"), simulation.goal("b", lost=("a",))
    for goal in (simulation.goal("a"), there, standby_lost):
        simulation.clock.seconds += 1
        simulation.converge(goal)

    assert goal_before(simulation, recovered=["a"]) == there


def test_a_goal_may_be_named(simulation: Simulation) -> None:
    simulation.define(CHAIN)
    home = simulation.goal("a")
    for goal in (home, simulation.goal("b"), simulation.goal("c")):
        simulation.converge(goal)

    assert goal_before(simulation, version=home.version) == home
    assert goal_before(simulation, version="unheard of") is None


def test_a_rollback_is_offered_only_if_it_changes_something(simulation: Simulation) -> None:
    def changes() -> bool:
        def read(tx: SqlTransaction) -> bool:
            group = tx.lock_group(simulation.group_id, shared=True)
            assert group is not None
            return goes_back(tx, group)

        return simulation.database.reading(read)

    group = simulation.define(CHAIN)
    home = simulation.goal("a")
    simulation.start(home)
    assert not changes(), "it has reached no goal"
    simulation.converge(home)
    simulation.start(simulation.goal("b"))
    assert changes()

    simulation.start(home)
    assert not changes(), "it is the same goal"
    simulation.start(render_goal(group, {"active": "a"}, (), returns=True))
    assert not changes(), "it leads to the same member"


# -- by itself, when the group asks for it


def test_a_failure_rolls_back_to_the_last_goal_that_was_reached(simulation: Simulation) -> None:
    simulation.define(CHAIN, on_failure="rollback")
    home = simulation.goal("a")
    simulation.converge(home)
    away = simulation.start(simulation.goal("b"))

    simulation.carry(away.ready, refusing(simulation, "b"))

    simulation.audit_at_rest(home)
    assert simulation.status(away.traversal_id) == "FAILED"
    assert any(s.startswith("rolling back") for s in sentences(simulation, "traversal"))


@pytest.mark.parametrize(
    ("more", "lost"),
    [({}, ()), ({"on_failure": "rollback"}, ("a",))],
    ids=["the group does not ask for it", "its member is newly lost"],
)
def test_nothing_is_rolled_back_where(
    simulation: Simulation, more: dict[str, Any], lost: tuple[str, ...]
) -> None:
    simulation.define(CHAIN, **more)
    simulation.converge(simulation.goal("a"))
    away = simulation.start(simulation.goal("b", lost=lost))

    simulation.carry(away.ready, failing(simulation, "routing" if lost else "database"))

    assert simulation.current == away.traversal_id
    assert simulation.status() == "FAILED"


def test_a_rollback_that_fails_does_not_roll_back_again(simulation: Simulation) -> None:
    simulation.define(CHAIN, on_failure="rollback")
    simulation.converge(simulation.goal("a"))

    simulation.converge(simulation.goal("b"), lambda operation: failure())

    assert simulation.status() == "FAILED"
    rolled = [s for s in sentences(simulation, "traversal") if s.startswith("rolling back")]
    assert len(rolled) == 1


def test_a_rollback_that_can_not_be_planned_leaves_the_failure_and_says_why(
    simulation: Simulation,
) -> None:
    extra = type_file("extra")
    simulation.define({"x": sample_resource("extra")}, types=[*TYPES, extra], on_failure="rollback")
    simulation.converge(simulation.goal())
    simulation.define({"b": sample_resource()}, on_failure="rollback")
    away = simulation.start(simulation.goal())
    cleanups = [r for r in away.ready if r.node.kind == "cleanup"]
    updates = [r for r in away.ready if r.node.kind == "update"]
    simulation.carry(cleanups)
    forget_type(simulation, "extra")

    simulation.carry(updates, lambda operation: failure())

    assert simulation.status() == "FAILED"
    assert "BROKEN" in simulation.reason()
    assert "of type extra, which is not defined" in simulation.reason()
    assert all(r.owner is None for r in simulation.records())


def forget_type(simulation: Simulation, name: str) -> None:
    """As if somebody had taken a type out of the stored definition."""

    def change(tx: SqlTransaction) -> None:
        stored = dict(tx.definition(simulation.group_id))
        stored["types"] = [t for t in stored["types"] if t["name"] != name]
        # Of every definition: what is in force has its own.
        tx.execute(definitions.update().values(document=stored))
        new = {"group_id": simulation.group_id, "version": "without", "document": stored}
        tx.insert(definitions, **new, created_at=0.0)
        tx.execute(groups.update().values(defined="without", definition_version="without"))

    simulation.database.atomically(change)


def test_after_several_failures_it_is_the_last_goal_that_was_reached(
    simulation: Simulation,
) -> None:
    simulation.define(CHAIN)
    home = simulation.goal("a")
    simulation.converge(home)
    simulation.converge(simulation.goal("b"), failing(simulation, "database"))
    simulation.converge(simulation.goal("c"), failing(simulation, "data"))
    simulation.define(CHAIN, on_failure="rollback")

    simulation.converge(simulation.goal("b"), refusing(simulation, "b"))

    simulation.audit_at_rest(home)


def test_what_fails_in_a_superseded_traversal_rolls_nothing_back(simulation: Simulation) -> None:
    simulation.define(CHAIN, on_failure="rollback")
    simulation.converge(simulation.goal("a"))
    overtaken = simulation.operation(simulation.start(simulation.goal("b")).ready[0])
    newest = simulation.goal("c")
    started = simulation.start(newest)

    step = simulation.engine.conclude(overtaken.ticket, failure())

    assert simulation.current == started.traversal_id
    simulation.carry([*started.ready, *step.ready])
    simulation.audit_at_rest(newest)


def test_of_overlapping_traversals_the_newest_rolls_back_past_those_it_overtook(
    simulation: Simulation,
) -> None:
    simulation.define(CHAIN, on_failure="rollback")
    home = simulation.goal("a")
    simulation.converge(home)
    first = simulation.start(simulation.goal("b"))
    going = simulation.operation(first.ready[0])
    second = simulation.start(simulation.goal("c"))

    late = simulation.engine.conclude(going.ticket, simulation.world.operate(going))
    simulation.carry([*first.ready, *second.ready, *late.ready], refusing(simulation, "c"))

    simulation.audit_at_rest(home)
    assert simulation.status(first.traversal_id) == "SUPERSEDED"
    assert simulation.status(second.traversal_id) == "FAILED"


def test_a_standby_that_is_lost_stays_fenced_in_a_rollback(simulation: Simulation) -> None:
    simulation.define(CHAIN, on_failure="rollback")
    simulation.converge(simulation.goal("a"))

    simulation.converge(simulation.goal("b", lost=("c",)), refusing(simulation, "b"))

    simulation.audit_at_rest(simulation.goal("a", lost=("c",)))


def refusing(simulation: Simulation, member: str) -> Callable[[Operation], Outcome]:
    """The world, in which nothing can be made on a member."""

    def operate(operation: Operation) -> Outcome:
        if (operation.ticket.verb, operation.record.member) == ("create", member):
            return failure()
        return simulation.world.operate(operation)

    return operate


# -- what a rollback finds again


def test_a_replaced_resource_that_still_exists_is_brought_back_not_made_anew(
    simulation: Simulation,
) -> None:
    simulation.define({"web": sample_resource(key=1)})
    home = simulation.goal()
    simulation.converge(home)
    old = simulation.by_name()["web"]
    simulation.define({"web": sample_resource(key=2)})
    simulation.converge(simulation.goal(), failing(simulation, "web"))
    assert {r.name for r in simulation.records() if r.replaced_by} == {"web"}

    simulation.converge(restored_goal(home, simulation.goal()))

    simulation.audit_at_rest(home)
    assert simulation.by_name()["web"].id == old.id
    assert simulation.world.effects == [("create", old.id)], "nothing was made or removed"


def test_what_was_cleaned_up_already_is_made_anew(simulation: Simulation) -> None:
    simulation.define(CHAIN)
    home = simulation.goal("a")
    simulation.converge(home)
    old = simulation.by_name()["data"]
    simulation.converge(simulation.goal("b"))

    simulation.converge(restored_goal(home, simulation.goal("b")))

    simulation.audit_at_rest(home)
    assert simulation.by_name()["data"].id != old.id


def test_a_goal_that_flips_back_while_its_attachment_is_being_deleted_gets_a_new_one(
    simulation: Simulation,
) -> None:
    simulation.define({"data": CHAIN["data"]})
    home = simulation.goal("a")
    simulation.converge(home)
    old = simulation.by_name()["data"]
    away = simulation.start(simulation.goal("b"))
    (cleanup,) = [r for r in away.ready if r.node.kind == "cleanup"]
    deleting = simulation.operation(cleanup, "somebody alive")

    back = simulation.start(home)
    seen = [simulation.engine.check(ready, "another") for ready in back.ready]
    assert all(step.operation is None for step in seen), "it is left to its owner"
    outcome = simulation.world.operate(deleting)
    simulation.carry(simulation.engine.conclude(deleting.ticket, outcome).ready)

    simulation.audit_at_rest(home)
    assert simulation.by_name()["data"].id != old.id


def test_a_group_that_was_removed_is_brought_back_by_a_rollback(simulation: Simulation) -> None:
    simulation.define(CHAIN)
    home = simulation.goal("a")
    simulation.converge(home)
    simulation.converge(simulation.nothing())

    simulation.converge(restored_goal(home, simulation.nothing()))

    simulation.audit_at_rest(home)


def test_the_execution_that_drives_a_traversal_drives_its_rollback(simulation: Simulation) -> None:
    """Without one, a sweep would start a second chain beside it."""
    simulation.define(CHAIN, on_failure="rollback")
    simulation.converge(simulation.goal("a"))
    (ready, *_) = simulation.start(simulation.goal("b")).ready
    simulation.database.atomically(lambda tx: tx.driven_by(ready.traversal_id, "x1"))

    simulation.engine.conclude(simulation.operation(ready).ticket, failure())

    followed = simulation.engine.current(ready.traversal_id)
    assert (followed.follows, followed.chain) == (ready.traversal_id, "x1")
