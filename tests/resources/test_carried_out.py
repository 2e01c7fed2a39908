# SPDX-License-Identifier: Apache-2.0
"""What a worker makes of the function that carries out an operation of a type."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import LeaseLost
from mistral_failover.convergence.records import Outcome
from mistral_failover.model import types
from mistral_failover.resources import activation, modules, worker
from mistral_failover.runtime.errors import caught

OPERATION: Any = {"resource": {"type": "house"}}
REQUEST: Any = SimpleNamespace(
    cloud=lambda guard: None,
    channel=lambda cloud, guard: None,
    refusal=lambda: None,
    caught=caught,
)


class Guard:
    """The guard of an operation; ``error``: what it refuses with."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def permit(self, _method: str) -> float:
        if self.error is not None:
            raise self.error
        return 30.0


def fail(error: Exception) -> Callable[[], Any]:
    def raising() -> Any:
        raise error

    return raising


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Return what has an operation carried out by a function, and returns its outcome."""

    def run(does: Callable[[], Any], error: Exception | None = None) -> Outcome:
        guard: Any = Guard(error)
        monkeypatch.setattr(modules, "operation", lambda _type, _name: lambda _c, _o: does())
        return worker.carried_out(REQUEST, guard, "own", OPERATION)

    return run


@pytest.mark.parametrize(
    ("result", "physical_id"),
    [
        ({"physical_id": "p"}, "p"),
        (None, None),
        ("done", None),
        ({"attributes": {"pair": (1, 2)}}, None),
    ],
)
def test_what_a_function_returns_is_its_outcome(
    run: Callable[..., Outcome], result: Any, physical_id: str | None
) -> None:
    outcome = run(lambda: result)

    assert outcome.ok
    assert outcome.physical_id == physical_id
    assert json.loads(json.dumps(outcome.attributes)) == outcome.attributes


@pytest.mark.parametrize(
    ("does", "code"),
    [
        (fail(ValueError("odd")), "UNEXPECTED"),
        (fail(CloudError("QUOTA", "full")), "QUOTA"),
        (lambda: {"attributes": {"at": object()}}, "UNEXPECTED"),
        (lambda: {"attributes": {"size": float("nan")}}, "UNEXPECTED"),
    ],
)
def test_a_function_that_fails_is_a_failed_outcome(
    run: Callable[..., Outcome], does: Callable[[], Any], code: str
) -> None:
    outcome = run(does)

    assert outcome.error is not None
    assert outcome.error["code"] == code


def test_nothing_is_done_without_a_lease(run: Callable[..., Outcome]) -> None:
    outcome = run(fail(AssertionError("it ran")), LeaseLost("another worker has it"))

    assert outcome.error is not None
    assert outcome.error["code"] == "LEASE_LOST"


@pytest.mark.parametrize(
    ("resource_type", "function"),
    [("unknown", "unknown"), ("volume_attachment", "unknown"), ("alarm", "observe")],
)
def test_a_function_that_no_package_has_is_named(resource_type: str, function: str) -> None:
    operation: Any = {"resource": {"type": resource_type}}
    no_guard: Any = None

    outcome = worker.carried_out(REQUEST, no_guard, function, operation)

    assert outcome.error is not None
    assert outcome.error["code"] == "UNKNOWN_FUNCTION"
    assert f"{function} of the type {resource_type}" in outcome.error["message"]


def test_a_copy_of_a_shipped_type_under_another_name_has_its_functions() -> None:
    assert modules.operation("quick_activation", "activate") is activation.activate


@pytest.mark.parametrize(
    ("resource_type", "function"),
    [
        (each.name, spec.function)
        for each in types.installed_types().values()
        for spec in each.operations.values()
        if spec.function is not None
    ],
)
def test_every_function_that_a_shipped_type_names_is_there(
    resource_type: str, function: str
) -> None:
    assert modules.operation(resource_type, function).__name__ == function
