# SPDX-License-Identifier: Apache-2.0
"""Whether groups serve, from what the state store has: the one answer that the status, the
overview, the page and the metrics show. The rules: ``model.observation.service_state``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mistral_failover.convergence.records import Action, GroupState, Record, Status, TraversalStatus
from mistral_failover.groups import agent_epochs, unfinished_replacements
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.goal import REPLACE_TYPE, Goal, resource_names, vacant_roles
from mistral_failover.model.group import Group
from mistral_failover.model.observation import (
    AS_RECORDED,
    EngineView,
    Look,
    ObservedMember,
    Service,
    ServiceState,
    keeps_from_roles,
    service_state,
    unheld,
)
from mistral_failover.runtime.process import Runtime
from mistral_failover.store import services as stored
from mistral_failover.store.services import ServiceRow
from mistral_failover.store.transaction import SqlTransaction

_STOPPED = frozenset({TraversalStatus.FAILED, TraversalStatus.BLOCKED})


def services(
    runtime: Runtime, tx: SqlTransaction, only: Sequence[GroupState] | None = None
) -> dict[str, ServiceState]:
    """Return by group id whether each group serves: of these, or of all that the transaction
    sees."""
    ids = None if only is None else [each.id for each in only]
    return {each: known.state for each, known in judged_services(runtime, tx, ids).items()}


@dataclass(frozen=True)
class JudgedService:
    """Whether a group serves, and what that was judged by: what the ``engine`` knows in its current
    ``traversal`` (an id), and the last ``look``. ``name``: the group's."""

    name: str
    state: ServiceState
    engine: EngineView
    traversal: str | None
    look: Look | None

    @property
    def serves_on(self) -> dict[str, str]:
        """The member on which each role serves now; empty unless it is known that they do."""
        serves = self.state.service in (Service.SERVING, Service.DEGRADED)
        return dict(self.engine.roles) if serves else {}


def judged_services(
    runtime: Runtime, tx: SqlTransaction, ids: Sequence[str] | None
) -> dict[str, JudgedService]:
    """Return by group id whether each group serves: of these, or of all that the transaction sees.

    The number of statements does not grow with the number of groups. What a group is made of is
    read only if no look has seen it since the engine worked on it, or that did not reach its goal;
    and for a single one, whose ``since`` and reasons are complete.
    """
    now, interval = tx.now(), runtime.settings.observe_interval
    rows = stored.rows(tx, ids)
    alarms = stored.waiting_alarms(tx, ids)
    single = ids is not None and len(ids) == 1
    read = [
        row.state.id
        for row in rows
        if row.goal and (single or row.status in _STOPPED or not _was_seen(row))
    ]
    records, made = stored.records(tx, read), stored.made_at(tx, read)
    members, lost_until = stored.member_names(tx, read), stored.lost_until(tx, read)
    found = {}
    for row in rows:
        identity = row.state.id
        mine = records.get(identity, [])
        engine = EngineView()
        if row.state.restored:
            state = ServiceState(Service.UNKNOWN, (agent_epochs.older(row.state.name),), None, None)
            found[identity] = JudgedService(row.state.name, state, engine, None, row.look)
            continue
        try:
            group = runtime.definitions.group(tx, row.state) if mine else None
        except InvalidDocument as error:  # it needs a package that is gone
            state = ServiceState(Service.UNKNOWN, (str(error),), None, None)
            found[identity] = JudgedService(row.state.name, state, engine, None, row.look)
            continue
        if row.goal is not None:
            held = standing(group, row.goal, mine) if group is not None else Standing()
            known = members.get(identity, ())
            cold = group is not None and group.members.cold
            lost = lost_until.get(identity, {})
            engine = _engine(row, row.goal, mine, held, made, known, lost, now, cold=cold)
        state = service_state(engine, row.look, alarms.get(identity, ()), now, interval)
        found[identity] = JudgedService(
            row.state.name, state, engine, row.state.current_traversal, row.look
        )
    return found


