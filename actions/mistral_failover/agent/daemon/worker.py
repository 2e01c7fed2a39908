# SPDX-License-Identifier: Apache-2.0
"""Carrying out a command once: one thread per lane.

The records written before and after decide what a repeat may do; see ``docs/agent.md``.
"""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
from collections.abc import Callable
from typing import Any

from mistral_failover.agent.broker import ERRORS
from mistral_failover.agent.daemon import messages, runner
from mistral_failover.agent.daemon.backoff import Backoff
from mistral_failover.agent.daemon.config import AgentConfig, CommandSpec
from mistral_failover.agent.daemon.dispatcher import CommandDispatcher
from mistral_failover.agent.daemon.jobs import Job, elapsed
from mistral_failover.agent.daemon.journal import Journal, JournalEntry, ProcessIdentity, State
from mistral_failover.agent.daemon.known_outcome import has_begun
from mistral_failover.agent.daemon.messages import Refused
from mistral_failover.defects import defect
from mistral_failover.fault_points import reach

LOG = logging.getLogger(__name__)


class _AgentStopping(Exception):  # noqa: N818 - it names what happened
    """The agent stops; the next one continues."""


class Worker:
    """Carries out started commands. ``exists``: asks the broker whether a queue exists; raises
    ``broker.ERRORS`` when it does not answer."""

    def __init__(
        self,
        config: AgentConfig,
        journal: Journal,
        dispatcher: CommandDispatcher,
        exists: Callable[[str], bool],
    ) -> None:
        self._config = config
        self._journal = journal
        self._desk = dispatcher
        self._exists = exists
        self._lanes: dict[str, queue.SimpleQueue[Job]] = {}

    def hand_over(self, job: Job) -> None:
        """Queue a job behind the others of its lane."""
        lane = job.spec.lane
        if lane not in self._lanes:
            self._lanes[lane] = queue.SimpleQueue()
            threading.Thread(target=self._serve, args=(lane,), name=lane, daemon=True).start()
        self._lanes[lane].put(job)

    def _serve(self, lane: str) -> None:
        while True:
            self.carry_out(self._lanes[lane].get())

    def carry_out(self, job: Job) -> None:
        """Carry out a started job and send the outcome; raises nothing."""
        request = job.request
        try:
            document = self._outcome(job)
        except Exception as error:
            LOG.error("%s (%s) failed in the agent", request.name, request.id)
            defect(error, "the agent ran a command")
            document = self._after_a_failure(job)
        try:
            self._desk.end(job, document)
        except Exception as error:
            LOG.error("The outcome of %s (%s) cannot be sent", request.name, request.id)
            defect(error, "the agent sent an outcome")
            # Its lane must become free; a sender that asks again gets the recorded outcome.
            self._desk.end(job, None)

    # -- within

    def _after_a_failure(self, job: Job) -> dict[str, Any] | Refused | None:
        try:
            self._leave(job, "unknown", "the agent failed while the command ran")
            row = self._found(job)
        except (sqlite3.Error, LookupError) as error:
            LOG.error("The journal is not usable: %s", error)
            return None
        if not has_begun(row):
            return Refused("REFUSED", "The agent failed before the command ran.")
        return messages.recorded(self._config.identity, job.request, row, replayed=False)

    def _outcome(self, job: Job) -> dict[str, Any] | Refused | None:
        """Return the outcome to send; None: nothing."""
        try:
            state = self._found(job).state
            # An operator may have settled it while it waited.
            if state == "done" or (state == "unknown" and not self._find_out(job)):
                return self._recorded(job, replayed=True)
            if not self._desk.wanted(job):
                return None
            argv = self._argv(job)
            if self._found(job).state != "started":
                request = job.request
                self._journal.start(
                    request.epoch, request.id, request.name, request.arguments, request.reply_to
                )
            self._see_that_it_may_begin(job)
            return self._run(job, argv)
        except Refused as refusal:
            return refusal
        except _AgentStopping:
            return None

    def _find_out(self, job: Job) -> bool:
        """Return whether a command with an unknown outcome may run again."""
        request = job.request
        state, finding = find_outcome(job.spec, self._found(job), job.stop)
        if job.deposed:
            return False
        if job.stop.is_set():
            raise _AgentStopping
        self._journal.found(request.epoch, request.id, state, finding)
        LOG.info("%s (%s): %s", request.name, request.id, finding)
        # An operator may have settled it in the meantime.
        return self._found(job).state == "received"

    def _see_that_it_may_begin(self, job: Job) -> None:
        """Ask the broker, right before the command runs, whether its epoch is current.

        Raises `Refused` if it is not, or if it is too late; both are recorded.
        """
        request = job.request
        commands = self._config.identity.address.commands(request.epoch)
        pauses = Backoff(0.1, 2.0)
        while True:
            try:
                there = self._exists(commands)
            except ERRORS as error:
                LOG.warning("The broker does not tell whether the epoch is current: %s", error)
                there = None
            if there is False or job.deposed:
                self._leave(job, "refused", "its epoch had ended")
                raise Refused("OLD_EPOCH", f"Epoch {request.epoch} of the member has ended.")
            if job.stop.is_set():
                self._leave(job, "received", "the agent was stopped before it began")
                raise _AgentStopping
            if elapsed() > job.deadline:
                self._leave(job, "received", "it could not begin in time")
                raise Refused("REFUSED", "The command did not begin in time.")
            if there:
                return
            job.stop.wait(pauses.next())

    def _argv(self, job: Job) -> list[str]:
        return job.spec.words(job.spec.argv, messages.values_of(job.request.arguments, job.spec))

    def _run(self, job: Job, argv: list[str]) -> dict[str, Any]:
        request = job.request

        def began(process: ProcessIdentity) -> None:
            self._journal.running(request.epoch, request.id, process)

        LOG.info("%s (%s) begins", request.name, request.id)
        ended = run_command(job.spec, argv, request.id, job.stop, began)
        reach("agent.ended")
        LOG.info(
            "%s (%s) ended with %d after %.1f s",
            request.name,
            request.id,
            ended.exit_code,
            ended.seconds,
        )
        if ended.stopped:
            why = "the member was deposed" if job.deposed else "the agent was stopped"
            self._leave(job, "unknown", f"it was killed because {why}")
            if not job.deposed:
                raise _AgentStopping
            return self._recorded(job, replayed=False)
        self._record(job, ended)
        reach("agent.recorded")
        return self._recorded(job, replayed=False)

    def _record(self, job: Job, ended: runner.ProgramExit) -> None:
        """Record the outcome; retry for as long as the journal fails."""
        pauses = Backoff()
        while True:
            try:
                self._journal.done(
                    job.request.epoch,
                    job.request.id,
                    exit_code=ended.exit_code,
                    stdout=ended.stdout,
                    stderr=ended.stderr,
                    seconds=ended.seconds,
                )
            except sqlite3.Error as error:
                LOG.error("The outcome of %s cannot be recorded: %s", job.request.name, error)
                if job.stop.wait(pauses.next()):
                    raise
            else:
                return

    def _recorded(self, job: Job, *, replayed: bool) -> dict[str, Any]:
        row = self._found(job)
        return messages.recorded(self._config.identity, job.request, row, replayed=replayed)

    def _found(self, job: Job) -> JournalEntry:
        row = self._journal.find(job.request.epoch, job.request.id)
        if row is None:
            raise LookupError("the journal lost a command")
        return row

    def _leave(self, job: Job, state: State, message: str) -> None:
        self._journal.leave(job.request.epoch, job.request.id, state, message)


