# SPDX-License-Identifier: Apache-2.0
"""Agents in emulated guests: the rules of the real agent (`agent.daemon`), reached over HTTP.

Three things are the emulator's own. The broker: the notice of an epoch waits for an agent that is
out of reach, and the last heartbeat stays. The transport: a request brings a command, and takes its
result. The programs: what a command does to the applications of a guest, and how long it takes.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mistral_failover.agent import wire
from mistral_failover.agent.daemon.deposed import DeposedCleanup
from mistral_failover.agent.daemon.dispatcher import CommandDispatcher, Job
from mistral_failover.agent.daemon.effects import Effects
from mistral_failover.agent.daemon.journal import Journal, JournalEntry, ProcessIdentity
from mistral_failover.agent.daemon.journal_file import refuse_changes
from mistral_failover.agent.daemon.messages import OWN
from mistral_failover.agent.daemon.outbox import AgentReports, Outbox
from mistral_failover.agent.daemon.readiness import Readiness
from mistral_failover.agent.daemon.rehearsals import Rehearsals
from mistral_failover.agent.daemon.runner import STOPPED, ProgramExit
from mistral_failover.agent.daemon.settings import Account, AgentConfig, CommandSpec, Identity
from mistral_failover.agent.daemon.worker import (
    IN_EFFECT,
    NOT_IN_EFFECT,
    Program,
    Steps,
    Worker,
    tidy_up,
)
from mistral_failover.lab.emulator import guests
from mistral_failover.lab.emulator.core import Emulation, transition
from mistral_failover.lab.emulator.state import Guest, new_id
from mistral_failover.lab.emulator.web import Call, plain_error, take_fault
from mistral_failover.model.documents import load_json

_AGAIN = 0.2  # seconds until what a deposed agent has to stop is tried again
_LEAST = 5.0  # seconds within which a command may begin: this machine may be slow
_OPEN = 200  # agents that hold their journals open
_KEY = bytes(32)  # of every agent: the token of a request shows who sent it
_ACCOUNT = Account("root", 0, 0, (), "/root")
_ANY = re.compile(r"(?s).*")
_DISKS = {"writable": 0, "full": errno.ENOSPC, "read-only": errno.EROFS}
_RESULT = ("id", "exit_code", "stdout", "stderr", "replayed", "boot")
_STATUS = {"UNKNOWN_COMMAND": 403, "UNKNOWN_OUTCOME": 500}  # of all others: 409


@dataclass
class _Message:
    """What a request delivers."""

    body: bytes
    headers: dict[str, Any]

    def ack(self) -> None:
        """Nothing: a request that is not answered is repeated by its sender."""


class _GuestIsolation:
    """The isolation of a rehearsal in a guest: what runs there is noted apart."""

    def __init__(self, emulation: Emulation, guest: Guest) -> None:
        self._emulation, self._guest = emulation, guest
        self.lives = True

    def kill(self) -> None:
        """See Isolation."""
        self.lives = False
        guests.end_rehearsal(self._emulation, self._guest)

    def remains(self) -> str:
        """See Isolation."""
        return ""


class _GuestIsolating:
    """The way to isolate in a guest, of which a test says whether there is one."""

    def __init__(self, emulation: Emulation, guest: Guest) -> None:
        self._emulation, self._guest = emulation, guest

    def why_not(self) -> str | None:
        """See Isolating."""
        broken = self._guest.broken == "not_isolated"
        return "the agent does not run as root" if broken else None

    def why_unlimited(self) -> str | None:
        """See Isolating."""
        return None

    def make(self, name: str, began: object) -> _GuestIsolation:
        """See Isolating."""
        del began
        self._emulation.audit.record(
            "rehearsal_isolated", server=self._guest.server_id, rehearsal=name
        )
        return _GuestIsolation(self._emulation, self._guest)

    def end_leftovers(self, process: ProcessIdentity) -> None:
        """See Isolating."""


@dataclass
class _Running:
    """A program in a guest, and the work that waits for its end."""

    steps: Steps[None]
    operation: str
    timer: asyncio.TimerHandle | None = None


class _GuestJournal(Journal):
    """A journal on the disk of a guest, of which a test says whether it can be written."""

    def __init__(self, folder: Path, guest: Guest) -> None:
        super().__init__(folder, hold=False, safe=False, boot=guest.boot)
        self._guest = guest
        self.look_at_disk()

    def look_at_disk(self) -> None:
        """Accept or refuse changes, as the disk does now."""
        refuse_changes(self._db, yes=self._guest.disk != "writable")

    def probe(self) -> None:
        """Write as an agent does to see whether it can; raises what the disk would."""
        if number := _DISKS[self._guest.disk]:
            raise OSError(number, os.strerror(number))
        super().probe()


class GuestAgent:
    """The agent of a guest that runs. What it must remember is in its journal on the guest's disk,
    so it may end at any time."""

    def __init__(self, emulation: Emulation, guest: Guest) -> None:
        self._emulation = emulation
        self._guest = guest
        self._identity = Identity(guest.project_id, "", guest.server_id, guest.server_id, _KEY)
        self._commands: dict[str, CommandSpec] = {}
        self._on_deposed: list[str] = []
        self._cleaning = False  # what an earlier epoch left is being stopped, or will be again
        self._learn_commands({})
        config = AgentConfig(
            broker="",
            identity=self._identity,
            commands=self._commands,
            journal=emulation.disk(guest.server_id),
            epoch=guest.first_epoch,
            heartbeat=0.0,
            on_deposed=self._on_deposed,
        )
        self._journal = _GuestJournal(config.journal, guest)
        self._readiness = Readiness(self._journal)
        for row in self._journal.open_rows():
            if row.state == "started" and row.reply_to:
                emulation.audit.record("command_died", server=guest.server_id, id=row.id)
        left = tidy_up(self._journal)
        guests.end_rehearsal(emulation, guest)
        rehearsals = Rehearsals(self._journal, _GuestIsolating(emulation, guest))
        self._outbox = Outbox()
        reports = AgentReports(self._identity, self._outbox)
        self._desk = CommandDispatcher(
            config, self._journal, reports, self._readiness.why_not, rehearsals
        )
        self._worker = Worker(config, self._journal, self._desk, self._is_current)
        self._cleanup = DeposedCleanup(config, self._journal, self._desk)
        self._effects = Effects(self._journal, self._desk, self._check, gone_for=0.0)
        self._ready: deque[tuple[Steps[None], ProgramExit | None]] = deque()
        self._running: dict[Program, _Running] = {}
        self._again: asyncio.TimerHandle | None = None
        for row in left:
            self._desk.look_into(row)

    @property
    def idle(self) -> bool:
        """Whether it neither does nor waits for anything."""
        busy = self._running or self._desk.rehearsals.current is not None
        return not busy and self._desk.deposing == "no"

    def end(self) -> None:
        """End it at once, with its programs."""
        for program in list(self._running):
            self._take_off(program, "no_answer").close()
        self._desk.rehearsals.end(None, "the agent was stopped")
        if self._again is not None:
            self._again.cancel()
        self._journal.close()

    def look_at_disk(self) -> None:
        """Notice that its disk became writable, or is not any more."""
        self._journal.look_at_disk()
        self.say()

    # -- what it receives

    def read_command(self, wanted: dict[str, Any], reply_to: str) -> None:
        """Take a command of a request."""
        self._learn_commands(wanted["args"])
        document = {
            "id": wanted["id"],
            "epoch": wanted["epoch"],
            "name": wire.name_sent(wanted["name"], wanted["rehearsal"]),
            "arguments": wanted["args"],
            "limit": max(_LEAST, wanted["limit"]),
            "longest": max(_LEAST, wanted["longest"]),
            "reply_to": reply_to,
        }
        if wanted["rehearsal"] is not None and self._guest.broken != "old_agent":
            document["rehearsal"] = wanted["rehearsal"]
        self._desk.take_command(self._sealed("command", document))
        self.go_on()

    def read_notice(self) -> None:
        """Read the notice that the broker has for it."""
        known, guest = self._desk.epoch, self._guest
        if guest.notice > known:
            self._learn_commands({})
            self._desk.take_notice(self._sealed("notice", {"epoch": guest.notice}))
            self._emulation.audit.record(
                "deposed",
                server=guest.server_id,
                epoch=self._desk.epoch,
                applications=sorted(guest.applications),
            )
        self.go_on()

    def _sealed(self, kind: wire.Kind, document: dict[str, Any]) -> _Message:
        server, member = self._identity.server_id, self._identity.member
        document |= {"group_id": self._identity.group_id, "server_id": server, "member": member}
        document["sent_at"] = time.time()
        key = wire.message_key(kind, _KEY, server, document["epoch"])
        return _Message(*wire.seal(kind, document, key))

    def _learn_commands(self, arguments: dict[str, Any]) -> None:
        """Read the allow-list, which a test may change at any time; every argument is declared."""
        self._commands.clear()
        for verb, name, application in guests.allow_list(self._emulation, self._guest):
            argv = (verb, application.name, *(f"{{{key}}}" for key in arguments))
            self._commands.setdefault(
                name,
                CommandSpec(
                    *(name, argv, _ACCOUNT),
                    repeatable=True,
                    arguments=dict.fromkeys(arguments, _ANY),
                    rehearse=argv if application.rehearse else None,
                ),
            )
        if not self._cleaning:
            stops = [spec.name for spec in self._commands.values() if spec.argv[0] == "stop"]
            self._on_deposed[:] = stops

    def _is_current(self, queue: str) -> bool:
        """Whether the broker has a queue of commands: that of the epoch of the last notice."""
        return queue == self._identity.address.commands(self._guest.notice)

    # -- what it does

    def go_on(self) -> None:
        """Do what can be done now, and send what is to be said."""
        while True:
            for program in [program for program in self._running if program.stop.is_set()]:
                self._emulation.audit.record(
                    "command_died", server=self._guest.server_id, id=program.command_id
                )
                stopped = ProgramExit(STOPPED, "", "", 0.0, stopped=True)
                self._ready.append((self._take_off(program, "killed"), stopped))
            if self._desk.deposing != "no" and not self._desk.running() and not self._cleaning:
                self._cleaning = True
                self._ready.append((self._clean_up(), None))
            if not self._ready:
                self._desk.begin(self._hand_over)
            if not self._ready:
                break
            steps, ended = self._ready.popleft()
            try:
                program = next(steps) if ended is None else steps.send(ended)
            except StopIteration:
                continue
            self._start(program, steps)
        if self._desk.ended.is_set():
            self._desk.ended.clear()
            self._effects.look()
        self._send()
        self._emulation.changed()

    def _hand_over(self, job: Job) -> None:
        self._ready.append((self._worker.carry_out(job), None))

    def _clean_up(self) -> Steps[None]:
        if (yield from self._cleanup.attempt(self._desk.epoch)):
            self._cleaning = False
        else:
            self._again = asyncio.get_running_loop().call_later(_AGAIN, self._clean_up_again)

    def _clean_up_again(self) -> None:
        self._cleaning = False
        self.go_on()

    def _epoch_of(self, command_id: str) -> int:
        """In which epoch a command was sent last, which may not be the agent's."""
        rows = (row.epoch for row in self._journal.open_rows() if row.id == command_id)
        return max(rows, default=self._desk.epoch)

    def _start(self, program: Program, steps: Steps[None]) -> None:
        emulation, server, own = self._emulation, self._guest.server_id, self._is_own(program)
        name = "on_deposed" if own else program.spec.name
        operation = emulation.begin("command", server=server, command=name)
        if not own:
            emulation.audit.record(
                "command_started",
                server=server,
                command=name,
                id=program.command_id,
                epoch=self._epoch_of(program.command_id),
                **({} if program.isolation is None else {"rehearsal": True}),
            )
        seconds = emulation.latency.of(f"command_{program.argv[0]}")
        if own and not self._stopped_by(program):
            seconds = 0.0
        running = self._running[program] = _Running(steps, operation)
        if seconds > 0:
            loop = asyncio.get_running_loop()
            running.timer = loop.call_later(seconds, self._expire, program)
        else:
            self._finish(program)

    def _expire(self, program: Program) -> None:
        self._finish(program)
        self.go_on()

    def _finish(self, program: Program) -> None:
        verb, application, *words = program.argv
        emulation, own = self._emulation, self._is_own(program)
        stopped = self._stopped_by(program) if own else []
        operation = "on_deposed" if own else f"command_{verb}"
        if (stopped or not own) and take_fault(emulation, operation, ("fail",)):
            code, out, err = 1, "", f"{application}: injected failure of {verb}"
        elif own:
            code, out, err = 0, "", ""
            for name in stopped:
                guests.run_program(emulation, self._guest, verb, name, [])
        else:
            run = guests.run_program if program.isolation is None else guests.rehearse_program
            code, out, err = run(emulation, self._guest, verb, application, words)
        if not own:
            server = self._guest.server_id
            emulation.audit.record(
                "command_finished", server=server, id=program.command_id, verb=verb, exit_code=code
            )
        steps = self._take_off(program, "failed" if code else "done")
        self._ready.append((steps, ProgramExit(code, out, err, 0.0)))

    def _take_off(self, program: Program, outcome: str) -> Steps[None]:
        running = self._running.pop(program)
        if running.timer is not None:
            running.timer.cancel()
        self._emulation.finish(running.operation, outcome)
        return running.steps

    def _stopped_by(self, program: Program) -> list[str]:
        """The running applications that a command of its own stops."""
        known = self._emulation.state.applications
        return [a for a in sorted(self._guest.applications) if known[a].stop == program.spec.name]

    @staticmethod
    def _is_own(program: Program) -> bool:
        return program.command_id.startswith(OWN)

    # -- what it says

    def say(self) -> None:
        """Send a heartbeat, after a look at the disk."""
        self._learn_commands({})
        self._readiness.look()
        if self._effects.look():
            self._effects.look()  # it does not come back by itself
        self._desk.prompt()
        self._send()

    def _check(self, row: JournalEntry) -> int | None:
        """The check of a start of an application that has one."""
        known = self._emulation.state.applications.values()
        mine = [each.name for each in known if each.start == row.name and each.status]
        if not mine:
            return None
        return IN_EFFECT if set(mine) & set(self._guest.applications) else NOT_IN_EFFECT

    def _send(self) -> None:
        """Hand what it has to say to the broker, which keeps its last heartbeat, and results for as
        long as a request waits for them."""
        if not guests.answers(self._emulation, self._guest):
            return
        while (first := self._outbox.first(0.0)) is not None:
            key, message = first
            self._outbox.sent(key, message)
            document = load_json(message.sealed[0], "message")
            if self._guest.broken == "old_agent":
                document.pop("rehearsals", None)
            if message.exchange == wire.HEARTBEATS:
                self._guest.heartbeat = document
            elif message.final and message.routing_key in self._emulation.replies:
                self._emulation.replies[message.routing_key] = document
        self._emulation.wake(_news(self._guest.server_id))


