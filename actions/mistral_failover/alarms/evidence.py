# SPDX-License-Identifier: Apache-2.0
"""Gather the evidence for and against alarms: one listing of the project's servers, one pass over
the agents' heartbeats. ``alarms.storm`` judges it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest

from mistral_failover.agent.wire import Address
from mistral_failover.alarms.storm import (
    Evidence,
    MemberEvidence,
    MemberKey,
    ServerCondition,
)
from mistral_failover.cloud.errors import CloudError
from mistral_failover.groups.agent_health import sends_commands
from mistral_failover.groups.project_view import REMEMBERED, ProjectView
from mistral_failover.groups.snapshot import group_snapshot_in
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.heartbeats import SILENT
from mistral_failover.model.observation import Presence
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, observations
from mistral_failover.store.transaction import ProjectTransaction


@dataclass(frozen=True)
class _Known:
    """A member. ``address``: of its agent, None if agents start nothing in its group. ``heard``:
    seconds since an observation heard its agent, at least; None if it never did."""

    key: MemberKey
    server: str
    address: Address | None
    lost: bool
    heard: float | None


def gather(request: Request, wanted: Collection[MemberKey]) -> Evidence:
    """Return what Nova and the agents say about the members of the project. The servers of the
    ``wanted`` ones are looked at in addition. A service that does not answer is in the evidence."""
    known, hosts = request.store.reading(partial(_members, request))
    try:
        view = ProjectView(request)
    except (ActionError, CloudError) as error:
        why = f"the cloud cannot be asked [{error.code}]"
        return Evidence({}, (why,))
    unreachable: list[str] = []
    try:
        hosts |= {server: host.host_id for server, host in view.listing.hosts().items()}
    except CloudError as error:
        unreachable.append(f"Nova does not answer [{error.code}]")
    members: dict[MemberKey, MemberEvidence] = {}
    for each in _alternating(known, wanted, hosts):
        condition, why = ServerCondition.UNKNOWN, ""
        if each.key in wanted and not unreachable:
            condition, why = _condition(view, each.server)
        ago = _silence(view, each)
        members[each.key] = MemberEvidence(hosts.get(each.server), condition, why, ago, each.lost)
    if view.unheard:
        unreachable.append(f"the agents' channel does not answer: {view.unheard}")
    return Evidence(members, tuple(unreachable))


def _alternating(
    known: Iterable[_Known], wanted: Collection[MemberKey], hosts: Mapping[str, str]
) -> list[_Known]:
    """Return the members in the order in which to ask their agents: one with an alarm and one
    without in turn, and of each kind one of every host before the second one of any. The time is
    limited, and an agent without a heartbeat takes longer than one that is heard."""
    of_host: Counter[tuple[bool, str | None]] = Counter()
    kinds: tuple[list[tuple[int, _Known]], list[tuple[int, _Known]]] = ([], [])
    for each in known:
        kind = each.key in wanted, hosts.get(each.server)
        kinds[kind[0]].append((of_host[kind], each))
        of_host[kind] += 1
    turns = (sorted(kind, key=lambda turn: turn[0]) for kind in kinds)
    return [turn[1] for pair in zip_longest(*turns) for turn in pair if turn is not None]


def _silence(view: ProjectView, each: _Known) -> float | None:
    """Return the seconds since an agent's last heartbeat, None if that is not known. If the channel
    has none any more, what an observation remembers counts, but only as silence: the channel may
    have lost the heartbeat of an agent that is well."""
    if each.address is None:
        return None
    if beat := view.heartbeat(each.address):
        return beat.ago
    asked = each.address in view.heard
    return each.heard if asked and each.heard is not None and each.heard > SILENT else None


def _members(request: Request, tx: ProjectTransaction) -> tuple[list[_Known], dict[str, str]]:
    """Return the members of the project, and the host ids on which they were last observed."""
    found: list[_Known] = []
    about: dict[str, tuple[bool, frozenset[str]]] = {}
    now, heard = tx.now(), observations.heard(tx)
    for each in groups.members_in(tx):
        if each.group_id not in about:
            state = groups.get(tx, each.group_id)
            if state is None:
                continue
            try:
                snapshot = group_snapshot_in(request, tx, state)
                about[each.group_id] = (sends_commands(snapshot.group), snapshot.lost)
            except InvalidDocument:  # what Nova says of its members still counts for the others
                about[each.group_id] = (False, frozenset())
        commanded, lost = about[each.group_id]
        address = Address(each.group_id, each.group, each.name, each.server_id)
        found.append(
            _Known(
                (each.group_id, each.name),
                each.server_id,
                address if commanded else None,
                each.name in lost,
                now - at - REMEMBERED if (at := heard.get(each.server_id)) is not None else None,
            )
        )
    seen = observations.hosts(tx)
    return found, {server: fields[0] for server, fields in seen.items()}


def _condition(view: ProjectView, server_id: str) -> tuple[ServerCondition, str]:
    look = view.server(server_id)
    if look.presence is Presence.GONE:
        return ServerCondition.ENDED, look.why
    try:
        state = view.listing.server(server_id)
    except CloudError:
        return ServerCondition.UNKNOWN, look.why
    if state.host_status == "DOWN":
        return ServerCondition.HOST_DOWN, f"its server is {state}"
    if look.presence is Presence.PRESENT and state.status == "ACTIVE":
        return ServerCondition.RUNNING, ""
    return ServerCondition.UNKNOWN, look.why
