# SPDX-License-Identifier: Apache-2.0
"""Carrying out a command once.

The records written before and after decide what a repeat may do; see ``docs/agent.md``. The rules
run no program themselves: they yield it, and continue with its end. So they hold wherever the
programs run: in processes of this server (:func:`drive`), or in a guest that a test emulates.
"""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from mistral_failover.agent.daemon import messages, runner
from mistral_failover.agent.daemon.backoff import Backoff
from mistral_failover.agent.daemon.dispatcher import CommandDispatcher, Job, elapsed
from mistral_failover.agent.daemon.isolation import Isolation
from mistral_failover.agent.daemon.journal import Journal, JournalEntry, ProcessIdentity, State
from mistral_failover.agent.daemon.messages import Refused
from mistral_failover.agent.daemon.settings import AgentConfig, CommandSpec
from mistral_failover.defects import defect
from mistral_failover.fault_points import reach

LOG = logging.getLogger(__name__)

IN_EFFECT = 0
"""Exit code of a check: the command took effect, and what it started runs."""
NOT_IN_EFFECT = 1
"""Exit code of a check: the command did not take effect, or what it started has ended."""

_T = TypeVar("_T")


@dataclass(eq=False)
class Program:
    """A program of a command, to run to its end. ``stop``, once set, kills it. ``began`` records
    its process before its first instruction; if that raises, the program is killed.
    ``isolation``: where it runs in a rehearsal; for :func:`drive` a `runner.Enclosure`, too."""

    spec: CommandSpec
    argv: list[str]
    command_id: str
    stop: threading.Event
    began: Callable[[ProcessIdentity], None] | None = None
    isolation: Isolation | None = None


Steps = Generator[Program, runner.ProgramExit, _T]
"""Work that yields each program that it needs, and continues with its end."""


def drive(steps: Steps[_T]) -> _T:
    """Do the work in this thread, with the programs in processes of this server."""
    try:
        program = next(steps)
        while True:
            try:
                ended = _run(program)
            except Exception as error:  # the work's own handlers judge it
                program = steps.throw(error)
            else:
                program = steps.send(ended)
    except StopIteration as end:
        result: _T = end.value
        return result


def _run(program: Program) -> runner.ProgramExit:
    spec, isolation = program.spec, program.isolation
    ended = runner.run(
        program.argv,
        limit=spec.limit,
        environment={
            **spec.variables(),
            runner.COMMAND_ID: program.command_id,
            **({} if isolation is None else {runner.REHEARSAL: "yes"}),
        },
        folder=spec.folder,
        account=spec.account,
        stop=program.stop,
        began=program.began,
        inside=cast("runner.Enclosure | None", isolation),
    )
    if ended.held and program.began is not None:
        LOG.warning(
            "%s left a process behind that still holds its output open. The agent stops reading "
            "it: redirect the output of that process.",
            spec.name,
        )
    return ended


class _AgentStopping(Exception):  # noqa: N818 - it names what happened
    """The agent stops; the next one continues."""


