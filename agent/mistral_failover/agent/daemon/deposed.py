# SPDX-License-Identifier: Apache-2.0
"""What an agent does once a newer epoch is current: stop what the older epoch left running."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mistral_failover.agent.daemon.backoff import Backoff
from mistral_failover.agent.daemon.dispatcher import CommandDispatcher
from mistral_failover.agent.daemon.journal import Journal, ProcessIdentity
from mistral_failover.agent.daemon.messages import OWN
from mistral_failover.agent.daemon.settings import AgentConfig
from mistral_failover.agent.daemon.worker import Program, Steps, drive
from mistral_failover.defects import defect
from mistral_failover.fault_points import reach

LOG = logging.getLogger(__name__)

LONGEST_PAUSE = 30.0


class DeposedCleanup:
    """Runs the commands of ``on_deposed`` in order. ``cut_off``, once set, kills a running one."""

    def __init__(
        self, config: AgentConfig, journal: Journal, dispatcher: CommandDispatcher
    ) -> None:
        self._config = config
        self._journal = journal
        self._desk = dispatcher
        self.cut_off = threading.Event()

    def attempt(self, epoch: int) -> Steps[bool]:
        """Run the commands once, after all other commands have ended; record and report the
        outcome. Return whether everything is stopped; if not, it is to be tried again."""
        try:
            failed = yield from self._attempt(epoch)
        except Exception as error:
            defect(error, "the agent stopped what an earlier epoch left running")
            failed = "the agent failed"
        if self.cut_off.is_set():
            return False
        self._conclude(epoch, failed)
        return failed is None

    def _attempt(self, epoch: int) -> Steps[str | None]:
        """Run the commands once and record the outcome; return what failed."""
        failed = yield from self._stop_all(epoch)
        if self.cut_off.is_set():
            return failed
        try:
            self._journal.raise_epoch(epoch)
            self._journal.deposing(epoch, done=failed is None, message=self._said(epoch, failed))
        except sqlite3.Error as error:
            return f"the journal is not usable: {error}"
        if failed is None:
            reach("agent.quiet")
        return failed

    def _conclude(self, epoch: int, failed: str | None) -> None:
        message = self._said(epoch, failed)
        if failed is None:
            LOG.warning("The member is in epoch %d: %s", epoch, message)
        else:
            LOG.error("The member was deposed: %s", message)
        self._desk.deposed(epoch, done=failed is None, message=message)

    def _said(self, epoch: int, failed: str | None) -> str:
        names = ", ".join(self._config.on_deposed) or "nothing had to be stopped"
        return failed or f"stopped before epoch {epoch} began: {names}"

    def _stop_all(self, epoch: int) -> Steps[str | None]:
        self._desk.rehearsals.wait_until_gone()
        for number, name in enumerate(self._config.on_deposed, 1):
            failed = yield from self._stop_by(epoch, f"{OWN}{epoch}:{number}", name)
            if failed is not None:
                return failed
        return None

    def _stop_by(self, epoch: int, command_id: str, name: str) -> Steps[str | None]:
        spec = self._config.commands[name]
        key = (epoch, command_id)

        def began(process: ProcessIdentity) -> None:
            with _if_it_can_be():
                self._journal.running(*key, process)

        with _if_it_can_be():
            self._journal.raise_epoch(epoch)
            self._journal.start(*key, name, {}, "")
        self._desk.stopping(name)
        try:
            argv = spec.words(spec.argv, {})
            ended = yield Program(spec, argv, command_id, self.cut_off, began)
        finally:
            self._desk.stopping(None)
        with _if_it_can_be():
            self._journal.done(
                *key,
                exit_code=ended.exit_code,
                stdout=ended.stdout,
                stderr=ended.stderr,
                seconds=ended.seconds,
            )
        return None if ended.exit_code == 0 else f"{name} ended with {ended.exit_code}"


class Deposer(threading.Thread):
    """Carries out the cleanup whenever the agent is deposed, again after a pause if it failed."""

    def __init__(self, cleanup: DeposedCleanup, dispatcher: CommandDispatcher) -> None:
        super().__init__(name="deposer", daemon=True)
        self._cleanup = cleanup
        self._desk = dispatcher
        self._end = threading.Event()

    def run(self) -> None:
        """Run until :meth:`finish`."""
        pauses = Backoff(1.0, LONGEST_PAUSE)
        while not self._end.is_set():
            epoch = self._desk.wait_for_deposition()
            if epoch is None or self._end.is_set():
                continue
            if drive(self._cleanup.attempt(epoch)):
                pauses.reset()
            else:
                self._end.wait(pauses.next())

    def finish(self, seconds: float) -> None:
        """End; a running command is killed after this many seconds."""
        self._end.set()
        self._desk.close()
        self.join(max(0.0, seconds))
        self._cleanup.cut_off.set()
        self.join()


@contextmanager
def _if_it_can_be() -> Iterator[None]:
    """Record something if the journal accepts it: stopping matters more than recording it."""
    try:
        yield
    except sqlite3.Error as error:
        LOG.error("The journal is not usable: %s", error)
