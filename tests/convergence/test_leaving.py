# SPDX-License-Identifier: Apache-2.0
"""What leaves the goal goes after those that used it have turned away from it, or are gone."""

from __future__ import annotations

from typing import Any

import pytest

from mistral_failover.model.goal import render_goal
from support.samples import sample_resource
from support.simulation import Simulation, failure

ACTIVE = {"get_param": "active"}


def held(*requires: str, **properties: Any) -> dict[str, Any]:
    """A delete-first resource on the active member."""
    return sample_resource("held", *requires, member=ACTIVE, **properties)


def log_of(simulation: Simulation, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What happens on the way from a group that is as it should be to the next definition."""
    simulation.define(before)
    simulation.converge(simulation.goal())
    simulation.world.log.clear()
    simulation.define(after)
    goal = simulation.goal()
    simulation.converge(goal)
    simulation.audit_at_rest(goal)
    return simulation.world.log


WAYS: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "a dependent turns to another resource before the one that it used goes": (
        {"a": sample_resource(), "d": sample_resource(value={"get_resource": "a"})},
        {"new": sample_resource(), "d": sample_resource(value={"get_resource": "new"})},
        ["create new", "update d", "delete a"],
    ),
    "a dependent that is found to need a replacement is gone before what it used": (
        {"a": sample_resource(), "d": sample_resource(key={"get_resource": "a"})},
        {"new": sample_resource(), "d": sample_resource(key={"get_resource": "new"})},
        ["create new", "create d", "delete d", "delete a"],
    ),
    "a delete-first dependent is updated in place before what it used goes": (
        {"p": held(), "act": held(value={"get_resource": "p"})},
        {"act": held(value=1)},
        ["update act", "delete p"],
    ),
    "what is new on a member waits and no dependent that stays is made anew": (
        {"p": held(), "act": held("p")},
        {"act": held(), "q": held()},
        ["delete p", "create q"],
    ),
    # The volume has another name now: it is attached anew, and the application upon it.
    "what leaves a member goes first where its dependent needs what waits for that": (
        {"p": held(), "act": held("p")},
        {"q": held(), "act": held("q")},
        ["delete act", "delete p", "create q", "create act"],
    ),
    "what stands upon a resource that makes room goes after those that stay": (
        {
            "z": sample_resource("exclusive", key=1),
            "x": sample_resource("shared", "z"),
            "b": {**sample_resource(value=1), "depends_on": ["x"]},
        },
        {"z": sample_resource("exclusive", key=2), "b": sample_resource(value=2)},
        ["update b", "delete x", "delete z", "create z"],
    ),
}


@pytest.mark.parametrize(("before", "after", "log"), WAYS.values(), ids=WAYS)
def test_what_leaves_goes_in_the_order_that_its_users_need(
    simulation: Simulation, before: dict[str, Any], after: dict[str, Any], log: list[str]
) -> None:
    assert log_of(simulation, before, after) == log


@pytest.mark.parametrize("kind", ["shared", "exclusive", "held"])
def test_a_delete_first_dependent_stays_as_it_is_when_what_it_required_leaves(
    simulation: Simulation, kind: str
) -> None:
    """Nothing takes the place of what leaves, so nothing has to make room."""
    below = held() if kind == "held" else sample_resource(kind)
    before = {"p": below, "act": held("p")}

    assert log_of(simulation, before, {"act": held()}) == ["delete p"]


# -- while one is still being made


@pytest.mark.parametrize("succeeds", [True, False])
def test_what_is_being_made_upon_it_is_waited_for(simulation: Simulation, succeeds: bool) -> None:
    simulation.define({"a": sample_resource(), "d": sample_resource("shared", "a")})
    made = simulation.operation(simulation.start(simulation.goal()).ready[0])
    upon = simulation.engine.conclude(made.ticket, simulation.world.operate(made)).ready[0]
    creation = simulation.operation(upon)
    simulation.define({"d": sample_resource()})
    goal = simulation.goal()

    simulation.carry(simulation.start(goal).ready)

    assert simulation.world.log == ["create a"]
    outcome = simulation.world.operate(creation) if succeeds else failure()
    simulation.carry(simulation.engine.conclude(creation.ticket, outcome).ready)
    simulation.audit_at_rest(goal)
    assert simulation.world.log == ["create a", "create d", "delete a"]


def test_it_stays_as_long_as_its_dependent_can_not_turn_away(simulation: Simulation) -> None:
    simulation.define({"a": sample_resource(), "d": sample_resource(value={"get_resource": "a"})})
    simulation.converge(simulation.goal())
    simulation.define({"d": sample_resource(value=1)})
    simulation.world.log.clear()

    simulation.converge(simulation.goal(), lambda operation: failure())

    assert simulation.status() == "FAILED"
    assert sorted(simulation.by_name()) == ["a", "d"]
    assert simulation.by_name()["a"].action == "CREATE"


# -- behind a fence


def test_a_failover_waits_for_no_update(simulation: Simulation) -> None:
    """What the group file no longer has goes from the members before the service comes up there;
    who used it is updated whenever that is."""
    roles = ["active", "other"]
    on_other = {"member": {"get_param": "other"}}
    simulation.define(
        {
            "db": held(),
            "on_the_lost": held(),
            "on_the_other": sample_resource("held", **on_other),
            "upon": sample_resource("shared", "on_the_other"),
            "stats": sample_resource("shared", "on_the_lost", "on_the_other", "upon", value=1),
        },
        roles=roles,
    )
    assert simulation.group is not None
    simulation.converge(render_goal(simulation.group, {"active": "a", "other": "b"}, ()))
    group = simulation.define(
        {"db": held(), "stats": sample_resource("shared", value=2)}, roles=roles
    )
    goal = render_goal(group, {"active": "b", "other": "c"}, ("a",))
    ready = simulation.start(goal).ready
    update = simulation.update_of("stats")
    assert update in ready

    simulation.carry(other for other in ready if other != update)

    assert simulation.world.log[-1] == "create db"
    assert sorted(simulation.by_name()) == ["db", "fence:a", "stats"]
    simulation.carry([update])
    simulation.audit_at_rest(goal)


def test_nothing_that_stays_is_made_anew_while_a_member_is_lost(simulation: Simulation) -> None:
    simulation.define({"p": held(), "act": held("p")})
    simulation.converge(simulation.goal("b", lost=("a",)))
    simulation.world.log.clear()
    simulation.define({"act": held()})

    simulation.converge(simulation.goal("b", lost=("a",)))

    assert simulation.world.log == ["delete p"]
