# SPDX-License-Identifier: Apache-2.0
"""Every command of failover that a page, an example or a release note shows can be typed so."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from mistral_failover.agent import main as agent
from mistral_failover.cli.main import FailoverApp

ROOT = Path(__file__).parents[2]
PLACES = [
    ROOT / "README.md",
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(path for end in ("md", "yaml") for path in ROOT.glob(f"examples/**/*.{end}")),
    *sorted(ROOT.glob("releasenotes/notes/*.yaml")),
]
_PROGRAM = r"(?:\.venv/bin/|openstack )?(failover(?:-agent)?)"
_LITERAL = re.compile(rf"`+{_PROGRAM} ([\w-][^`]*)`+")
_LINE = re.compile(rf"^ *{_PROGRAM} ([\w-].*)$", re.MULTILINE)
_ALERT = re.compile(rf'^ *command: "{_PROGRAM} (.*)"$', re.MULTILINE)
_END = re.compile(r" [|>&#;]|\)")
"""Where the shell's own begins."""


def typed(text: str) -> Iterator[tuple[str, ...]]:
    """The words of each command that is a literal, stands on a line of its own in a block, or helps
    against an alert."""
    blocks = "\n".join(re.findall(r"^ *```\w*\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE))
    lines = re.sub(r" *\\\n *", " ", blocks)
    prose = re.sub(r"^ *```\w*\n.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    for program, command in (
        *_LITERAL.findall(" ".join(prose.split())),
        *_LINE.findall(lines),
        *_ALERT.findall(text.replace("{{ $labels.group }}", "GROUP")),
    ):
        plain = re.sub(r" \.\.\.(?= |$)", "", _END.split(command)[0])
        yield from spelled((program, *shlex.split(plain)))


def spelled(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Each command that ``maintenance on|off`` stands for."""
    for at, word in enumerate(words):
        if re.fullmatch(r"[a-z]+(\|[a-z]+)+", word):
            for one in word.split("|"):
                yield from spelled((*words[:at], one, *words[at + 1 :]))
            return
    yield words


COMMANDS = sorted({each for place in PLACES for each in typed(place.read_text("utf-8"))})


def accept(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Parse what is written; an option that is only named, without its value, gets one."""
    last = parser._option_string_actions.get(words[-1])
    if last is not None and last.nargs is None:
        words = [*words, str(next(iter(last.choices or ["1"])))]
    parser.parse_args(words)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_exists_and_takes_what_is_written(words: tuple[str, ...]) -> None:
    program, *rest = words
    if program == "failover-agent":
        if rest != ["settle"]:  # that is only named
            accept(agent._parser(), rest)
        return
    app = FailoverApp(rest)
    _, command = app.parser.parse_known_args(rest)
    if not command:  # options of the program were shown
        return
    factory, name, options = app.command_manager.find_command(command)
    if options:  # else it is only named
        accept(factory(app, None).get_parser(name), options)


def test_no_page_with_commands_is_overlooked() -> None:
    """Were pages written in another way one day, nothing would be read in them."""
    read = {
        str(place.relative_to(ROOT)) for place in PLACES if any(typed(place.read_text("utf-8")))
    }
    howtos = (ROOT / "docs" / "index.md").read_text("utf-8").split(":caption: How to")[1]
    pages = {f"docs/{name}.md" for name in howtos.split("```")[0].split()[2:]}
    without = {"docs/own-type.md"}

    assert pages - read == without
    assert read >= {"README.md", "docs/tutorial.md", "examples/monitoring/alerts.yaml"}
