# SPDX-License-Identifier: Apache-2.0
"""The command channel: it sends a named command to a member's agent and returns the result.

The agent defines what a command does: it runs the entry of that name in its own allow-list,
journals the command's id before and after, answers a known id with the recorded result, and refuses
an epoch other than its own. So sending a command again is harmless.

The URL's scheme names the driver; each driver is a module of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol
from urllib.parse import urlsplit

from keystoneauth1.session import Session

from mistral_failover.agent.wire import (
    END_REHEARSAL,
    MAX_NAME,
    MAX_REASON,
    Address,
    Malformed,
    are_names,
    is_text,
)
from mistral_failover.cloud.transport import Guard
from mistral_failover.model.remedies import Need
from mistral_failover.model.text import clean

__all__ = ["END_REHEARSAL"]

# Scheme -> "module:class"; a class is called with (url, context).
_AMQP = "mistral_failover.agent.channel.amqp:AmqpChannel"
DRIVERS = {
    "amqp": _AMQP,
    "amqps": _AMQP,
    "emulator+http": "mistral_failover.agent.channel.emulated:EmulatedChannel",
    # Transports of kombu for drills and tests: within one process, and between processes of one
    # machine.
    "filesystem": _AMQP,
    "memory": _AMQP,
}

REMEDIES = {
    "NO_ANSWER": (
        "Check that the server runs, and repair its agent. Only if the server is lost, have it "
        "fenced: failover start GROUP --lost MEMBER"
    ),
    "NOT_REHEARSABLE": (
        "Give the command a rehearse in the agent's file on the member, or change there what the "
        "message says; see docs/agent.md"
    ),
    "OLD_EPOCH": "Nothing to do: the member was fenced or replaced after this command was decided.",
    "REHEARSAL_ENDED": "Nothing to do. To rehearse again, start another rehearsal.",
    "REHEARSAL_RUNNING": "Wait until the other rehearsal has ended, then start this one again.",
    "REFUSED": "Correct what the message says, on the member or in the group file.",
    "UNKNOWN_COMMAND": (
        "Put the command on the member's allow-list, or correct its name in the group file."
    ),
    "UNKNOWN_OUTCOME": (
        "Check on the server whether the command took effect, record it there with failover-agent "
        "settle, then continue the operation: failover start GROUP"
    ),
    "UNREACHABLE": "Check [failover] command_channel and that the channel's service is running.",
    "CONFIG": "Correct [failover] command_channel.",
}


@dataclass(frozen=True, slots=True)
class Command:
    """A named command for one member.

    ``id``: the operation's key, the same for every repeat. ``epoch``: the member's when this was
    decided. ``arguments``: JSON values for the allow-list's entry. ``limit``: seconds to wait for a
    message of the agent; the agent acknowledges the command at once and then reports regularly that
    it still runs. ``longest``: seconds to wait for the result while the agent sends such reports;
    at least the limit. ``rehearsal``: the id of the rehearsal in whose isolation the agent runs it;
    None: it is a real command, before which the agent ends any rehearsal. END_REHEARSAL with an id
    ends that one, and returns once nothing is left of it.
    """

    id: str
    to: Address
    epoch: int
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    limit: float = 30.0
    longest: float = 0.0
    rehearsal: str | None = None

    @property
    def patience(self) -> float:
        """Seconds to wait for the result at most."""
        return max(self.limit, self.longest)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What the agent recorded: a failed command (``exit_code`` not 0) is a result, too.

    ``replayed``: the result came from the journal; this request did not run anything. ``boot``:
    the identity of the server's boot on which the command took effect; None if it is not known.
    """

    id: str
    exit_code: int
    stdout: str
    stderr: str
    replayed: bool
    boot: str | None = None


@dataclass(frozen=True, slots=True)
class RehearsalCapability:
    """What an agent can rehearse.

    ``not_isolated``: why it cannot isolate a rehearsal, in words; None if it can. ``unlimited``:
    why a rehearsal's memory and CPU are not limited, in words; None if they are. ``commands``: the
    names of the commands that may be rehearsed; None if they are too long for a heartbeat.
    ``current``: the id of the rehearsal that runs; None if there is none.
    """

    not_isolated: str | None
    unlimited: str | None
    commands: frozenset[str] | None
    current: str | None


