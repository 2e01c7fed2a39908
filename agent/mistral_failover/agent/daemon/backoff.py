# SPDX-License-Identifier: Apache-2.0
"""Delays between repeated attempts."""

from __future__ import annotations

import random


class Backoff:
    """Pauses that double from ``first`` to ``longest`` seconds, each shortened by up to a quarter
    at random, so that many agents do not come back at once."""

    def __init__(self, first: float = 0.5, longest: float = 30.0) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def next(self) -> float:
        """Return the next pause, in seconds."""
        pause = self._next
        self._next = min(pause * 2, self._longest)
        return pause * random.uniform(0.75, 1.0)  # noqa: S311 - it is not secret

    def reset(self) -> None:
        """Start over with the first pause, after a success."""
        self._next = self._first