def _news(server_id: str) -> str:
    return f"agent:{server_id}"


def _agent(emulation: Emulation, guest: Guest) -> GuestAgent:
    """The agent of a guest that runs."""
    agents = emulation.agents
    agent = agents.pop(guest.server_id, None)
    if not isinstance(agent, GuestAgent):
        idle = [k for k, each in agents.items() if isinstance(each, GuestAgent) and each.idle]
        for server in idle[: max(0, len(agents) - _OPEN)]:
            agents.pop(server).end()
        agent = GuestAgent(emulation, guest)
    agents[guest.server_id] = agent  # the last is the one that was used last
    return agent


def _reached(emulation: Emulation, server_id: str) -> GuestAgent | None:
    guest = emulation.state.guests.get(server_id)
    if guest is None or not guests.answers(emulation, guest):
        return None
    return _agent(emulation, guest)


def _notify(emulation: Emulation, guest: Guest, epoch: int) -> None:
    """Leave the notice of an epoch for an agent. The first one that there is, its file has too."""
    if epoch <= guest.notice:
        return
    guest.notice = epoch
    if not guest.first_epoch:
        guest.first_epoch = epoch
        guests.end_agent(emulation, guest.server_id)
    emulation.audit.record("notice", server=guest.server_id, epoch=epoch)
    emulation.changed()
    if agent := _reached(emulation, guest.server_id):
        agent.read_notice()


