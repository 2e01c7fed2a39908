# SPDX-License-Identifier: Apache-2.0
"""The latest heartbeats of a group's agents."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypedDict

from mistral_failover.agent.channel.interface import Channel, ChannelError, Heartbeat
from mistral_failover.agent.wire import Address
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.convergence.records import Action, Record, Status
from mistral_failover.groups.snapshot import GroupSnapshot, group_snapshot
from mistral_failover.model.goal import ACTIVATION
from mistral_failover.model.group import Group
from mistral_failover.model.heartbeats import FIRST, SILENT
from mistral_failover.model.types import Provides
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups
from mistral_failover.store.groups import MemberRow
from mistral_failover.store.transaction import ProjectTransaction

ASK = 5.0
"""Seconds after which no further agent is asked, however many members there are."""
_COMMANDED = "activate"
_COMMANDS = ("start", "stop")
"""The properties of an activation that name commands."""

_PAUSE = 0.5


def why_unreachable(
    request: Request,
    snapshot: GroupSnapshot,
    name: str,
    server: str | None,
    commands: Collection[str],
) -> str | None:
    """Why it is no use to send these commands to a member, by what its agent says; None where
    nothing speaks against it, where the group sends none, or where the channel cannot tell.

    ``server``: the member's present server, recorded or not. Raises CloudError.
    """
    if not sends_commands(snapshot.group):
        return None
    elsewhere = request.store.reading(lambda tx: _elsewhere(tx, snapshot, name, server))
    if elsewhere:
        return (
            f"what runs there was started on server {elsewhere}, which no longer belongs to {name}"
        )
    if server is None:
        return None
    guard = Unguarded(request.runtime.settings.http_timeout)
    channel = request.channel(request.cloud(guard), guard)
    address = Address(snapshot.state.id, snapshot.group.name, name, server)
    end = time.monotonic() + FIRST
    while True:
        beat, unable = _ask(channel, address)
        if unable:
            return None
        if beat is not None:
            return unready(beat) or lacking(beat, commands) or None
        if time.monotonic() > end:
            return "its agent has never sent a heartbeat"
        time.sleep(_PAUSE)


def _elsewhere(
    tx: ProjectTransaction, snapshot: GroupSnapshot, name: str, server: str | None
) -> str | None:
    """Return another server than the member's own on which resources of the member were created."""
    member = groups.members_of(tx, snapshot.state.id).get(name)
    noticed = member.server_id if member else None
    made = {
        record.attributes.get("server_id") or noticed
        for record in tx.records(snapshot.state.id)
        if record.member == name and not record.gone and record.action != Action.INIT
    }
    return min(filter(None, made - {server}), default=None)


class ReportedRehearsals(TypedDict):
    """What an agent can rehearse. ``isolation``: why it cannot isolate a rehearsal, in words, None
    if it can. ``limits``: the same for limits of memory and CPU. ``commands``: the names of the
    commands that may be rehearsed, None if it does not report them. ``current``: the id of the
    rehearsal that runs."""

    isolation: str | None
    limits: str | None
    commands: list[str] | None
    current: str | None


class ReportedAgent(TypedDict):
    """What an agent last reported, ``ago`` seconds before now. ``deposed``: None, or the outcome of
    its ``on_deposed`` command. ``commands``: the names that it knows, None if it does not report
    them. ``not_ready``: why it can carry out no command, in words. ``boot``: the identity of the
    server's present boot, None if it does not report it. ``rehearsals``: what it can rehearse,
    None if it does not report it."""

    epoch: int
    ago: float
    running: list[str]
    deposed: str | None
    commands: list[str] | None
    not_ready: str | None
    boot: str | None
    rehearsals: ReportedRehearsals | None


class MemberAgent(TypedDict):
    """A member and its agent. ``agent``: None if it was not heard. ``lacks``: in words, the
    commands of the group that it does not know. ``sentence``: all of it in words."""

    member: str
    server: str | None
    epoch: int
    agent: ReportedAgent | None
    lacks: str | None
    sentence: str


