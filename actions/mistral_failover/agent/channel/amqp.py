# SPDX-License-Identifier: Apache-2.0
"""The command channel over AMQP."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from mistral_failover.agent import wire
from mistral_failover.agent.broker import BadUrl, take
from mistral_failover.agent.channel.conversation import (
    EXECUTOR,
    Conversation,
    announce,
    unreachable,
)
from mistral_failover.agent.channel.interface import (
    ChannelContext,
    ChannelError,
    Command,
    CommandResult,
    Heartbeat,
    rehearsal_capability,
)
from mistral_failover.agent.channel.keys import read_secret
from mistral_failover.agent.channel.links import BrokerUnavailable, Link, links_to
from mistral_failover.agent.wire import Address
from mistral_failover.model.text import clean

LOG = logging.getLogger(__name__)

PATIENCE = 15.0
"""Seconds for which :meth:`AmqpChannel.depose` and :meth:`AmqpChannel.heard` try to reach the
broker."""
BUSY = (0.05, 0.2)
"""Seconds between two attempts to read a heartbeat: of two concurrent readers only one gets it."""
AROUND = 8
"""How many epochs before the new one to delete queues of, and how many after it to look for:
usually one, after crashes a few more."""
READ = 32
"""Messages to read at most from a queue of the latest heartbeat. A broker keeps one; a sender that
is faster than this reader must not delay a fence."""

_T = TypeVar("_T")


class AmqpChannel:
    """Commands over a broker. For the URL see :class:`mistral_failover.agent.broker.Broker`."""

    def __init__(self, url: str, context: ChannelContext) -> None:
        """Raises `ChannelError` CONFIG for an unusable URL or key file."""
        try:
            self._links = links_to(url)
        except BadUrl as error:
            raise ChannelError("CONFIG", str(error)) from None
        self._broker = self._links.broker
        self._secret = read_secret(context.key_file)
        self._guard = context.guard

    def run(self, command: Command) -> CommandResult:
        """See `Channel.run`. A broker that does not answer may delay it by one more call."""
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
        """See `Channel.heard`. ``ago`` is computed from the agent's clock and ours."""
        for pause in BUSY:
            if heartbeat := self._insist(lambda link: self._latest(link, to), lambda: None):
                return heartbeat
            time.sleep(pause)  # another reader may hold it right now
        return self._insist(lambda link: self._latest(link, to), lambda: None)

    def _latest(self, link: Link, to: Address) -> Heartbeat | None:
        """Take all messages and put the latest back."""
        key = self._key(to)
        queue = self._broker.declare_heartbeats(link.channel, to, bind=True)
        best: tuple[float, Heartbeat, Any] | None = None
        for _ in range(READ):
            if (message := take(link.channel, queue)) is None:
                break
            try:
                at, heartbeat = _heartbeat(message, to, key)
            except wire.Malformed as error:
                LOG.warning("Ignored a message that claims to be from %s: %s", to.member, error)
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
        except BrokerUnavailable as away:
            raise unreachable(away) from None

    def _key(self, to: Address) -> bytes:
        return wire.member_key(wire.group_key(self._secret, to.group_id), to.member)


def _heartbeat(message: Any, to: Address, member_key: bytes) -> tuple[float, Heartbeat]:
    """Return when a heartbeat left, and its content. Raises Malformed."""

    def key_for(member: str, epoch: int) -> bytes:
        if member != to.member:
            raise ValueError("of another member")
        return wire.epoch_key(member_key, to.server_id, epoch)

    said = wire.unseal("heartbeat", message.body, message.headers, key_for)
    at, running, deposed = said.get("at"), said.get("running"), said.get("deposed")
    commands, stopping = said.get("commands"), said.get("stopping")
    not_ready, boot, in_effect = said.get("not_ready"), said.get("boot"), said.get("in_effect", [])
    ended = said.get("ended", [])
    if (said.get("group_id"), said.get("server_id")) != (
        to.group_id,
        to.server_id,
    ) or not wire.is_number(at):
        raise wire.Malformed("MALFORMED", "it is not a heartbeat of this server")
    # If the agent's clock is ahead, the age of its messages is unknown: assume that they are old.
    ago = abs(time.time() - at)
    why = wire.not_understood(said, f"the agent of {to.member}", EXECUTOR)
    if why is not None:  # what it runs is not known, so it may be anything
        return at, Heartbeat(said["epoch"], ago, (), None, None, stopping=True, not_ready=why)
    if (
        not isinstance(running, list)
        or len(running) > wire.MAX_RUNNING
        or not all(wire.is_text(name, wire.MAX_NAME) for name in running)
        or not (deposed is None or wire.is_text(deposed))
        or not (commands is None or wire.are_names(commands))
        or not isinstance(stopping, bool)
        or not (not_ready is None or wire.is_text(not_ready, wire.MAX_REASON))
        or not wire.is_boot(boot)
        or not wire.are_names(in_effect)
        or not (wire.are_names(ended) and len(ended) <= wire.MAX_RUNNING)
    ):
        raise wire.Malformed("MALFORMED", "it is not a heartbeat of this server")
    known = None if commands is None else frozenset(map(clean, commands))
    told = None if deposed is None else clean(deposed)
    why_not = None if not_ready is None else clean(not_ready)
    names = tuple(map(clean, running))
    done = tuple(map(clean, in_effect))
    able = rehearsal_capability(said.get("rehearsals"))
    return at, Heartbeat(
        *(said["epoch"], ago, names, told, known, stopping, why_not, boot, done),
        able,
        frozenset(ended),
    )
