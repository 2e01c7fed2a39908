# SPDX-License-Identifier: Apache-2.0
"""The workflows of this version, and whether another definition is the same."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import yaml

import mistral_failover.workflows


@cache
def workflows() -> Mapping[str, str]:
    """Return the text of each shipped workflow, by its name."""
    found: dict[str, str] = {}
    for path in mistral_failover.workflows.paths():
        text = Path(path).read_text(encoding="utf-8")
        found |= dict.fromkeys((n for n in yaml.safe_load(text) if n != "version"), text)
    return found


class _MistralsLoader(yaml.SafeLoader):
    """Reads anchors and aliases as Mistral does, as plain text: with them a definition could say
    the same as another one here, and something else in Mistral."""

    def fetch_alias(self) -> None:
        self.fetch_plain()

    def fetch_anchor(self) -> None:
        self.fetch_plain()


def same(one: str, other: str) -> bool:
    """Return whether two definitions are equal for Mistral, except for comments and the order of
    keys."""
    return one == other or _said(one) == _said(other)


def _said(text: str) -> object:
    try:
        return yaml.load(text, _MistralsLoader)  # noqa: S506 - it is a safe one
    except yaml.YAMLError:
        return text
