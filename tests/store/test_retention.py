# SPDX-License-Identifier: Apache-2.0
"""Old rows are deleted in batches, as far as the settings allow; and nothing that is still needed.
The counters stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from mistral_failover.model.alarm_fact import AlarmFact
from mistral_failover.model.availability import Change
from mistral_failover.model.decisions import Decision
from mistral_failover.model.observation import Service
from mistral_failover.model.order import Order
from mistral_failover.store import counters as kept
from mistral_failover.store import incidents, plans, retention, service_changes, tables
from mistral_failover.store.database import Database
from mistral_failover.store.incidents import OPERATOR, Incident
from mistral_failover.store.transaction import ProjectTransaction, SqlTransaction

MINE, NEVER = "elsewhere", 0.0  # the project of the fixture's group
Purge = Callable[..., int]
BASE = Incident("i", MINE, "g", "aodh", AlarmFact(lost=("a",)), {}, Decision.IGNORED, "a sentence")


def add(database: Database, identity: str, **fields: Any) -> None:
    incident = replace(BASE, id=identity, **fields)
    database.for_project(incident.project_id).atomically(lambda tx: incidents.add(tx, incident))


def write(database: Database, group: str, **fields: Any) -> None:
    entry = {"kind": "blocked", **fields}
    database.atomically(lambda tx: tx.journal(group, "a sentence", **entry))


def there(database: Database, column: sa.Column[Any]) -> set[Any]:
    return set(database.reading(lambda tx: tx.connection.execute(sa.select(column)).scalars()))


def forget(
    database: Database, what: Purge, *, keep: int, days: float | None = None, batch: int = 500
) -> int:
    """``days``: how many are kept; None: all."""

    def once(tx: ProjectTransaction) -> int:
        older_than = NEVER if days is None else tx.now() - days * 86400
        return what(tx, keep=keep, older_than=older_than, batch=batch)

    return database.for_project(MINE).atomically(once)


def age(database: Database, table: sa.Table, days: float, *columns: str) -> None:
    """Let all rows of a table be older."""
    changes = {name: table.c[name] - days * 86400 for name in columns}
    database.atomically(lambda tx: tx.execute(table.update().values(**changes)))


def counters(database: Database) -> dict[Any, float]:
    found = database.for_project(MINE).reading(kept.counters)
    return {key: count.value for key, count in found.items()}


def incidents_of(database: Database, **how: Any) -> int:
    return forget(database, retention.purge_incidents, **how)


def journal_of(database: Database, **how: Any) -> int:
    return forget(database, retention.purge_journal, **how)


TIMES = ("first_at", "last_at", "decided_at")


def test_of_incidents_that_ask_for_nothing_the_latest_stay(database: Database, group: str) -> None:
    for number in range(10):
        add(database, f"i{number}")
    before = counters(database)

    assert incidents_of(database, keep=3) == 7
    assert there(database, tables.incidents.c.id) == {"i7", "i8", "i9"}
    assert counters(database) == before
    assert incidents_of(database, keep=3) == 0


def test_host_events_go_by_number_after_their_children_once_they_look_for_no_more(
    database: Database, group: str
) -> None:
    host = {"decision": "ADMITTED", "group_id": None, "rule": "host"}
    for number in range(4):
        add(database, f"old{number}", **host)
    add(database, "child", group_id=group, parent="old0", decision=Decision.HELD)
    age(database, tables.incidents, 1, *TIMES)
    add(database, "new", **host)

    incidents_of(database, keep=1)

    assert there(database, tables.incidents.c.id) == {"old0", "child", "old3", "new"}


def test_a_batch_is_small(database: Database) -> None:
    for number in range(10):
        add(database, f"i{number}")

    assert [incidents_of(database, keep=0, batch=4) for _ in range(4)] == [4, 4, 2, 0]


@pytest.mark.parametrize(
    "fields",
    [
        {"decision": "HELD"},
        {"decision": "HELD", "group_id": None},
        {"decision": "ADMITTED"},
        {"decision": "ADMITTED", "traversal_id": "t"},
        {"decision": "ADMITTED", "traversal_id": "gone", "series": "s"},
    ],
    ids=[
        "held",
        "held, of no group",
        "not begun",
        "of a traversal that is kept",
        "the latest report of its alarm",
    ],
)
def test_what_is_needed_stays_however_old(
    database: Database, group: str, fields: dict[str, Any]
) -> None:
    walk = {"goal_version": "v", "status": "COMPLETE", "reason": "", "cause": "", "graph": {}}
    walk["definition_version"] = "v"
    database.atomically(
        lambda tx: tx.insert(
            tables.traversals, id="t", group_id=group, started_at=0.0, number=1, **walk
        )
    )
    add(database, "needed", **fields)
    age(database, tables.incidents, 1000, *TIMES)

    assert incidents_of(database, keep=0, days=90.0) == 0


def test_an_admitted_alarm_goes_by_age_after_what_is_counted_on_it(
    database: Database, group: str
) -> None:
    add(database, "first", decision=Decision.ADMITTED, traversal_id="gone")
    add(database, "order", decision=Decision.ADMITTED, source=OPERATOR)
    assert incidents_of(database, keep=0) == 0, "the number does not matter"
    add(database, "second", decision=Decision.DUPLICATE, duplicate_of="first")
    age(database, tables.incidents, 91, *TIMES)
    before = counters(database)

    incidents_of(database, keep=100, days=90.0)
    assert there(database, tables.incidents.c.id) == {"first"}
    incidents_of(database, keep=100, days=90.0)
    assert there(database, tables.incidents.c.id) == set()
    assert counters(database) == before


def test_of_a_journal_the_latest_entries_stay(database: Database, group: str) -> None:
    for _ in range(10):
        write(database, group)
    before = counters(database)

    assert journal_of(database, keep=3, batch=4) == 4
    assert journal_of(database, keep=3, batch=4) == 3
    assert len(there(database, tables.journal.c.id)) == 3
    assert counters(database) == before
    age(database, tables.journal, 91, "at")
    assert journal_of(database, keep=3, days=90.0) == 3


def test_the_journal_of_the_current_traversal_stays(database: Database, group: str) -> None:
    current = tables.groups.update().values(current_traversal="now")
    database.atomically(lambda tx: tx.execute(current))
    write(database, group, traversal_id="now")
    write(database, group, traversal_id="earlier")

    assert journal_of(database, keep=0) == 1
    assert there(database, tables.journal.c.traversal_id) == {"now"}


def test_events_that_the_groups_workflow_has_not_received_stay(
    database: Database, group: str
) -> None:
    write(database, group)
    write(database, group)
    first = min(there(database, tables.journal.c.id))
    cursor = tables.groups.update().values(hook="house.told", told=first)
    database.atomically(lambda tx: tx.execute(cursor))

    assert journal_of(database, keep=0) == 1
    assert first not in there(database, tables.journal.c.id)


def test_plans_go_a_day_after_they_expired(database: Database, group: str) -> None:
    row: dict[str, Any] = {"project_id": MINE, "group_id": group, "order": Order("remove")}
    row |= {"fingerprint": "", "world": {}, "goal_version": "v", "created_at": 0.0}

    def keep(tx: SqlTransaction) -> None:
        tx.insert(tables.plans, id="old", **row, expires_at=tx.now() - plans.REMEMBERED - 1)
        tx.insert(tables.plans, id="new", **row, expires_at=tx.now())

    database.atomically(keep)

    own = database.for_project(MINE)
    assert own.atomically(lambda tx: retention.purge_plans(tx, batch=5)) == 1
    assert there(database, tables.plans.c.id) == {"new"}


def test_of_the_changes_of_a_word_those_stay_that_tell_the_last_days_and_the_latest(
    database: Database, group: str
) -> None:
    now = database.reading(lambda tx: tx.now())
    words = (Service.SERVING, Service.DOWN)
    changes = [Change(now - days * 86400, words[days % 2]) for days in range(40, 0, -1)]
    own = database.for_project(MINE)
    own.atomically(lambda tx: service_changes.record(tx, group, changes))

    def kept() -> list[float]:
        found = own.reading(lambda tx: list(service_changes.since(tx, 0.0)))
        return [round((now - change.at) / 86400) for _, change in found]

    assert forget(database, retention.purge_service_changes, keep=100, days=31.5, batch=5) == 5
    assert forget(database, retention.purge_service_changes, keep=100, days=31.5) == 3
    assert kept() == list(range(32, 0, -1)), "the word of 31.5 days ago began before"
    assert forget(database, retention.purge_service_changes, keep=100, days=31.5) == 0
    assert forget(database, retention.purge_service_changes, keep=10, days=31.5) == 22
    assert kept() == list(range(10, 0, -1))
