# SPDX-License-Identifier: Apache-2.0
"""docs/security.md forgets no secret and nothing that listens."""

from __future__ import annotations

import argparse
import inspect
import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from mistral_failover import settings
from mistral_failover.cli.main import FailoverApp

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
INDEX = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
LISTENING = ("--listen", "--webhook-listen", "--listen-anywhere", "--metrics-port")


def below(title: str) -> str:
    """What stands below a heading, up to the next one."""
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def options(name: str) -> set[str]:
    """The options of a command of the program."""
    (point,) = [p for p in entry_points(group="failover.cli") if p.name == name]
    command: Any = point.load()
    if inspect.isabstract(command):
        command = type("Plain", (command,), dict.fromkeys(command.__abstractmethods__))
    parser: argparse.ArgumentParser = command(FailoverApp(), None).get_parser("failover")
    return {option for action in parser._actions for option in action.option_strings}


def test_the_page_is_among_the_explanations() -> None:
    explanations = INDEX.split(":caption: Explanation")[1].split("```")[0]

    assert "security" in explanations.split()


def test_every_option_that_is_or_leads_to_a_secret_is_told() -> None:
    ((_, registered),) = settings.list_opts()
    secrets = {option.name for option in registered if option.secret} | {"agent_key_file"}

    assert {name for name in secrets if f"`{name}`" not in below("Where secrets lie")} == set()


@pytest.mark.parametrize("name", sorted(p.name for p in entry_points(group="failover.cli")))
def test_every_address_that_a_command_listens_on_is_told(name: str) -> None:
    told = re.findall(r"`(--[\w-]+)`", below("What listens"))
    listening = {o for o in options(name) if "listen" in o or o.endswith("-port")}

    assert listening <= set(LISTENING)
    assert sorted(listening - set(told)) == []
    assert not listening or f"`failover {name}`" in below("What listens")


def test_who_is_trusted_is_told_of_each_secret_and_of_the_headers() -> None:
    rows = [line for line in below("Who can do what").splitlines() if line.startswith("| ")]

    for word in ("`X-Target-*`", "webhook", "`agent_key_file`", "state store", "broker", "key"):
        assert any(word in row for row in rows), word
