# SPDX-License-Identifier: Apache-2.0
"""Two questions at the same time, where neither needs the answer to the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def alongside(read: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """Read something in another thread while the block runs.

    Yields a function that waits for the answer, and raises what the reading raised. The block ends
    when the reading has ended, so ``read`` only reads, and each of its calls is bounded.
    """
    with ThreadPoolExecutor(1, "failover-read") as pool:
        yield pool.submit(read).result
