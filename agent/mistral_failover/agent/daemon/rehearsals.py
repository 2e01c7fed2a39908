# SPDX-License-Identifier: Apache-2.0
"""The rehearsal of a server: one at a time, isolated, and ended at once by any real command.

A rehearsal lives from its first command until it is ended, and never again: what its commands
started is gone then, so a later command of it would only find that nothing runs.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from contextlib import suppress

from mistral_failover.agent import wire
from mistral_failover.agent.daemon.isolation import Isolating, Isolation, NotIsolated
from mistral_failover.agent.daemon.journal import Journal
from mistral_failover.agent.daemon.messages import Refused

LOG = logging.getLogger(__name__)

GONE = 10.0
"""Seconds to wait until nothing of a killed rehearsal is left; it takes a small part of one."""
_PAUSE = 0.005


class Rehearsals:
    """The rehearsals of one agent; safe to use from several threads."""

    def __init__(self, journal: Journal, isolating: Isolating) -> None:
        self.isolating = isolating
        self._journal = journal
        self._lock = threading.RLock()
        self._making = threading.Lock()
        self._current: str | None = None
        self._isolation: Isolation | None = None
        self._dying: list[Isolation] = []
        self._why = ""  # the latest one was ended

    def tidy_up(self) -> None:
        """End what an agent that died may have left."""
        process = self._journal.isolated()
        if process is not None:
            self.isolating.end_leftovers(process)

    @property
    def current(self) -> str | None:
        """The id of the rehearsal that runs; None if there is none."""
        return self._current

    def claim(self, rehearsal: str) -> None:
        """Begin a rehearsal, or go on with it. Raises `Refused`; sqlite3.Error."""
        with self._lock:
            if self._current == rehearsal:
                return
            if self._journal.was_rehearsed(rehearsal):
                raise self.ended()
            if self._current is not None:
                raise Refused(
                    wire.REHEARSAL_RUNNING,
                    f"Rehearsal {self._current} runs on this member, and only one may.",
                )
            why = self.isolating.why_not()
            if why is not None:
                raise Refused(
                    wire.NOT_REHEARSABLE, f"A rehearsal cannot be isolated on this member: {why}."
                )
            self._journal.rehearse(rehearsal)
            self._current = rehearsal

    def isolation(self, rehearsal: str) -> Isolation:
        """Return the isolation of a claimed rehearsal; make it for its first command. Raises
        `Refused` if it was ended, or if it cannot be isolated."""
        with self._making:
            with self._lock:
                if self._current != rehearsal:
                    raise self.ended()
                found = self._isolation
            if found is None:
                self.wait_until_gone()
                try:
                    found = self.isolating.make(rehearsal, self._journal.isolate)
                except NotIsolated as error:
                    raise Refused(
                        wire.NOT_REHEARSABLE,
                        f"The rehearsal cannot be isolated on this member: {error}.",
                    ) from None
                with self._lock:
                    if self._current != rehearsal:
                        found.kill()
                        self._dying.append(found)
                        raise self.ended()
                    self._isolation = found
            if not found.lives:
                self.end(rehearsal, "the isolation's first process has ended")
                raise self.ended()
            return found

    def lives(self, rehearsal: str) -> bool:
        """Return whether a rehearsal has not been ended."""
        with self._lock:
            found = self._isolation
            return self._current == rehearsal and (found is None or found.lives)

    def ended(self) -> Refused:
        """Return the answer for a command of a rehearsal that is over."""
        why = f": {self._why}" if self._why else ""
        return Refused(wire.REHEARSAL_ENDED, f"The rehearsal was ended on this member{why}.")

    def end(self, rehearsal: str | None, why: str) -> str | None:
        """End a rehearsal at once, without waiting until nothing is left of it; None: any. Return
        the id of the one that was running."""
        with self._lock:
            current = self._current
            if rehearsal is not None and rehearsal != current:
                # A command of it that comes late must not begin it.
                with suppress(sqlite3.Error):
                    self._journal.rehearse(rehearsal)
                return None
            if current is None:
                return None
            self._current, self._why = None, why
            if self._isolation is not None:
                self._isolation.kill()
                self._dying.append(self._isolation)
                self._isolation = None
        LOG.warning("Rehearsal %s was ended: %s", current, why)
        return current

    def wait_until_gone(self, seconds: float = GONE) -> str:
        """Wait until nothing is left of the rehearsals that were ended. Return, in words, what is
        left after so many seconds; empty: nothing."""
        end = time.monotonic() + seconds
        while True:
            with self._lock:
                left = ""
                for each in list(self._dying):
                    said = each.remains()
                    if not said:
                        self._dying.remove(each)
                    left = left or said
            if not left or time.monotonic() > end:
                return left
            time.sleep(_PAUSE)
