# SPDX-License-Identifier: Apache-2.0
"""The built documentation is complete, and needs no network to be read."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.pages import PAGES, ROOT
from support.pictures import HEIGHTS, LARGEST

sys.path.insert(0, str(ROOT / "docs"))
import diagrams  # noqa: E402

_FROM_OUTSIDE = re.compile(
    r"""<(?:script|img|iframe|source|object|embed)\b[^>]*(?:src|data)=["'](?:https?:)?//[^"']*"""
    r"""|<link\b(?![^>]*rel=["'](?:canonical|next|prev|search|index)["'])[^>]*href=["'](?:https?:)?//[^"']*"""
    r"""|@import[^;]*//[^;]*|url\(["']?(?:https?:)?//[^)]*|import\s[^;]*from\s*["']https?://[^"']*"""
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation, built as ``make docs`` does, from a copy of its sources: the build writes
    pages into them. A warning fails."""
    folder = tmp_path_factory.mktemp("docs")
    for name in ("docs", "examples"):  # pages; the rest is only linked to
        ignored = shutil.ignore_patterns("generated", "__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "README.md", folder)
    for name in ("LICENSE", "Containerfile", "deploy", "devstack", "tests", "workflows"):
        (folder / name).symlink_to(ROOT / name)
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
        + [str(folder / "docs"), str(folder / "html")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.mark.drills
@pytest.mark.timeout(310)
def test_the_built_pages_load_nothing_from_outside(built: Path) -> None:
    found = [
        f"{path.relative_to(built)}: {each[0]}"
        for path in built.rglob("*")
        if path.suffix in (".html", ".css", ".js", ".svg")
        for each in _FROM_OUTSIDE.finditer(path.read_text("utf-8"))
    ]

    assert len(list(built.rglob("*.html"))) > 30
    assert found == []


def test_the_check_finds_what_a_page_would_load() -> None:
    loaded = (
        '<script src="https://cdn.example.org/mermaid.js">',
        "<link rel='stylesheet' href='//fonts.example.org/x.css'>",
        '<img alt="" src="http://example.org/a.png">',
        "@import url(https://example.org/a.css);",
        'import mermaid from "https://cdn.example.org/mermaid.mjs"',
    )
    harmless = (
        '<a href="https://prometheus.io">',
        '<script src="_static/doctools.js">',
        '<svg xmlns="http://www.w3.org/2000/svg">',
    )

    assert [text for text in loaded if not _FROM_OUTSIDE.search(text)] == []
    assert [text for text in harmless if _FROM_OUTSIDE.search(text)] == []


def test_the_diagrams_are_what_their_script_draws() -> None:
    drawn = {f"{name}.svg": draw().svg() for name, draw in diagrams.DIAGRAMS.items()}

    assert {path.name: path.read_text("utf-8") for path in (ROOT / "docs").glob("*.svg")} == drawn


def test_every_picture_is_small_shown_and_made_by_the_browser_s_tests() -> None:
    stored = {path.stem: path.stat().st_size for path in (ROOT / "docs").glob("*.png")}
    shown = {
        name for text in PAGES.values() for name in re.findall(r"\]\((?:\w+/)*(.*)\.png\)", text)
    }

    assert set(stored) == set(HEIGHTS) == shown
    assert [name for name, size in stored.items() if size >= LARGEST] == []
