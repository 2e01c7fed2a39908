# SPDX-License-Identifier: Apache-2.0
"""The condition of a group's members, for the choice of a role's holder: what Heat, Nova, the
agents and operators report."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mistral_failover.agent.channel.interface import Heartbeat
from mistral_failover.alongside import alongside
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.heat_replacements import (
    MARKED,
    PredictedReplacement,
    predicted_replacements,
    rows_of,
)
from mistral_failover.cloud.servers import ServerState, server_state
from mistral_failover.groups.agent_health import (
    commands_of,
    heard_agents,
    lacking,
    unready_agents,
)
from mistral_failover.model.assignment import MemberFact
from mistral_failover.model.group import Group
from mistral_failover.model.text import format_time
from mistral_failover.runtime.request import Request
from mistral_failover.store import suspensions
from mistral_failover.store.transaction import ProjectTransaction

LOG = logging.getLogger(__name__)
LOOK = 20.0
"""Seconds after which no further server is checked, however many members there are."""


@dataclass(frozen=True)
class HeatMember:
    """A member as Heat reports it; ``created_at`` in seconds since the epoch, ``status`` is action
    and status in one."""

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
) -> list[MemberFact]:
    """Check each member except the lost ones: its server, and whether it is in maintenance.

    Where several could take a role the state of each is read, to prefer one: on
    which hosts they are, and whose agents are silent, not ready or lack a command. ``thorough``: in
    any case, and of the lost as well. Every call is bounded, and so is their number (``LOOK``).
    """
    end = time.monotonic() + LOOK
    here = [m for m in members if m.name not in lost]
    with alongside(lambda: _going(cloud, group.stack, here)) as going:
        states = {m.name: _state(cloud, m, end) for m in here if m.status != MARKED}
        facts = {m.name: _fact(m, going().get(m.server_id), states.get(m.name, "")) for m in here}
    able = {m.name: m.server_id for m in members if m.name in facts and facts[m.name].healthy}
    choice = thorough or len(able) > 1
    for member in members:
        if member.name not in facts:
            facts[member.name] = _lost(cloud, member, end if choice else 0.0)
    heard = heard_agents(request, group, group_id, able) if choice else {}
    quiet = unready_agents(heard)
    work = request.store.reading(lambda tx: _worked_on(tx, group_id))
    return [
        replace(
            facts[m.name],
            unready=quiet.get(m.name),
            lacks=_lacks(group, heard.get(m.name)),
            maintenance=work.get(m.name),
        )
        for m in members
    ]


def _going(
    cloud: Cloud, stack: str, members: Sequence[HeatMember]
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
    member: HeatMember, going: PredictedReplacement | None, state: ServerState | str
) -> MemberFact:
    fact = MemberFact(member.name, member.created_at, server_id=member.server_id)
    if member.status == MARKED:
        why = "Heat has marked it as unhealthy, so the stack's next update replaces it"
        return replace(fact, healthy=False, why_not=why, marked=True)
    if going is not None:
        why = f"{going.words}, so the stack's next update replaces its server"
        if going.marked:
            why += f" (if the server is healthy: {going.unmark})"
        return replace(fact, healthy=False, why_not=why, marked=True)
    if isinstance(state, str):
        return replace(fact, healthy=False, why_not=state, unseen=True)
    unwell = state.unfit
    return replace(
        fact,
        healthy=unwell is None,
        why_not=unwell,
        gone=not state.exists,
        host=state.host_id,
        host_down=state.host_silent,
    )


def _lacks(group: Group, beat: Heartbeat | None) -> dict[str, str]:
    """By role, in words, the commands for it that an agent does not know."""
    said = {role: lacking(beat, commands_of(group, [role])) for role in group.roles}
    return {role: words for role, words in said.items() if words}


def _lost(cloud: Cloud, member: HeatMember, end: float) -> MemberFact:
    """Return the facts of a lost member, of which only the host matters."""
    fact = MemberFact(member.name, member.created_at, server_id=member.server_id)
    if time.monotonic() > end:
        return fact
    try:
        state = server_state(cloud, member.server_id)
        return replace(fact, host=state.host_id, host_down=state.host_silent)
    except CloudError:
        return fact


def _worked_on(tx: ProjectTransaction, group_id: str) -> dict[str, str]:
    """Return the members in maintenance, with the reason in words. A maintenance of the whole group
    holds alarms, but keeps no member from a role."""
    work = suspensions.of_group(tx, group_id).get("maintenance")
    if work is None or tx.now() >= work["until"]:
        return {}
    until = f"it is in maintenance until {format_time(work['until'])}"
    return dict.fromkeys(work["members"], f"{until}, by {work['by']}: {work['because']}")
