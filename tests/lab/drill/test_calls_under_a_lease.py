# SPDX-License-Identifier: Apache-2.0
"""The audit of invariant 3: no call to the cloud starts after its owner's lease ended."""

from __future__ import annotations

from typing import Any

import pytest

from mistral_failover.lab.drill.audit import State, calls_under_lease
from mistral_failover.runtime.lease_guard import request_id


def call(at: float, token: int, resource: str = "r") -> dict[str, Any]:
    """A request as the emulator logs it."""
    return {
        "kind": "request",
        "arrived": at,
        "request_id": request_id(resource, token),
        "method": "POST",
        "path": "/attach",
    }


def state(*stolen_at: float) -> State:
    """A resource whose lock was broken at these times."""
    resources = [{"id": "r", "token": 9}, {"id": "s", "token": 9}]
    steals = [{"at": at, "resource_id": "r", "kind": "steal"} for at in stolen_at]
    return State([], [], [], resources, [], [], [*steals, {"at": 0, "kind": "complete"}])


@pytest.mark.parametrize(
    ("calls", "stolen"),
    [
        ([call(1, 1), call(2, 1), call(3, 2)], []),
        ([call(1, 1), call(3, 3)], [2]),
        ([call(2, 2), call(3, 1, "s")], []),
        ([call(1, 1), {**call(2, 1), "request_id": "req-unknown"}], []),
        ([call(1, 1), {**call(2, 1), "request_id": None}], []),
        ([call(1, 1), {**call(3, 1), "method": "GET"}], [2]),
        ([call(1, 2), {**call(2, 1), "method": "GET"}], []),
    ],
)
def test_calls_under_tokens_that_grow_are_well(calls: list[Any], stolen: list[float]) -> None:
    assert list(calls_under_lease(calls, state(*stolen))) == []


@pytest.mark.parametrize(
    ("calls", "stolen", "at"),
    [
        ([call(1, 2), call(2, 1)], [], 2),
        ([{**call(1, 2), "method": "GET"}, call(2, 1)], [], 2),
        ([call(1, 1), call(3, 1)], [2], 3),
    ],
    ids=["an older token", "a token older than that of a read", "a lock that was broken"],
)
def test_a_call_after_the_end_of_its_lease_is_found(
    calls: list[Any], stolen: list[float], at: int
) -> None:
    (found,) = calls_under_lease(calls, state(*stolen))
    ended = f"POST /attach came at {at}.000 under token 1 of r, which had ended"
    assert str(found) == f"invariant 3: {ended}"


def test_calls_count_by_when_they_came_not_by_when_they_were_answered() -> None:
    assert list(calls_under_lease([call(2, 2), call(1, 1)], state())) == []
