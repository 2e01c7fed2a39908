# SPDX-License-Identifier: Apache-2.0
"""Connections to a broker, reused by one conversation after another.

A connection serves one conversation at a time. It is kept for the next one only if nothing failed,
and only for so short a time that the broker cannot have closed it; so idle connections need no
heartbeats.
"""

from __future__ import annotations

import logging
import os
import secrets
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from amqp.exceptions import AccessRefused, NotAllowed, PreconditionFailed
from kombu.connection import Connection
from kombu.entity import Queue
from kombu.messaging import Consumer

from mistral_failover.agent.broker import ERRORS, HEARTBEAT, Broker, forget, reading_channel, wait
from mistral_failover.agent.wire import RESULTS
from mistral_failover.cloud.errors import cause

LOG = logging.getLogger(__name__)

IDLE = HEARTBEAT / 2
"""Seconds that a connection may be idle and used again."""
KEPT = 8
"""Idle connections that a process keeps at most."""
ANSWERS = 64
"""Results that wait to be read, here and at the broker; the latest are kept. An agent sends one
every second or two; a sender of more floods the queue."""
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0

# Login, virtual host or permission; a queue or exchange that was declared otherwise.
REFUSALS = (AccessRefused, NotAllowed, PreconditionFailed)

_T = TypeVar("_T")


class BrokerUnavailable(Exception):
    """The broker was not usable in time. ``refused``: it answers, but refuses us. ``detail``: why,
    in a few words."""

    def __init__(self, shown: str, reason: BaseException) -> None:
        self.refused = isinstance(reason, REFUSALS) or isinstance(
            reason.__cause__, ssl.SSLCertVerificationError
        )
        self.detail = cause(reason)[0]
        said = str(reason).splitlines() or [type(reason).__name__]
        super().__init__(f"The broker {shown} is not usable: {said[0][:200].rstrip('.')}.")


@dataclass
class Link:
    """A connection with one channel, on which the exchanges are declared, and a queue whose
    messages go to ``answers``; :meth:`listen` selects them. ``broken``: do not use it again."""

    connection: Connection
    channel: Any
    queue: str
    answers: deque[Any] = field(default_factory=lambda: deque(maxlen=ANSWERS))
    since: float = 0.0
    broken: bool = False

    @contextmanager
    def listen(self, routing_key: str) -> Iterator[None]:
        """Collect the results with this routing key."""
        binding = {"queue": self.queue, "exchange": RESULTS, "routing_key": routing_key}
        self.answers.clear()
        self.channel.queue_bind(**binding)
        yield
        try:
            self.channel.queue_unbind(**binding)
        except ERRORS:  # the conversation itself has succeeded
            self.broken = True


class Links:
    """The connections of this process to one broker; safe to use from several threads."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._lock = threading.Lock()
        self._idle: list[Link] = []

    @contextmanager
    def link(self, seconds: float) -> Iterator[Link]:
        """Yield a connection, established within about ``seconds``. It is not used again after an
        exception. Raises ``broker.ERRORS``."""
        link = self._take() or self._open(seconds)
        try:
            yield link
        except BaseException:
            self._drop(link)
            raise
        if link.broken:
            self._drop(link)
        else:
            self._keep(link)

    def insist(
        self, use: Callable[[Link], _T], left: Callable[[], float], between: Callable[[], object]
    ) -> _T:
        """Call ``use`` with a connection, and again with another one if the broker failed it, until
        ``left`` returns no seconds. ``between``: called before every repeat; an exception from it
        ends the attempts. Raises `BrokerUnavailable`, and whatever else ``use`` raises.

        A refusal is tried again as well: a broker that is starting refuses what it will accept. If
        there was one, it is the reason, even if the last attempt ended otherwise."""
        pause = FIRST_PAUSE
        refusal: BaseException | None = None
        while True:
            begun = time.monotonic()
            try:
                with self.link(max(0.1, left())) as link:
                    return use(link)
            except ERRORS as error:
                LOG.info("The broker %s failed: %s", self.broker.shown, type(error).__name__)
                if isinstance(error, REFUSALS):
                    refusal = error
                seconds = left()
                if seconds <= 0:
                    raise BrokerUnavailable(self.broker.shown, refusal or error) from None
            if time.monotonic() - begun > LONGEST_PAUSE:  # it had worked for a while
                pause = FIRST_PAUSE
            time.sleep(min(pause, seconds))
            pause = min(pause * 2, LONGEST_PAUSE)
            between()

    def _take(self) -> Link | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                link = self._idle.pop()
            if self._usable(link):
                return link
            self._drop(link)

    def _open(self, seconds: float) -> Link:
        connection = self.broker.connect(seconds)
        try:
            channel = reading_channel(connection)
            self.broker.declare_exchanges(channel)
            link = Link(connection, channel, f"failover.replies.{secrets.token_hex(8)}")
            self.broker.declare_replies(channel, link.queue, ANSWERS)
            Consumer(
                channel,
                queues=[Queue(link.queue, no_declare=True)],
                auto_declare=False,
                no_ack=True,
                on_message=link.answers.append,
                tag_prefix="failover",
            ).consume()
        except BaseException:
            forget(connection)
            raise
        return link

    def _drop(self, link: Link) -> None:
        if not self.broker.real:  # a real broker notices by itself that its client is gone
            with suppress(*ERRORS):
                self.broker.delete_queue(link.channel, link.queue)
        forget(link.connection)

    def _keep(self, link: Link) -> None:
        link.since = time.monotonic()
        with self._lock:
            self._idle.append(link)
            late = link.since - IDLE
            gone = [one for one in self._idle if one.since < late] or self._idle[:-KEPT]
            self._idle = [one for one in self._idle if one not in gone]
        for one in gone:
            self._drop(one)

    @staticmethod
    def _usable(link: Link) -> bool:
        if time.monotonic() - link.since > IDLE or not link.connection.connected:
            return False
        try:
            for _ in range(ANSWERS):  # process what the broker sent in the meantime, maybe a close
                if not wait(link.connection, 0.0):
                    return True
        except ERRORS:
            pass
        return False  # it is broken or does not stop sending


def links_to(url: str) -> Links:
    """The connections to the broker of a URL. Raises ``broker.BadUrl``."""
    return _links(url, os.getpid())


@lru_cache(maxsize=16)
def _links(url: str, pid: int) -> Links:  # noqa: ARG001 - a forked process must not share them
    return Links(Broker(url))
