# SPDX-License-Identifier: Apache-2.0
"""What docs/install.md removes is gone: here the package. The workflows are removed in
cli/test_workflow_commands.py, and the agent is purged in test_agent_deb.py."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.pages import ROOT
from testcloud.package_archive import SOURCES

pytestmark = [pytest.mark.package, pytest.mark.timeout(300)]


def files(folder: Path) -> set[Path]:
    """All files, but for what Python has compiled of other packages."""
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}


def named(folder: Path) -> list[Path]:
    """What bears the package's name, compiled or not."""
    return [path for path in folder.rglob("*") if "failover" in path.name]


def test_pip_leaves_nothing_of_the_package(tmp_path: Path) -> None:
    sources, place = tmp_path / "sources", tmp_path / "venv"
    sources.mkdir()
    for name in SOURCES:  # a copy, since setuptools leaves files beside them
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, sources / name)
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    before = files(place)
    pip = [place / "bin" / "pip", "--disable-pip-version-check"]

    subprocess.run([*pip, "install", "--no-deps", sources, sources / "agent"], check=True)
    subprocess.run([place / "bin" / "python", "-c", "import mistral_failover.lookups"], check=True)
    assert named(place)
    subprocess.run(
        [*pip, "uninstall", "--yes", "mistral-failover", "mistral-failover-agent"], check=True
    )

    assert files(place) == before
    assert named(place) == []
