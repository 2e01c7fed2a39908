# SPDX-License-Identifier: Apache-2.0
"""The command channel: how a named command reaches a member's agent and its result comes back.

What a command does is the agent's: it runs what its own allow-list has under the name, journals
the command's id before and after, answers a known id with the recorded result, and refuses an
epoch other than its own. So sending a command again is harmless.

The URL's scheme names the driver; each driver is a module of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol
from urllib.parse import urlsplit

from keystoneauth1.session import Session

from mistral_failover.agent.wire import Address
from mistral_failover.cloud.guard import Guard

# Scheme -> "module:class"; a class is called with (url, means).
_AMQP = "mistral_failover.agent.channel.amqp:AmqpChannel"
DRIVERS = {
    "amqp": _AMQP,
    "amqps": _AMQP,
    "emulator+http": "mistral_failover.agent.channel.emulated:EmulatedChannel",
    # Of kombu, for drills and tests: within one process, and between processes of one machine.
    "filesystem": _AMQP,
    "memory": _AMQP,
}

REMEDIES = {
    "NO_ANSWER": "Find out whether the node still runs, and mend its agent. Only if it is lost, "
    "have it fenced: failover start GROUP --lost MEMBER",
    "OLD_EPOCH": "Nothing to do: the member was fenced or replaced since this command was decided.",
    "REFUSED": "Put the command on the member's allow-list, or correct its name in the group file.",
    "UNKNOWN_OUTCOME": "Look on the node whether the command took effect, say so there with "
    "failover-agent settle, then take the operation up: failover start GROUP",
    "UNREACHABLE": "Check [failover] command_channel and that the channel's service runs.",
    "CONFIG": "Correct [failover] command_channel.",
}


@dataclass(frozen=True, slots=True)
class Command:
    """A named command for one member.

    ``id``: the operation's key, the same at every repeat. ``epoch``: the member's when this was
    decided. ``arguments``: JSON values for the allow-list's entry. ``limit``: seconds to wait for
    a word of the agent's; it says at once that it has the command, and again and again that it
    still runs. ``longest``: seconds to wait for the result of one that says so; at least the limit.
    """

    id: str
    to: Address
    epoch: int
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    limit: float = 30.0
    longest: float = 0.0

    @property
    def patience(self) -> float:
        """Seconds to wait for the result at most."""
        return max(self.limit, self.longest)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What the agent recorded: also a failed command (``exit_code`` not 0) is a result.

    ``replayed``: the result came from the journal, this request did not run anything.
    """

    id: str
    exit_code: int
    stdout: str
    stderr: str
    replayed: bool


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The last that an agent said by itself.

    ``ago``: seconds since. ``running``: names of the commands that it was carrying out.
    ``deposed``: None, or what came of its ``on_deposed`` command since it learned that it was.
    """

    epoch: int
    ago: float
    running: tuple[str, ...]
    deposed: str | None


BROKER = "the broker"
"""What people call the service behind the channel."""


class ChannelError(Exception):
    """There is no result.

    ``code``: NO_ANSWER (within the limit; the command may have run), OLD_EPOCH, REFUSED (it has
    not run), UNKNOWN_OUTCOME (the agent can not tell whether it has), UNREACHABLE (the channel,
    not the member, could not be reached), CONFIG. ``heard``: what the agent said meanwhile, in
    words; empty where it said nothing.

    ``transient``, ``service``, ``detail``, ``unknown``: as of a `CloudError`. UNREACHABLE is
    transient, and NO_ANSWER where a ``detail`` says that the channel broke; that a member does not
    answer over a channel that is well is a fact about the member.
    """

    def __init__(
        self,
        code: str,
        message: str,
        remedy: str | None = None,
        *,
        heard: str = "",
        detail: str = "",
        unknown: bool = False,
    ) -> None:
        self.code = code
        self.message = message
        self.remedy = REMEDIES.get(code, "") if remedy is None else remedy
        self.heard = heard
        self.unknown = unknown
        self.transient = code == "UNREACHABLE" or bool(detail)
        self.service = BROKER if self.transient else ""
        self.detail = (detail or "it can not be used") if self.transient else ""
        super().__init__(f"{code}: {message}")


@dataclass(frozen=True)
class Means:
    """What a driver is given beside its URL.

    ``session``: carries the rights of the request, for drivers that authenticate with Keystone; its
    calls pass the guard by themselves. ``guard``: says, right before something is sent, whether it
    may still be. ``key_file``: path of the secret that the members' keys follow from.
    """

    session: Session
    guard: Guard
    key_file: str | None = None


class Channel(Protocol):
    """A driver of the command channel; safe to use from several threads."""

    def run(self, command: Command) -> CommandResult:
        """Send the command and wait for its result, at most ``command.patience`` seconds.

        Raises `ChannelError`; LeaseLost once the guard permits no more.
        """
        ...

    def depose(self, to: Address, epoch: int) -> None:
        """Make the commands of epochs before ``epoch`` void: their queues go, and the agent, when
        it can be reached again, learns that it was deposed. Harmless when repeated.

        Raises `ChannelError` UNREACHABLE, CONFIG; LeaseLost.
        """
        ...

    def heard(self, to: Address) -> Heartbeat | None:
        """What the member's agent last said by itself; None when nothing is known.

        Raises `ChannelError` UNREACHABLE, CONFIG.
        """
        ...


def channel_for(url: str | None, means: Means) -> Channel:
    """Return the channel of a URL, such as ``amqps://user:secret@broker.example.org/failover``.

    Raises `ChannelError` CONFIG for a missing URL or an unknown scheme, and where the driver needs
    what it is not given.
    """
    if not url:
        raise ChannelError("CONFIG", "No command channel is configured.")
    scheme = urlsplit(url).scheme
    if scheme not in DRIVERS:
        raise ChannelError(
            "CONFIG",
            f"The command channel's scheme {scheme!r} is unknown; known: {', '.join(DRIVERS)}.",
        )
    module, _, name = DRIVERS[scheme].partition(":")
    channel: Channel = getattr(import_module(module), name)(url, means)
    return channel