def agents(request: Request, name: str) -> list[MemberAgent]:
    """Return the agents of a group's members.

    If the channel is unreachable, the sentence says so; that is not an error. Raises UnknownGroup,
    CloudError.
    """
    snapshot = group_snapshot(request, name)
    members, records = request.store.reading(
        lambda tx: (groups.members_of(tx, snapshot.state.id), tx.records(snapshot.state.id))
    )
    guard = Unguarded(request.runtime.settings.http_timeout)
    channel = request.channel(request.cloud(guard), guard)
    unable = ""
    commands = commands_of(snapshot.group)
    rows: list[MemberAgent] = []
    for member in members.values():
        beat = None
        if not unable and member.server_id is not None:
            address = Address(snapshot.state.id, name, member.name, member.server_id)
            beat, unable = _ask(channel, address)
        agent: ReportedAgent | None = None
        if beat is not None:
            agent = {
                "epoch": beat.epoch,
                "ago": beat.ago,
                "running": list(beat.running),
                "deposed": beat.deposed,
                "commands": None if beat.commands is None else sorted(beat.commands),
                "not_ready": beat.not_ready,
                "boot": beat.boot,
                "rehearsals": _rehearsals(beat),
            }
        lacks = lacking(beat, commands)
        cut_off = [
            f"{record.name}: {why}"
            for record in records
            if (record.member, record.type, record.status)
            == (member.name, ACTIVATION, Status.COMPLETE)
            and record.attributes.get("server_id") == member.server_id
            and record.action in (Action.CREATE, Action.UPDATE)
            and (why := ended(beat, record))
        ]
        rows.append(
            {
                "member": member.name,
                "server": member.server_id,
                "epoch": member.epoch,
                "agent": agent,
                "lacks": lacks or None,
                "sentence": unable
                or "; ".join(filter(None, [_sentence(member, beat), *cut_off, lacks])),
            }
        )
    return rows


def _rehearsals(beat: Heartbeat) -> ReportedRehearsals | None:
    able = beat.rehearsals
    if able is None:
        return None
    return {
        "isolation": able.not_isolated,
        "limits": able.unlimited,
        "commands": None if able.commands is None else sorted(able.commands),
        "current": able.current,
    }


def _ask(channel: Channel, address: Address) -> tuple[Heartbeat | None, str]:
    """Return a heartbeat, or why the channel yields none for any member."""
    try:
        return channel.heard(address), ""
    except ChannelError as error:
        return None, f"{error.code}: {error.message}"


def _sentence(member: MemberRow, beat: Heartbeat | None) -> str:
    if beat is None:
        return "no heartbeat received"
    said = [f"last heartbeat {beat.ago:.0f} s ago"]
    if beat.not_ready is not None:
        said.append(f"is not ready: {beat.not_ready}")
    if 0 < beat.epoch < member.epoch:
        said.append(f"has not received the notice of epoch {member.epoch} yet")
    if beat.running:
        said.append(f"runs {', '.join(beat.running)}")
    if beat.rehearsals is not None and beat.rehearsals.current is not None:
        said.append(f"runs rehearsal {beat.rehearsals.current}")
    if beat.deposed is not None:
        said.append(f"was deposed: {beat.deposed}")
    return "; ".join(said)


def sends_commands(group: Group) -> bool:
    """Return whether agents start or stop anything of a group."""
    kinds = [group.types[spec.type] for spec in group.resources.values()]
    return any(
        spec.function == _COMMANDED
        for kind in kinds
        if kind.provides is Provides.APPLICATION
        for spec in kind.operations.values()
    )


def commands_of(group: Group, roles: Iterable[str] | None = None) -> frozenset[str]:
    """Return the names of the commands that a member must know to hold these roles of the group;
    None: any of its roles."""
    return frozenset(command for _, command in named_commands(group, roles))