def run_command(
    spec: CommandSpec,
    argv: list[str],
    command_id: str,
    stop: threading.Event,
    began: Callable[[ProcessIdentity], None],
) -> runner.ProgramExit:
    """Run a command that the journal has as started. ``began`` records its process; if that raises,
    the command is killed."""
    ended = _run(spec, argv, command_id, stop, began)
    if ended.held:
        LOG.warning(
            "%s left a process behind that still holds its output open. The agent stops reading "
            "it: redirect the output of that process.",
            spec.name,
        )
    return ended


def find_outcome(spec: CommandSpec, row: JournalEntry, stop: threading.Event) -> tuple[State, str]:
    """Find out the outcome of a command: ``done``, ``received`` (it may run again) or ``unknown``,
    and a sentence. ``stop`` kills the check; then the outcome is unknown."""
    said = "it has no check"
    if spec.check is not None:
        try:
            argv = spec.words(spec.check, messages.values_of(row.arguments, spec))
        except Refused as error:
            return "unknown", f"its check failed: {error.message.rstrip('.')}"
        ended = _run(spec, argv, row.id, stop, None)
        if ended.exit_code == 0:
            return "done", "its check found that it took effect"
        if ended.exit_code == 1:
            return "received", "its check found that it did not take effect"
        said = f"its check ended with {ended.exit_code}"
    if spec.repeatable:
        return "received", f"{said}, and it may be repeated"
    return "unknown", said


def _run(
    spec: CommandSpec,
    argv: list[str],
    command_id: str,
    stop: threading.Event,
    began: Callable[[ProcessIdentity], None] | None,
) -> runner.ProgramExit:
    account = spec.account
    return runner.run(
        argv,
        limit=spec.limit,
        environment={**spec.variables(), runner.COMMAND_ID: command_id},
        folder=spec.folder,
        account=account,
        stop=stop,
        began=began,
    )
