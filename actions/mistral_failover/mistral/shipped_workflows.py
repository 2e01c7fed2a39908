# SPDX-License-Identifier: Apache-2.0
"""The workflows of this version, and whether another definition is the same."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import mistral_failover.workflows
from mistral_failover.model.documents import load_workflow
from mistral_failover.model.errors import InvalidDocument


@cache
def workflows() -> Mapping[str, str]:
    """Return the text of each shipped workflow, by its name."""
    found: dict[str, str] = {}
    for path in mistral_failover.workflows.paths():
        text = Path(path).read_text(encoding="utf-8")
        found |= dict.fromkeys((n for n in load_workflow(text, path) if n != "version"), text)
    return found


def same(one: str, other: str) -> bool:
    """Return whether two definitions are equal for Mistral, except for comments and the order of
    keys."""
    return one == other or _said(one) == _said(other)


def _said(text: str) -> object:
    try:
        return load_workflow(text, "definition")
    except InvalidDocument:
        return text  # it may mean something else to Mistral