@transition("agent.back")
def _back(emulation: Emulation, server_id: str) -> None:
    """A guest answers, for the first time or again."""
    guest = emulation.state.guests.get(server_id)
    if guest is not None and guest.notice and (agent := _reached(emulation, server_id)):
        agent.read_notice()
    emulation.wake(_news(server_id))


@transition("agent.silent")
def _silent(emulation: Emulation, server_id: str) -> None:
    """A guest is about to answer no more."""
    if agent := _reached(emulation, server_id):
        agent.say()


@transition("agent.disk")
def _disk(emulation: Emulation, server_id: str) -> None:
    """The disk of a guest became writable, or is not any more."""
    if agent := _reached(emulation, server_id):
        agent.look_at_disk()


# -- requests


async def command(call: Call) -> Any:
    """POST /emulator/guests/{server_id}/commands: runs a named command of the allow-list.

    Answers when it has ended; else, after `timeout` seconds, with RUNNING if the agent has the
    command, or with NO_ANSWER if it is out of reach.
    """
    emulation, server_id = call.emulation, call.path("server_id")
    wanted = _parse(call.body)
    guest = emulation.state.guests.get(server_id)
    known = guest or emulation.state.servers.get(server_id)
    if known is None or not call.sees(known.project_id):
        raise plain_error(
            "NOT_FOUND", 404, f"There is no guest {server_id}.", "Check the server's id."
        )
    if guest is not None and guests.answers(emulation, guest):
        _notify(emulation, guest, wanted["epoch"])
    reply_to = new_id()
    emulation.replies[reply_to] = None
    try:
        return await _answer(emulation, server_id, wanted, reply_to)
    finally:
        del emulation.replies[reply_to]


