# SPDX-License-Identifier: Apache-2.0
"""Which commands are in effect on this boot of the server: those that succeeded since the boot, and
those of which their check finds so, such as the start of what the system starts by itself."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable

from mistral_failover.agent.daemon.backoff import Backoff
from mistral_failover.agent.daemon.dispatcher import CommandDispatcher
from mistral_failover.agent.daemon.journal import Journal, JournalEntry
from mistral_failover.agent.daemon.settings import AgentConfig
from mistral_failover.agent.daemon.worker import drive, find_outcome
from mistral_failover.defects import defect

LOG = logging.getLogger(__name__)

FIRST_PAUSE = 2.0
"""Seconds between the first two looks."""
LONGEST_PAUSE = 300.0
"""Seconds between two looks at most."""


def look(
    journal: Journal, dispatcher: CommandDispatcher, runs: Callable[[JournalEntry], bool]
) -> None:
    """Find which of the commands that were done in this epoch are in effect on this boot, and let
    the heartbeats say so. ``runs``: asks the check of one that was done on an earlier boot. Raises
    sqlite3.Error."""
    found = []
    for row in journal.in_effect(dispatcher.epoch):
        if row.boot_id != journal.boot:
            if not runs(row):
                continue
            LOG.info("%s is in effect, although the server was restarted since", row.name)
            journal.confirmed(row)
        found.append(row.name)
    dispatcher.found_in_effect(found)


class EffectsWatch(threading.Thread):
    """Looks when the agent starts, whenever a command has ended, and again and again after growing
    pauses: heartbeats wait for no check and for no disk."""

    def __init__(
        self, config: AgentConfig, journal: Journal, dispatcher: CommandDispatcher
    ) -> None:
        super().__init__(name="effects", daemon=True)
        self._config = config
        self._journal = journal
        self._desk = dispatcher
        self._end = threading.Event()

    def run(self) -> None:
        """Look until :meth:`finish`."""
        pauses = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while not self._end.is_set():
            self._desk.ended.clear()
            try:
                if self._desk.deposing == "no":
                    look(self._journal, self._desk, self._runs)
            except sqlite3.Error as error:
                LOG.error("The journal is not usable: %s", error)
            except Exception as error:  # this thread must go on
                defect(error, "the agent looked for what runs since the server was restarted")
            self._desk.ended.wait(pauses.next())

    def finish(self) -> None:
        """End; a check that runs is killed, and not waited for."""
        self._end.set()
        self._desk.ended.set()
        self.join(1.0)

    def _runs(self, row: JournalEntry) -> bool:
        spec = self._config.commands.get(row.name)
        if spec is None or spec.check is None:
            return False
        if any(job.request.name == row.name for job in self._desk.running()):
            return False  # its own end tells
        return drive(find_outcome(spec, row, self._end))[0] == "done"
