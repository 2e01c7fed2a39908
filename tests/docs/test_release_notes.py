# SPDX-License-Identifier: Apache-2.0
"""The release notes name every command, and nothing that does not exist."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import yaml

from mistral_failover import workflows
from support.pages import PAGES, ROOT, section

NOTES: dict[str, dict[str, Any]] = {
    path.name: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "releasenotes" / "notes").glob("*.yaml"))
}


def text() -> str:
    """All that the notes say, in one line."""
    sections = [each for note in NOTES.values() for each in note.values()]
    found = [part for each in sections for part in ([each] if isinstance(each, str) else each)]
    return " ".join(" ".join(found).split())


def commands() -> set[str]:
    """The commands in literals: ``failover status`` or ``status``, ``group create|update``."""
    found = set()
    for literal in re.findall(r"``(?:failover )?([a-z][^`]*)``", text()):
        words = [word.split("|") for word in literal.split()]
        for first in words[0]:
            found |= {first, *(f"{first} {second}" for second in (words[1:2] or [[]])[0])}
    return found


def plain(markup: str) -> str:
    """A text without its markup, in one line."""
    without_links = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(markup.split()))
    return without_links.replace("`", "")


def test_every_command_is_in_a_note() -> None:
    names = {point.name.replace("_", " ") for point in entry_points(group="failover.cli")}

    assert sorted((names | {"complete"}) - commands()) == []


def test_every_action_and_workflow_that_a_note_names_exists() -> None:
    known = {point.name for point in entry_points(group="mistral.actions")}
    for path in workflows.paths():
        known |= set(yaml.safe_load(Path(path).read_text(encoding="utf-8")))

    assert sorted(set(re.findall(r"``(failover\.\w+)``", text())) - known) == []


def test_the_known_issues_are_the_limits_in_the_readme() -> None:
    _, *limits = re.split(r"^- ", section(PAGES["README.md"], "Limits"), flags=re.M)
    issues = [issue for note in NOTES.values() for issue in note.get("issues", ())]

    assert [plain(issue) for issue in issues] == [plain(limit) for limit in limits]
