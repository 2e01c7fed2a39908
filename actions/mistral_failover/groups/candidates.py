# SPDX-License-Identifier: Apache-2.0
"""The condition of a group's members, for the choice of a role's holder: what Heat, Nova, the
agents and operators report."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mistral_failover.agent.channel.interface import Heartbeat
from mistral_failover.alongside import alongside
from mistral_failover.cloud.boot_disks import must_stay
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.heat_replacements import (
    MARKED,
    PredictedReplacement,
    predicted_replacements,
    rows_of,
)
from mistral_failover.cloud.servers import ServerState, server_state
from mistral_failover.cloud.volume_holders import SERVER_ID, ZONE, volume_of
from mistral_failover.cloud.volumes import resolve_volume
from mistral_failover.groups.agent_health import (
    commands_of,
    heard_agents,
    lacking,
    not_ready,
    silent_agents,
)
from mistral_failover.model.assignment import MemberFact
from mistral_failover.model.goal import ATTACHMENT
from mistral_failover.model.group import Group
from mistral_failover.model.rungs import ServerAfter, rung_kind
from mistral_failover.model.text import format_time
from mistral_failover.runtime.request import Request
from mistral_failover.store import suspensions
from mistral_failover.store.transaction import ProjectTransaction

LOG = logging.getLogger(__name__)
_PLUGGED = (ATTACHMENT, "port")
"""The types of what Nova plugs into the server of a role's holder."""
LOOK = 20.0
"""Seconds after which no further server is checked, however many members there are."""


def asks_nova(group: Group) -> bool:
    """Return whether a failover may need Nova to change the server of a role's holder."""
    kinds = (rung_kind(rung["kind"]) for rung in group.fence)
    return plugs_in(group) or any(each.server_after is ServerAfter.SHUTOFF for each in kinds)


def plugs_in(group: Group) -> bool:
    """Return whether Nova plugs something of a group into the servers of its members."""
    return bool(plugged_into(group))


def plugged_into(group: Group) -> frozenset[str]:
    """Return the types of what Nova plugs of a group into the servers of its members."""
    return frozenset(spec.type for spec in group.resources.values() if spec.type in _PLUGGED)


@dataclass(frozen=True)
class HeatMember:
    """A member as Heat reports it, or as a group file without a stack has it; ``created_at`` in
    seconds since the epoch, ``status`` is Heat's action and status in one, otherwise empty."""

    name: str
    server_id: str
    created_at: float | None
    status: str


def member_facts(
    request: Request,
    cloud: Cloud,
    group: Group,
    group_id: str,
    members: Sequence[HeatMember],
    lost: frozenset[str],
    *,
    thorough: bool = False,
    listen: Callable[[Mapping[str, Heartbeat]], object] | None = None,
) -> list[MemberFact]:
    """Check each member except the lost ones: its server, and whether it is in maintenance.

    One whose agent says that it is not ready is no target, even if it is the only one: nothing can
    be started there, so nothing must be fenced for it. Where several could take a role the state of
    each is read, to prefer one: on which hosts they are, whose agents are silent or lack a command,
    and who is in the zone of its volumes. ``thorough``: in any case, and of the lost as well. Every
    call is bounded, and so is their number (``LOOK``). ``listen``: gets the heartbeats, by member.
    """
    end = time.monotonic() + LOOK
    here = [m for m in members if m.name not in lost]
    plugs = plugs_in(group)
    with alongside(lambda: _going(cloud, group.stack, here)) as going:
        states = {m.name: _state(cloud, m, end) for m in here if m.status != MARKED}
        facts = {
            m.name: _fact(m, going().get(m.server_id), states.get(m.name, ""), plugs=plugs)
            for m in here
        }
    able = {m.name: m.server_id for m in members if m.name in facts and facts[m.name].healthy}
    choice = thorough or len(able) > 1
    for member in members:
        if member.name not in facts:
            facts[member.name] = _lost(cloud, member, end if choice else 0.0)
    if group.members.cold and not able:
        gone = [member for member in members if member.name in lost]
        for member in gone if len(gone) > 1 else ():
            first = _deleted_first(cloud, group.stack, member, end)
            facts[member.name] = replace(facts[member.name], deleted_first=first)
    heard = heard_agents(request, group, group_id, able)
    if listen is not None:
        listen(heard)
    for name, beat in heard.items():
        if why := not_ready(beat):
            facts[name] = facts[name].ruled_out(why)
    quiet = silent_agents(heard)
    zones = {fact.zone for fact in facts.values() if fact.zone}
    apart = _apart(cloud, group, list(facts.values()), end) if choice and len(zones) > 1 else {}
    work = request.store.reading(lambda tx: _worked_on(tx, group_id))
    return [
        replace(
            facts[m.name],
            silent=quiet.get(m.name),
            lacks=_lacks(group, heard.get(m.name)),
            apart=apart.get(m.name, {}),
            maintenance=work.get(m.name),
        )
        for m in members
    ]


def _going(
    cloud: Cloud, stack: str | None, members: Sequence[HeatMember]
) -> dict[str, PredictedReplacement]:
    """Return by server why the stack's next update replaces it. If Heat does not say, nothing is
    known: it is asked again before every update."""
    if not members:
        return {}
    try:
        return predicted_replacements(cloud, rows_of(cloud, stack), {m.server_id for m in members})
    except CloudError as error:
        LOG.info("Cannot tell what the next update of stack %s would replace: %s", stack, error)
        return {}


