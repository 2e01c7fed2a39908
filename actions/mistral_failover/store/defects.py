# SPDX-License-Identifier: Apache-2.0
"""Defects in the state store: how often each kind occurred, for the metrics, the doctor and the
status."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial

from sqlalchemy.exc import InterfaceError, OperationalError, TimeoutError

from mistral_failover.defects import Defect, defect
from mistral_failover.store import counters
from mistral_failover.store.counters import SEPARATOR
from mistral_failover.store.database import Database, ProjectStore
from mistral_failover.store.session import ProjectSession

LOG = logging.getLogger(__name__)
SHOWN = 86400.0
"""Seconds for which the doctor and the status show a defect."""
NAME = "defects"
_KINDS = 200
"""Kinds of defects that wait to be written, at most. All are logged."""
_AGAIN = 5.0  # seconds until the next try, if the store is away


@dataclass(frozen=True)
class KnownDefect:
    """A kind of defect that occurred lately. ``number``: how often, ever; ``ago``: seconds since
    the last time."""

    doing: str
    error: str
    place: str
    number: int
    ago: float

    @property
    def sentence(self) -> str:
        """It for people."""
        times = "once" if self.number == 1 else f"{self.number} times"
        return (
            f"{self.error} at {self.place} while {self.doing}: {times}, "
            f"the last time {self.ago:.0f} s ago"
        )


class DefectRecorder:
    """Writes the defects of a process to its state store, in a thread: a handler of errors must not
    wait for a store that is away. What is not written when the process ends is only in the log."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changed = threading.Condition()
        self._waiting: Counter[Defect] = Counter()
        self._thread: threading.Thread | None = None

    def record(self, found: Defect) -> None:
        """See ``defects.Recorder``."""
        with self._changed:
            if len(self._waiting) >= _KINDS and found not in self._waiting:
                return
            self._waiting[found] += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="defects", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError:  # no further thread: the next defect tries again
                    self._thread = None

    def settle(self, seconds: float) -> bool:
        """Wait until all is written, at most so long. Return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._thread is None, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._thread = None
                    self._changed.notify_all()
                    return
                found, number = self._waiting.popitem()
            try:
                store = self._database.for_project(found.project_id)
                store.atomically(partial(_count, found, number))
            except (OperationalError, InterfaceError, TimeoutError) as error:
                LOG.warning("A defect cannot be recorded yet: %s", type(error).__name__)
                with self._changed:
                    self._waiting[found] += number
                time.sleep(_AGAIN)
            except Exception as error:
                defect(error, "recording a defect", to_log_only=True)


def lately(store: ProjectStore) -> list[KnownDefect]:
    """Return the defects in a project's work, and in what is no single project's, that occurred
    within :data:`SHOWN` seconds, the latest first."""
    found = store.reading(_lately) + store.of_none.reading(_lately)
    return sorted(found, key=lambda each: each.ago)


def _count(found: Defect, number: int, tx: ProjectSession) -> None:
    tx.count(None, NAME, found.doing, found.error, found.place, value=number)


def _lately(tx: ProjectSession) -> list[KnownDefect]:
    now = tx.now()
    rows = counters.lately(tx, NAME, now - SHOWN)
    found = []
    for labels, value, last_at in rows:
        doing, error, place = labels.split(SEPARATOR)
        found.append(KnownDefect(doing, error, place, int(value), max(0.0, now - last_at)))
    return found
