# SPDX-License-Identifier: Apache-2.0
"""The notice whose epoch the journal does not have yet."""

from __future__ import annotations

from collections.abc import Callable

from mistral_failover.agent.daemon.jobs import Delivery


class PendingNotice:
    """Keeps a notice unacknowledged until its epoch is written down, so that it comes again to the
    next agent; of several the highest alone, for the broker hands out so many at a time only."""

    def __init__(self, written: Callable[[int], bool]) -> None:
        self._written = written
        self._kept: tuple[int, Delivery] | None = None

    def keep(self, epoch: int, delivery: Delivery) -> list[Delivery]:
        """One more notice; returns what need not be kept."""
        kept = self._kept
        if kept is not None and epoch < kept[0]:
            return [delivery]
        self._kept = (epoch, delivery)
        return [*([kept[1]] if kept else []), *self.take()]

    def take(self) -> list[Delivery]:
        """What need not be kept any more."""
        kept = self._kept
        if kept is None or not self._written(kept[0]):
            return []
        self._kept = None
        return [kept[1]]

    def forget(self) -> None:
        """The connection is lost: the broker has it again."""
        self._kept = None
