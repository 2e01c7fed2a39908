# SPDX-License-Identifier: Apache-2.0
"""Operations that fail or block: what goes on, what is tried again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.convergence import conclude
from mistral_failover.convergence.errors import UnknownType
from mistral_failover.convergence.records import (
    Operation,
    Outcome,
    Started,
    StoppedNode,
    Traversal,
)
from mistral_failover.store import views
from mistral_failover.store.transaction import ProjectTransaction
from support.samples import CHAIN, failing, sample_resource
from support.simulation import Simulation, failure

# -- failing


def test_a_failure_marks_the_traversal_and_independent_branches_go_on(
    simulation: Simulation,
) -> None:
    simulation.define(
        {"a": sample_resource(), "on_a": sample_resource("shared", "a"), "apart": sample_resource()}
    )

    simulation.converge(simulation.goal(), failing(simulation, "a"))

    assert simulation.status() == "FAILED"
    assert simulation.reason() == "Create a: it broke. Repair it. [BROKEN]"
    statuses = {name: (r.action, r.status) for name, r in simulation.by_name().items()}
    assert statuses == {
        "a": ("CREATE", "FAILED"),
        "on_a": ("INIT", "COMPLETE"),
        "apart": ("CREATE", "COMPLETE"),
    }


def failed_step(simulation: Simulation) -> str | None:
    """The name of the resource whose failure stopped the current traversal."""
    current = simulation.current or ""
    found = simulation.store.reading(lambda tx: views.failed_step(tx, current))
    record = simulation.record(found["resource_id"]) if found else None
    return record.name if record else None


def test_a_traversal_names_the_step_that_failed_whatever_its_reason_says(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the reason is also that there is no way back."""
    simulation.define({"a": sample_resource()}, on_failure="rollback")
    simulation.converge(simulation.goal())
    simulation.define({"a": sample_resource(), "b": sample_resource()}, on_failure="rollback")

    def refuse(*_: Any, **__: Any) -> Started:
        raise UnknownType("old", "a")

    monkeypatch.setattr(conclude, "begin_successor", refuse)
    simulation.converge(simulation.goal(), failing(simulation, "b"))

    assert simulation.status() == "FAILED"
    assert "It cannot be rolled back" in simulation.reason()
    assert failed_step(simulation) == "b"


def test_of_two_steps_that_failed_the_named_one_gave_the_reason(simulation: Simulation) -> None:
    simulation.define({"a": sample_resource(), "b": sample_resource()})
    simulation.converge(
        simulation.goal(), lambda operation: failure(blocked=operation.record.name == "a")
    )

    assert simulation.reason().startswith("Create b")
    assert failed_step(simulation) == "b"


def test_a_traversal_that_goes_on_names_no_step(simulation: Simulation) -> None:
    simulation.define({"a": sample_resource()})
    simulation.converge(simulation.goal(), failing(simulation, "a", blocked=True))
    assert failed_step(simulation) == "a"

    simulation.engine.resume(simulation.group_id)

    assert failed_step(simulation) is None


# -- trying again


def again(simulation: Simulation, name: str) -> None:
    """Reopen a stopped step, as a sweep does."""
    current = simulation.current or ""

    def reopen(tx: ProjectTransaction) -> None:
        for each in tx.stopped_nodes(current):
            record = tx.record(each.node.resource_id)
            if record is not None and record.name == name:
                assert tx.reopen_node(current, each.node, once=True)

    simulation.store.atomically(reopen)


def facts(simulation: Simulation) -> tuple[Traversal | None, float | None, list[StoppedNode]]:
    """The current traversal, when it ended, and what has stopped."""
    current = simulation.current or ""
    return simulation.store.reading(
        lambda tx: (tx.traversal(current), views.ended_at(tx, current), tx.stopped_nodes(current))
    )


def outcomes(simulation: Simulation, stopped: dict[str, bool]) -> Callable[[Operation], Outcome]:
    """The world, in which these come to nothing: blocked or not."""

    def operate(operation: Operation) -> Outcome:
        blocked = stopped.get(operation.record.name)
        return simulation.world.operate(operation) if blocked is None else failure(blocked=blocked)

    return operate


def test_what_has_stopped_goes_on_in_the_same_traversal_when_a_try_succeeds(
    simulation: Simulation,
) -> None:
    simulation.define(CHAIN)
    goal = simulation.goal()
    simulation.converge(goal, failing(simulation, "database"))
    before = simulation.current

    again(simulation, "database")
    assert simulation.status() == "FAILED", "until the try has succeeded"
    simulation.carry(simulation.sweep())

    simulation.audit_at_rest(goal)
    assert simulation.current == before


@pytest.mark.parametrize("blocked", [True, False])
def test_a_try_that_fails_leaves_status_reason_and_time_as_they_were(
    simulation: Simulation, blocked: bool
) -> None:
    simulation.define(CHAIN)
    simulation.converge(simulation.goal(), failing(simulation, "data", blocked=blocked))
    before = facts(simulation)

    simulation.clock.seconds += 100
    again(simulation, "data")
    simulation.carry(simulation.sweep(), failing(simulation, "data", blocked=blocked))

    assert facts(simulation) == before


