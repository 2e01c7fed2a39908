# SPDX-License-Identifier: Apache-2.0
"""Looking on while a drill runs: a broken rule of safety ends it at once."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from faults.slot import Slot
from mistral_failover.lab.drill import audit
from mistral_failover.lab.drill.audit import State, Violation

PERIOD = 0.2  # seconds


def unsafe(events: Sequence[Mapping[str, Any]], state: State) -> list[Violation]:
    """What must not be the case at any instant; the other invariants speak of rest."""
    return [
        *audit.single_attachment(events),
        *audit.safe_attachment(events),
        *audit.tokens_grow(state),
        *audit.calls_under_lease(events, state),
        *audit.effects_once(events, state),
        *audit.no_old_epoch(events),
    ]


class Watch(threading.Thread):
    """A context manager: looks again and again until the block ends."""

    def __init__(self, slot: Slot, group: str, since: int) -> None:
        super().__init__(name=f"watch {group}", daemon=True)
        self._slot = slot
        self._group = group
        self._since = since
        self._ended = threading.Event()
        self.found: list[Violation] = []

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        while not self.found and not self._ended.wait(PERIOD):
            # In this order: an effect's intent is written before the cloud sees the effect.
            events = self._slot.events(self._since)
            self.found = unsafe(events, self._slot.state(self._group))

    def check(self) -> None:
        """Fail when something was seen."""
        assert not self.found, [str(violation) for violation in self.found]
