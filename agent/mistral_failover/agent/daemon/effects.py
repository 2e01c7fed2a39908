# SPDX-License-Identifier: Apache-2.0
"""Which commands are in effect on this boot of the server, and which are not any more.

In effect is what succeeded since the boot, and that of which its check finds so, such as the start
of what the system starts by itself. What a command started has ended if its check, which found it
running before, does not find it for a while.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from mistral_failover.agent.daemon import runner
from mistral_failover.agent.daemon.backoff import Backoff
from mistral_failover.agent.daemon.dispatcher import CommandDispatcher, elapsed
from mistral_failover.agent.daemon.journal import Journal, JournalEntry, ProcessIdentity
from mistral_failover.agent.daemon.messages import Refused
from mistral_failover.agent.daemon.settings import AgentConfig
from mistral_failover.agent.daemon.worker import IN_EFFECT, NOT_IN_EFFECT, check, drive
from mistral_failover.defects import defect

LOG = logging.getLogger(__name__)

FIRST_PAUSE = 2.0
"""Seconds between the first two looks, and the first after something was found not to run."""
LONGEST_PAUSE = 30.0
"""Seconds between two looks at most."""
LONGEST_LOOK = 30.0
"""Seconds that a check may take: one that hangs must not hide what the others would find."""
GONE_FOR = 10.0
"""Seconds for which every look must find that something does not run, so that it has ended: long
enough for a restart by the system's package manager."""


class Effects:
    """The effects of the commands that were done in the agent's epoch. ``ask``: runs the check of a
    command, and returns its exit code; None if it has none. ``gone_for``: see `GONE_FOR`."""

    def __init__(
        self,
        journal: Journal,
        dispatcher: CommandDispatcher,
        ask: Callable[[JournalEntry], int | None],
        gone_for: float | None = None,
    ) -> None:
        self._journal = journal
        self._desk = dispatcher
        self._ask = ask
        self._gone_for = GONE_FOR if gone_for is None else gone_for
        self._missed: dict[str, float] = {}
        self._ended: set[str] = set()
        self._seen: dict[str, JournalEntry] = {}  # which its check found, by name

    def look(self) -> bool:
        """Run the checks, and let the heartbeats say what is in effect, and what has ended. Return
        whether something was found not to run that still counts as running: look again soon. Raises
        sqlite3.Error."""
        now, found, missed, ended = elapsed(), list[str](), dict[str, float](), set[str]()
        for row in self._journal.in_effect(self._desk.epoch):
            says = self._ask(row)
            if row.boot_id != self._journal.boot:
                if says != IN_EFFECT:
                    continue
                LOG.info("%s is in effect, although the server was restarted since", row.name)
                with _if_it_can_be(f"that {row.name} is in effect"):
                    self._journal.confirmed(row)
            found.append(row.name)
            if says == IN_EFFECT:
                if row.seen_at is None:
                    self._seen[row.name] = row  # the journal may be full
                    with _if_it_can_be(f"that the check of {row.name} found it"):
                        self._journal.seen(row)
            elif row.id in self._ended:
                ended.add(row.id)
            elif says == NOT_IN_EFFECT and (
                row.seen_at is not None or row == self._seen.get(row.name)
            ):
                missed[row.id] = self._missed.get(row.id, now)
                if row.id in self._missed and now - missed[row.id] >= self._gone_for:
                    ended.add(row.id)
        for row_id in ended - self._ended:
            LOG.info("What command %s started has ended, by its check", row_id)
        self._missed, self._ended = missed, ended
        self._desk.found_in_effect(found, sorted(ended))
        return bool(missed.keys() - ended)


class EffectsWatch(threading.Thread):
    """Looks when the agent starts, whenever a command has ended, and again and again after growing
    pauses: heartbeats wait for no check and for no disk."""

    def __init__(
        self, config: AgentConfig, journal: Journal, dispatcher: CommandDispatcher
    ) -> None:
        super().__init__(name="effects", daemon=True)
        self._config = config
        self._desk = dispatcher
        self._journal = journal
        self._effects = Effects(journal, dispatcher, self._ask)
        self._end = threading.Event()
        self._silent: dict[str, str] = {}  # why the check of a command does not tell

    def run(self) -> None:
        """Look until :meth:`finish`."""
        pauses = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while not self._end.is_set():
            self._desk.ended.clear()
            try:
                if self._desk.deposing == "no" and self._effects.look():
                    pauses.reset()
            except sqlite3.Error as error:
                LOG.error("The journal is not usable: %s", error)
            except Exception as error:  # this thread must go on
                defect(error, "the agent looked for what runs")
            self._desk.ended.wait(pauses.next())

    def finish(self) -> None:
        """End, with the check that runs."""
        self._end.set()
        self._desk.ended.set()
        self._desk.end_look()
        self.join(1.0)

    def _ask(self, row: JournalEntry) -> int | None:
        spec = self._config.commands.get(row.name)
        if spec is None or spec.check is None or self._end.is_set():
            return None
        code: int | None
        with self._desk.looking(spec.lane) as stop:
            if stop is None:
                return None  # a command of its lane runs, whose end is looked into
            quick = replace(spec, limit=min(spec.limit, LONGEST_LOOK))
            try:
                code = drive(check(quick, row, stop, self._began))
                why = f"it ended with {code}"
            except Refused as error:
                code, why = None, error.message.rstrip(".")
            if stop.is_set():
                return None
        if code in (IN_EFFECT, NOT_IN_EFFECT):
            self._silent.pop(row.name, None)
        elif self._silent.get(row.name) != why:
            self._silent[row.name] = why
            LOG.warning("The check of %s does not tell whether it runs: %s", row.name, why)
        return code

    def _began(self, process: ProcessIdentity) -> None:
        # On a full disk, too: an application that ends there must be found.
        with suppress(sqlite3.Error):
            self._journal.look(process)


def tidy_up(journal: Journal) -> None:
    """Kill the check that an agent which died has left."""
    process = journal.looked()
    if process is not None and runner.kill_leftovers(process):
        LOG.warning("A check of a former agent was still running, and was killed")


@contextmanager
def _if_it_can_be(what: str) -> Iterator[None]:
    """Record something if the journal accepts it: what a look found must be told all the same."""
    try:
        yield
    except sqlite3.Error as error:
        LOG.error("The journal cannot record %s: %s", what, error)