async def _answer(
    emulation: Emulation, server_id: str, wanted: dict[str, Any], reply_to: str
) -> dict[str, Any]:
    deadline = time.monotonic() + wanted["timeout"]
    told: GuestAgent | None = None
    silence: str | None = None
    while True:
        agent = _reached(emulation, server_id)
        if agent is None and silence is None:
            silence = emulation.begin("command", server=server_id, command=wanted["name"])
        elif agent is not None and agent is not told:
            agent.read_command(wanted, reply_to)
            told = agent
        answer = emulation.replies[reply_to]
        left = deadline - time.monotonic()
        if answer is not None or left <= 0:
            break
        await emulation.wait_for(_news(server_id), left)
    emulation.finish(silence, "no_answer")
    if answer is not None:
        return _result(answer)
    if agent is not None:
        said = f"{wanted['name']} is still running"
        raise plain_error("RUNNING", 504, said, "Ask again with the same id.")
    raise plain_error(
        "NO_ANSWER",
        504,
        f"The guest {server_id} did not answer within {wanted['timeout']:g} s.",
        "Check whether the guest still runs; fence it before another takes its role.",
    )


def _parse(body: dict[str, Any]) -> dict[str, Any]:
    try:
        timeout = float(body.get("timeout", 30))
        return {
            "id": str(body["id"]),
            "name": str(body["name"]),
            "epoch": int(body["epoch"]),
            "args": dict(body.get("args") or {}),
            "timeout": timeout,
            "limit": float(body.get("limit", timeout)),
            "longest": float(body.get("longest", timeout)),
            "rehearsal": None if (rehearsal := body.get("rehearsal")) is None else str(rehearsal),
        }
    except (KeyError, TypeError, ValueError):
        raise plain_error(
            "BAD_REQUEST",
            400,
            "A command has id, name, epoch (integer), args (object), and timeout, limit, longest "
            "(seconds).",
            "Correct the request.",
        ) from None


