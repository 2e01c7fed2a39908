# SPDX-License-Identifier: Apache-2.0
"""Places where a test can make something go wrong; nothing happens there in production."""

from __future__ import annotations

from collections.abc import Callable

_hook: Callable[[str], None] | None = None


def reach(name: str) -> None:
    """Say that the point is reached; costs one comparison unless a test has armed a hook."""
    if _hook is not None:
        _hook(name)


def arm(hook: Callable[[str], None]) -> None:
    """Have ``hook`` called with the name of each point that is reached from now on."""
    global _hook
    _hook = hook


def disarm() -> None:
    """Call nobody any more."""
    global _hook
    _hook = None
