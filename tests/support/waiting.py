# SPDX-License-Identifier: Apache-2.0
"""Wait for something with pauses: a test that asks without one takes the processor from the others,
and from what it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

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


def patiently(group: Any, workflow: str, /, **inputs: Any) -> Any:
    """Run a shipped workflow of a group to its end, which may take a while on a slow machine."""
    return group.workflows.wait(group.start(workflow, **inputs), timeout=90)