def test_the_reason_is_the_step_that_has_not_gone_on_yet(simulation: Simulation) -> None:
    simulation.define({"a": sample_resource(), "b": sample_resource(), "c": sample_resource()})
    simulation.converge(simulation.goal(), outcomes(simulation, {"a": False, "b": True}))
    assert (simulation.status(), failed_step(simulation)) == ("FAILED", "a")

    again(simulation, "a")
    simulation.carry(simulation.sweep())
    assert (simulation.status(), failed_step(simulation)) == ("BLOCKED", "b")

    again(simulation, "b")
    simulation.carry(simulation.sweep(), outcomes(simulation, {"b": False}))
    assert (simulation.status(), failed_step(simulation)) == ("FAILED", "b")

    again(simulation, "b")
    simulation.carry(simulation.sweep())
    assert simulation.status() == "COMPLETE"


def test_a_traversal_that_goes_on_has_not_ended(simulation: Simulation) -> None:
    simulation.define(CHAIN)
    simulation.converge(simulation.goal(), failing(simulation, "data"))
    simulation.clock.seconds += 100

    again(simulation, "data")
    simulation.carry(simulation.sweep(), failing(simulation, "database"))
    assert simulation.status() == "FAILED"
    _, ended, _ = facts(simulation)
    assert ended == simulation.clock.seconds


def test_a_new_traversal_tries_again_what_failed(simulation: Simulation) -> None:
    simulation.define(CHAIN)
    goal = simulation.goal()
    simulation.converge(goal, failing(simulation, "database"))
    failed = simulation.by_name()["database"]

    simulation.converge(goal)

    simulation.audit_at_rest(goal)
    assert simulation.by_name()["database"].id == failed.id


def test_a_deletion_that_failed_is_tried_again_by_the_next_traversal(
    simulation: Simulation,
) -> None:
    simulation.define({"a": sample_resource("exclusive")})
    simulation.converge(simulation.goal())
    simulation.converge(simulation.nothing(), failing(simulation, "a"))
    assert simulation.status() == "FAILED"

    simulation.converge(simulation.nothing())

    assert simulation.records() == []


def test_a_failed_traversal_stays_failed_in_the_books_when_another_follows(
    simulation: Simulation,
) -> None:
    simulation.define({"a": sample_resource()})
    failed = simulation.start(simulation.goal())
    simulation.carry(failed.ready, failing(simulation, "a"))

    simulation.converge(simulation.goal())

    assert simulation.status(failed.traversal_id) == "FAILED"


def test_an_input_that_no_node_provides_fails_the_traversal_in_words(
    simulation: Simulation,
) -> None:
    simulation.define(
        {"a": sample_resource(), "b": sample_resource(value={"get_attr": ["a", "echo"]})}
    )

    simulation.converge(
        simulation.goal(), lambda operation: Outcome(physical_id="x", attributes={})
    )

    assert simulation.status() == "FAILED"
    assert 'there is no "a.echo"' in simulation.reason()
    assert simulation.by_name()["b"].action == "INIT"


# -- blocking


def test_a_blocked_node_waits_for_a_person_and_then_goes_on(simulation: Simulation) -> None:
    simulation.define(CHAIN)
    goal = simulation.goal()
    simulation.converge(goal, failing(simulation, "data", blocked=True))
    assert simulation.status() == "BLOCKED"
    assert simulation.sweep() == []

    ready = simulation.engine.resume(simulation.group_id)

    assert simulation.status() == "IN_PROGRESS"
    simulation.carry(ready)
    simulation.audit_at_rest(goal)


def test_resuming_where_nothing_is_blocked_does_nothing(simulation: Simulation) -> None:
    simulation.define(CHAIN)
    assert simulation.engine.resume(simulation.group_id) == ()
    simulation.converge(simulation.goal())

    assert simulation.engine.resume(simulation.group_id) == ()
    assert simulation.status() == "COMPLETE"


def test_a_traversal_that_also_failed_stays_failed_when_its_blocked_node_goes_on(
    simulation: Simulation,
) -> None:
    simulation.define({"a": sample_resource(), "b": sample_resource()})
    simulation.converge(
        simulation.goal(),
        lambda operation: failure(blocked=operation.record.name == "a"),
    )
    assert simulation.status() == "FAILED"

    simulation.carry(simulation.engine.resume(simulation.group_id))

    assert simulation.status() == "FAILED"
    assert simulation.reason().startswith("Create b")
    assert simulation.by_name()["a"].status == "COMPLETE"


def test_a_traversal_is_blocked_as_long_as_one_of_its_nodes_is(simulation: Simulation) -> None:
    simulation.define({"a": sample_resource(), "b": sample_resource()})
    simulation.converge(simulation.goal(), failing(simulation, "a", "b", blocked=True))

    simulation.carry(
        simulation.engine.resume(simulation.group_id), failing(simulation, "b", blocked=True)
    )

    assert simulation.status() == "BLOCKED"
    assert simulation.by_name()["a"].status == "COMPLETE"
