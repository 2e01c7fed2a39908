# SPDX-License-Identifier: Apache-2.0
"""The command channel over AMQP: what executors say to agents, and hear from them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from mistral_failover.agent import wire
from mistral_failover.agent.broker import BadUrl, take
from mistral_failover.agent.channel.conversation import Conversation, announce, unreachable
from mistral_failover.agent.channel.interface import (
    ChannelError,
    Command,
    CommandResult,
    Heartbeat,
    Means,
)
from mistral_failover.agent.channel.keys import read_secret
from mistral_failover.agent.channel.links import Away, Link, links_to
from mistral_failover.agent.wire import Address

LOG = logging.getLogger(__name__)

PATIENCE = 15.0
"""Seconds that :meth:`AmqpChannel.depose` and :meth:`AmqpChannel.heard` try to reach the broker."""
BUSY = (0.05, 0.2)
"""Seconds between two looks for a heartbeat: of two who look at once only one gets it."""
AROUND = 8
"""Epochs before the new one whose queues are deleted, and after it that are looked for: one may be
there, and after crashes a few more."""
READ = 32
"""Messages in a queue of the latest heartbeat that are read at most: a broker keeps one, and who
sends faster than they are read must not hold up a fence."""

_T = TypeVar("_T")


class AmqpChannel:
    """Commands over a broker. The URL: see :class:`mistral_failover.agent.broker.Broker`."""

    def __init__(self, url: str, means: Means) -> None:
        """Raises `ChannelError` CONFIG for a URL or a key file that can not be used."""
        try:
            self._links = links_to(url)
        except BadUrl as error:
            raise ChannelError("CONFIG", str(error)) from None
        self._broker = self._links.broker
        self._secret = read_secret(means.key_file)
        self._guard = means.guard

    def run(self, command: Command) -> CommandResult:
        """See `Channel.run`. A broker that does not answer may hold it up for one call more."""
        return Conversation(self._links, self._guard, self._key(command.to), command).outcome()

    def depose(self, to: Address, epoch: int) -> None:
        """See `Channel.depose`."""
        key = self._key(to)

        def depose(link: Link) -> None:
            if announce(self._broker, link, self._guard, to, epoch, key, later=AROUND):
                for former in range(max(0, epoch - AROUND), epoch):
                    self._guard.permit("DELETE")
                    self._broker.delete_queue(link.channel, to.commands(former))

        self._insist(depose, lambda: self._guard.permit("GET"))

    def heard(self, to: Address) -> Heartbeat | None:
        """See `Channel.heard`. ``ago`` is reckoned with the node's clock and ours."""
        for pause in BUSY:
            if heartbeat := self._insist(lambda link: self._latest(link, to), lambda: None):
                return heartbeat
            time.sleep(pause)  # somebody else may just have it in their hands
        return self._insist(lambda link: self._latest(link, to), lambda: None)

    def _latest(self, link: Link, to: Address) -> Heartbeat | None:
        """Take what there is, put the latest back."""
        key = self._key(to)
        queue = self._broker.declare_heartbeats(link.channel, to, bind=True)
        best: tuple[float, Heartbeat, Any] | None = None
        for _ in range(READ):
            if (message := take(link.channel, queue)) is None:
                break
            try:
                at, heartbeat = _heartbeat(message, to, key)
            except wire.Malformed as error:
                LOG.warning("A message that pretends to be of %s: %s", to.member, error)
                message.ack()
                continue
            if best is not None:
                (message if at < best[0] else best[2]).ack()
            if best is None or at >= best[0]:
                best = (at, heartbeat, message)
        if best is not None:
            best[2].requeue()
        return best[1] if best else None

    def _insist(self, use: Callable[[Link], _T], between: Callable[[], object]) -> _T:
        end = time.monotonic() + PATIENCE
        try:
            return self._links.insist(use, lambda: end - time.monotonic(), between)
        except Away as away:
            raise unreachable(away) from None

    def _key(self, to: Address) -> bytes:
        return wire.member_key(wire.group_key(self._secret, to.group_id), to.member)


def _heartbeat(message: Any, to: Address, member_key: bytes) -> tuple[float, Heartbeat]:
    """When a heartbeat left, and what it says. Raises Malformed."""

    def key_for(member: str, epoch: int) -> bytes:
        if member != to.member:
            raise ValueError("of another member")
        return wire.epoch_key(member_key, to.server_id, epoch)

    said = wire.unseal("heartbeat", message.body, message.headers, key_for)
    at, running, deposed = said.get("at"), said.get("running"), said.get("deposed")
    if (
        (said.get("group_id"), said.get("server_id")) != (to.group_id, to.server_id)
        or not wire.is_number(at)
        or not isinstance(running, list)
        or len(running) > wire.MAX_RUNNING
        or not all(wire.is_text(name, wire.MAX_NAME) for name in running)
        or not (deposed is None or wire.is_text(deposed))
    ):
        raise wire.Malformed("MALFORMED", "it is no heartbeat of this server")
    # Of a clock that is ahead nobody knows how old its words are: rather too old than too young.
    ago = abs(time.time() - at)
    return at, Heartbeat(said["epoch"], ago, tuple(running), deposed)
