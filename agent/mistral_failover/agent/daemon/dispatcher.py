# SPDX-License-Identifier: Apache-2.0
"""Incoming messages: each is checked, and then answered, joined to a known command, or queued.

This module does not need kombu: a message is a :class:`Delivery`. Only the thread that owns
the connection may acknowledge messages, so only it may call ``take_command``, ``take_notice``,
``begin`` and ``drop_waiting``. Any thread may call everything else.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from mistral_failover.agent import wire
from mistral_failover.agent.daemon import messages, runner
from mistral_failover.agent.daemon.isolation import NoIsolation
from mistral_failover.agent.daemon.journal import Journal, JournalEntry
from mistral_failover.agent.daemon.messages import Refused, Request
from mistral_failover.agent.daemon.outbox import AgentReports
from mistral_failover.agent.daemon.rehearsals import Rehearsals
from mistral_failover.agent.daemon.settings import AgentConfig, CommandSpec
from mistral_failover.fault_points import reach

LOG = logging.getLogger(__name__)

_REPLIES = 8  # of one command at a time: a sender that asks again has a new address for the answer
_WORDS = 2.0  # seconds between two progress reports of one command, at most


def elapsed() -> float:
    """Seconds on a clock that also counts while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Delivery(Protocol):
    """A message as a broker delivers it."""

    body: Any
    headers: Any

    def ack(self) -> None:
        """Acknowledge it."""
        ...


@dataclass(eq=False)
class Job:
    """A command that waits for its lane, or has begun.

    ``deadline``: when, by :func:`elapsed`, no sender waits for its start any more. ``asked``: a
    sender asked for it; otherwise the agent only finds out its outcome. ``began``: by
    :func:`elapsed`.
    """

    request: Request
    spec: CommandSpec
    deadline: float
    delivery: Delivery | None
    asked: bool = True
    began: float | None = None
    spoke: float = 0.0
    deposed: bool = False
    replies: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def key(self) -> tuple[int, str]:
        """Its identity: the same id in another epoch is another command."""
        return self.request.epoch, self.request.id


