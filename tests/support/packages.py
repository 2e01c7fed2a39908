# SPDX-License-Identifier: Apache-2.0
"""Another package that is installed beside this one, as pip would leave it behind."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from stevedore import ExtensionManager

from mistral_failover.actions import orders
from mistral_failover.model import installed, rungs, types, validation, verbs

Install = Callable[[Mapping[str, str], Mapping[str, str]], None]


@pytest.fixture
def install(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Install]:
    """Install a package called ``house``: its files by path, and by group of entry points lines."""
    modules = set(sys.modules)

    def add(files: Mapping[str, str], entry_points: Mapping[str, str]) -> None:
        folder = _installed(tmp_path_factory.getbasetemp(), files, entry_points)
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.setattr(ExtensionManager, "ENTRY_POINT_CACHE", {})
        importlib.invalidate_caches()
        _look_again()

    yield add
    for name in set(sys.modules) - modules:
        if name.startswith("house"):
            del sys.modules[name]
    _look_again()


def _installed(base: Path, files: Mapping[str, str], entry_points: Mapping[str, str]) -> Path:
    """The folder with a package. The same one has the same folder in each test: for a new one,
    stevedore reads the metadata of everything that is installed."""
    said = repr((sorted(files.items()), sorted(entry_points.items())))
    folder = base / f"house-{hashlib.sha256(said.encode()).hexdigest()[:16]}"
    info = folder / "house-1.0.dist-info"
    if info.exists():
        return folder
    info.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: house\nVersion: 1.0\n")
    sections = "".join(f"[{group}]\n{line}\n" for group, line in entry_points.items())
    (info / "entry_points.txt").write_text(sections)
    return folder


def _look_again() -> None:
    """What is installed is looked up once in each process."""
    for cached in (
        installed.installed,
        rungs.rung_kinds,
        verbs.verb_kinds,
        orders._verb_class,
        orders._plan_class,
        types._installed,
        validation._grammar,
    ):
        cached.cache_clear()
