# SPDX-License-Identifier: Apache-2.0
"""The guard between an operation's lease and its calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext
from sqlalchemy.exc import OperationalError, ProgrammingError

from mistral_failover.actions import locks, operations
from mistral_failover.cloud.errors import CloudError, Fate
from mistral_failover.cloud.transport import HandedBack, LeaseLost
from mistral_failover.convergence.records import Lock, Ready
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.lease_guard import LeaseGuard, WaitRecord
from mistral_failover.runtime.process import Runtime
from mistral_failover.settings import Settings
from mistral_failover.store.leases import Lease, elapsed
from support.driving import handed_out

LENGTH, MARGIN = 30.0, 2.0


class Held:
    """A lease on a clock that the test moves, in a store that grants renewals or does not."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.grants = True
        self.asked = 0
        self.takes = 0.0
        self.lease = Lease(
            self,  # type: ignore[arg-type] - of a store it needs this one method
            Lock("r", "o", 1, LENGTH),
            self.now,
            lambda: self.now,
        )
        self.guard = LeaseGuard(self.lease, MARGIN)

    def atomically(self, function: Callable[[Any], Any]) -> bool:
        self.asked += 1
        self.now += self.takes
        return self.grants


@pytest.mark.parametrize(
    ("method", "passed", "renewed"),
    [
        ("GET", 0, False),
        ("GET", 19, False),
        ("GET", 21, True),
        ("HEAD", 19, False),
        ("POST", 0, True),
        ("POST", 9, True),
        ("POST", 11, True),
        ("PATCH", 11, True),
        ("DELETE", 11, True),
        ("PUT", 11, True),
    ],
)
def test_a_call_gets_what_is_left_and_one_that_changes_something_a_fresh_lease(
    method: str, passed: float, renewed: bool
) -> None:
    held = Held()
    held.now += passed

    allowed = held.guard.permit(method)

    assert held.asked == int(renewed)
    assert allowed == (LENGTH if renewed else LENGTH - passed) - MARGIN


def test_the_time_that_a_renewal_took_is_not_granted_to_a_call_that_changes_something() -> None:
    held = Held()
    held.takes = 5.0

    assert held.guard.permit("POST") == LENGTH - MARGIN - 5.0


def test_no_call_starts_once_a_renewal_was_refused() -> None:
    held = Held()
    held.now += 21
    held.grants = False

    with pytest.raises(LeaseLost, match="lease on resource r is lost"):
        held.guard.permit("GET")

    held.grants = True
    with pytest.raises(LeaseLost):
        held.guard.permit("GET")
    assert held.asked == 1


def test_a_process_that_slept_through_its_lease_does_not_even_ask_for_more() -> None:
    held = Held()
    held.now += LENGTH

    with pytest.raises(LeaseLost):
        held.guard.permit("GET")

    assert held.asked == 0


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_process_that_gives_its_work_back_starts_no_call(method: str) -> None:
    held = Held()

    with pytest.raises(HandedBack) as refused:
        LeaseGuard(held.lease, MARGIN, lambda: True).permit(method)

    assert refused.value.code == "HANDED_BACK"
    assert held.asked == 0


def test_a_margin_as_long_as_the_lease_permits_nothing() -> None:
    held = Held()

    with pytest.raises(LeaseLost):
        LeaseGuard(held.lease, LENGTH).permit("GET")