def _was_seen(row: ServiceRow) -> bool:
    """Return whether a group was looked at since its traversal ended: then the look knows all."""
    return row.ended_at is not None and row.look is not None and row.look.at >= row.ended_at


@dataclass(frozen=True)
class Standing:
    """What serves now, by a group's records. ``records``: what exists of the things that serve, and
    that the goal wants; ``roles``: the member on which each role serves; ``missing``: what does not
    exist, a clause for each."""

    records: tuple[Record, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


def standing(group: Group, goal: Goal, records: Sequence[Record]) -> Standing:
    """Return what serves now. Until a traversal has released it, that is what the goal replaces."""
    lost = _lost(goal, records)
    wanted = resource_names(goal)
    types = {name for name, each in group.types.items() if each.provides}
    serving = [each for each in records if each.type in types and each.name in wanted]
    there = [each for each in serving if _exists(each) and each.member not in lost]
    kept = {each.name for each in there if each.replaced_by is None}
    there = [each for each in there if each.replaced_by is None or each.name not in kept]
    roles = dict(goal.document["roles"])
    for role in roles:
        on = {each.member for each in there if group.role_of(each.name) == role and each.member}
        if on and roles[role] not in on:
            roles[role] = min(on)
    return Standing(tuple(there), roles, _missing(serving, lost))


def _lost(goal: Goal, records: Sequence[Record]) -> frozenset[str]:
    replaced = unfinished_replacements.replaced_lost_members(goal, records)
    return frozenset(goal.document["lost"]) - replaced


def _engine(
    row: ServiceRow,
    goal: Goal,
    records: Sequence[Record],
    held: Standing,
    made: Mapping[str, float],
    members: Iterable[str],
    lost_until: Mapping[str, float],
    now: float,
    *,
    cold: bool,
) -> EngineView:
    roles = held.roles or goal.document["roles"]
    lost = _lost(goal, records)
    at: dict[str | None, dict[str, float]] = {}
    for each in held.records:
        at.setdefault(each.member, {})[each.name] = made.get(each.id, 0.0)
    renewed = {
        str(each.properties["member"]): made.get(each.id, 0.0)
        for each in records
        if each.type == REPLACE_TYPE and each.properties and _exists(each)
    }
    in_maintenance = row.in_maintenance if now < row.until else ()
    return EngineView(
        roles,
        tuple(
            ObservedMember(
                name,
                tuple(sorted(role for role, holder in roles.items() if holder == name)),
                AS_RECORDED,
                keeps_from_roles(name, lost, in_maintenance),
            )
            for name in members
        ),
        row.started_at,
        row.ended_at,
        row.status == TraversalStatus.COMPLETE,
        row.status if row.status in _STOPPED else "",
        at,
        (*unheld(vacant_roles(goal)), *(() if _was_seen(row) else held.missing)),
        cold,
        goal.document["stack"],
        lost_until,
        renewed,
    )


def _missing(records: Iterable[Record], lost: Collection[str]) -> tuple[str, ...]:
    """Return what a group lacks to serve, a clause each: of the records of what serves, the names
    that exist on no member, or only on a lost one."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.name, []).append(record)
    return tuple(
        f"{name} is not in service ({'; '.join(_state(each, lost) for each in rows)})"
        for name, rows in sorted(found.items())
        if not any(_exists(each) and each.member not in lost for each in rows)
    )


def _exists(record: Record) -> bool:
    return record.action in (Action.CREATE, Action.UPDATE) and record.status == Status.COMPLETE


def _state(record: Record, lost: Collection[str]) -> str:
    on = f" on {record.member}" if record.member else ""
    if record.action == Action.INIT:
        return f"not yet{on}"
    if _exists(record) and record.member in lost:
        return f"still{on}, which is lost"
    return f"{record.action.lower()} {record.status.lower().replace('_', ' ')}{on}"
