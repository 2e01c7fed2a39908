# SPDX-License-Identifier: Apache-2.0
"""``make mutants`` copies what its tests need."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from bench.mutants import COPIED, ROOT, TESTS


def test_what_the_tests_of_the_mutants_import_is_copied() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["mutmut"]
    left_out = {each.removeprefix("--ignore=") for each in tool["pytest_add_cli_args"]}
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    found = set()
    for path in (each for name in TESTS for each in (ROOT / "tests" / name).glob("*.py")):
        if str(path.relative_to(ROOT)) not in left_out:
            named = re.findall(r"^(?:from|import) (\w+)", path.read_text("utf-8"), re.M)
            found |= {f"{Path(path).name}: {name}" for name in named if name in folders - {*COPIED}}
    assert found == set()