def test_a_margin_that_leaves_little_of_a_lease_is_refused_at_the_start(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.sqlite'}"

    with pytest.raises(ActionError, match="lease_margin") as caught:
        Runtime(Settings(database=url, lease=30.0, lease_margin=10.1))

    assert caught.value.code == "CONFIG"
    assert "a third of lease" in caught.value.remedy
    assert Runtime(Settings(database=url, lease=30.0, lease_margin=10.0))


def test_an_operation_whose_lock_was_stolen_touches_nothing(
    state: Runtime, begun: Ready, context: ActionContext
) -> None:
    document = handed_out(state, context, begun)
    ticket = {**document["ticket"], "lock": {**document["ticket"]["lock"], "token": 99}}

    answer = operations.Activate({**document, "ticket": ticket}).run(context)

    assert answer.error["code"] == "LEASE_LOST"


def test_an_operation_that_is_a_workflow_is_locked_for_one_lease_like_any_other(
    state: Runtime, begun: Ready, context: ActionContext
) -> None:
    lock = handed_out(state, context, begun)["ticket"]["lock"]

    (held,) = locks.Locks("payments").run(context)
    assert lock["lease"] == state.settings.lease
    assert held["lease_left"] <= state.settings.lease


# -- what may still take effect


class Rows:
    """A store that grants renewals, and what it says may still take effect."""

    def __init__(self) -> None:
        self.row: str | None = None
        self.away = False
        self.refuses = False

    def atomically(self, function: Callable[[Any], Any]) -> Any:
        if self.away:
            raise OperationalError("UPDATE", {}, Exception("gone"))
        if self.refuses:
            raise ProgrammingError("UPDATE", {}, Exception(1054, "unknown column"))
        return function(self)

    def ask(self, lock: Lock, asked: str, seconds: float) -> bool:
        self.row = f"{asked} for {seconds:.0f} s"
        return True

    def settle(self, lock: Lock, asked: str | None, seconds: float) -> bool:
        self.row = None if asked is None else f"{asked} for {seconds:.0f} s"
        return True


LASTS = {Fate.SILENT: 60.0, Fate.FAILED: 5.0}


def recording(rows: Rows, earlier: float = 0.0) -> LeaseGuard:
    lease = Lease(rows, Lock("r", "o", 1, LENGTH), elapsed())  # type: ignore[arg-type]
    lease.requests.inherit(earlier)
    return LeaseGuard(lease, MARGIN, outlives=lambda _, fate: LASTS[fate])


@pytest.mark.parametrize(
    ("fate", "left"),
    [(Fate.SETTLED, None), (Fate.FAILED, "POST /x for 5 s"), (Fate.SILENT, "POST /x for 60 s")],
)
def test_a_request_is_on_record_before_it_is_sent_and_its_answer_clears_it(
    fate: Fate, left: str | None
) -> None:
    rows = Rows()
    guard = recording(rows)

    _, number = guard.ask("POST /x")
    assert rows.row == "POST /x for 60 s"

    guard.ended(number, fate)
    assert rows.row == left


def test_the_answer_to_one_request_clears_no_other_one() -> None:
    rows = Rows()
    guard = recording(rows, earlier=40.0)
    assert 30 < guard.unsettled() <= 40

    _, first = guard.ask("POST /x")
    _, second = guard.ask("POST /y")
    guard.ended(first, Fate.SETTLED)
    assert rows.row == "POST /y for 60 s"
    guard.ended(second, Fate.SETTLED)

    assert rows.row is not None
    assert rows.row.startswith("a request of an earlier attempt")


def test_two_actions_of_one_operation_clear_only_what_they_asked_for_themselves() -> None:
    rows = Rows()
    one = recording(rows)
    other = LeaseGuard(one.lease, MARGIN, outlives=lambda _, fate: LASTS[fate])

    one.ask("POST /x")
    _, second = other.ask("POST /y")
    other.ended(second, Fate.SETTLED)

    assert rows.row == "POST /x for 60 s"


def test_without_the_store_nothing_is_sent_and_an_answer_stays_unrecorded() -> None:
    rows = Rows()
    guard = recording(rows)
    _, number = guard.ask("POST /x")

    rows.away = True
    guard.ended(number, Fate.SETTLED)
    with pytest.raises(OperationalError):
        guard.ask("POST /y")

    assert rows.row == "POST /x for 60 s"
    rows.away = False
    _, number = guard.ask("POST /z")
    guard.ended(number, Fate.SETTLED)
    assert rows.row is None, "what was not sent, or was answered, is not waited for"


# -- what an operation waits for


class Ledger:
    """What was recorded; a store that may be away."""

    def __init__(self) -> None:
        self.rows: list[str | None] = []
        self.away = False

    def atomically(self, function: Callable[[Any], Any]) -> Any:
        if self.away:
            raise OperationalError("UPDATE", {}, Exception("gone"))
        return function(self)

    def waits_for(self, lock: Lock, what: str | None) -> None:
        self.rows.append(what)


def test_what_an_operation_waits_for_is_recorded_now_and_then_and_its_end_at_once() -> None:
    ledger, now = Ledger(), 100.0
    record = WaitRecord(ledger, Lock("r", "o", 1, LENGTH), lambda: now)  # type: ignore[arg-type]

    def away(detail: str) -> CloudError:
        return CloudError("UNREACHABLE", "no answer", service="Cinder", detail=detail)

    record(None)
    assert ledger.rows == [], "nothing is written for a wait that gets its answers"
    record(away("HTTP 503"))
    record(away("HTTP 503"))
    record(away("no answer"))
    now += 5
    record(away("no answer"))
    record(None)
    record(away("HTTP 503"))
    now += 5
    ledger.away = True
    record(away("HTTP 503"))
    ledger.away = False
    record(None)

    assert ledger.rows == ["Cinder: HTTP 503", "Cinder: no answer", None]


def test_only_a_store_that_is_away_leaves_records_out_in_silence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = Rows()
    guard = recording(rows)
    _, number = guard.ask("POST /x")
    _, other = guard.ask("POST /y")
    record = WaitRecord(rows, Lock("r", "o", 1, LENGTH), lambda: 100.0)  # type: ignore[arg-type]
    waits = CloudError("UNREACHABLE", "no answer", service="Cinder", detail="HTTP 503")

    rows.away = True
    guard.ended(number, Fate.SETTLED)
    record(waits)
    assert "Defect" not in caplog.text

    rows.away, rows.refuses = False, True
    guard.ended(other, Fate.SETTLED)
    WaitRecord(rows, Lock("r", "o", 1, LENGTH), lambda: 100.0)(waits)  # type: ignore[arg-type]
    assert "Defect while recording the answer to a request" in caplog.text
    assert "Defect while recording what an operation waits for" in caplog.text
