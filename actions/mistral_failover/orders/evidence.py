# SPDX-License-Identifier: Apache-2.0
"""What is known of a member whose fence has no proof, for the operator who is to confirm it.

Each sign is asked for now, and none of them is a proof: an operator decides. The operator's fence
devices, their Nova and Ceph are asked if the project may use them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypedDict

from mistral_failover.agent.channel.interface import ChannelError
from mistral_failover.cloud import hosts, volumes
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import ServerState, changed_at, server_state
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.groups import agent_health
from mistral_failover.groups.snapshot import GroupSnapshot, named_snapshot_in
from mistral_failover.model.goal import ATTACHMENT
from mistral_failover.model.heartbeats import SILENT
from mistral_failover.model.text import counted, parse_time
from mistral_failover.model.validation import did_you_mean
from mistral_failover.resources.fence import agents, devices
from mistral_failover.resources.fence.ceph import Cluster, NoImage, address_of
from mistral_failover.resources.fence.devices import Devices, NoDevices
from mistral_failover.resources.fence.power import Unproven
from mistral_failover.resources.volume_attachment import kept_on_a_dead_host
from mistral_failover.runtime.deadlines import within
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups
from mistral_failover.store.groups import MemberRow
from mistral_failover.store.transaction import ProjectTransaction

LOOK = 10.0
"""Seconds in which each source is asked; what takes longer is not known."""


class Sign(TypedDict):
    """One sign. ``about``: server, host, agent, power, or a volume by its name. ``says``: in words.
    ``ago``: how long ago its source heard or changed that, in seconds; None: it is asked now, or
    not known. ``alive``: whether it speaks against the confirmation; None: it tells neither."""

    about: str
    says: str
    ago: float | None
    alive: bool | None


class Evidence(TypedDict):
    """What is known of a member. ``sentence``: what a confirmation does, and its danger.
    ``afterwards``: what the failover waits for after it while the host is down, empty for nothing.
    """

    group: str
    member: str
    signs: list[Sign]
    sentence: str
    afterwards: str


def evidence(request: Request, group: str, member: str) -> Evidence:
    """Ask all sources about a member at once. Raises UnknownGroup, ActionError UNKNOWN_MEMBER."""

    def read(
        tx: ProjectTransaction,
    ) -> tuple[GroupSnapshot, dict[str, MemberRow], dict[str, str]]:
        snapshot = named_snapshot_in(request, tx, group)
        held = {
            record.name: record.physical_id
            for record in tx.records(snapshot.state.id)
            if record.type == ATTACHMENT and record.member == member and record.physical_id
        }
        return snapshot, groups.members_of(tx, snapshot.state.id), held

    snapshot, known_members, held = request.store.reading(read)
    row = known_members.get(member)
    if row is None or row.server_id is None:
        raise ActionError(
            "UNKNOWN_MEMBER",
            f"{member} is not a member of {group}, or was never used",
            did_you_mean(member, known_members),
        )
    cloud = request.cloud(Unguarded(request.runtime.settings.http_timeout))
    asked: list[tuple[str, Callable[[], list[Sign]]]] = [
        ("server", partial(_server, request, cloud, row.server_id)),
    ]
    if agent_health.sends_commands(snapshot.group):
        asked.append(("agent", partial(_agent, request, group, member)))
    try:
        known = devices.for_project(request.runtime.settings, snapshot.state.project_id)
    except NoDevices:
        asked += [(name, _unseen) for name in held]
    else:
        asked.append(("host", partial(_host, request, known, row.server_id)))
        asked += [(name, partial(_volume, request, known, cloud, held[name])) for name in held]
    with ThreadPoolExecutor(len(asked)) as pool:
        found = pool.map(lambda each: _bounded(request, *each), asked)
        signs = [sign for some in found for sign in some]
    waits = kept_on_a_dead_host(snapshot.group) if held else ""
    return {
        "group": group,
        "member": member,
        "signs": signs,
        "sentence": (
            f"What {member} has is given to another member. If {member} still writes, two servers "
            "write to one volume, and its data is destroyed."
        ),
        "afterwards": f"{waits[:1].upper()}{waits[1:]}." if waits else "",
    }


def _bounded(request: Request, about: str, ask: Callable[[], list[Sign]]) -> list[Sign]:
    """Return the signs of one source; what fails there leaves the others."""
    try:
        found = within(LOOK, ask)
    except (CloudError, ChannelError, NoDevices, Unproven) as error:
        return [_sign(about, f"not known: {error.message}")]
    except Exception as error:
        why = request.caught(error, f"asking for the {about} of a lost member")["message"]
        return [_sign(about, f"not known: {why}")]
    if found is None:
        return [_sign(about, f"not known: no answer within {LOOK:.0f} s")]
    return [{**each, "about": each["about"] or about} for each in found]


def _sign(about: str, says: str, *, ago: float | None = None, alive: bool | None = None) -> Sign:
    return {"about": about, "says": says, "ago": ago, "alive": alive}


def _unseen() -> list[Sign]:
    return [_sign("", "not known: this project does not see which clients have it open")]


def _server(request: Request, cloud: Cloud, server_id: str) -> list[Sign]:
    seen: ServerState = server_state(cloud, server_id)
    if not seen.exists:
        return [_sign("", "Nova has deleted it; that does not prove that its guest was stopped")]
    changed = changed_at(cloud, server_id)
    now = request.store.reading(lambda tx: tx.now())
    at = parse_time(changed)
    ago = None if at is None else max(0.0, now - at)
    return [_sign("", f"Nova says {seen}", ago=ago, alive=seen.status == "ACTIVE" or None)]


def _agent(request: Request, group: str, member: str) -> list[Sign]:
    rows = [each for each in agent_health.agents(request, group) if each["member"] == member]
    if not rows:
        return [_sign("", "not known: it is no member any more")]
    (row,) = rows
    beat = row["agent"]
    if beat is None:
        return [_sign("", row["sentence"])]
    recent = beat["ago"] <= SILENT
    return [_sign("", row["sentence"], ago=beat["ago"], alive=recent or None)]


def _host(request: Request, known: Devices, server_id: str) -> list[Sign]:
    """Ask the operator's Nova for the host of a server, and the fence devices of this host."""
    try:
        nova = _operator(request, known)
        where = hosts.location_of(nova, server_id)
        service = hosts.compute_service(nova, where.host) if where.host is not None else None
    except CloudError as error:  # its words are for the operator
        return [_sign("", f"not known: the operator's Nova does not say it ({error.code})")]
    if where.host is None:
        return [_sign("", "not known: Nova has the server on no host")]
    found = []
    if service is not None:
        word = "up" if not service.down else "down" if not service.forced_down else "marked as down"
        now = request.store.reading(lambda tx: tx.now())
        at = parse_time(service.seen)
        ago = None if at is None else max(0.0, now - at)
        says = f"its compute service is {word}"
        found.append(_sign("", says, ago=ago, alive=not service.down or None))
    until = time.monotonic() + LOOK

    def permit(seconds: float) -> float:
        return min(seconds, max(0.1, until - time.monotonic()))

    for level in known.hosts.get(where.host, ()):
        for device in level:
            said = agents.status(device, permit)
            on = said.power is agents.Power.ON
            found.append(_sign("power", said.words, alive=on or None))
    return found


def _volume(request: Request, known: Devices, cloud: Cloud, volume_id: str) -> list[Sign]:
    """Ask Ceph who has a volume open; the addresses are not for the project."""
    if known.ceph is None:
        return _unseen()
    if volumes.owner_of(cloud, volume_id) != cloud.project_id:
        return [_sign("", "not known: Cinder does not show the volume to the project")]
    until = time.monotonic() + LOOK
    cluster = Cluster(known.ceph, lambda limit: min(limit, max(0.1, until - time.monotonic())))
    try:
        name_id = volumes.name_id(_operator(request, known), volume_id)
    except CloudError:
        name_id = volume_id  # so it is unless it was migrated
    try:
        image = cluster.image_of(volume_id, name_id)
    except NoImage:
        return _unseen()
    services = frozenset(known.ceph.services)
    clients = [each for each in image.clients if address_of(each) not in services]
    says = (
        f"{counted(len(clients), 'client')} in Ceph has it open"
        if clients
        else ("no client in Ceph has it open")
    )
    return [_sign("", says, alive=bool(clients) or None)]


def _operator(request: Request, known: Devices) -> Cloud:
    runtime = request.runtime
    return hosts.operator_cloud(known.cloud, Unguarded(LOOK), runtime.settings)
