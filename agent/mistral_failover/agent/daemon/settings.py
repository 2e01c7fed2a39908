# SPDX-License-Identifier: Apache-2.0
"""An agent's settings: whose agent it is, and the commands that it may run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mistral_failover.agent import wire
from mistral_failover.agent.daemon.patterns import Pattern
from mistral_failover.model import heartbeats

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PLACE = re.compile(r"\{\{(\w+)\}\}|\{(\w+)\}")
"""An argument's place in a word of a command line, or two braces that stand for one."""


@dataclass(frozen=True)
class Identity:
    """One server of one group, with the key of either its member or its group.

    ``member``: its name; None if the key is the group's, which is valid for every member.
    """

    group_id: str
    group: str
    server_id: str
    member: str | None = None
    member_key: bytes | None = field(default=None, repr=False)
    group_key: bytes | None = field(default=None, repr=False)

    @property
    def address(self) -> wire.Address:
        """The address that names the queues, for which the member's name is not needed."""
        return wire.Address(self.group_id, self.group, self.member or "", self.server_id)

    def key_of(self, member: str) -> bytes:
        """Return a member's key. Raises ValueError if the key belongs to another member."""
        if self.member not in (None, member):
            raise ValueError("another member")
        if self.member_key is not None:
            return self.member_key
        assert self.group_key is not None
        return wire.member_key(self.group_key, member)

    def key_for(self, kind: wire.Kind, member: str, epoch: int) -> bytes:
        """Return the key that signs a kind of message to or from this server. Raises ValueError for
        another member."""
        return wire.message_key(kind, self.key_of(member), self.server_id, epoch)


@dataclass(frozen=True)
class Account:
    """A user of the server, with the user's groups."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


@dataclass(frozen=True)
class CommandSpec:
    """One entry of the allow-list. ``limit``: seconds. ``check``: finds out whether the command
    took effect (exit code 0: it did, 1: it did not). ``repeatable``: it may be run again when its
    outcome is unknown. ``arguments``: the pattern that each argument's whole value must match.
    ``rehearse``: what runs in a rehearsal; None: it may not be rehearsed."""

    name: str
    argv: tuple[str, ...]
    account: Account
    check: tuple[str, ...] | None = None
    repeatable: bool = False
    limit: float = 120.0
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = "/"
    lane: str = "default"
    arguments: Mapping[str, Pattern] = field(default_factory=dict)
    rehearse: tuple[str, ...] | None = None

    def words(self, argv: tuple[str, ...], values: Mapping[str, str]) -> list[str]:
        """``argv`` or ``check`` with the arguments' values filled in."""

        def put(found: re.Match[str]) -> str:
            return f"{{{found[1]}}}" if found[1] is not None else values[found[2]]

        return [PLACE.sub(put, word) for word in argv]

    def variables(self) -> dict[str, str]:
        """The whole environment of its processes, except the command's id."""
        return {
            "PATH": PATH,
            "LANG": "C.UTF-8",
            "HOME": self.account.home,
            "USER": self.account.name,
            **self.environment,
        }


PRIVATE = ("/run", "/tmp", "/var/tmp", "/var/spool", "/dev/shm")  # noqa: S108
"""Folders of which a rehearsal has its own, unless the agent's file names others: what is in them
belongs to running services, as sockets, locks, and mails that wait to be sent."""


@dataclass(frozen=True)
class RehearsalSettings:
    """How rehearsals are isolated. ``memory``: percent of the server's memory that one may use,
    ``cpu``: percent of all of its CPUs. ``private``: folders of which it has its own."""

    memory: float = 50.0
    cpu: float = 50.0
    private: tuple[str, ...] = PRIVATE


@dataclass(frozen=True)
class AgentConfig:
    """The parsed file. ``broker``: a URL, with its secret. ``epoch``: the lowest possible; the
    journal knows later ones. ``heartbeat``: seconds between two. ``on_deposed``: names of commands,
    in order."""

    broker: str = field(repr=False)
    identity: Identity
    commands: Mapping[str, CommandSpec]
    journal: Path
    epoch: int = 1
    heartbeat: float = heartbeats.EVERY
    on_deposed: Sequence[str] = ()
    rehearsals: RehearsalSettings = field(default_factory=RehearsalSettings)

    @property
    def rehearsable(self) -> list[str]:
        """The names of the commands that may be rehearsed."""
        return sorted(name for name, spec in self.commands.items() if spec.rehearse is not None)
