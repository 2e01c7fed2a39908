# SPDX-License-Identifier: Apache-2.0
"""Operations that fail or block: what goes on, what is tried again."""

from __future__ import annotations

from typing import Any

import pytest

from mistral_failover.convergence import conclude
from mistral_failover.convergence.errors import UnknownType
from mistral_failover.convergence.records import Outcome, Started
from mistral_failover.store import views
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
