# SPDX-License-Identifier: Apache-2.0
"""Garbage is collected rarely while Mistral runs in the process, and as before afterwards."""

from __future__ import annotations

import gc
import weakref

from mistral_failover.embedded.garbage import THRESHOLDS, rare_collections


class Ring:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def test_what_there_is_is_not_looked_at_and_garbage_still_goes() -> None:
    before, kept = gc.get_threshold(), gc.get_freeze_count()
    old = weakref.ref(Ring())

    with rare_collections():
        assert gc.get_threshold() == THRESHOLDS
        assert gc.get_freeze_count() > 1000
        assert old() is None, "what was garbage by then does not stay"
        new = weakref.ref(Ring())
        for _ in range(2 * THRESHOLDS[0]):
            Ring()
        assert new() is None

    assert gc.get_threshold() == before
    assert gc.get_freeze_count() <= kept