def rehearsal_capability(said: Any) -> RehearsalCapability | None:
    """Return what a heartbeat says of rehearsals; None: it is of an agent that does not know them.
    Raises Malformed."""
    if said is None:
        return None
    if not isinstance(said, dict):
        raise Malformed("MALFORMED", "its rehearsals are not valid")
    isolation, limits = said.get("isolation"), said.get("limits")
    commands, current = said.get("commands"), said.get("current")
    if (
        not all(value is True or is_text(value, MAX_REASON) for value in (isolation, limits))
        or not (commands is None or are_names(commands))
        or not (current is None or is_text(current, MAX_NAME))
    ):
        raise Malformed("MALFORMED", "its rehearsals are not valid")
    return RehearsalCapability(
        not_isolated=None if isolation is True else clean(str(isolation)),
        unlimited=None if limits is True else clean(str(limits)),
        commands=None if commands is None else frozenset(map(clean, commands)),
        current=None if current is None else clean(current),
    )


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The latest heartbeat of an agent.

    ``ago``: its age in seconds. ``running``: names of the commands that the agent was carrying out.
    ``deposed``: None, or the outcome of its ``on_deposed`` command after it learned that it was
    deposed. ``commands``: the names on its allow-list; None if they are too long for a heartbeat.
    ``stopping``: whether something of an earlier epoch may still run. ``not_ready``: why the agent
    can carry out no command, in words; None if it can. ``boot``: the identity of the server's
    present boot; None if the agent does not report it. ``in_effect``: the names of commands that
    succeeded on this boot, or of which their check finds that they are in effect, the latest last.
    ``rehearsals``: what it can rehearse; None if it does not say. ``ended``: the ids of commands
    whose check found them in effect, and then that what they started does not run any more.
    """

    epoch: int
    ago: float
    running: tuple[str, ...]
    deposed: str | None
    commands: frozenset[str] | None = None
    stopping: bool = False
    not_ready: str | None = None
    boot: str | None = None
    in_effect: tuple[str, ...] = ()
    rehearsals: RehearsalCapability | None = None
    ended: frozenset[str] = frozenset()


BROKER = "the broker"
"""The name of the service behind the channel, for messages."""


class ChannelError(Exception):
    """There is no result.

    ``code``: NO_ANSWER (within the limit; the command may have run), OLD_EPOCH, REFUSED,
    UNKNOWN_COMMAND, NOT_REHEARSABLE, REHEARSAL_RUNNING (it has not run), REHEARSAL_ENDED (nothing
    of it is left), UNKNOWN_OUTCOME (the agent does not know whether it has run), UNREACHABLE (the
    channel, not the member), CONFIG. ``heard``: what the agent reported in the meantime, in words;
    empty if nothing.

    ``transient``, ``service``, ``detail``, ``unknown``, ``needs``: as of a `CloudError`.
    UNREACHABLE is transient, and so is NO_ANSWER with a ``detail`` that says that the channel
    broke, or that the ``service``, an agent, was never heard. Another member that does not answer
    over a working channel is a fact about the member.
    """

    def __init__(
        self,
        code: str,
        message: str,
        remedy: str | None = None,
        *,
        heard: str = "",
        detail: str = "",
        service: str = BROKER,
        unknown: bool = False,
        needs: Sequence[Need] = (),
    ) -> None:
        self.code = code
        self.message = message
        self.remedy = REMEDIES.get(code, "") if remedy is None else remedy
        self.heard = heard
        self.unknown = unknown
        self.needs = tuple(needs)
        self.transient = code == "UNREACHABLE" or bool(detail)
        self.service = service if self.transient else ""
        self.detail = (detail or "it is not usable") if self.transient else ""
        super().__init__(f"{code}: {message}")


@dataclass(frozen=True)
class ChannelContext:
    """What a driver receives beside its URL.

    ``session``: carries the rights of the request, for drivers that authenticate with Keystone; its
    calls pass the guard by themselves. ``guard``: checks, right before something is sent, whether
    sending is still allowed. ``key_file``: path of the secret from which the members' keys are
    derived.
    """

    session: Session
    guard: Guard
    key_file: str | None = None


class Channel(Protocol):
    """A driver of the command channel; safe to use from several threads."""

    def run(self, command: Command) -> CommandResult:
        """Send the command and wait for its result, at most ``command.patience`` seconds.

        Raises `ChannelError`; LeaseLost once the guard no longer allows sending.
        """
        ...

    def depose(self, to: Address, epoch: int) -> None:
        """Void the commands of epochs before ``epoch``: delete their queues and notify the agent
        that it was deposed, which it learns once it is reachable. Harmless when repeated.

        Raises `ChannelError` UNREACHABLE, CONFIG; LeaseLost.
        """
        ...

    def heard(self, to: Address) -> Heartbeat | None:
        """Return the latest heartbeat of the member's agent; None if there is none.

        Raises `ChannelError` UNREACHABLE, CONFIG.
        """
        ...


def channel_for(url: str | None, context: ChannelContext) -> Channel:
    """Return the channel of a URL, such as ``amqps://user:secret@broker.example.org/failover``.

    Raises `ChannelError` CONFIG for a missing URL, an unknown scheme, or a missing key file.
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
    channel: Channel = getattr(import_module(module), name)(url, context)
    return channel
