# SPDX-License-Identifier: Apache-2.0
"""docs/testcloud.md names what is there."""

from __future__ import annotations

import ast
import importlib
import re

from testcloud import settings
from testcloud.settings import ROOT

PAGE = (ROOT / "docs" / "testcloud.md").read_text(encoding="utf-8")


def test_each_variable_has_its_row() -> None:
    named = set(re.findall(r"^\| `(FAILOVER_CLOUD_\w+)`", PAGE, re.M))

    assert named == set(re.findall(r"FAILOVER_CLOUD_\w+", settings.__doc__ or ""))


def test_the_snippets_use_what_exists() -> None:
    for text in re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S):
        names: dict[str, object] = {}
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    try:
                        module = importlib.import_module(f"{node.module}.{alias.name}")
                    except ModuleNotFoundError:
                        module = getattr(importlib.import_module(str(node.module)), alias.name)
                    names[alias.name] = module
        for used in re.findall(r"\b(access|cloud|readiness|settings)\.(\w+)", text):
            assert hasattr(names[used[0]], used[1]), used
