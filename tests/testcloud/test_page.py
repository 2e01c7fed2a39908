# SPDX-License-Identifier: Apache-2.0
"""docs/testcloud.md names what is there."""

from __future__ import annotations

import ast
import importlib
import re

import pytest

from testcloud import service_processes, settings
from testcloud.__main__ import main
from testcloud.settings import FIRST_PORT, PORTS, ROOT, Settings

PAGE = (ROOT / "docs" / "testcloud.md").read_text(encoding="utf-8")
MACHINES = (ROOT / "docs" / "machines.md").read_text(encoding="utf-8")


def test_each_port_has_its_row() -> None:
    for i, name in enumerate(PORTS):
        row = next(
            line
            for line in PAGE.splitlines()
            if re.match(r"\| 2\d{4}", line) and str(FIRST_PORT + i) in line
        )
        assert f"`{name.removesuffix('-nodes')}`" in row


def test_each_process_without_a_port_is_named(settings: Settings) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("| none |"))
    numbered = re.sub(r"(`[\w-]+-)(?:cmp)?1` (?:to|and) `-\w+`", r"\1", row)

    for process in service_processes.services(settings):
        if process.port is None:
            assert re.sub(r"(cmp)?\d$", "", process.name) in numbered


def test_each_variable_has_its_row() -> None:
    named = set(re.findall(r"^\| `(FAILOVER_CLOUD_\w+)`", PAGE, re.M))

    assert named == set(re.findall(r"FAILOVER_CLOUD_\w+", settings.__doc__ or ""))


def test_each_command_has_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])

    commands = set(re.findall(r"^    (\w+) ", capsys.readouterr().out, re.M))
    rows = "".join(page.split("## Commands")[1].split("\n## ")[0] for page in (PAGE, MACHINES))
    assert commands == set(re.findall(r"^\| `(\w+)", rows, re.M))


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
