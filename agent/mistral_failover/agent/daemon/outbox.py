# SPDX-License-Identifier: Apache-2.0
"""Outgoing messages of an agent: progress, results, heartbeats. They wait until the broker has
confirmed them."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mistral_failover.agent import wire
from mistral_failover.agent.daemon import messages
from mistral_failover.agent.daemon.messages import Refused, Request
from mistral_failover.agent.daemon.settings import Identity

LONGEST = 1000
"""Messages that wait at most; a dropped one is requested again."""
OLDEST = 3600.0
"""Seconds after which no receiver waits for a message any more."""


@dataclass(frozen=True)
class Message:
    """One sealed message. ``final``: it ends a conversation, so it is worth repeating."""

    exchange: str
    routing_key: str
    sealed: tuple[bytes, dict[str, object]] = field(repr=False)
    final: bool
    since: float = field(default_factory=time.monotonic)


class Outbox:
    """Messages by key, in order of arrival; a later one of the same key replaces the earlier one.
    Safe to use from several threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: OrderedDict[tuple[str, str], Message] = OrderedDict()
        self._woken = self._news = False

    def put(self, key: tuple[str, str], message: Message) -> None:
        """Add a message."""
        with self._changed:
            self._waiting.pop(key, None)
            self._waiting[key] = message
            self._news = True
            while len(self._waiting) > LONGEST:
                self._waiting.popitem(last=False)
            self._changed.notify_all()

    def drop(self, key: tuple[str, str]) -> None:
        """Remove a message."""
        with self._changed:
            self._waiting.pop(key, None)

    def first(self, seconds: float) -> tuple[tuple[str, str], Message] | None:
        """Return the oldest message without removing it; None if none comes in time, or after
        :meth:`wake`."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._woken, max(0.0, seconds))
            self._woken = self._news = False
            late = time.monotonic() - OLDEST
            for key in [k for k, m in self._waiting.items() if m.since < late]:
                del self._waiting[key]
            return next(iter(self._waiting.items()), None)

    def sent(self, key: tuple[str, str], message: Message) -> None:
        """Remove a message that is sent or undeliverable; a later one of the same key stays."""
        with self._changed:
            if self._waiting.get(key) is message:
                del self._waiting[key]
            self._changed.notify_all()

    def failed(self, key: tuple[str, str], message: Message) -> None:
        """The broker may not have it. A message that ends a conversation moves behind the others;
        one that is repeated regularly is dropped."""
        with self._changed:
            if self._waiting.get(key) is message:
                del self._waiting[key]
                if message.final:
                    self._waiting[key] = message

    def wake(self) -> None:
        """Wake the thread that waits for a message."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def rest(self, seconds: float) -> None:
        """Wait until there is something new since :meth:`first`, or for this many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._news or self._woken, max(0.0, seconds))

    def empty(self, seconds: float) -> bool:
        """Wait until everything is sent; return False if that takes more than ``seconds``."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, seconds)


class AgentReports:
    """Makes documents, signs them and puts them into the outbox."""

    def __init__(self, identity: Identity, outbox: Outbox) -> None:
        self._identity = identity
        self._outbox = outbox

    def word(self, request: Request, state: str, seconds: float) -> None:
        """Report that a command was ``accepted``, or has been ``running`` for this many seconds. A
        later report replaces one that the broker does not have yet."""
        document = messages.result(self._identity, request, state, seconds=seconds)
        self._put(("word", _about(request)), request, document, final=False)

    def end(self, request: Request, document: dict[str, Any], replies: Iterable[str]) -> None:
        """Send a command's outcome to every sender that asked for it."""
        about = _about(request)
        self._outbox.drop(("word", about))
        for reply_to in replies:
            self._put((f"end {about}", reply_to), request, document, final=True, to=reply_to)

    def refused(self, request: Request, error: Refused, replies: Iterable[str]) -> None:
        """Report that a command is not carried out, and why."""
        said = {"code": error.code, "message": error.message}
        document = messages.result(self._identity, request, "refused", **said)
        self.end(request, document, replies)

    def heartbeat(
        self,
        member: str,
        epoch: int,
        running: list[str],
        deposed: str | None,
        seconds_up: float,
        *,
        stopping: bool,
        commands: Iterable[str],
        not_ready: str | None = None,
        boot: str,
        in_effect: Iterable[str] = (),
        ended: Iterable[str] = (),
        rehearsals: Mapping[str, Any] | None = None,
    ) -> None:
        """Send a heartbeat with the epoch, the running commands, whether something of an earlier
        epoch is still being stopped, and the names of all ``commands`` of the allow-list (none if
        they are too long). ``not_ready``: why it can carry out no command, in words. ``boot``: the
        identity of this boot of the server, and ``in_effect`` the names of commands that are in
        effect on it (none if they are too long). ``ended``: the ids of commands of which what they
        started has ended since (the first `wire.MAX_RUNNING`). ``rehearsals``: what can be
        rehearsed."""
        known, effective = sorted(commands), list(in_effect)
        document = {
            "group_id": self._identity.group_id,
            "member": member,
            "server_id": self._identity.server_id,
            "epoch": epoch,
            "running": running[: wire.MAX_RUNNING],
            "deposed": deposed,
            "stopping": stopping,
            "commands": known if sum(map(len, known)) <= wire.MAX_KNOWN else None,
            "not_ready": None if not_ready is None else not_ready[: wire.MAX_REASON],
            "boot": boot,
            "in_effect": effective if sum(map(len, effective)) <= wire.MAX_KNOWN else [],
            "ended": list(ended)[: wire.MAX_RUNNING],
            "rehearsals": rehearsals,
            "at": time.time(),
            "seconds_up": seconds_up,
        }
        sealed = wire.seal(
            "heartbeat", document, self._identity.key_for("heartbeat", member, epoch)
        )
        queue = self._identity.address.heartbeats
        self._outbox.put(("heartbeat", ""), Message(wire.HEARTBEATS, queue, sealed, final=False))

    def wake(self) -> None:
        """Something is due earlier than expected."""
        self._outbox.wake()

    def _put(
        self,
        key: tuple[str, str],
        request: Request,
        document: dict[str, Any],
        *,
        final: bool,
        to: str | None = None,
    ) -> None:
        signed_with = self._identity.key_for("result", request.member, request.epoch)
        sealed = messages.seal_fitting("result", document, signed_with)
        self._outbox.put(key, Message(wire.RESULTS, to or request.reply_to, sealed, final))


def _about(request: Request) -> str:
    return f"{request.epoch} {request.id}"
