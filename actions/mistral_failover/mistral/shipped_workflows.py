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


def same(one: str, other: str) -> bool:
    """Return whether two definitions are equal except for comments and the order of keys."""
    return _said(one) == _said(other)


def _said(text: str) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text
