# SPDX-License-Identifier: Apache-2.0
"""Keeping leases alive: by an injected clock, and in real, short time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from mistral_failover.convergence.records import Lock, Record
from mistral_failover.store.database import Database
from mistral_failover.store.leases import Lease, LeaseKeeper, elapsed

SHORT = 2.5
LOCK = Lock("r", "o", 1, 30.0)


class Tenant:
    """A store that counts renewals and answers them as it is told."""

    def __init__(self) -> None:
        self.asked: list[Lock] = []
        self.answer: bool | Exception = True
        self.meanwhile: Callable[[], None] = lambda: None
        self.renewed = threading.Event()

    def atomically(self, function: Callable[[Any], Any]) -> Any:
        return function(self)

    def renew(self, lock: Lock) -> bool:
        self.asked.append(lock)
        self.meanwhile()
        if isinstance(self.answer, Exception):
            raise self.answer
        self.renewed.set()
        return self.answer


class Hand:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def tenant() -> Tenant:
    return Tenant()


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def lease(tenant: Tenant, hand: Hand) -> Lease:
    return Lease(tenant, LOCK, hand.at, hand)


def test_a_lease_is_due_at_a_third_of_its_length(lease: Lease, hand: Hand) -> None:
    assert lease.due_in() == pytest.approx(10.0)

    hand.at += 10

    assert lease.due_in() == pytest.approx(0.0)
    assert lease.remaining() == pytest.approx(20.0)


def test_a_renewal_counts_from_before_the_database_was_asked(
    lease: Lease, hand: Hand, tenant: Tenant
) -> None:
    def slowly() -> None:
        hand.at += 5

    tenant.meanwhile = slowly

    assert lease.renew()
    assert lease.remaining() == pytest.approx(25.0)


def test_a_holder_that_was_frozen_past_the_end_stops_by_itself(
    lease: Lease, hand: Hand, tenant: Tenant
) -> None:
    hand.at += 30

    assert lease.remaining() == 0
    assert not lease.renew()
    assert lease.lost
    assert tenant.asked == []


def test_a_lease_that_the_database_refuses_is_lost_for_good(lease: Lease, tenant: Tenant) -> None:
    tenant.answer = False

    assert not lease.renew()
    tenant.answer = True
    assert not lease.renew()
    assert lease.remaining() == 0
    assert len(tenant.asked) == 1


def test_a_lock_taken_elsewhere_is_renewed_at_once(tenant: Tenant, hand: Hand) -> None:
    with LeaseKeeper(tenant, hand).hold(LOCK) as lease:
        assert tenant.asked == [LOCK]
        assert lease.remaining() == pytest.approx(30.0)


def test_a_lock_whose_beginning_is_known_is_not_renewed_before_it_is_due(
    tenant: Tenant, hand: Hand
) -> None:
    with LeaseKeeper(tenant, hand).hold(LOCK, since=hand.at - 5) as lease:
        assert tenant.asked == []
        assert lease.remaining() == pytest.approx(25.0)


def test_nested_blocks_share_one_lease(tenant: Tenant, hand: Hand) -> None:
    keeper = LeaseKeeper(tenant, hand)

    with keeper.hold(LOCK, since=hand.at) as outer:
        with keeper.hold(LOCK, since=hand.at) as inner:
            assert inner is outer
        with keeper.hold(LOCK, since=hand.at) as again:
            assert again is outer
    with keeper.hold(LOCK, since=hand.at) as later:
        assert later is not outer


def test_two_locks_of_one_resource_under_different_tokens_are_two_leases(
    tenant: Tenant, hand: Hand
) -> None:
    keeper = LeaseKeeper(tenant, hand)
    later = Lock("r", "o", 2, 30.0)

    with keeper.hold(LOCK, since=hand.at) as one, keeper.hold(later, since=hand.at) as two:
        assert one is not two


def test_a_block_that_raises_lets_the_lease_go(tenant: Tenant, hand: Hand) -> None:
    keeper = LeaseKeeper(tenant, hand)

    with pytest.raises(LookupError), keeper.hold(LOCK, since=hand.at) as first:
        raise LookupError
    with keeper.hold(LOCK, since=hand.at) as second:
        assert second is not first


# -- in real time, on a real database


def held(database: Database, record: Record) -> tuple[Lock, float]:
    since = elapsed()
    lock = database.atomically(lambda tx: tx.acquire(record, "o", SHORT))
    assert lock is not None
    return lock, since


def until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Wait for a condition that nothing announces."""
    waiting, end = threading.Event(), elapsed() + seconds
    while not condition() and elapsed() < end:
        waiting.wait(0.02)
    return condition()