def _state(cloud: Cloud, member: HeatMember, end: float) -> ServerState | str:
    """Return the state of a member's server, or why it is not known, in words."""
    if time.monotonic() > end:
        return f"its server was not checked: the others took more than {LOOK:.0f} s"
    try:
        return server_state(cloud, member.server_id)
    except CloudError as error:
        return f"its server could not be checked: {error}"


def _fact(
    member: HeatMember, going: PredictedReplacement | None, state: ServerState | str, *, plugs: bool
) -> MemberFact:
    """``plugs``: Nova plugs something of the group into its members' servers."""
    fact = MemberFact(member.name, member.created_at, server_id=member.server_id)
    if member.status == MARKED:
        why = "Heat has marked it as unhealthy, so the stack's next update replaces it"
        unmark = going.unmark if going is not None else ()
        return replace(fact, healthy=False, why_not=why, marked=True, needs=unmark)
    if going is not None:
        why = f"{going.words}, so the stack's next update replaces its server"
        if going.marked:
            why += " (if the server is healthy, remove the mark)"
        return replace(fact, healthy=False, why_not=why, marked=True, needs=going.unmark)
    if isinstance(state, str):
        return replace(fact, healthy=False, why_not=state, unseen=True)
    unwell = state.unfit
    return replace(
        fact,
        zone=state.zone,
        healthy=unwell is None,
        why_not=unwell,
        needs=state.needs,
        gone=not state.exists,
        hindered=state.hindered if plugs else None,
        host=state.host_id,
        host_down=state.host_silent,
    )


def _lacks(group: Group, beat: Heartbeat | None) -> dict[str, str]:
    """By role, in words, the commands for it that an agent does not know."""
    said = {role: lacking(beat, commands_of(group, [role])) for role in group.roles}
    return {role: words for role, words in said.items() if words}


def _apart(
    cloud: Cloud, group: Group, facts: Sequence[MemberFact], end: float
) -> dict[str, dict[str, str]]:
    """Return by member and role, in words, the volumes that are in another zone than the server.

    Nova refuses to attach them if the cloud has ``[cinder] cross_az_attach`` off, which no project
    can see. Nova's zones and Cinder's need not be the same: nothing is said of a volume whose zone
    is the zone of no member, nor if a member in another zone has the volume already.
    """
    zones = {fact.server_id: fact.zone for fact in facts if fact.server_id and fact.zone}
    found: dict[str, dict[str, list[str]]] = {}
    for role, name, volume in _volumes(group):
        if time.monotonic() > end:
            break
        try:
            seen = volume_of(cloud, resolve_volume(cloud, group.stack, volume))
        except CloudError as error:
            LOG.info("The zone of volume %s of %s is not known: %s", volume, group.name, error)
            continue
        zone = ZONE.if_shown(seen)
        across = any(zones.get(SERVER_ID.of(held), zone) != zone for held in seen.attachments)
        if across or zone not in zones.values():
            continue
        for fact in facts:
            if fact.zone not in (None, zone):
                words = f"volume {name} is in zone {zone} and its server in {fact.zone}"
                found.setdefault(fact.name, {}).setdefault(role, []).append(words)
    return {
        member: {role: ", ".join(words) for role, words in roles.items()}
        for member, roles in found.items()
    }


def _volumes(group: Group) -> Iterator[tuple[str, str, str]]:
    """Yield each volume that moves with a role: the role, the resource of the group file, and the
    volume as the file names it."""
    for spec in group.resources.values():
        role, volume = group.role_of(spec.name), spec.properties.get("volume")
        if spec.type == ATTACHMENT and role is not None and isinstance(volume, str):
            yield role, spec.name, volume


def _lost(cloud: Cloud, member: HeatMember, end: float) -> MemberFact:
    """Return the facts of a lost member, of which only the host matters."""
    fact = MemberFact(member.name, member.created_at, server_id=member.server_id)
    if time.monotonic() > end:
        return fact
    try:
        state = server_state(cloud, member.server_id)
        return replace(
            fact,
            host=state.host_id,
            host_down=state.host_silent,
            zone=state.zone,
            needs=state.needs,
        )
    except CloudError:
        return fact


def _deleted_first(cloud: Cloud, stack: str | None, member: HeatMember, end: float) -> bool:
    """Return whether a member's server must be deleted before it gets another one; False where that
    is not known: it only orders them."""
    if time.monotonic() > end:
        return False
    try:
        return must_stay(cloud, stack, member.server_id)
    except CloudError as error:
        LOG.info("The disk of server %s is not known: %s", member.server_id, error)
        return False


def _worked_on(tx: ProjectTransaction, group_id: str) -> dict[str, str]:
    """Return the members in maintenance, with the reason in words. A maintenance of the whole group
    holds alarms, but keeps no member from a role."""
    work = suspensions.of_group(tx, group_id).get("maintenance")
    if work is None or tx.now() >= work["until"]:
        return {}
    until = f"it is in maintenance until {format_time(work['until'])}"
    return dict.fromkeys(work["members"], f"{until}, by {work['by']}: {work['because']}")
