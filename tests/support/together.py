# SPDX-License-Identifier: Apache-2.0
"""Running things in many threads at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def together(count: int, function: Callable[[int], T]) -> list[T]:
    """Call ``function(0)`` to ``function(count - 1)`` at once; their results in that order."""
    barrier = threading.Barrier(count)

    def run(number: int) -> T:
        barrier.wait(30)
        return function(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))