class CommandDispatcher:
    """The unfinished commands of one agent, and its current epoch. ``not_ready``: why a command
    could not be carried out now, in words, for its heartbeats; None if it could. ``rehearsals``:
    its rehearsals; None: it cannot isolate one."""

    def __init__(
        self,
        config: AgentConfig,
        journal: Journal,
        reports: AgentReports,
        not_ready: Callable[[], str | None] = lambda: None,
        rehearsals: Rehearsals | None = None,
    ) -> None:
        self._config = config
        self._identity = config.identity
        self._journal = journal
        self._reports = reports
        self._not_ready = not_ready
        self.rehearsals = rehearsals or Rehearsals(journal, NoIsolation("it is not set up"))
        self._changed = threading.Condition(threading.RLock())
        self._jobs: dict[tuple[int, str], Job] = {}
        self._pending_notice = _PendingNotice(self._journal_has)
        self._own: str | None = None  # the command of its own that runs
        self._look: tuple[str, threading.Event] | None = None  # the lane of the check that runs
        self._in_effect: tuple[str, ...] = ()
        self._not_any_more: tuple[str, ...] = ()
        self.ended = threading.Event()
        """Set whenever a command that ran has ended."""
        # None until an executor sent it.
        self._member = config.identity.member or journal.member()
        self._closing = False
        self._up = elapsed()
        self._heartbeat_due = 0.0
        self.epoch = journal.epoch(config.epoch)
        deposition = journal.deposition(self.epoch)
        self.deposing: Literal["no", "underway", "failed"] = "no"
        self._deposed: str | None = None
        if deposition is not None and deposition.done_at is None:
            self.deposing = "underway"
            self._deposed = "commands of earlier epochs are being stopped"
        elif deposition is not None and not journal.served(self.epoch, config.on_deposed):
            self._deposed = deposition.message

    # -- incoming messages

    def take_command(self, delivery: Delivery) -> None:
        """Handle any message from a queue of commands."""
        reach("agent.received")
        identity = self._identity
        try:
            document = wire.unseal("command", delivery.body, delivery.headers, self._key("command"))
            request = messages.answerable(document)
        except wire.Malformed as error:
            LOG.warning("Refused a message from the queue of commands: %s", error)
            delivery.ack()
            return
        try:
            with self._changed:
                self._judge(messages.read_command(document, identity), delivery)
                return
        except Refused as error:
            self._tell(request, self._in_hindsight(request, error), [request.reply_to])
        except sqlite3.Error as error:
            # It may have run: a sender that hears nothing asks for it again under the same id.
            LOG.error("The journal is not usable: %s", error)
        delivery.ack()

    def take_notice(self, delivery: Delivery) -> None:
        """Handle any message from the queue of notices."""
        try:
            document = wire.unseal("notice", delivery.body, delivery.headers, self._key("notice"))
            member, epoch = messages.read_notice(document, self._identity)
        except wire.Malformed as error:
            LOG.warning("Refused a message from the queue of notices: %s", error)
            delivery.ack()
            return
        with self._changed:
            void = self._enter(epoch) if epoch > self.epoch else []
            self._learn(member)
            void += self._pending_notice.keep(epoch, delivery)
        for each in void:
            each.ack()

    def begin(self, hand_over: Callable[[Job], None]) -> bool:
        """Start the first command of each free lane: record, acknowledge, hand over. Refuse those
        that waited too long. Return whether commands still wait."""
        for notice in self._pending_notice.take():
            notice.ack()
        with self._changed:
            waiting = [job for job in self._jobs.values() if job.began is None]
            busy = {job.spec.lane for job in self._jobs.values() if job.began is not None}
        for job in waiting:
            if self.deposing == "failed" and job.asked:
                self._give_up(job, Refused("REFUSED", self._not_quiet()))
            elif job.asked and elapsed() > job.deadline:
                self._give_up(job, Refused("REFUSED", "The command waited too long to begin."))
            elif (
                self.deposing == "no" or job.request.ends_rehearsal
            ) and job.spec.lane not in busy:
                busy.add(job.spec.lane)
                self._begin(job, hand_over)
        return any(job.began is None for job in list(self._jobs.values()))

    def drop_waiting(self) -> None:
        """Forget the commands that have not begun: their connection closes or is lost, so the
        broker delivers them again."""
        with self._changed:
            self._pending_notice.forget()
            for job in list(self._jobs.values()):
                if job.began is None and job.delivery is not None:
                    del self._jobs[job.key]

    # -- running commands

    def look_into(self, row: JournalEntry) -> None:
        """Find out the outcome of a command of a former agent."""
        spec = self._config.commands.get(row.name)
        request = Request(
            id=row.id,
            member=self._member or "",
            epoch=row.epoch,
            name=row.name,
            reply_to=row.reply_to,
            arguments=row.arguments,
        )
        if spec is None or row.epoch != self.epoch or not row.reply_to or row.rehearsal:
            return
        with self._changed:
            job = Job(request, spec, 0.0, None, asked=False, replies=[row.reply_to])
            self._jobs[job.key] = job

    def wanted(self, job: Job) -> bool:
        """Return whether a sender asked for a job; a job that none asked for is over."""
        with self._changed:
            if not job.asked:
                self._jobs.pop(job.key, None)
                self._changed.notify_all()
            return job.asked

    def end(self, job: Job, document: dict[str, Any] | Refused | None) -> None:
        """End a job and tell every sender that asked for it. None: there is nothing to tell."""
        with self._changed:
            if self._jobs.get(job.key) is job:
                del self._jobs[job.key]
                self._changed.notify_all()
                if job.began is not None:  # it would count as still running
                    self.ended.set()
                    self._heartbeat_at_once()
            self._tell(job.request, document, job.replies)

    def end_rehearsal(self, why: str) -> None:
        """End the rehearsal that runs, if there is one, with what runs of it."""
        with self._changed:
            self._end_rehearsal(None, why)

    def running(self) -> list[Job]:
        """The jobs that have begun."""
        with self._changed:
            return [job for job in self._jobs.values() if job.began is not None]

    @contextmanager
    def looking(self, lane: str) -> Iterator[threading.Event | None]:
        """Let a check of a command of a lane run while the block lasts. It may read what a command
        is about to unmount, so it gives way: once the event is set, it has to end. None: it may not
        run now."""
        stop = threading.Event()
        with self._changed:
            in_the_way = any(
                job.spec.lane == lane and job.request.rehearsal is None for job in self.running()
            )
            may = not (in_the_way or self._closing or self.deposing != "no")
            self._look = (lane, stop) if may else None
        try:
            yield stop if may else None
        finally:
            with self._changed:
                self._look = None
                self._changed.notify_all()

    def end_look(self, lane: str | None = None) -> bool:
        """End the check that runs, if it is of a lane, and wait until it is gone; None: of any.
        Return False if it does not end."""
        with self._changed:
            self._stop_look(lane)
            return self._changed.wait_for(lambda: not self._looks(lane), runner.LONGEST_END)

    def stop_running(self) -> None:
        """Kill what runs."""
        for job in self.running():
            job.stop.set()

    def wait_until_quiet(self, seconds: float) -> bool:
        """Wait until no requested command runs; return False if that takes longer than so many
        seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.running(), seconds)

    # -- being deposed

    def wait_for_deposition(self) -> int | None:
        """Wait until a deposed agent has something to stop and all running commands and checks have
        ended; return the epoch, or None once the agent stops."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._closing
                    or (self.deposing != "no" and not self.running() and self._look is None)
                )
            )
            return None if self._closing else self.epoch

    def close(self) -> None:
        """The agent stops: end all waiting for a deposition."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def stopping(self, name: str | None) -> None:
        """Set which command of its own the agent runs."""
        with self._changed:
            self._own = name

    def deposed(self, epoch: int, *, done: bool, message: str) -> None:
        """Record the outcome of an attempt to stop what a deposed agent has to stop."""
        with self._changed:
            self._deposed = message
            if not done:
                self.deposing = "failed"
            elif epoch == self.epoch:
                self.deposing = "no"
            self._heartbeat_at_once()

    # -- outgoing messages

    def heartbeat_at_once(self) -> None:
        """Send the next heartbeat without waiting for its turn."""
        with self._changed:
            self._heartbeat_at_once()

    def found_in_effect(self, names: Iterable[str], ended: Iterable[str]) -> None:
        """Set the names of the commands that are in effect on this boot of the server, and the ids
        of those of which what they started has ended, for the heartbeats."""
        with self._changed:
            before = self._in_effect, self._not_any_more
            self._in_effect, self._not_any_more = tuple(names), tuple(ended)
            if (self._in_effect, self._not_any_more) != before:
                self._heartbeat_at_once()

    def prompt(self) -> float:
        """Send the reports that are due; return the seconds until the next one is due."""
        now = elapsed()
        with self._changed:
            if now >= self._heartbeat_due:
                self._heartbeat_due = now + self._config.heartbeat
                self._say_heartbeat(now)
            due = self._heartbeat_due
            for job in self._jobs.values():
                if job.asked:
                    every = max(0.1, min(_WORDS, job.request.limit / 3))
                    if now - job.spoke >= every:
                        self._say_word(job, now)
                    due = min(due, job.spoke + every)
        return max(0.01, due - now)

    # -- within

    def _key(self, kind: wire.Kind) -> Any:
        return lambda member, epoch: self._identity.key_for(kind, member, epoch)

    def _judge(self, request: Request, delivery: Delivery) -> None:
        if request.epoch < self.epoch:
            raise Refused("OLD_EPOCH", f"The member is in epoch {self.epoch} now.")
        if request.epoch > self.epoch:
            raise Refused(
                "REFUSED", (f"The agent is in epoch {self.epoch} and does not know a later one.")
            )
        self._learn(request.member)
        key = (request.epoch, request.id)
        job = self._jobs.get(key)
        row = None if job else self._journal.find(*key)
        known = job.request if job else row
        if known and _what(known) != _what(request):
            raise Refused("REFUSED", "Another command was sent under this id.")
        if job is not None:
            self._join(job, request)
            delivery.ack()
            return
        if row is not None and row.state == "done" and not request.ends_rehearsal:
            if request.rehearsal is not None and not self.rehearsals.lives(request.rehearsal):
                raise self.rehearsals.ended()  # what it started does not run any more
            document = messages.recorded(self._identity, request, row, replayed=True)
            self._reports.end(request, document, [request.reply_to])
            delivery.ack()
            return
        if self.deposing == "failed" and not request.ends_rehearsal:
            raise Refused("REFUSED", self._not_quiet())
        spec = messages.check_allowed(request, self._config.commands)
        messages.check_fresh(request)
        self._see_to_rehearsals(request)
        job = Job(request, spec, elapsed() + request.longest, delivery, replies=[request.reply_to])
        self._jobs[key] = job
        self._say_word(job, elapsed())

    def _see_to_rehearsals(self, request: Request) -> None:
        """End what a command ends; see that a rehearsal's command may wait for its turn. Raises
        `Refused`, sqlite3.Error."""
        if request.ends_rehearsal:
            self._end_rehearsal(request.rehearsal, "its end was requested")
        elif request.rehearsal is None:
            self._end_rehearsal(None, f"{request.name} was requested")
        elif real := self._under_way():
            raise Refused(wire.REHEARSAL_ENDED, f"There is no rehearsal during {real}.")
        else:
            self.rehearsals.claim(request.rehearsal)
            self._heartbeat_at_once()

    def _under_way(self) -> str:
        """What keeps rehearsals away, in words; empty: nothing."""
        if self.deposing != "no":
            return "the stop of what an earlier epoch left running"
        names = (job.request.name for job in self._jobs.values() if job.request.rehearsal is None)
        return next(names, "")

    def _end_rehearsal(self, rehearsal: str | None, why: str) -> None:
        ended = self.rehearsals.end(rehearsal, why)
        if ended is not None:
            self._heartbeat_at_once()
        for job in self._jobs.values():
            if ended is not None and job.request.rehearsal == ended and job.began is not None:
                job.stop.set()

    def _join(self, job: Job, request: Request) -> None:
        """The same command again: each sender gets its outcome."""
        job.asked = True
        job.deadline = max(job.deadline, elapsed() + request.longest)
        if request.reply_to not in job.replies:
            job.replies = [*job.replies, request.reply_to][-_REPLIES:]
            job.request = replace(job.request, reply_to=request.reply_to, member=request.member)
        self._say_word(job, elapsed())

    def _begin(self, job: Job, hand_over: Callable[[Job], None]) -> None:
        request = job.request
        fresh = False  # if it may have run, it is not refused: its sender asks for it again
        try:
            with self._changed:
                row = self._journal.find(request.epoch, request.id)
                if row is None or not row.has_begun:
                    fresh = True
                    self._journal.start(
                        request.epoch,
                        request.id,
                        request.name,
                        request.arguments,
                        request.reply_to,
                        request.rehearsal or "",
                    )
                elif row.state == "started":
                    self._journal.leave(
                        request.epoch,
                        request.id,
                        "unknown",
                        ("the agent failed while the command ran"),
                    )
                job.began = elapsed()
                if request.rehearsal is None:
                    self._stop_look(job.spec.lane)
        except sqlite3.Error as error:
            LOG.error("The journal is not usable: %s", error)
            said = f"The agent did not run it, because the journal is not usable: {error}"
            self._drop(job, Refused("REFUSED", said) if fresh else None)
            return
        try:
            reach("agent.journaled")
            if job.delivery is not None:
                job.delivery.ack()
            reach("agent.acknowledged")
        finally:
            # Even if the broker did not get the acknowledgement: then it comes again and is known.
            # An agent that only has to stop once more does not serve again.
            stops = request.rehearsal is not None or request.name in self._config.on_deposed
            if job.asked and not stops:
                self._deposed = None
            hand_over(job)

    def _give_up(self, job: Job, error: Refused) -> None:
        self._drop(job, self._in_hindsight(job.request, error, same=True))

    def _drop(self, job: Job, document: dict[str, Any] | Refused | None) -> None:
        self.end(job, document)
        if job.delivery is not None:
            job.delivery.ack()

    def _in_hindsight(
        self, request: Request, error: Refused, *, same: bool = False
    ) -> dict[str, Any] | Refused | None:
        """Return the answer for a command that is not (or no longer) carried out. REFUSED and
        OLD_EPOCH mean that it has not run: if it may have run before, its outcome is unknown
        instead. Return None if the journal does not know, so that its id is requested again.
        ``same``: it is the journal's command, so the sender may receive its result."""
        try:
            row = self._journal.find(request.epoch, request.id)
        except sqlite3.Error as failure:
            LOG.error("The journal is not usable: %s", failure)
            return None
        if row is None or not row.has_begun or (row.state == "done" and not same):
            return error
        if request.rehearsal is not None:
            return error  # nothing of it is left, or it is asked for again
        return messages.recorded(self._identity, request, row, replayed=True)

    def _enter(self, epoch: int) -> list[Delivery]:
        """A later epoch is current: kill what runs and void what waits. Return the messages that
        may be acknowledged."""
        LOG.warning("The member was deposed: epoch %d replaces epoch %d", epoch, self.epoch)
        try:
            self._journal.raise_epoch(epoch)
        except sqlite3.Error as error:
            # The deposition thread retries this; stopping is urgent.
            LOG.error("The journal is not usable: %s", error)
        self.epoch = epoch
        self.deposing = "underway"
        self._deposed = "commands of earlier epochs are being stopped"
        self._heartbeat_at_once()
        try:
            reach("agent.deposed")
        finally:
            self._end_rehearsal(None, f"epoch {epoch} began")
            void = self._cut_off_all()
        return void

    def _looks(self, lane: str | None) -> bool:
        return self._look is not None and lane in (None, self._look[0])

    def _stop_look(self, lane: str | None) -> None:
        if self._look is not None and self._looks(lane):
            self._look[1].set()

    def _cut_off_all(self) -> list[Delivery]:
        void = []
        self._stop_look(None)
        for job in list(self._jobs.values()):
            if job.began is not None:
                job.deposed = True
                job.stop.set()
                continue
            old = Refused("OLD_EPOCH", f"The member is in epoch {self.epoch} now.")
            self.end(job, self._in_hindsight(job.request, old, same=True))
            if job.delivery is not None:
                void.append(job.delivery)
        self._changed.notify_all()
        return void

    def _journal_has(self, epoch: int) -> bool:
        try:
            return self._journal.epoch(self._config.epoch) >= epoch
        except sqlite3.Error:
            return False

    def _learn(self, member: str) -> None:
        """If the agent has only the group's key, the executors tell it the member's name."""
        if self._identity.member is None and self._member != member:
            self._member = member
            self._heartbeat_at_once()
            try:
                self._journal.learn_member(member)
            except sqlite3.Error as error:  # they send it again
                LOG.error("The journal is not usable: %s", error)

    def _heartbeat_at_once(self) -> None:
        self._heartbeat_due = 0.0
        self._reports.wake()

    def _tell(
        self, request: Request, document: dict[str, Any] | Refused | None, replies: list[str]
    ) -> None:
        if isinstance(document, Refused):
            LOG.warning("%s (%s) was refused: %s", request.name, request.id, document.message)
            self._reports.refused(request, document, replies)
        elif document is not None:
            self._reports.end(request, document, replies)

    def _not_quiet(self) -> str:
        return (
            f"The member was deposed, and its former commands are not stopped yet: {self._deposed}."
        )

    def _say_word(self, job: Job, now: float) -> None:
        job.spoke = now
        if job.began is None:
            self._reports.word(job.request, "accepted", 0.0)
        else:
            self._reports.word(job.request, "running", now - job.began)

    def _say_heartbeat(self, now: float) -> None:
        if self._member is None:
            return
        running = [job.request.name for job in self.running() if job.request.rehearsal is None]
        running += [self._own] if self._own else []
        self._reports.heartbeat(
            self._member,
            self.epoch,
            running,
            self._deposed,
            now - self._up,
            stopping=self.deposing != "no",
            commands=self._config.commands,
            not_ready=self._not_ready(),
            boot=self._journal.boot,
            in_effect=self._in_effect,
            ended=self._not_any_more,
            rehearsals=self._said_of_rehearsals(),
        )

    def _said_of_rehearsals(self) -> dict[str, Any]:
        isolating, names = self.rehearsals.isolating, self._config.rehearsable
        why_not, unlimited = isolating.why_not(), isolating.why_unlimited()
        return {
            "isolation": True if why_not is None else why_not[: wire.MAX_REASON],
            "limits": True if unlimited is None else unlimited[: wire.MAX_REASON],
            "commands": names if sum(map(len, names)) <= wire.MAX_KNOWN else None,
            "current": self.rehearsals.current,
        }


def _what(command: Request | JournalEntry) -> tuple[object, ...]:
    """What makes two commands of one id the same."""
    return command.name, command.arguments, command.rehearsal or ""


class _PendingNotice:
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
