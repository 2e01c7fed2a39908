# SPDX-License-Identifier: Apache-2.0
"""The guard of a climb: it ends waits once the fence is confirmed, and nothing else."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import OperationalError

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import NoLongerNeeded, Unguarded
from mistral_failover.resources import watch
from mistral_failover.resources.watch import WatchfulGuard


class Store:
    """What is read of the confirmation, and how often."""

    def __init__(self, answer: str | Exception | None = None) -> None:
        self.answer = answer
        self.reads = 0

    def __call__(self) -> str | None:
        self.reads += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_wait_looks_into_the_store_no_more_often_than_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "LOOK", 3600.0)
    store = Store("I saw it")
    guard = WatchfulGuard(Unguarded(5.0), store)

    assert [guard.permit("GET") for _ in range(100)] == [5.0] * 100
    assert store.reads == 0


def test_a_confirmation_ends_waits_but_no_request_that_changes_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "LOOK", 0.0)
    store = Store()
    guard = WatchfulGuard(Unguarded(5.0), store)

    assert guard.permit("GET") == 5.0
    store.answer = "I saw it"
    assert [guard.permit(method) for method in ("POST", "PUT", "DELETE")] == [5.0] * 3
    with pytest.raises(NoLongerNeeded):
        guard.permit("GET")


def test_a_store_that_does_not_answer_ends_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LOOK", 0.0)
    store = Store(OperationalError("SELECT", {}, Exception("gone")))

    assert WatchfulGuard(Unguarded(5.0), store).permit("GET") == 5.0
    assert store.reads == 1


def test_the_guard_below_hears_how_services_answer() -> None:
    class Hearing(Unguarded):
        def overloaded(self, service: str, pause: float) -> None:
            heard.append((service, pause))

        def waits_for(self, error: CloudError | None) -> None:
            waits.append(error)

    heard: list[tuple[str, float]] = []
    waits: list[CloudError | None] = []
    WatchfulGuard(Hearing(), lambda: None).overloaded("Nova", 5.0)
    WatchfulGuard(Unguarded(), lambda: None).overloaded("Nova", 5.0)  # which hears nothing
    WatchfulGuard(Hearing(), lambda: None).waits_for(None)
    WatchfulGuard(Unguarded(), lambda: None).waits_for(None)
    assert heard == [("Nova", 5.0)]
    assert waits == [None]
