# SPDX-License-Identifier: Apache-2.0
"""A group whose file cannot be read any more: a package that it needs was removed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mistral_failover.model.ids import group_id
from mistral_failover.store import tables
from mistral_failover.store.database import Database


@contextmanager
def unreadable(database: Database, project: str, group: str) -> Iterator[None]:
    """Meanwhile the fence of the group names a rung of such a package."""
    identity = group_id(project, group)
    known = dict(database.reading(lambda tx: tx.definition(identity)))

    def change(definition: dict[str, Any], version: str) -> None:
        values = {"definition": definition, "definition_version": version}
        update = tables.groups.update().where(tables.groups.c.id == identity).values(values)
        database.atomically(lambda tx: tx.execute(update))

    change({**known, "document": {**known["document"], "fence": ["of_a_package"]}}, "unreadable")
    yield
    change(known, "readable again")
