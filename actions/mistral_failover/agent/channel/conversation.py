# SPDX-License-Identifier: Apache-2.0
"""One command's conversation with its agent over the broker: sending, progress, result.

If the broker fails, the command is at worst sent again under the same id, which the agent's journal
makes harmless. The queue of an epoch's commands is declared only for the first sending, and not if
a later epoch's queue exists: a deposed epoch does not come back.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from typing import Any

from mistral_failover.agent import wire
from mistral_failover.agent.broker import CALL, Broker, Unroutable, wait
from mistral_failover.agent.channel.interface import ChannelError, Command, CommandResult
from mistral_failover.agent.channel.links import BrokerUnavailable, Link, Links
from mistral_failover.agent.wire import Address
from mistral_failover.cloud.transport import Guard
from mistral_failover.fault_points import reach
from mistral_failover.model.text import clean

LOG = logging.getLogger(__name__)

LOOK = 1.0
"""Seconds between two checks by the guard that the lease is still valid."""
LATER = 2
"""Epochs beyond a command's own to look for. A member is rarely fenced or replaced more often than
this between the decision to send a command and its sending."""
AGAIN = 10.0
"""Seconds at most without a message from the agent before a command is sent again."""
_REFUSALS = (
    "OLD_EPOCH",
    "REFUSED",
    wire.UNKNOWN_COMMAND,
    wire.NOT_REHEARSABLE,
    wire.REHEARSAL_ENDED,
    wire.REHEARSAL_RUNNING,
)
EXECUTOR = "the executor of Mistral"
"""What this side is called in messages."""
STRANGE = 32
"""Messages from other senders that one conversation logs at most."""


class Conversation:
    """One call of `Channel.run`. ``member_key``: the key of the command's member."""

    def __init__(self, links: Links, guard: Guard, member_key: bytes, command: Command) -> None:
        self._links = links
        self._broker = links.broker
        self._guard = guard
        self._member_key = member_key
        self._command = command
        self._key = wire.epoch_key(member_key, command.to.server_id, command.epoch)
        self._reply_to = secrets.token_hex(16)  # a sender without the key cannot take part
        self._again = max(LOOK, min(AGAIN, command.limit / 3))
        self._begun = self._word = time.monotonic()
        self._said = ""  # the agent's last message
        self._strange = 0  # messages from other senders
        self._sent = False  # the broker may have the command
        self._void = False  # the queue of the epoch's commands is gone

    def outcome(self) -> CommandResult:
        """Return the result. Raises what `Channel.run` does."""
        self._seal()  # refuse an unsendable command before anything else
        try:
            outcome = self._links.insist(self._talk, self._left, lambda: self._guard.permit("GET"))
        except BrokerUnavailable as away:
            outcome = self._silence(away)
        if isinstance(outcome, ChannelError):
            raise outcome
        return outcome

    def _left(self) -> float:
        """Seconds that the next message may still take."""
        end = min(self._word + self._command.limit, self._begun + self._command.patience)
        return end - time.monotonic()

    # -- over one connection

    def _talk(self, link: Link) -> CommandResult | ChannelError:
        with link.listen(self._reply_to):
            return self._send(link) or self._wait(link)

    def _send(self, link: Link) -> ChannelError | None:
        command, first = self._command, not self._sent
        if first:
            self._broker.declare_heartbeats(link.channel, command.to, bind=True)
            if not announce(
                self._broker,
                link,
                self._guard,
                command.to,
                command.epoch,
                self._member_key,
                later=LATER,
            ):
                return self._deposed()
        if self._left() <= 0:
            return self._silence(None)
        permitted = self._guard.permit("POST")
        self._sent = True
        try:
            self._broker.publish(
                link.channel,
                wire.COMMANDS,
                command.to.commands(command.epoch),
                self._seal(),
                mandatory=True,
                expiration=max(0.1, self._left()),
                timeout=min(CALL, permitted),
            )
        except Unroutable:
            if first:  # it existed a moment ago
                self._sent = False
                return self._deposed()
            self._void = True
            return None
        reach("command.published")
        return None

    def _wait(self, link: Link) -> CommandResult | ChannelError:
        looked = sent = time.monotonic()
        overdue: float | None = None  # when there was nothing left to wait for
        while True:
            while (
                link.answers
            ):  # before the first wait, too: a message may have come while we published
                outcome = self._hear(link.answers.popleft())
                if outcome is not None:
                    return outcome
            now = time.monotonic()
            if self._left() > 0:
                overdue = None
            elif overdue is None:
                overdue = now
            elif now - overdue >= LOOK:  # a sender of invalid messages counts as silent
                return self._silence(None)
            came = wait(link.connection, max(0.0, min(LOOK, self._left())))
            # A message that has arrived counts, even if this process read it too late.
            if not came and not link.answers and self._left() <= 0:
                return self._silence(None)
            now = time.monotonic()
            if now - looked >= LOOK:
                self._guard.permit("GET")
                looked = now
            if now - max(sent, self._word) >= self._again and not self._void:
                self._send(link)
                sent = now

    # -- documents

    def _seal(self) -> tuple[bytes, dict[str, Any]]:
        command = self._command
        document = {
            "id": command.id,
            "group_id": command.to.group_id,
            "member": command.to.member,
            "server_id": command.to.server_id,
            "epoch": command.epoch,
            "name": wire.name_sent(command.name, command.rehearsal),
            "arguments": command.arguments,
            "limit": max(0.1, self._left()),
            "longest": max(0.1, self._begun + command.patience - time.monotonic()),
            "sent_at": time.time(),
            "reply_to": self._reply_to,
        }
        if command.rehearsal is not None:
            document["rehearsal"] = command.rehearsal
        try:
            return wire.seal("command", document, self._key)
        except wire.Malformed as error:
            raise ChannelError(
                "REFUSED",
                f"The arguments of {command.name} are too long for the channel: {error}.",
                "Pass shorter arguments, or the place where the command finds the data.",
            ) from None
        except (ValueError, TypeError):
            raise ChannelError(
                "REFUSED",
                f"The arguments of {command.name} cannot be sent: they are not valid JSON.",
                "Correct them in the group file.",
            ) from None

    def _hear(self, message: Any) -> CommandResult | ChannelError | None:
        """Return how a message ends the conversation; None if the conversation continues."""
        to = self._command.to
        try:
            said = wire.unseal("result", message.body, message.headers, self._key_for)
            if [said.get("id"), said.get("group_id"), said.get("server_id")] != [
                self._command.id,
                to.group_id,
                to.server_id,
            ]:
                raise wire.Malformed("MALFORMED", "it belongs to another command")
            outcome = self._understand(said)
        except wire.Malformed as error:
            self._strange += 1
            if self._strange <= STRANGE:
                LOG.warning(
                    "Ignored a message that claims to be a result of %s: %s", to.member, error
                )
            return None
        self._word = time.monotonic()
        return outcome

    def _key_for(self, member: str, epoch: int) -> bytes:
        if (member, epoch) != (self._command.to.member, self._command.epoch):
            raise ValueError("of another member or epoch")
        return self._key

    def _understand(self, said: dict[str, Any]) -> CommandResult | ChannelError | None:
        state, name = said.get("state"), self._command.name
        why = wire.not_understood(said, f"the agent of {self._command.to.member}", EXECUTOR)
        if why is not None and state != "refused":
            return ChannelError("UNKNOWN_OUTCOME", f"The agent's answer is not understood: {why}.")
        if state == "accepted":
            self._said = f"it had received {name}"
            return None
        if state == "running":
            seconds = _field(said, "seconds", wire.is_number)
            self._said = f"{name} had been running for {seconds:.0f} s"
            return None
        if state == "done":
            return CommandResult(
                id=self._command.id,
                exit_code=_field(said, "exit_code", wire.is_exit_code),
                stdout=clean(_field(said, "stdout", wire.is_text)),
                stderr=clean(_field(said, "stderr", wire.is_text)),
                replayed=_field(said, "replayed", _is_flag),
                boot=_field(said, "boot", wire.is_boot),
            )
        if state == "refused" and said.get("code") in _REFUSALS:
            return ChannelError(said["code"], clean(_field(said, "message", wire.is_text)[:500]))
        if state == "unknown":
            return ChannelError(
                "UNKNOWN_OUTCOME", clean(_field(said, "message", wire.is_text)[:500])
            )
        raise wire.Malformed("MALFORMED", "its state is missing")

    def _deposed(self) -> ChannelError:
        to, epoch = self._command.to, self._command.epoch
        return ChannelError(
            "OLD_EPOCH", f"Nothing was sent: epoch {epoch} of member {to.member} has ended."
        )

    def _silence(self, away: BrokerUnavailable | None) -> ChannelError:
        """Return the error for the end of the waiting time."""
        command = self._command
        who = f"Member {command.to.member} (server {command.to.server_id})"
        if not self._sent:
            return unreachable(away, f"{who} did not receive {command.name} in time.")
        if not self._said:
            message = f"{who} did not answer {command.name} within {command.limit:g} s."
        elif time.monotonic() - self._begun >= command.patience:
            message = f"{who} did not complete {command.name} within {command.patience:g} s."
        else:
            message = f"{who} sent no further message about {command.name} for {command.limit:g} s."
        detail = ""
        if away is not None:
            message, detail = f"{message} {away}", away.detail
        ago = time.monotonic() - self._word
        heard = f"it said {ago:.0f} s ago that {self._said}" if self._said else ""
        return ChannelError("NO_ANSWER", message, heard=heard, detail=detail)


