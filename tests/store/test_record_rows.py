# SPDX-License-Identifier: Apache-2.0
"""Locks and the ledger: each statement changes the row that it is about, completely, and none
beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mistral_failover.convergence.records import Action, Lock, Node, Outcome, Record, Status, Ticket
from mistral_failover.model.types import Verb
from mistral_failover.store import groups, views
from mistral_failover.store.database import Database
from mistral_failover.store.tables import operations, resources
from mistral_failover.store.transaction import ProjectTransaction, SqlTransaction
from support.rows import only_these_change, rows

OVER = -1.0  # the length of a lease that has run out when it begins


def now(database: Database, identity: str = "r") -> Record:
    record = database.reading(lambda tx: tx.record(identity))
    assert record is not None
    return record


@pytest.fixture
def neighbour(database: Database, record: Record) -> Record:
    """Another record of the same group; what is done to ``r`` must not touch it."""
    other = replace(record, id="s", name="s")
    database.atomically(lambda tx: tx.insert_records((other,), tx.now()))
    return other


def take_both(database: Database, record: Record, neighbour: Record, lease: float) -> Lock:
    """The same owner takes both locks; both have the same token."""
    locks = [
        database.atomically(lambda tx: tx.acquire(one, "o", lease))  # noqa: B023 - run at once
        for one in (record, neighbour)
    ]
    assert locks[0] is not None
    return locks[0]


def break_lock(tx: SqlTransaction) -> bool:
    record = tx.record("r")
    assert record is not None
    return tx.break_dead_lock(record, "dead")


def ticket(lock: Lock, key: str = "key", **changes: Any) -> Ticket:
    return replace(
        Ticket(key, Verb.CREATE, "t", Node("update", lock.resource_id), lock, "v"), **changes
    )


@pytest.mark.parametrize(
    "step",
    [
        lambda tx, lock: tx.renew(lock),
        lambda tx, lock: tx.release(lock, reason="x"),
        lambda tx, lock: break_lock(tx),
    ],
    ids=["renew", "release", "break"],
)
@pytest.mark.parametrize("lease", [60.0, OVER])
def test_a_lock_is_changed_without_touching_its_neighbour(
    database: Database,
    record: Record,
    neighbour: Record,
    step: Callable[[SqlTransaction, Lock], bool],
    lease: float,
) -> None:
    lock = take_both(database, record, neighbour, lease)

    with only_these_change(database, resources, ("id",), "r"):
        database.atomically(lambda tx: step(tx, lock))


def test_a_record_is_taken_and_amended_without_touching_its_neighbour(
    database: Database, record: Record, neighbour: Record
) -> None:
    with only_these_change(database, resources, ("id",), "r"):
        assert database.atomically(lambda tx: tx.amend(record, reason="x"))
        assert database.atomically(lambda tx: tx.acquire(now(database), "o", 60.0))


def test_a_lock_that_is_taken_names_its_owner_and_ends_after_its_lease(
    database: Database, record: Record
) -> None:
    clock = database.reading(lambda tx: tx.now())

    lock = database.atomically(lambda tx: tx.acquire(record, "o", 60.0, status=Status.IN_PROGRESS))

    assert lock == Lock("r", "o", 1, 60.0)
    taken = now(database)
    assert (taken.owner, taken.token, taken.status) == ("o", 1, "IN_PROGRESS")
    assert taken.atomic_key == record.atomic_key + 1
    assert taken.lease_until is not None
    assert clock + 60.0 <= taken.lease_until < clock + 90.0


@pytest.mark.parametrize("token", [0, 2])
def test_a_lock_answers_to_its_own_token_and_owner_only(
    database: Database, record: Record, token: int
) -> None:
    lock = database.atomically(lambda tx: tx.acquire(record, "o", 60.0))
    assert lock is not None
    for wrong in (replace(lock, token=token), replace(lock, owner="p")):
        assert not database.atomically(lambda tx: tx.renew(wrong))  # noqa: B023
        assert not database.atomically(lambda tx: tx.release(wrong))  # noqa: B023


def test_a_lock_that_is_given_back_is_free_and_its_record_has_changed(
    database: Database, record: Record
) -> None:
    lock = database.atomically(lambda tx: tx.acquire(record, "o", 60.0))
    assert lock is not None
    held = now(database)

    assert database.atomically(lambda tx: tx.release(lock, status=Status.FAILED))

    free = replace(held, owner=None, lease_until=None, atomic_key=held.atomic_key + 1)
    assert now(database) == replace(free, status=Status.FAILED)


def test_a_stolen_lock_is_free_and_a_worker_with_an_older_record_takes_nothing(
    database: Database, record: Record
) -> None:
    database.atomically(lambda tx: tx.acquire(record, "o", OVER, status=Status.IN_PROGRESS))
    dead = now(database)

    assert database.atomically(lambda tx: tx.break_dead_lock(dead, "it died"))

    failed = replace(dead, status=Status.FAILED, reason="it died", token=dead.token + 1)
    free = replace(failed, owner=None, lease_until=None, atomic_key=dead.atomic_key + 1)
    assert now(database) == free
    seen_before = replace(free, atomic_key=dead.atomic_key)
    assert database.atomically(lambda tx: tx.acquire(seen_before, "p", 60.0)) is None


def test_a_thief_must_name_owner_and_token(database: Database, record: Record) -> None:
    database.atomically(lambda tx: tx.acquire(record, "o", OVER))
    dead = now(database)
    for wrong in (replace(dead, owner="p"), replace(dead, token=0), replace(dead, token=2)):
        assert not database.atomically(lambda tx: tx.break_dead_lock(wrong, "greed"))  # noqa: B023
    assert now(database) == dead


def test_a_record_that_is_not_there_can_not_be_read_or_locked(database: Database) -> None:
    assert database.atomically(lambda tx: tx.record("nowhere")) is None
    assert database.atomically(lambda tx: tx.lock_record("nowhere")) is None


def test_the_records_of_a_group_are_those_not_gone_oldest_first(
    database: Database, record: Record
) -> None:
    another = database.for_project("elsewhere").atomically(lambda tx: groups.define(tx, "h", {}))
    others = [
        replace(record, id="c", name="c", action=Action.CREATE),
        replace(record, id="b", name="b"),
        replace(record, id="a", name="a", action=Action.DELETE, status=Status.FAILED),
        replace(record, id="gone", name="gone", action=Action.DELETE),
        replace(record, id="theirs", name="theirs", group_id=another),
    ]
    later = database.reading(lambda tx: tx.now()) + 1
    database.atomically(lambda tx: tx.insert_records(others, later))

    assert [r.id for r in database.reading(lambda tx: tx.records("g"))] == ["r", "a", "b", "c"]


# -- the ledger


def test_the_ledger_says_who_does_what_to_what_and_what_came_of_it(
    database: Database, record: Record
) -> None:
    lock = database.atomically(lambda tx: tx.acquire(record, "o", 60.0))
    assert lock is not None
    mine, intent = ticket(lock), {"properties": {"size": 1}}
    begun = database.reading(lambda tx: tx.now())

    assert not database.atomically(lambda tx: tx.open_operation(mine, record, intent))

    entry = rows(database, operations, "key")["key"]
    started = entry.pop("started_at")
    assert begun <= started < begun + 30
    assert entry == {
        "key": "key",
        "group_id": "g",
        "resource_id": "r",
        "traversal_id": "t",
        "verb": "create",
        "goal_version": "v",
        "status": "started",
        "attempts": 1,
        "owner": "o",
        "token": 1,
        "intent": intent,
        "result": None,
        "ended_at": None,
        "waiting_for": None,
        "waiting_since": None,
    }
    outcome = Outcome(physical_id="p", attributes={"device": "vdb"})
    database.atomically(lambda tx: tx.close_operation(mine, outcome))
    closed = rows(database, operations, "key")["key"]
    assert closed["status"] == "done"
    assert closed["ended_at"] >= started
    assert closed["result"] == {
        "physical_id": "p",
        "attributes": {"device": "vdb"},
        "error": None,
    }


def test_an_operation_that_waits_says_for_what_and_since_when(
    database: Database, record: Record, neighbour: Record
) -> None:
    lock = take_both(database, record, neighbour, 60.0)
    for one, of in ((record, lock), (neighbour, replace(lock, resource_id="s"))):
        mine = ticket(of, f"key of {one.id}")
        database.atomically(lambda tx: tx.open_operation(mine, one, {}))  # noqa: B023

    def waits(what: str | None) -> float | None:
        with only_these_change(database, operations, ("key",), "key of r"):
            database.atomically(lambda tx: tx.waits_for(lock, what))
        return database.reading(lambda tx: tx.waits_since(lock))

    since = waits("Cinder: HTTP 503")
    assert since is not None
    assert waits("Cinder: no answer") == since
    assert rows(database, operations, "key")["key of r"]["waiting_for"] == "Cinder: no answer"
    assert waits(None) is None
    database.atomically(lambda tx: tx.waits_for(replace(lock, token=7), "Nova"))
    assert database.reading(lambda tx: tx.waits_since(lock)) is None, "another token"


def test_an_operation_taken_up_again_belongs_to_its_new_owner(
    database: Database, record: Record
) -> None:
    lock = Lock("r", "o", 1, 60.0)
    database.atomically(lambda tx: tx.open_operation(ticket(lock), record, {}))
    later = ticket(replace(lock, owner="p", token=3), traversal_id="u")

    assert database.atomically(lambda tx: tx.open_operation(later, record, {}))

    entry = rows(database, operations, "key")["key"]
    found = {name: entry[name] for name in ("status", "attempts", "owner", "token", "traversal_id")}
    assert found == {
        "status": "started",
        "attempts": 2,
        "owner": "p",
        "token": 3,
        "traversal_id": "u",
    }


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome(), "done"),
        (Outcome(error={"code": "X"}), "failed"),
        (Outcome(error={"code": "X"}, unknown=True), "unknown"),
    ],
)
def test_an_outcome_closes_its_own_operation_and_no_other(
    database: Database, record: Record, neighbour: Record, outcome: Outcome, status: str
) -> None:
    mine = ticket(Lock("r", "o", 1, 60.0))
    others = [
        ticket(Lock("s", "o", 1, 60.0), "of a neighbour"),
        ticket(Lock("r", "o", 1, 60.0), "another one"),
    ]
    for one in (mine, *others):
        owner = neighbour if one.node.resource_id == "s" else record
        database.atomically(lambda tx: tx.open_operation(one, owner, {}))  # noqa: B023

    with only_these_change(database, operations, ("key",), "key"):
        database.atomically(lambda tx: tx.close_operation(mine, outcome))

    assert rows(database, operations, "key")["key"]["status"] == status


def test_a_theft_leaves_unknown_what_the_dead_owner_had_started_there_and_nothing_else(
    database: Database, record: Record, neighbour: Record
) -> None:
    take_both(database, record, neighbour, OVER)
    lock = Lock("r", "o", 1, 60.0)
    for one in (
        ticket(lock, "started"),
        ticket(lock, "done"),
        ticket(replace(lock, token=0), "an earlier owner's"),
        ticket(replace(lock, resource_id="s"), "of a neighbour"),
    ):
        owner = neighbour if one.node.resource_id == "s" else record
        database.atomically(lambda tx: tx.open_operation(one, owner, {}))  # noqa: B023
    database.atomically(lambda tx: tx.close_operation(ticket(lock, "done"), Outcome()))

    with only_these_change(database, operations, ("key",), "started"):
        assert database.atomically(break_lock)

    assert rows(database, operations, "key")["started"]["status"] == "unknown"


def test_a_success_overtakes_what_was_unknown_about_its_own_record_only(
    database: Database, record: Record, neighbour: Record
) -> None:
    lock, silence = Lock("r", "o", 1, 60.0), Outcome(error={"code": "X"}, unknown=True)
    unknown = [ticket(lock, "mine"), ticket(replace(lock, resource_id="s"), "of a neighbour")]
    for one in unknown:
        owner = neighbour if one.node.resource_id == "s" else record
        database.atomically(lambda tx: tx.open_operation(one, owner, {}))  # noqa: B023
        database.atomically(lambda tx: tx.close_operation(one, silence))  # noqa: B023
    database.atomically(lambda tx: tx.acquire(record, "o", OVER))
    database.atomically(lambda tx: tx.open_operation(ticket(lock, "of a dead owner"), record, {}))
    database.atomically(break_lock)
    failed = ticket(lock, "failed")
    database.atomically(lambda tx: tx.open_operation(failed, record, {}))
    database.atomically(lambda tx: tx.close_operation(failed, Outcome(error={"code": "X"})))
    last = ticket(lock, "last")
    assert database.atomically(lambda tx: tx.open_operation(last, record, {})), "one is unknown"

    mine = ("mine", "of a dead owner")
    with only_these_change(database, operations, ("key",), *mine, "last"):
        database.atomically(lambda tx: tx.close_operation(last, Outcome()))

    for key in mine:
        overtaken = rows(database, operations, "key")[key]
        assert overtaken["status"] == "overtaken"
        assert overtaken["ended_at"] is not None


def test_what_is_unknown_about_a_neighbour_is_not_unknown_here(
    database: Database, record: Record, neighbour: Record
) -> None:
    theirs = ticket(Lock("s", "o", 1, 60.0), "of a neighbour")
    database.atomically(lambda tx: tx.open_operation(theirs, neighbour, {}))
    silence = Outcome(error={"code": "X"}, unknown=True)
    database.atomically(lambda tx: tx.close_operation(theirs, silence))

    mine = ticket(Lock("r", "o", 1, 60.0))
    assert not database.atomically(lambda tx: tx.open_operation(mine, record, {}))


# -- leases


def lease_of(database: Database) -> float:
    lease = now(database).lease_until
    assert lease is not None
    return lease


def test_a_lease_is_refused_to_the_member_that_was_fenced_and_to_no_other(
    database: Database, record: Record
) -> None:
    on_a = replace(record, id="on-a", member="a", epoch=1)
    removal = replace(on_a, id="removal", action=Action.DELETE)

    own = database.for_project("elsewhere")
    another = own.atomically(lambda tx: groups.define(tx, "h", {}))

    def members(tx: ProjectTransaction) -> None:
        for group in ("g", another):
            groups.record_members(tx, group, [("a", "s1", None), ("b", "s2", None)])
        tx.insert_records((on_a, removal), tx.now())

    def renewed(fresh: Record) -> bool:
        lock = Lock(fresh.id, "o", 1, 60.0)
        return database.atomically(lambda tx: tx.renew(lock))

    own.atomically(members)
    for fresh in (on_a, removal):
        database.atomically(lambda tx: tx.acquire(fresh, "o", 60.0))  # noqa: B023
    database.atomically(lambda tx: tx.raise_epochs(another, ["a"]))
    database.atomically(lambda tx: tx.raise_epochs("g", ["b"]))
    assert renewed(on_a), "another group's member, or another member of the group"

    database.atomically(lambda tx: tx.raise_epochs("g", ["a"]))

    assert not renewed(on_a)
    assert renewed(removal), "what is taken away from it may take its time"


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_volume_is_known_by_its_latest_record_also_where_two_are_of_one_moment(
    database: Database, order: str
) -> None:
    for name in order:
        made = Record(
            id=name,
            group_id="g",
            name="data",
            type="volume",
            goal_version="v",
            properties={"volume": f"volume {name}"},
            physical_id=name,
        )
        database.atomically(lambda tx: tx.insert_records((made,), 1_000_000.0))  # noqa: B023

    found = database.for_project("elsewhere").reading(
        lambda tx: views.attached_volumes(tx, "g", "volume")
    )

    assert found["data"].volume_id == order[1]
