# SPDX-License-Identifier: Apache-2.0
"""The tables that the code of each schema knows, as files: ``python -m support.table_records``.

The code of an earlier version is not at hand in a test, but its statements follow from its tables:
it names every column that it knows, and no other. Run this with a new migration, and commit the
file; tests/store/test_two_versions.py says when it is missing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from mistral_failover.store import schema
from mistral_failover.store.tables import metadata

FOLDER = Path(__file__).parents[1] / "store" / "table_records"
Tables = dict[str, dict[str, dict[str, Any]]]
"""By table and column: ``text`` or ``number``; whether a row must have it (``required``); the
``words`` that it may hold; the table that it ``names`` a row of. Before 0012 the database accepted
any verb, rule and kind, and the code wrote only the words that the later check allows."""


def recorded() -> dict[int, Tables]:
    """What is on record, by the number of the schema."""
    return {int(path.stem): json.loads(path.read_text()) for path in FOLDER.glob("*.json")}


def of_this_version() -> Tables:
    """The tables of this version."""
    return {
        table.name: {column.name: _described(table, column) for column in table.columns}
        for table in metadata.sorted_tables
    }


def _described(table: sa.Table, column: sa.Column[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "text" if _is_text(column) else "number"}
    counted = column is table.autoincrement_column
    if not column.nullable and column.server_default is None and not counted:
        found["required"] = True
    for check in table.constraints:
        if isinstance(check, sa.CheckConstraint) and str(check.name).endswith(f"_{column.name}"):
            words = check.sqltext.right.value
            found["words"] = sorted(words)
    for key in column.foreign_keys:
        found["names"] = key.target_fullname.split(".")[0]
    return found


def _is_text(column: sa.Column[Any]) -> bool:
    kind = column.type
    return isinstance(getattr(kind, "impl_instance", kind), sa.String)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / f"{schema.number(schema.head()):04}.json"
    file.write_text(json.dumps(of_this_version(), indent=1) + "\n")
    print(file)
