# SPDX-License-Identifier: Apache-2.0
"""A process that freezes within a transaction does not keep its locks for long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from mistral_failover.store import database as databases
from mistral_failover.store.database import Database
from mistral_failover.store.tables import groups
from support.databases import SERVER

pytestmark = pytest.mark.skipif(SERVER is None, reason="SQLite has no sessions")


@pytest.fixture
def impatient(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """The database, which ends a session after a second without a statement."""
    monkeypatch.setattr(databases, "IDLE", 1)
    opened = Database(database.url.render_as_string(hide_password=False))
    yield opened
    opened.close()


@pytest.mark.parametrize("kind", ["server"], indirect=True)
def test_the_rows_that_a_frozen_process_has_locked_are_free_again(
    impatient: Database, database: Database, group: Any
) -> None:
    locked, thawed = threading.Event(), threading.Event()
    row = sa.select(groups.c.id).with_for_update()

    def freeze(tx: Any) -> None:
        tx.connection.execute(row).all()
        locked.set()
        thawed.wait(60)

    def frozen() -> None:
        with pytest.raises(sa.exc.DBAPIError):
            impatient.atomically(freeze)

    thread = threading.Thread(target=frozen)
    thread.start()
    assert locked.wait(10)

    database.atomically(lambda tx: tx.connection.execute(row).all())

    thawed.set()
    thread.join(10)
