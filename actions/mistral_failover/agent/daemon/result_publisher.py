# SPDX-License-Identifier: Apache-2.0
"""Outgoing messages of an agent: progress, results, heartbeats."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from kombu.exceptions import ChannelError

from mistral_failover.agent import wire
from mistral_failover.agent.broker import ERRORS, Broker, forget, wait
from mistral_failover.agent.daemon import messages
from mistral_failover.agent.daemon.backoff import Backoff
from mistral_failover.agent.daemon.identity import Identity
from mistral_failover.agent.daemon.messages import Refused, Request
from mistral_failover.agent.daemon.outbox import Message, Outbox
from mistral_failover.agent.wire import HEARTBEATS, Address
from mistral_failover.defects import defect
from mistral_failover.fault_points import reach

LOG = logging.getLogger(__name__)
ALIVE = 4.0
"""Seconds after which an idle connection is serviced."""
SHORTEST = 0.5
"""Minimum seconds between two attempts."""


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
    ) -> None:
        """Send a heartbeat with the epoch, the running commands, whether something of an earlier
        epoch is still being stopped, and the names of all ``commands`` of the allow-list (none if
        they are too long)."""
        known = sorted(commands)
        document = {
            "group_id": self._identity.group_id,
            "member": member,
            "server_id": self._identity.server_id,
            "epoch": epoch,
            "running": running[: wire.MAX_RUNNING],
            "deposed": deposed,
            "stopping": stopping,
            "commands": known if sum(map(len, known)) <= wire.MAX_KNOWN else None,
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


class PublisherConnection:
    """One connection for several threads, one call at a time; it is made when needed and remade
    after a failure."""

    def __init__(self, broker: Broker, address: Address) -> None:
        self._broker = broker
        self._address = address
        self._lock = threading.Lock()
        self._connection: Any = None
        self._channel: Any = None

    def exists(self, queue: str) -> bool:
        """Ask the broker whether a queue exists. Raises ``broker.ERRORS``."""
        return bool(self._use(lambda: self._broker.queue_exists(self._connection, queue)))

    def publish(self, message: Message) -> None:
        """Send a message; return once the broker has confirmed it. Raises ``broker.ERRORS``."""
        self._use(lambda: self._publish(message))

    def look_after(self) -> None:
        """Keep it alive, if there is one."""
        with self._lock:
            if self._connection is None:
                return
            try:
                while wait(self._connection, 0.0):
                    pass
            except ERRORS:
                self._drop()

    def close(self) -> None:
        """Close it, if there is one."""
        with self._lock:
            self._drop()

    def _publish(self, message: Message) -> None:
        if message.exchange == HEARTBEATS:
            # Declared each time: the broker deletes a queue that is not declared, whatever it
            # receives.
            self._broker.declare_heartbeats(self._channel, self._address)
            self._broker.keep_latest(self._channel, message.routing_key)
        self._broker.publish(self._channel, message.exchange, message.routing_key, message.sealed)

    def _use(self, call: Callable[[], Any]) -> Any:
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._broker.connect()
                    self._channel = self._connection.channel()
                    self._broker.declare_heartbeats(self._channel, self._address)
                return call()
            except BaseException:
                self._drop()
                raise

    def _drop(self) -> None:
        if self._connection is not None:
            forget(self._connection)
            self._connection = self._channel = None


class ResultPublisher(threading.Thread):
    """Sends what waits in the outbox until :meth:`finish`. ``prompt`` is called often: it adds the
    reports that are due and returns the seconds until it wants to be called again."""

    def __init__(
        self, line: PublisherConnection, outbox: Outbox, prompt: Callable[[], float]
    ) -> None:
        super().__init__(name="speaker", daemon=True)
        self._line = line
        self._outbox = outbox
        self._prompt = prompt
        self._end = threading.Event()
        self._told = False  # set while it fails

    def run(self) -> None:
        """Run until :meth:`finish`."""
        pauses = Backoff()
        while not self._end.is_set():
            try:
                seconds = min(self._prompt(), ALIVE)
                waiting = self._outbox.first(seconds)
                if waiting is None:
                    self._line.look_after()
                elif self._say(*waiting):
                    pauses.reset()
                else:
                    self._rest(pauses.next())
            except Exception as error:
                defect(error, "the agent sent messages")
                self._end.wait(pauses.next())

    def finish(self, seconds: float) -> None:
        """Send what still waits, within this many seconds, and end."""
        deadline = time.monotonic() + seconds
        self._outbox.empty(seconds)
        self._end.set()
        self._outbox.wake()
        self.join(max(1.0, deadline - time.monotonic()))

    def _rest(self, seconds: float) -> None:
        """Wait before the next attempt; a new message shortens the wait."""
        self._end.wait(min(seconds, SHORTEST))
        self._outbox.rest(seconds - SHORTEST)

    def _say(self, key: tuple[str, str], message: Message) -> bool:
        try:
            self._line.publish(message)
        except ChannelError as error:
            if message.exchange != HEARTBEATS:
                return self._failed(key, message, error)
            # Until an executor has declared it, the exchange is missing: there is no receiver.
            LOG.debug("The broker does not accept a heartbeat: %s", type(error).__name__)
        except ERRORS as error:
            return self._failed(key, message, error)
        else:
            self._told = False
        self._outbox.sent(key, message)
        if message.final:
            reach("agent.answered")
        return True

    def _failed(self, key: tuple[str, str], message: Message, error: BaseException) -> bool:
        if not self._told:
            LOG.warning(
                "The broker accepts no messages (%s); retrying until it does", type(error).__name__
            )
        self._told = True
        self._outbox.failed(key, message)
        return False
