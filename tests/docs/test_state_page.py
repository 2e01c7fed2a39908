# SPDX-License-Identifier: Apache-2.0
"""The page of the state store's tables explains every table and column, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from mistral_failover.store.tables import metadata

EXTENSIONS = str(Path(__file__).parents[2] / "docs" / "_ext")
TABLES = {name.removeprefix("failover_"): table for name, table in metadata.tables.items()}


@pytest.fixture(autouse=True)
def extensions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXTENSIONS)


def test_every_table_is_explained_and_no_other() -> None:
    import columns

    assert set(columns.TABLES) == set(columns.COLUMNS) == set(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_every_column_is_explained_and_no_other(name: str) -> None:
    import columns

    there = {column.name for column in TABLES[name].columns}
    own = set(columns.COLUMNS[name])

    assert own <= there
    assert there - own <= set(columns.EVERYWHERE)
    assert all(columns.meaning(name, column) for column in there)


def test_the_page_has_every_column_with_its_meaning_and_every_index() -> None:
    pytest.importorskip("sphinx")
    import columns
    import from_code

    sections = dict(part.split("\n", 1) for part in from_code._state().split("\n## failover_")[1:])

    for name, table in TABLES.items():
        for column in table.columns:
            (row,) = [r for r in sections[name].splitlines() if r.startswith(f"| `{column.name}` ")]
            assert columns.meaning(name, column.name).replace("|", r"\|") in row
        for index in table.indexes:
            listed = ", ".join(f"`{column.name}`" for column in index.columns)
            assert f"- index: {listed}" in sections[name].splitlines()
