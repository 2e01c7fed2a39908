# SPDX-License-Identifier: Apache-2.0
"""The notice whose epoch is not in the journal yet."""

from __future__ import annotations

from collections.abc import Callable

from mistral_failover.agent.daemon.jobs import Delivery


class PendingNotice:
    """Keeps a notice unacknowledged until its epoch is recorded, so that the next agent receives it
    again. It keeps only the highest, since the broker delivers a limited number at a time."""

    def __init__(self, written: Callable[[int], bool]) -> None:
        self._written = written
        self._kept: tuple[int, Delivery] | None = None

    def keep(self, epoch: int, delivery: Delivery) -> list[Delivery]:
        """Add a notice; return those that need not be kept."""
        kept = self._kept
        if kept is not None and epoch < kept[0]:
            return [delivery]
        self._kept = (epoch, delivery)
        return [*([kept[1]] if kept else []), *self.take()]

    def take(self) -> list[Delivery]:
        """Return what need not be kept any more."""
        kept = self._kept
        if kept is None or not self._written(kept[0]):
            return []
        self._kept = None
        return [kept[1]]

    def forget(self) -> None:
        """The connection is lost: the broker has taken it back."""
        self._kept = None
