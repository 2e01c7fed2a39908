# SPDX-License-Identifier: Apache-2.0
"""Which types a group file may ask for, as README and reference say."""

from __future__ import annotations

import re
from pathlib import Path

from mistral_failover.model.group import INTERNAL_TYPES
from mistral_failover.model.types import shipped_types

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")


def test_the_readme_names_every_type_that_a_group_file_may_ask_for() -> None:
    limits = README.split("\n## What this version does not do\n")[1].split("\n## ")[0]
    may, _, engine = limits.partition("A group file may ask for")[2].partition("engine's")
    named = set(re.findall(r"`([a-z_]+)`", may))

    assert named == set(shipped_types()) - INTERNAL_TYPES | {"group_member"}
    assert "`failover replace`" in engine


def test_the_reference_says_which_types_only_the_engine_asks_for() -> None:
    rows = re.findall(r"^\| `(\w+)` \| only the engine asks for it", REFERENCE, re.M)

    assert set(rows) == INTERNAL_TYPES
