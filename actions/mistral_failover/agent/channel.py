# SPDX-License-Identifier: Apache-2.0
"""The command channel: how a named command reaches a member's agent and its result comes back.

What a command does is the agent's: it runs what its own allow-list has under the name, journals
the command's id before and after, answers a known id with the recorded result, and refuses an
epoch older than the newest it has seen. So sending a command again is harmless.

The URL's scheme names the driver; each driver is a module of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol
from urllib.parse import urlsplit

from keystoneauth1.session import Session

# Scheme -> "module:class"; a class is called with (url, session=session).
DRIVERS = {"emulator+http": "mistral_failover.agent.emulated:EmulatedChannel"}

REMEDIES = {
    "NO_ANSWER": "Find out whether the node still runs. As long as that is open, fence it before "
    "another member takes its role.",
    "OLD_EPOCH": "Nothing to do: the member was fenced or replaced since this command was decided.",
    "REFUSED": "Put the command on the member's allow-list, or correct its name in the group file.",
    "UNREACHABLE": "Check [failover] command_channel and that the channel's service runs.",
    "CONFIG": "Correct [failover] command_channel.",
}


@dataclass(frozen=True, slots=True)
class Command:
    """A named command for one member.

    ``id``: the operation's key, the same at every repeat. ``member`` is the member's name in the
    group, ``server_id`` its server in Nova, ``epoch`` the member's epoch when this was decided.
    ``arguments``: JSON values for the allow-list's entry. ``limit``: seconds to wait for the
    result; the command itself may go on after that.
    """

    id: str
    group: str
    member: str
    server_id: str
    epoch: int
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    limit: float = 30.0


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


class ChannelError(Exception):
    """There is no result.

    ``code``: NO_ANSWER (within the limit; the command may have run), OLD_EPOCH, REFUSED (it has
    not run), UNREACHABLE (the channel, not the member, could not be reached), CONFIG.
    """

    def __init__(self, code: str, message: str, remedy: str | None = None) -> None:
        self.code = code
        self.message = message
        self.remedy = REMEDIES.get(code, "") if remedy is None else remedy
        super().__init__(f"{code}: {message}")


class Channel(Protocol):
    """A driver of the command channel; safe to use from several threads."""

    def run(self, command: Command) -> CommandResult:
        """Send the command and wait for its result, at most ``command.limit`` seconds.

        Raises `ChannelError`.
        """
        ...


def channel_for(url: str | None, *, session: Session) -> Channel:
    """Return the channel of a URL, such as ``emulator+http://127.0.0.1:8774``.

    ``session`` carries the rights of the request, for drivers that authenticate with Keystone.
    Raises `ChannelError` CONFIG for a missing URL or an unknown scheme.
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
    channel: Channel = getattr(import_module(module), name)(url, session=session)
    return channel
