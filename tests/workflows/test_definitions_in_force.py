# SPDX-License-Identifier: Apache-2.0
"""What is defined and what is in force: an update that was not reached moves nothing."""

from __future__ import annotations

from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import groups, orders, reports
from support.activation import done
from support.operators import Operator

CONTEXT = ActionContext(SecurityContext(), ExecutionContext())
ACTIVE = {"get_param": "active"}


def update(group: Any, **changes: Any) -> Any:
    """Define the group anew and converge to that, as ``failover group update`` does."""
    document = group.document() | changes
    done(groups.Define(document, name=group.name).run(CONTEXT))
    return group.run("activate_first", group=group.name, because="an update")


def definition(group: Any) -> dict[str, Any]:
    """How what is defined differs from what is in force."""
    return dict(done(reports.Status(group.name).run(CONTEXT))["in_force"])


def with_more(group: Any, volume: str) -> dict[str, Any]:
    """A group file with one more volume, by its id."""
    document = group.document()
    properties = {"volume": volume, "server": ACTIVE}
    document["resources"]["more"] = {"type": "volume_attachment", "properties": properties}
    return document


def with_change(group: Any) -> dict[str, Any]:
    """A group file by which the stack gets another parameter."""
    document = group.document()
    document["resources"]["routing"]["properties"] = {"parameters": {"active": "db_b"}}
    return document


@pytest.fixture
def updated(group: Any) -> Any:
    """A group that serves on db_a, and whose update failed: its new volume was deleted."""
    group.activate()
    volume = Operator(group.cloud).make_volume()
    done(groups.Define(with_more(group, volume), name=group.name).run(CONTEXT))
    Operator(group.cloud).delete_volume(volume)
    run = group.run("activate_first", group=group.name, because="an update")
    assert run.output["error"] is not None
    return group


def test_a_failover_after_a_failed_update_moves_what_was_in_force(updated: Any) -> None:
    assert definition(updated)["differs"]

    updated.run("on_alarm", **updated.fails("app")).assert_succeeded()

    assert (updated.holders(), updated.runs_on()) == (["db_b"], ["db_b"])
    assert {row["name"] for row in updated.status()["resources"]} >= {"data", "database"}
    assert "more" not in {row["name"] for row in updated.status()["resources"]}
    assert definition(updated)["differs"], "what is defined was still not reached"


def test_a_failing_update_that_began_is_left_by_a_rollback(group: Any) -> None:
    group.activate()
    home = group.status()["goal"]
    group.cloud.api_fault("stack_patch", "fail")
    update(group, **with_change(group)).assert_failed_with("FAILED")
    group.cloud.clear_api_faults()

    group.run("rollback", group=group.name).assert_succeeded()

    assert group.status()["goal"] == home
    assert definition(group)["differs"], "the bad update is still what is defined"
    group.run("on_alarm", **group.fails()).assert_succeeded()
    assert group.runs_on() == ["db_b"]


def test_an_alarm_during_an_update_moves_what_was_in_force(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.activate()
    done(groups.Define(with_change(group), name=group.name).run(CONTEXT))
    with monkeypatch.context() as patch:
        patch.setattr(group.state, "eager", False)
        begun = done(orders.Begin(group.name, lost=[], definition="defined").run(CONTEXT))

    group.run("on_alarm", **group.fails("app")).assert_succeeded()

    assert group.status()["traversal"]["id"] != begun["traversal"]
    assert (group.holders(), group.runs_on()) == (["db_b"], ["db_b"])
    assert definition(group)["differs"], "the update was left"


def test_a_start_that_declares_no_member_lost_continues_the_update(group: Any) -> None:
    group.activate()
    group.cloud.api_fault("stack_patch", "fail")
    update(group, **with_change(group)).assert_failed_with("FAILED")
    group.cloud.clear_api_faults()

    group.run("failover", group=group.name, lost=[]).assert_succeeded()

    assert not definition(group)["differs"]


def test_a_change_of_limits_alone_is_in_force_once_it_was_converged_to(group: Any) -> None:
    group.activate()
    goal = group.status()["goal"]
    changed = group.document() | {"limits": {"per_hour": 7}}
    done(groups.Define(changed, name=group.name).run(CONTEXT))
    assert definition(group)["lines"] == ['+ limits: {"per_hour": 7}']

    group.run("activate_first", group=group.name).assert_succeeded()

    assert group.status()["goal"] == goal, "two definitions may have the same goal"
    assert not definition(group)["differs"]


def test_a_definition_that_was_only_given_is_not_moved(group: Any) -> None:
    group.activate()
    group.cloud.add_application("another", start="begin", stop="end", stack=group.name)
    document = group.document()
    document["resources"]["database"]["properties"]["stop"] = "end"
    done(groups.Define(document, name=group.name).run(CONTEXT))

    group.run("switchover", group=group.name).assert_succeeded()

    assert group.runs_on() == ["db_b"], "the stop command of before was used"
    assert definition(group)["differs"]


def test_a_plan_of_what_is_defined_shows_its_steps_and_starts_it(group: Any) -> None:
    group.activate()
    done(groups.Define(with_change(group), name=group.name).run(CONTEXT))

    assert group.plan(verb="failover", lost=[])["steps"] == []
    plan = group.plan(verb="failover", lost=[], definition="defined")

    assert [step["resource"] for step in plan["steps"]] == ["routing"]
    group.run("start_plan", plan=plan["plan"]).assert_succeeded()
    assert not definition(group)["differs"]


def test_the_doctor_examines_what_is_in_force_and_names_what_is_wrong_with_what_is_defined(
    updated: Any,
) -> None:
    volume = updated.document()["resources"]["more"]["properties"]["volume"]
    in_force = updated.examined_all("volumes")
    difference, problem = updated.examined_all("definition")

    assert all(volume not in row["sentence"] for row in in_force)
    assert (difference["level"], problem["level"]) == ("warn", "warn")
    assert "failover group activate" in difference["remedy"]
    assert volume in problem["sentence"]
