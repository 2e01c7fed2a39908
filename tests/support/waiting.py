# SPDX-License-Identifier: Apache-2.0
"""Wait for something with pauses: a test that asks without one takes the processor from the others,
and from what it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    look: Callable[[], T],
    what: str = "it did not come to be",
    *,
    limit: float = 60.0,
    pause: float = 0.03,
) -> T:
    """Wait for a true answer, and return it. Raises AssertionError ``what`` after ``limit``
    seconds."""
    deadline = time.monotonic() + limit
    while not (found := look()):
        assert time.monotonic() < deadline, what
        time.sleep(pause)
    return found
