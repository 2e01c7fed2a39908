# SPDX-License-Identifier: Apache-2.0
"""The connection that sends what waits in an agent's outbox."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from kombu.exceptions import ChannelError

from mistral_failover.agent.broker import ERRORS, Broker, forget, wait
from mistral_failover.agent.daemon.backoff import Backoff
from mistral_failover.agent.daemon.outbox import Message, Outbox
from mistral_failover.agent.wire import HEARTBEATS, Address
from mistral_failover.defects import defect
from mistral_failover.fault_points import reach

LOG = logging.getLogger(__name__)
ALIVE = 4.0
"""Seconds after which an idle connection is serviced."""
SHORTEST = 0.5
"""Minimum seconds between two attempts."""


class PublisherConnection:
    """One connection for several threads, one call at a time; it is made when needed and remade
    after a failure."""

    def __init__(self, broker: Broker, address: Address) -> None:
        self._broker = broker
        self._address = address
        self._lock = threading.Lock()
        self._connection: Any = None
        self._channel: Any = None

    def exists(self, queue: str) -> bool | None:
        """Ask the broker whether a queue exists; None: it does not answer."""
        try:
            return bool(self._use(lambda: self._broker.queue_exists(self._connection, queue)))
        except ERRORS as error:
            LOG.warning("The broker does not tell whether %s exists: %s", queue, error)
            return None

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
