# SPDX-License-Identifier: Apache-2.0
"""Read the documentation: its pages, their sections, tables, lists and blocks."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "actions" / "mistral_failover"
AGENT = ROOT / "agent" / "mistral_failover"
MODULES = {
    path.relative_to(root).as_posix(): path
    for root in (SOURCES, AGENT)
    for path in sorted(root.rglob("*.py"))
}
"""Every module of the namespace, as ``agent/wire.py``, with its file."""
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (
        ROOT / "README.md",
        *sorted(ROOT.glob("docs/*.md")),
        *sorted(ROOT.glob("examples/**/*.md")),
    )
}
"""Every page by its path. What is generated at a build is not among them."""

_BLOCK = re.compile(r"^ *```([^`\n]*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


def page(name: str) -> str:
    """Return the text of a page in ``docs/``."""
    return PAGES[f"docs/{name}.md"]


def section(text: str, title: str) -> str:
    """Return what follows a heading, up to the next one of its level or above.

    Raises ValueError if the page has no such heading, or several.
    """
    (hashes,) = re.findall(rf"^(#+) {re.escape(title)}$", text, re.MULTILINE)
    body = text.split(f"\n{hashes} {title}\n", 1)[1]
    return re.split(rf"^#{{1,{len(hashes)}}} ", body, flags=re.MULTILINE)[0]


def subsections(text: str) -> dict[str, str]:
    """Return the parts of a section by their headings of level 3, without backticks."""
    _, *parts = re.split(r"^### ", text, flags=re.MULTILINE)
    return {title.replace("`", ""): body for title, body in (p.split("\n", 1) for p in parts)}


def table(text: str) -> list[list[str]]:
    """Return the cells of all rows of all tables, without headings."""
    lines = [line for line in without_blocks(text).splitlines() if line.startswith("|")]
    rows = [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    rules = {i for i, row in enumerate(rows) if all(re.fullmatch(r":?-+:?", c) for c in row)}
    return [row for i, row in enumerate(rows) if i not in rules and i + 1 not in rules]


def rows(text: str) -> dict[str, list[str]]:
    """Return the rows of a section's tables by each name in backticks in their first cell."""
    return {
        name: cells for first, *cells in table(text) for name in re.findall(r"`([^`]+)`", first)
    }


def listed(text: str) -> set[str]:
    """Return the names in backticks with which the items of a section's lists begin.

    An item may begin with several: ``- `to`?, `lost`?: ...``.
    """
    items = re.findall(r"^ *- ((?:\*{0,2}`[^`]+`\*{0,2}\??(?:, | and )?)+)", text, re.MULTILINE)
    return {name for item in items for name in re.findall(r"`([^`]+)`", item)}


def blocks(text: str, language: str) -> list[str]:
    """Return the blocks of a page in one language."""
    return [body for found, body in _BLOCK.findall(text) if found == language]


def without_blocks(text: str) -> str:
    """Return a page without its blocks."""
    return _BLOCK.sub("", text)


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and Sphinx make them."""
    headings = re.findall(r"^#+ (.*)$", without_blocks(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
