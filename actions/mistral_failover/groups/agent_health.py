# SPDX-License-Identifier: Apache-2.0
"""What a group's agents last said by themselves."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from mistral_failover.agent.channel.interface import Channel, ChannelError, Heartbeat
from mistral_failover.agent.wire import Address
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.guard import Unguarded
from mistral_failover.groups.snapshot import GroupSnapshot, group_snapshot
from mistral_failover.model.group import Group
from mistral_failover.runtime.process import Request
from mistral_failover.store import groups
from mistral_failover.store.groups import MemberRow
from mistral_failover.store.transaction import SqlTransaction

SILENT = 60.0
"""Seconds without a heartbeat after which an agent is taken for silent: one comes every 10 s."""
ASK = 5.0
"""Seconds after which no further agent is asked for, however many members there are."""
_COMMANDED = "failover.activate"

LISTEN = 12.0
"""Seconds to wait for the first heartbeat of an agent that nobody has asked for before: one comes
every 10 s."""
_PAUSE = 0.5


def why_unreachable(
    request: Request, snapshot: GroupSnapshot, name: str, server: str | None
) -> str | None:
    """Why it is no use to send a command to a member, by what its agent says; None where nothing
    speaks against it, where the group sends none, or where the channel can not tell.

    ``server``: the one behind the member's name by now, noticed or not. Raises CloudError.
    """
    if not sends_commands(snapshot.group):
        return None
    elsewhere = request.runtime.database.reading(lambda tx: _elsewhere(tx, snapshot, name, server))
    if elsewhere:
        return f"what runs there was started on server {elsewhere}, which is not {name}'s any more"
    if server is None:
        return None
    guard = Unguarded(request.runtime.settings.http_timeout)
    channel = request.channel(request.cloud(guard), guard)
    address = Address(snapshot.state.id, snapshot.group.name, name, server)
    end = time.monotonic() + LISTEN
    while True:
        beat, unable = _ask(channel, address)
        if unable:
            return None
        if beat is not None:
            silent = f"its agent has said nothing for {beat.ago:.0f} s"
            return silent if beat.ago > SILENT else None
        if time.monotonic() > end:
            return "nothing was ever heard of its agent"
        time.sleep(_PAUSE)


def _elsewhere(
    tx: SqlTransaction, snapshot: GroupSnapshot, name: str, server: str | None
) -> str | None:
    """Another server than the member's own on which something of the group was made there."""
    member = groups.members_of(tx, snapshot.state.id).get(name)
    noticed = member.server_id if member else None
    made = {
        record.attributes.get("server_id") or noticed
        for record in tx.records(snapshot.state.id)
        if record.member == name and not record.gone and record.action != "INIT"
    }
    return min(filter(None, made - {server}), default=None)


def agents(request: Request, name: str) -> list[dict[str, Any]]:
    """For each member ``member``, ``server``, ``epoch``, ``agent`` (null, or ``epoch``, ``ago`` in
    seconds, ``running``, ``deposed``), and ``sentence``, the same in words.

    A channel that can not be reached is a sentence, not an error. Raises UnknownGroup, CloudError.
    """
    snapshot = group_snapshot(request, name)
    members = request.runtime.database.reading(lambda tx: groups.members_of(tx, snapshot.state.id))
    guard = Unguarded(request.runtime.settings.http_timeout)
    channel = request.channel(request.cloud(guard), guard)
    unable = ""
    rows = []
    for member in members.values():
        beat = None
        if not unable and member.server_id is not None:
            address = Address(snapshot.state.id, name, member.name, member.server_id)
            beat, unable = _ask(channel, address)
        agent = beat and {
            "epoch": beat.epoch,
            "ago": beat.ago,
            "running": list(beat.running),
            "deposed": beat.deposed,
        }
        row = {"member": member.name, "server": member.server_id, "epoch": member.epoch}
        rows.append({**row, "agent": agent, "sentence": unable or _sentence(member, beat)})
    return rows


def _ask(channel: Channel, address: Address) -> tuple[Heartbeat | None, str]:
    """A heartbeat, or why none of any member can be had."""
    try:
        return channel.heard(address), ""
    except ChannelError as error:
        return None, f"{error.code}: {error.message}"


def _sentence(member: MemberRow, beat: Heartbeat | None) -> str:
    if beat is None:
        return "nothing is known of it"
    said = [f"heard {beat.ago:.0f} s ago"]
    if beat.epoch < member.epoch:
        said.append(f"does not know epoch {member.epoch} yet")
    if beat.running:
        said.append(f"runs {', '.join(beat.running)}")
    if beat.deposed is not None:
        said.append(f"was deposed: {beat.deposed}")
    return "; ".join(said)


def sends_commands(group: Group) -> bool:
    """Whether anything of a group is started or stopped by agents."""
    kinds = [group.types[spec.type] for spec in group.resources.values()]
    return any(spec.action == _COMMANDED for kind in kinds for spec in kind.operations.values())


def silent_agents(
    request: Request, group: Group, group_id: str, servers: Mapping[str, str]
) -> dict[str, str]:
    """Of some members, given with their servers, those whose agents have been silent, in words.

    Each agent is asked for once, and none is waited for. Where none at all is heard it is rather
    the channel, and one of which nothing is known may only be new: neither is said to be silent.
    """
    if not sends_commands(group):
        return {}
    guard = Unguarded(request.runtime.settings.http_timeout)
    ago: dict[str, float] = {}
    end = time.monotonic() + ASK
    try:
        channel = request.channel(request.cloud(guard), guard)
        for name, server_id in servers.items():
            if time.monotonic() > end:
                break
            beat = channel.heard(Address(group_id, group.name, name, server_id))
            if beat is not None:
                ago[name] = beat.ago
    except (ChannelError, CloudError):
        return {}  # the channel is out of reach, for the others as well
    if all(seconds > SILENT for seconds in ago.values()):
        return {}
    return {
        name: f"its agent has said nothing for {seconds:.0f} s"
        for name, seconds in ago.items()
        if seconds > SILENT
    }
