# SPDX-License-Identifier: Apache-2.0
"""Locks, leases and the ledger, under real threads and by the database's own clock."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from mistral_failover.convergence.records import Action, Lock, Node, Outcome, Record, Status, Ticket
from mistral_failover.model.types import Verb
from mistral_failover.store import groups
from mistral_failover.store.database import Database
from mistral_failover.store.transaction import ProjectTransaction, SqlTransaction
from support.together import together

MANY = 8
OVER = -1.0  # the length of a lease that has run out when it begins


def take(database: Database, record: Record, owner: str = "o", lease: float = 60.0) -> Lock:
    lock = database.atomically(lambda tx: tx.acquire(record, owner, lease))
    assert lock is not None
    return lock


def now(database: Database) -> Record:
    record = database.reading(lambda tx: tx.record("r"))
    assert record is not None
    return record


def ticket(lock: Lock, key: str = "key") -> Ticket:
    return Ticket(key, Verb.CREATE, "t", Node("update", "r"), lock, "v")


def test_of_many_that_want_one_lock_exactly_one_gets_it(database: Database, record: Record) -> None:
    locks = together(
        MANY, lambda n: database.atomically(lambda tx: tx.acquire(record, f"o{n}", 60.0))
    )

    won = [lock for lock in locks if lock is not None]
    assert len(won) == 1
    assert (now(database).owner, now(database).token) == (won[0].owner, 1)


def test_a_taken_lock_is_not_given_even_to_who_read_the_record_after(
    database: Database, record: Record
) -> None:
    take(database, record)

    assert database.atomically(lambda tx: tx.acquire(now(database), "p", 60.0)) is None


def test_who_read_the_record_before_a_change_gets_no_lock(
    database: Database, record: Record
) -> None:
    assert database.atomically(lambda tx: tx.amend(record, reason="changed"))

    assert database.atomically(lambda tx: tx.acquire(record, "o", 60.0)) is None
    assert not database.atomically(lambda tx: tx.amend(record, reason="changed again"))
    assert now(database).reason == "changed"


def test_of_many_thieves_exactly_one_steals(database: Database, record: Record) -> None:
    take(database, record, lease=OVER)
    dead = now(database)

    stolen = together(
        MANY, lambda n: database.atomically(lambda tx: tx.break_dead_lock(dead, f"by {n}"))
    )

    assert stolen.count(True) == 1
    after = now(database)
    assert (after.owner, after.token, after.status) == (None, 2, "FAILED")
    assert after.reason == f"by {stolen.index(True)}"


def test_a_live_owner_is_not_stolen_from(database: Database, record: Record) -> None:
    take(database, record)

    assert not database.atomically(lambda tx: tx.break_dead_lock(now(database), "greed"))
    assert now(database).owner == "o"


def test_a_thief_that_saw_an_earlier_owner_loses_against_the_later_one(
    database: Database, record: Record
) -> None:
    take(database, record, lease=OVER)
    seen = now(database)
    assert database.atomically(lambda tx: tx.break_dead_lock(seen, "dead"))
    take(database, now(database), lease=OVER)  # by the same name

    assert not database.atomically(lambda tx: tx.break_dead_lock(seen, "dead"))


def test_a_lease_is_renewed_while_it_lasts_and_by_the_database_clock(
    database: Database, record: Record
) -> None:
    lock = take(database, record)
    first = now(database).lease_until

    assert database.atomically(lambda tx: tx.renew(lock))

    assert first is not None
    later, clock = now(database).lease_until, database.reading(lambda tx: tx.now())
    assert later is not None
    assert first <= later <= clock + 60.0
    assert now(database).held_at(clock)


def test_a_lease_that_ran_out_is_not_renewed(database: Database, record: Record) -> None:
    lock = take(database, record, lease=OVER)

    assert not database.atomically(lambda tx: tx.renew(lock))


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("cause", ["fenced", "replaced"])
def test_no_lease_is_renewed_to_make_something_on_a_member_that_was_fenced_since(
    database: Database, cause: str
) -> None:
    making = on_member(database, Action.CREATE)
    assert database.atomically(lambda tx: tx.renew(making))

    if cause == "fenced":
        database.atomically(lambda tx: tx.raise_epochs("g", ["a"]))
    else:
        database.for_project("elsewhere").atomically(
            lambda tx: groups.record_members(tx, "g", [("a", "server-2", None)])
        )

    assert not database.atomically(lambda tx: tx.renew(making))


def on_member(database: Database, action: Action) -> Lock:
    """The lock of an operation on a record that sits on member a, in its first epoch."""
    fresh = Record(id="r", group_id="g", name="r", type="held", member="a", epoch=1)

    def take(tx: ProjectTransaction) -> Lock:
        groups.record_members(tx, "g", [("a", "server-1", None), ("b", "server-b", None)])
        tx.insert_records((fresh,), tx.now())
        lock = tx.acquire(fresh, "o", 60.0, action=action, status=Status.IN_PROGRESS)
        assert lock is not None
        return lock

    return database.for_project("elsewhere").atomically(take)


def test_after_a_steal_the_former_owner_neither_renews_nor_releases(
    database: Database, record: Record
) -> None:
    lock = take(database, record, lease=OVER)
    database.atomically(lambda tx: tx.break_dead_lock(now(database), "dead"))
    later = take(database, now(database))

    assert not database.atomically(lambda tx: tx.renew(lock))
    assert not database.atomically(lambda tx: tx.release(lock, reason="late"))
    assert now(database).token == later.token
    assert now(database).reason == "dead"


def test_a_thief_and_the_owners_late_release_do_not_both_win(
    database: Database, record: Record
) -> None:
    lock = take(database, record, lease=OVER)
    dead = now(database)

    won = together(
        2,
        lambda n: database.atomically(
            lambda tx: tx.break_dead_lock(dead, "dead") if n else tx.release(lock, reason="late")
        ),
    )

    assert won.count(True) == 1
    assert now(database).reason == ("dead" if won[1] else "late")


def test_tokens_only_grow(database: Database, record: Record) -> None:
    tokens = []
    for _ in range(4):
        lock = take(database, now(database))
        tokens.append(lock.token)
        assert database.atomically(lambda tx: tx.release(lock))  # noqa: B023 - run at once

    assert tokens == sorted(set(tokens))


def test_the_clock_has_a_resolution_fit_for_leases(database: Database) -> None:
    readings = [database.reading(lambda tx: tx.now()) for _ in range(50)]

    assert readings == sorted(readings)
    assert len(set(readings)) > 1
    assert 0 <= readings[-1] - readings[0] < 10


def test_a_changed_record_reads_back_as_it_was_written(database: Database, record: Record) -> None:
    changes: dict[str, Any] = {
        "properties": {"deep": [1, None, {"é": "\N{SNOWMAN}"}]},
        "attributes": {},
        "requires": ("x", "y"),
        "physical_id": "p",
        "condemned_for": "0" * 64,
        "applied": {"deep": [1, None]},
    }
    assert database.atomically(lambda tx: tx.amend(record, **changes))

    read = now(database)
    assert {name: getattr(read, name) for name in changes} == changes


def test_json_beyond_64_kib_comes_back_whole(database: Database, record: Record) -> None:
    large = {"text": "ü" * 100_000, "list": list(range(20_000))}

    assert database.atomically(lambda tx: tx.amend(record, properties=large, attributes=large))

    assert now(database).properties == large
    assert now(database).attributes == large


# -- the ledger


def entries(database: Database) -> dict[str, tuple[str, int]]:
    with database.engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM failover_operations").mappings()
        return {row["key"]: (row["status"], row["attempts"]) for row in rows}


def test_an_outcome_under_an_old_token_does_not_touch_the_ledger(
    database: Database, record: Record
) -> None:
    first = take(database, record, lease=OVER)
    database.atomically(lambda tx: tx.open_operation(ticket(first), record, {}))
    database.atomically(lambda tx: tx.break_dead_lock(now(database), "dead"))
    second = take(database, now(database))
    database.atomically(lambda tx: tx.open_operation(ticket(second), record, {}))

    database.atomically(lambda tx: tx.close_operation(ticket(first), Outcome()))

    assert entries(database) == {"key": ("started", 2)}


# -- transactions


def test_a_transaction_that_raises_leaves_nothing(database: Database, record: Record) -> None:
    def half(tx: SqlTransaction) -> None:
        assert tx.amend(record, reason="half")
        raise LookupError

    with pytest.raises(LookupError):
        database.atomically(half)

    assert now(database) == record


def test_a_deadlock_runs_the_transaction_again(database: Database, record: Record) -> None:
    other = Record(id="s", group_id="g", name="s", type="shared", goal_version="v")
    database.atomically(lambda tx: tx.insert_records((other,), tx.now()))
    met = threading.Barrier(2)
    runs: list[int] = []

    def crosswise(number: int) -> bool:
        order = ["r", "s"] if number else ["s", "r"]

        def amended(tx: SqlTransaction, identity: str) -> bool:
            known = tx.record(identity)
            assert known is not None
            return tx.amend(known, reason=str(number))

        def change(tx: SqlTransaction) -> bool:
            runs.append(number)
            changed = amended(tx, order[0])
            if database.engine.dialect.name != "sqlite" and len(runs) <= 2:
                met.wait(30)
            return changed and amended(tx, order[1])

        return database.atomically(change)

    assert together(2, crosswise) == [True, True]
    assert database.engine.dialect.name == "sqlite" or len(runs) > 2
    assert now(database).atomic_key == 2


@pytest.mark.usefixtures("group")
def test_what_somebody_else_inserts_meanwhile_is_found_by_the_repeat(database: Database) -> None:
    def insert_if_missing(number: int) -> int:
        def insert(tx: SqlTransaction) -> int:
            if tx.record("n") is not None:
                return 0
            fresh = Record(id="n", group_id="g", name="n", type="shared", goal_version="v")
            tx.insert_records((fresh,), tx.now())
            return 1

        return database.atomically(insert)

    assert sum(together(MANY, insert_if_missing)) == 1
