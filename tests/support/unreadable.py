# SPDX-License-Identifier: Apache-2.0
"""A group whose file cannot be read any more: a package that it needs was removed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mistral_failover.model.ids import group_id
from mistral_failover.store import tables
from mistral_failover.store.database import Database
from mistral_failover.store.transaction import SqlTransaction


@contextmanager
def unreadable(database: Database, project: str, group: str) -> Iterator[None]:
    """Meanwhile the fence of the group names a rung of such a package."""
    identity = group_id(project, group)
    known = dict(database.reading(lambda tx: tx.definition(identity)))

    of_group, kept = tables.groups.c.id == identity, tables.definitions.c.group_id == identity

    def change(definition: dict[str, Any], version: str) -> None:
        """All definitions of the group become this one."""
        named = dict.fromkeys(("definition_version", "defined", "in_force"), version)

        def put(tx: SqlTransaction) -> None:
            tx.execute(tables.definitions.delete().where(kept))
            new = {"group_id": identity, "version": version, "created_at": 0.0}
            tx.insert(tables.definitions, **new, document=definition)
            tx.execute(tables.groups.update().where(of_group).values(named))

        database.atomically(put)

    change({**known, "document": {**known["document"], "fence": ["of_a_package"]}}, "unreadable")
    yield
    change(known, "readable again")