def named_commands(group: Group, roles: Iterable[str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield the commands as :func:`commands_of`, each with its path in the group file."""
    wanted = set(group.roles if roles is None else roles)
    for name, spec in group.resources.items():
        if spec.type == ACTIVATION and spec.properties["member"]["get_param"] in wanted:
            for key in _COMMANDS:
                if isinstance(spec.properties[key], str):
                    yield f"resources.{name}.properties.{key}", spec.properties[key]


def silent(beat: Heartbeat | None) -> str:
    """Return, in words, that an agent was not heard for too long; empty for others, and for one of
    which nothing is known: it may be new."""
    if beat is None or beat.ago <= SILENT:
        return ""
    return f"its agent has sent no heartbeat for {beat.ago:.0f} s"


def unready(beat: Heartbeat | None) -> str:
    """Return, in words, why an agent carries out no command: it is silent, or it says that it is
    not ready; empty for others."""
    return silent(beat) or not_ready(beat)


def not_ready(beat: Heartbeat | None) -> str:
    """Return, in words, that an agent which is heard says that it can carry out no command; empty
    for others."""
    if beat is None or beat.not_ready is None or silent(beat):
        return ""
    return f"its agent is not ready: {beat.not_ready}"


def ended(beat: Heartbeat | None, record: Record) -> str:
    """Return, in words, that the application of an activation does not run any more: its check
    found that it has ended, or its server was restarted and nothing has started it since. Empty for
    others, and where the agent does not tell.

    A start command that was done on this boot, or whose check finds that it is in effect, is better
    evidence than the boot: the application may start by itself.
    """
    started_on = record.attributes.get("boot")
    if beat is not None and record.attributes.get("command") in beat.ended:
        return "it has ended: the check of its start command does not find it any more"
    if beat is None or beat.boot is None or started_on in (None, beat.boot):
        return ""
    if (record.properties or {}).get("start") in beat.in_effect:
        return ""
    return "its server was restarted, and it was not started there since"


def lacking(beat: Heartbeat | None, commands: Collection[str]) -> str:
    """Return, in words, that an agent does not know some of the commands; empty if it knows them
    all, or does not report which ones it knows."""
    if beat is None or beat.commands is None:
        return ""
    missing = sorted(set(commands) - beat.commands)
    if not missing:
        return ""
    return f"its agent does not know the command{'s' if missing[1:] else ''} {', '.join(missing)}"


def not_rehearsable(beat: Heartbeat | None, commands: Collection[str]) -> str:
    """Return, in words, why a member cannot rehearse with these commands, by what its agent says;
    empty if it can. Unlike :func:`lacking`, an agent that does not say is one that cannot."""
    if beat is None:
        return "its agent has never sent a heartbeat"
    if said := unready(beat) or lacking(beat, commands):
        return said
    able = beat.rehearsals
    if able is None:
        return "its agent does not know rehearsals: upgrade it"
    if able.not_isolated is not None:
        return f"its agent cannot isolate a rehearsal: {able.not_isolated}"
    missing = sorted(set(commands) - able.commands) if able.commands is not None else []
    if missing:
        what = f"command{'s' if missing[1:] else ''} {', '.join(missing)}"
        return f"its agent may not rehearse the {what}: the file there has no rehearse for it"
    return ""


def heard_agents(
    request: Request, group: Group, group_id: str, servers: Mapping[str, str]
) -> dict[str, Heartbeat]:
    """Return the latest heartbeats of some members, given with their servers.

    Each agent is asked for once, and none is waited for. Return nothing at all if the group sends
    no commands, or the channel does not answer.
    """
    if not sends_commands(group):
        return {}
    try:
        return last_heartbeats(request, group, group_id, servers)
    except (ChannelError, CloudError):
        return {}  # the channel is out of reach, for the others as well


def last_heartbeats(
    request: Request, group: Group, group_id: str, servers: Mapping[str, str]
) -> dict[str, Heartbeat]:
    """As :func:`heard_agents`. Raises ChannelError, CloudError."""
    guard = Unguarded(request.runtime.settings.http_timeout)
    heard: dict[str, Heartbeat] = {}
    end = time.monotonic() + ASK
    channel = request.channel(request.cloud(guard), guard)
    for name, server_id in servers.items():
        if time.monotonic() > end:
            break
        beat = channel.heard(Address(group_id, group.name, name, server_id))
        if beat is not None:
            heard[name] = beat
    return heard


def silent_agents(heard: Mapping[str, Heartbeat]) -> dict[str, str]:
    """Return, in words, which of these agents are silent. If all are, it is rather the channel, so
    none is said to be."""
    if all(beat.ago > SILENT for beat in heard.values()):
        return {}
    return {name: said for name, beat in heard.items() if (said := silent(beat))}
