# SPDX-License-Identifier: Apache-2.0
"""The actions on a state store of this process."""

from __future__ import annotations

from support.group_fixtures import (
    _state,
    begun,
    context,
    context_of,
    define,
    goal,
    project,
    remove,
    serve,
    started,
    state,
)

__all__ = [
    "_state",
    "begun",
    "context",
    "context_of",
    "define",
    "goal",
    "project",
    "remove",
    "serve",
    "started",
    "state",
]