def lease_of(database: Database) -> float:
    record = database.reading(lambda tx: tx.record("r"))
    assert record is not None
    return record.lease_until or 0.0


def test_a_short_lease_outlives_its_length_as_long_as_it_is_held(
    database: Database, record: Record
) -> None:
    lock, since = held(database, record)
    first = lease_of(database)

    with LeaseKeeper(database).hold(lock, since) as lease:
        assert until(lambda: database.reading(lambda tx: tx.now()) > first + SHORT)
        assert lease.remaining() > 0
        assert lease_of(database) > database.reading(lambda tx: tx.now())

    # A renewal that is under way may still end, but a released lock is not renewed for ever.
    assert until(lambda: database.reading(lambda tx: tx.now()) > lease_of(database))


def test_a_lease_that_was_stolen_is_noticed(database: Database, record: Record) -> None:
    lock, since = held(database, record)

    with LeaseKeeper(database).hold(lock, since) as lease:
        assert lease.remaining() > 0
        database.atomically(lambda tx: tx.release(lock))  # as a thief would free it

        assert until(lambda: lease.lost)
        assert lease.remaining() == 0


class Failing:
    """A database that is out of order while ``broken``."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.broken = True
        self.failures = 0

    def atomically(self, function: Callable[[Any], Any]) -> Any:
        if self.broken:
            self.failures += 1
            raise sa.exc.OperationalError("renew", {}, Exception("no connection"))
        return self.database.atomically(function)


def test_a_failing_database_is_asked_again_until_it_answers(
    database: Database, record: Record
) -> None:
    lock, since = held(database, record)
    failing = Failing(database)
    first = lease_of(database)

    with LeaseKeeper(failing).hold(lock, since) as lease:
        assert until(lambda: failing.failures > 0)
        failing.broken = False
        assert until(lambda: lease_of(database) > first)
        assert not lease.lost


def test_a_database_that_does_not_come_back_costs_the_lease_and_not_the_thread(
    database: Database, record: Record
) -> None:
    lock, since = held(database, record)
    failing = Failing(database)
    keeper = LeaseKeeper(failing)

    with keeper.hold(lock, since) as lease:
        assert until(lambda: lease.lost)
        assert failing.failures > 1
    failing.broken = False
    free = database.reading(lambda tx: tx.record("r"))
    assert free is not None
    database.atomically(lambda tx: tx.break_dead_lock(free, "dead"))
    again = database.reading(lambda tx: tx.record("r"))
    assert again is not None
    lock, since = held(database, again)
    first = lease_of(database)
    with keeper.hold(lock, since):
        assert until(lambda: lease_of(database) > first)


def test_a_lease_that_is_lost_is_told_and_one_that_is_kept_is_not(
    tenant: Tenant, hand: Hand, caplog: pytest.LogCaptureFixture
) -> None:
    # A name of its own: a keeper of another test may be in the middle of its last renewal.
    lock = replace(LOCK, resource_id="mine")

    def told() -> list[str]:
        return [message for message in caplog.messages if lock.resource_id in message]

    hand.at += 10
    with LeaseKeeper(tenant, hand).hold(lock, since=hand.at - 10):
        assert until(lambda: len(tenant.asked) == 1)
    assert told() == []
    tenant.answer = False
    with LeaseKeeper(tenant, hand).hold(lock, since=hand.at - 10) as lease:
        assert until(lambda: lease.lost)
        assert until(lambda: told() == ["The lease on mine is lost."])


def test_the_lease_keeper_sleeps_in_between_and_keeps_no_process_alive(
    tenant: Tenant,
) -> None:
    looks: list[float] = []

    def clock() -> float:
        looks.append(0.0)
        return 100.0

    # Due in half a second by a clock that stands still.
    with LeaseKeeper(tenant, clock).hold(LOCK, since=100.0 - 9.5):
        threads = [thread for thread in threading.enumerate() if thread.name == "leases"]
        assert threads
        assert all(thread.daemon for thread in threads)
        threading.Event().wait(0.1)

    assert len(looks) < 20
    assert tenant.asked == []
