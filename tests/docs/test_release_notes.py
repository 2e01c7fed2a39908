# SPDX-License-Identifier: Apache-2.0
"""The release notes name every command, and nothing that is not there."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml

from mistral_failover import workflows

ROOT = Path(__file__).parents[2]
NOTES: dict[str, dict[str, Any]] = {
    path.name: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "releasenotes" / "notes").glob("*.yaml"))
}


def told(*sections: str) -> str:
    """What the notes say, in all sections or in some."""
    found: list[str] = []
    for note in NOTES.values():
        for section, said in note.items():
            if not sections or section in sections:
                found += [said] if isinstance(said, str) else said
    return " ".join(" ".join(found).split())


def commands_told() -> set[str]:
    """The commands in literals: ``failover status`` or ``status``, ``group create|update``."""
    found = set()
    for literal in re.findall(r"``(?:failover )?([a-z][^`]*)``", told()):
        words = [word.split("|") for word in literal.split()]
        for first in words[0]:
            found |= {first, *(f"{first} {second}" for second in (words[1:2] or [[]])[0])}
    return found


@pytest.mark.parametrize("name", sorted(p.name for p in entry_points(group="failover.cli")))
def test_every_command_is_in_a_note(name: str) -> None:
    assert name.replace("_", " ") in commands_told()


def test_every_action_and_workflow_that_a_note_names_exists() -> None:
    named = set(re.findall(r"``(failover\.\w+)``", told()))
    actions = {point.name for point in entry_points(group="mistral.actions")}
    flows = {
        name
        for path in workflows.paths()
        for name in yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    }

    assert sorted(named - actions - flows) == []


def plain(text: str) -> str:
    """A text without its markup, in one line."""
    without_links = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(text.split()))
    return without_links.replace("`", "")


def test_the_known_issues_are_what_the_readme_says_that_this_version_does_not_do() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    said = readme.split("\n## What this version does not do\n")[1].split("\n## ")[0]
    _, *points = re.split(r"^- ", said, flags=re.M)

    known = [issue for note in NOTES.values() for issue in note.get("issues", ())]

    assert [plain(issue) for issue in known] == [plain(point) for point in points]


def test_the_options_that_are_easily_overlooked_are_in_a_note() -> None:
    assert "``failover complete``" in told()
    assert "``failover server --metrics-port``" in told()