class Worker:
    """Carries out started commands. ``exists``: asks the broker whether a queue exists; None: it
    does not answer."""

    def __init__(
        self,
        config: AgentConfig,
        journal: Journal,
        dispatcher: CommandDispatcher,
        exists: Callable[[str], bool | None],
    ) -> None:
        self._config = config
        self._journal = journal
        self._desk = dispatcher
        self._exists = exists

    def carry_out(self, job: Job) -> Steps[None]:
        """Carry out a started job and send the outcome; raises nothing."""
        request = job.request
        try:
            document = yield from self._outcome(job)
        except sqlite3.Error as error:  # a disk that is full or broken is no defect of the agent
            LOG.error("The journal is not usable: %s", error)
            document = self._after_a_failure(job)
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
            if job.request.rehearsal is not None:
                self._desk.rehearsals.end(job.request.rehearsal, "the agent failed")
                return self._interrupted(job)
            self._leave(job, "unknown", "the agent failed while the command ran")
            row = self._found(job)
        except (sqlite3.Error, LookupError) as error:
            LOG.error("The journal is not usable: %s", error)
            return None
        if not row.has_begun:
            return Refused("REFUSED", "The agent failed before the command ran.")
        return messages.recorded(self._config.identity, job.request, row, replayed=False)

    def _outcome(self, job: Job) -> Steps[dict[str, Any] | Refused | None]:
        """Return the outcome to send; None: nothing."""
        try:
            if job.request.ends_rehearsal:
                return self._end_rehearsal(job)
            state = self._found(job).state
            # An operator may have settled it while it waited.
            if state == "done" or (state == "unknown" and not (yield from self._find_out(job))):
                return self._recorded(job, replayed=True)
            if not self._desk.wanted(job):
                return None
            argv = self._argv(job)
            if self._found(job).state != "started":
                request = job.request
                self._journal.start(
                    *(request.epoch, request.id, request.name, request.arguments),
                    *(request.reply_to, request.rehearsal or ""),
                )
            self._see_that_it_may_begin(job)
            return (yield from self._run(job, argv))
        except Refused as refusal:
            return refusal
        except _AgentStopping:
            return None

    def _find_out(self, job: Job) -> Steps[bool]:
        """Return whether a command with an unknown outcome may run again."""
        request = job.request
        state, finding = yield from find_outcome(job.spec, self._found(job), job.stop)
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
            there = self._exists(commands)
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
                break
            job.stop.wait(pauses.next())

        if request.rehearsal is None:
            if not self._desk.end_look(job.spec.lane):
                LOG.error("%s begins although a check cannot be ended", request.name)
            left = self._desk.rehearsals.wait_until_gone()
            if left:
                LOG.error("%s begins although the rehearsal has not ended: %s", request.name, left)

    def _end_rehearsal(self, job: Job) -> dict[str, Any]:
        """Wait until nothing is left of the rehearsal, which was ended when the command came."""
        began = elapsed()
        left = self._desk.rehearsals.wait_until_gone()
        code, said = (1, f"{left}\n") if left else (0, "")
        self._record(job, runner.ProgramExit(code, "", said, elapsed() - began))
        return self._recorded(job, replayed=False)

    def _interrupted(self, job: Job) -> Refused:
        """The rehearsal was ended while its command ran: nothing of the command is left."""
        self._leave(job, "refused", "the rehearsal was ended while it ran")
        return self._desk.rehearsals.ended()

    def _argv(self, job: Job) -> list[str]:
        return job.spec.words(job.spec.argv, messages.values_of(job.request.arguments, job.spec))

    def _run(self, job: Job, argv: list[str]) -> Steps[dict[str, Any]]:
        request = job.request

        def began(process: ProcessIdentity) -> None:
            self._journal.running(request.epoch, request.id, process)

        rehearsal, isolation = request.rehearsal, None
        if rehearsal is not None:
            try:
                isolation = self._desk.rehearsals.isolation(rehearsal)
            except Refused as refusal:
                self._leave(job, "refused", refusal.message)
                raise
        where = " in a rehearsal" if isolation else ""
        LOG.info("%s (%s) begins%s", request.name, request.id, where)
        ended = yield Program(job.spec, argv, request.id, job.stop, began, isolation)
        reach("agent.ended")
        LOG.info(
            "%s (%s) ended with %d after %.1f s",
            request.name,
            request.id,
            ended.exit_code,
            ended.seconds,
        )
        if rehearsal is not None and (ended.stopped or not self._desk.rehearsals.lives(rehearsal)):
            self._desk.rehearsals.end(rehearsal, "its first process has ended")
            raise self._interrupted(job)
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


def find_outcome(
    spec: CommandSpec, row: JournalEntry, stop: threading.Event
) -> Steps[tuple[State, str]]:
    """Find out the outcome of a command: ``done``, ``received`` (it may run again) or ``unknown``,
    and a sentence. ``stop`` kills the check; then the outcome is unknown."""
    said = "it has no check"
    if spec.check is not None:
        try:
            found = yield from check(spec, row, stop)
        except Refused as error:
            return "unknown", f"its check failed: {error.message.rstrip('.')}"
        if found == IN_EFFECT:
            return "done", "its check found that it took effect"
        if found == NOT_IN_EFFECT:
            return "received", "its check found that it did not take effect"
        said = f"its check ended with {found}"
    if spec.repeatable:
        return "received", f"{said}, and it may be repeated"
    return "unknown", said


def check(
    spec: CommandSpec,
    row: JournalEntry,
    stop: threading.Event,
    began: Callable[[ProcessIdentity], None] | None = None,
) -> Steps[int]:
    """Run the check of a command that has one; return its exit code, of which all but `IN_EFFECT`
    and `NOT_IN_EFFECT` say nothing. ``began``: see `Program`. Raises `Refused`: its arguments do
    not fit any more."""
    argv = spec.words(spec.check or (), messages.values_of(row.arguments, spec))
    ended = yield Program(spec, argv, row.id, stop, began)
    return ended.exit_code


def tidy_up(journal: Journal) -> list[JournalEntry]:
    """Kill what a former agent left running; return the commands whose outcome is unknown."""
    for row in journal.open_rows():
        if row.state == "started":
            # Without a recorded process the program was never run: see runner.run.
            killed = row.process is not None and runner.kill_leftovers(row.process)
            message = "the agent died while the command ran"
            if killed:
                message += ", and its remaining processes were killed"
            LOG.warning("%s (%s): %s", row.name, row.id, message)
            state: State = "refused" if row.rehearsal else "unknown"
            try:
                journal.leave(row.epoch, row.id, state, message)
            except sqlite3.Error as error:
                # Its outcome is examined when it is requested again and the journal is writable.
                LOG.error("The journal is not usable: %s", error)
    return [row for row in journal.open_rows() if row.state == "unknown"]


class Lanes:
    """A thread for each lane: its commands run one after another."""

    def __init__(self, carry_out: Callable[[Job], Steps[None]]) -> None:
        self._carry_out = carry_out
        self._waiting: dict[str, queue.SimpleQueue[Job]] = {}

    def hand_over(self, job: Job) -> None:
        """Queue a job behind the others of its lane."""
        lane = job.spec.lane
        if lane not in self._waiting:
            self._waiting[lane] = queue.SimpleQueue()
            threading.Thread(target=self._serve, args=(lane,), name=lane, daemon=True).start()
        self._waiting[lane].put(job)

    def _serve(self, lane: str) -> None:
        while True:
            drive(self._carry_out(self._waiting[lane].get()))