def announce(
    broker: Broker,
    link: Link,
    guard: Guard,
    to: Address,
    epoch: int,
    member_key: bytes,
    *,
    later: int,
) -> bool:
    """Declare the queues of a server's epoch and notify its agent that this epoch is current. Do
    nothing and return False if the queue of one of the ``later`` following epochs exists.

    A process that deposes a member declares the later queue before it deletes the former one; this
    function looks for the later queue after its own declaration. So in any interleaving no queue of
    a deposed epoch remains. Raises ``broker.ERRORS``, LeaseLost.
    """
    channel = link.channel
    broker.declare_notices(channel, to, bind=True)
    guard.permit("POST")
    queue = broker.declare_commands(channel, to, epoch)
    for other in range(epoch + 1, epoch + 1 + later):
        if broker.queue_exists(link.connection, to.commands(other)):
            broker.delete_queue(channel, queue)
            return False
    notice = {
        "member": to.member,
        "epoch": epoch,
        "group_id": to.group_id,
        "server_id": to.server_id,
        "sent_at": time.time(),
    }
    sealed = wire.seal("notice", notice, wire.server_key(member_key, to.server_id))
    permitted = guard.permit("POST")
    broker.publish(channel, wire.COMMANDS, to.notices, sealed, timeout=min(CALL, permitted))
    reach("notice.published")
    return True


def unreachable(away: BrokerUnavailable | None, message: str = "") -> ChannelError:
    """The channel is unusable, and nothing was sent."""
    said = " ".join(filter(None, [message, str(away or "")]))
    if away is None or not away.refused:
        return ChannelError("UNREACHABLE", said, detail=away.detail if away else "no answer")
    return ChannelError(
        "CONFIG",
        said,
        "Correct [failover] command_channel, or the permissions of its user on the broker "
        "(docs/broker.md).",
    )


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _field(document: dict[str, Any], name: str, is_such: Callable[[Any], bool]) -> Any:
    value = document.get(name)
    if not is_such(value):
        raise wire.Malformed("MALFORMED", f"its {name} is not valid")
    return value
