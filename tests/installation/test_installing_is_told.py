# SPDX-License-Identifier: Apache-2.0
"""What `make` and the tests install is told before it begins, with the reason."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.pages import ROOT
from testcloud import packages


def test_each_package_is_told_with_the_reason_before_apt_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    when_called: list[list[str]] = []
    monkeypatch.setattr(packages.os, "getuid", lambda: 0)
    monkeypatch.setattr(
        packages.shutil, "which", lambda name, **_: "/bin/apt-get" if name == "apt-get" else None
    )
    monkeypatch.setattr(packages, "run", lambda *given: when_called.append(list(said)))
    folders: Any = SimpleNamespace(run=tmp_path, log=tmp_path)

    packages.install_debian({"fish": "fish", "zsh": "zsh"}, folders, said.append, "shells")

    update, install = when_called
    assert "installing Debian's fish: shells" in update
    assert "installing Debian's zsh: shells" in update
    assert (update[-1], install[-1]) == ("apt-get update ...", "apt-get install ...")
    assert any(str(tmp_path / "install.log") in line for line in update)


def test_each_step_of_an_installer_is_told_while_it_runs(tmp_path: Path) -> None:
    """The installer waits until its first step was told."""
    told = tmp_path / "told"
    script = f"""
echo "Reading package lists..."
echo "Unpacking fish (3.6.0-3) ..."
for _ in $(seq 200); do [ -e {told} ] && break; sleep 0.05; done
[ -e {told} ] && echo "Setting up fish (3.6.0-3) ..."
"""
    said: list[str] = []
    folders: Any = SimpleNamespace(run=tmp_path, log=tmp_path)

    def tell(line: str) -> None:
        said.append(line.strip())
        told.touch()

    packages.run(["sh", "-c", script], folders, None, tell)

    assert said == ["Unpacking fish (3.6.0-3)", "Setting up fish (3.6.0-3)"]
    assert "Reading package lists" in (tmp_path / "install.log").read_text()


def test_make_says_what_it_installs_before_it_does(tmp_path: Path) -> None:
    stamp = tmp_path / "venv" / ".installed"
    command = ["make", "-n", f"VENV={stamp.parent}", str(stamp)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)

    before: list[str] = []
    for line in done.stdout.splitlines():
        if " install " in line and "echo" not in line:
            assert "installing" in before[-1], line
        if "pip install" in line and "uv pip" in line:
            assert "--quiet" not in line
        if "echo" in line:
            before.append(line)
    assert len(before) == 2
