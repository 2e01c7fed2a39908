# SPDX-License-Identifier: Apache-2.0
"""The connection that receives an agent's messages, re-established until the agent stops."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from mistral_failover.agent.broker import ERRORS, Broker, forget, reading_channel, wait
from mistral_failover.agent.daemon.backoff import Backoff
from mistral_failover.agent.daemon.dispatcher import CommandDispatcher
from mistral_failover.agent.wire import Address
from mistral_failover.defects import defect

LOG = logging.getLogger(__name__)

AT_ONCE = 32
"""Messages of a queue that the broker delivers before the first is acknowledged."""
_IDLE = 0.25  # seconds to wait for an event of the broker
_BUSY = 0.02  # the same while a command waits for its lane
_SLICE = 1.0  # seconds between two signs of life while the broker is unreachable
_SETTLED = 5.0  # seconds after which a connection counts as working


class Intake:
    """Reads the notices, and the commands of the current epoch. ``begin`` starts what can start and
    returns whether commands still wait. ``alive`` is called about every second."""

    def __init__(
        self,
        broker: Broker,
        address: Address,
        dispatcher: CommandDispatcher,
        begin: Callable[[], bool],
        alive: Callable[[], object],
    ) -> None:
        self._broker = broker
        self._address = address
        self._desk = dispatcher
        self._begin = begin
        self._alive = alive

    def run(self, stop: threading.Event) -> None:
        """Connect and read until ``stop``; reconnect after a pause. At the end, hand back what has
        not begun."""
        pauses = Backoff()
        told = False
        while not stop.is_set():
            self._alive()
            began = time.monotonic()
            try:
                connection = self._broker.connect()
                try:
                    LOG.info("The agent reads from %s", self._broker.shown)
                    told = False
                    _ReaderConnection(self._broker, connection, self._address, self._desk).run(
                        stop, self._begin, self._alive
                    )
                finally:
                    self._desk.drop_waiting()
                    if stop.is_set():
                        connection.close()
                    else:
                        forget(connection)
            except ERRORS as error:
                if not told or time.monotonic() - began > _SETTLED:
                    LOG.warning(
                        "The broker %s is not usable (%s); retrying until it is",
                        self._broker.shown,
                        type(error).__name__,
                    )
                told = True
            except Exception as error:
                defect(error, "the agent read messages")
            if stop.is_set():
                return
            if time.monotonic() - began > _SETTLED:
                pauses.reset()
            self._pause(stop, pauses.next())

    def _pause(self, stop: threading.Event, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not stop.wait(min(left, _SLICE)):
            self._alive()


class _Message:
    """A kombu message that may be acknowledged after its channel was closed."""

    def __init__(self, message: Any, is_open: Callable[[], bool]) -> None:
        self.body = message.body
        self.headers = message.headers
        self._message = message
        self._is_open = is_open

    def ack(self) -> None:
        """Acknowledge it; if the channel is closed, the broker has already taken it back."""
        if self._is_open():
            self._message.ack()


class _ReaderConnection:
    """One connection, from its start to its end."""

    def __init__(
        self, broker: Broker, connection: Any, address: Address, dispatcher: CommandDispatcher
    ) -> None:
        self._broker = broker
        self._connection = connection
        self._address = address
        self._desk = dispatcher
        self._arrived: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._commands: Any = None  # the channel over which commands come
        self._closed: list[Any] = []
        self._epoch = -1  # their epoch
        self._look_at = 0.0  # when to look for the queue of commands again
        self._look = Backoff(1.0, 30.0)

    def run(
        self,
        stop: threading.Event,
        begin: Callable[[], bool],
        alive: Callable[[], object],
    ) -> None:
        """Serve until ``stop``. Raises ``broker.ERRORS``."""
        channel = reading_channel(self._connection)
        channel.basic_qos(0, AT_ONCE, False)
        self._consume(channel, self._broker.declare_notices(channel, self._address), self._notice)
        while not stop.is_set():
            alive()
            self._subscribe()
            waiting = begin()
            wait(self._connection, _BUSY if waiting else _IDLE)
            while self._arrived:
                take, message = self._arrived.popleft()
                take(message)

    def _subscribe(self) -> None:
        """Read the commands of the current epoch; the queue may not exist yet."""
        if self._epoch != self._desk.epoch:
            self._leave()
            self._epoch = self._desk.epoch
            self._look.reset()
            self._look_at = 0.0
        if self._commands is not None or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + self._look.next()
        name = self._address.commands(self._epoch)
        if self._broker.queue_exists(self._connection, name):
            self._commands = reading_channel(self._connection)
            self._commands.basic_qos(0, AT_ONCE, False)
            self._consume(self._commands, name, self._desk.take_command)

    def _leave(self) -> None:
        if self._commands is not None:
            channel, self._commands = self._commands, None
            self._closed.append(channel)
            self._connection.maybe_close_channel(channel)

    def _notice(self, message: Any) -> None:
        self._desk.take_notice(message)
        # An executor that sends a notice has just declared the queue of commands.
        self._look_at = 0.0

    def _consume(self, channel: Any, queue: str, take: Callable[[Any], None]) -> None:
        def arrived(raw: Any) -> None:
            message = channel.message_to_python(raw)
            self._arrived.append((take, _Message(message, lambda: channel not in self._closed)))

        channel.basic_consume(
            queue=queue,
            no_ack=False,
            callback=arrived,
            consumer_tag=queue,
            on_cancel=lambda _tag: self._cancelled(channel),
        )

    def _cancelled(self, channel: Any) -> None:
        """The broker deleted a queue that has a consumer."""
        if channel is self._commands:
            # Later, since its channel may not be closed here.
            self._epoch = -1
        else:
            raise ConnectionResetError("the queue of notices was deleted")