def _result(document: dict[str, Any]) -> dict[str, Any]:
    """The agent's result, or its refusal as an error."""
    if document["state"] == "done":
        return {key: document[key] for key in _RESULT}
    code, message = document["code"], document["message"]
    raise plain_error(code, _STATUS.get(code, 409), message, "docs/agent.md explains the code.")


async def depose(call: Call) -> Any:
    """POST /emulator/guests/{server_id}/epoch: makes the commands of epochs before `epoch` void.

    A broker knows queues, not servers: a missing server is no error.
    """
    guest, epoch = _guest(call), call.body.get("epoch")
    if not wire.is_epoch(epoch):
        raise plain_error("BAD_REQUEST", 400, "epoch is not a number.", "Correct the request.")
    if guest is not None:
        _notify(call.emulation, guest, epoch)
    return {"epoch": epoch}


async def heartbeat(call: Call) -> Any:
    """GET /emulator/guests/{server_id}/heartbeat: the agent's latest heartbeat, or null."""
    guest = _guest(call)
    agent = _reached(call.emulation, guest.server_id) if guest is not None else None
    if agent is not None:
        agent.say()
    said = guest.heartbeat if guest is not None else None
    if said is None:
        return {"heartbeat": None}
    return {"heartbeat": {**said, "ago": 0.0 if agent is not None else time.time() - said["at"]}}


def _guest(call: Call) -> Guest | None:
    guest = call.emulation.state.guests.get(call.path("server_id"))
    return guest if guest is not None and call.sees(guest.project_id) else None
