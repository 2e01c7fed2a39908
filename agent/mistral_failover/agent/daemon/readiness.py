# SPDX-License-Identifier: Apache-2.0
"""Whether an agent could carry out a command now, from a real write to its journal."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable

from mistral_failover.agent.daemon.dispatcher import elapsed
from mistral_failover.agent.daemon.journal import Journal
from mistral_failover.defects import defect
from mistral_failover.errors import CodedError

LOG = logging.getLogger(__name__)

EVERY = 10.0
"""Seconds between two writes."""
LONGEST = 15.0
"""Seconds after which a write that has not ended makes the agent not ready."""


class Readiness(threading.Thread):
    """Probes the journal again and again in a thread of its own: a disk that hangs must delay no
    heartbeat. ``changed`` is called when the answer of :meth:`why_not` changes."""

    def __init__(self, journal: Journal, *, every: float | None = None) -> None:
        super().__init__(name="readiness", daemon=True)
        self._journal = journal
        self._every = EVERY if every is None else every
        self._end = threading.Event()
        self._began: float | None = None
        self._why: str | None = None
        self.changed: Callable[[], object] = lambda: None

    def why_not(self) -> str | None:
        """Return why a command cannot be carried out now, in words; None if it can."""
        began = self._began
        if began is not None and (lasts := elapsed() - began) > LONGEST:
            return f"a write to its journal has not ended for {lasts:.0f} s"
        return self._why

    def look(self) -> None:
        """Write once."""
        self._began = elapsed()
        try:
            self._journal.probe()
            why = None
        except (OSError, sqlite3.Error, CodedError) as error:
            why = f"its journal cannot be written: {error}"
        except Exception as error:  # this thread must go on: it alone can take the answer back
            defect(error, "the agent probed its journal")
            why = f"its journal cannot be probed: {type(error).__name__}"
        finally:
            self._began = None
        if why == self._why:
            return
        self._why = why
        if why is None:
            LOG.warning("The agent is ready again: its journal can be written")
        else:
            LOG.error("The agent is not ready: %s", why)
        self.changed()

    def run(self) -> None:
        """Probe until :meth:`finish`."""
        while not self._end.wait(self._every):
            self.look()

    def finish(self) -> None:
        """End; a write that hangs is not waited for."""
        self._end.set()
        self.join(1.0)
