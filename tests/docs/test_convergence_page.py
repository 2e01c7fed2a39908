# SPDX-License-Identifier: Apache-2.0
"""docs/convergence.md names a test for each rule; every one of them is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "convergence.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)))


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_the_test_that_shows_a_rule_exists(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert not name or name in functions


def test_every_rule_names_what_shows_it() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line]
    rules = [row.strip("| ").split(" | ") for row in rows if not row.startswith("| rule |")]

    assert len(rules) > 25
    assert [row for row in rules if len(row) != 3 or ".py" not in row[2]] == []
