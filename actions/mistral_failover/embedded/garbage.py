# SPDX-License-Identifier: Apache-2.0
"""How often Python looks for garbage that refers to itself.

By default it does so each 700 new objects, and each full look walks through all that was imported:
Mistral with its clients has some 300,000 objects, which stay as long as the process. That took a
tenth of the CPU of a failover.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

THRESHOLDS = (10_000, 20, 20)
"""New objects until a look at them, and looks until one at older objects; see ``gc``."""


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Look rarely in the block, and never at what there is at its beginning."""
    before = gc.get_threshold()
    gc.collect()  # else what is garbage by now would stay as well
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
