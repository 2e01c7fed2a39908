# SPDX-License-Identifier: Apache-2.0
"""Find stalled work for a sweep. Each function runs in one transaction. Durations are in seconds by
the database's clock. The work of a group includes that of its rehearsals."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mistral_failover.convergence.records import (
    END,
    JournalKind,
    Node,
    NodeStatus,
    Ready,
    TraversalStatus,
)
from mistral_failover.model.decisions import AdmissionRule, Decision
from mistral_failover.model.goal import FENCE_PREFIX
from mistral_failover.store.incidents import OPERATOR
from mistral_failover.store.session import ProjectSession
from mistral_failover.store.tables import (
    OF_USERS,
    groups,
    incidents,
    journal,
    members,
    nodes,
    operations,
    resources,
    traversals,
)

# An embedded Mistral looks every second, and building these statements takes longer than running
# them. The database's clock is always the same expression, so each is built once.
_BUILT = 16
_MINE = groups.c.project_id == sa.bindparam("this_project")
_STOPPED = (TraversalStatus.FAILED, TraversalStatus.BLOCKED)
_THIS: sa.BindParameter[str] = sa.bindparam("this_group")
_ONE = sa.or_(groups.c.id == _THIS, groups.c.rehearses == _THIS)
_QUIET: sa.BindParameter[float] = sa.bindparam("quiet", type_=sa.Double)

_GUARDED = (
    sa.select(incidents.c.id)
    .where(
        incidents.c.project_id == sa.bindparam("this_project"),
        incidents.c.decision == Decision.HELD,
        incidents.c.rule == AdmissionRule.STORM,
    )
    .limit(1)
)


@dataclass(frozen=True)
class Stalled:
    """A current traversal with a ready node, ``resource``, that no worker carries out. ``dead``:
    the owner of its lock until the lease ended; None if the lock is free."""

    traversal_id: str
    group_id: str
    group: str
    resource: str
    dead: str | None


@dataclass(frozen=True)
class ChainWait:
    """A current traversal whose next stages wait for its chain, the execution ``chain``; None: no
    execution has driven it yet. ``chains``: how many have done so."""

    traversal_id: str
    group_id: str
    group: str
    chain: str | None
    chains: int


@dataclass(frozen=True)
class BlockedBy:
    """A server, or a volume and a server (ids), whose state blocked an operation. ``sight``: what
    was seen of them then."""

    server: str
    sight: str
    volume: str | None = None


@dataclass(frozen=True)
class StoppedStep:
    """A node that failed, or is blocked: the ``status`` and ``since`` when. ``about``: that whose
    change shows that it can go on; None: nothing shows it. ``due``: it is time to try.
    ``operation``: the key of its last operation, None if it had none."""

    ready: Ready
    group_id: str
    group: str
    resource: str
    status: NodeStatus
    since: float
    about: BlockedBy | None
    due: bool
    operation: str | None = None


def stalled(
    tx: ProjectSession, group_id: str | None, quiet: float, *, asked_for: bool = False
) -> list[Stalled]:
    """Return the traversals with a ready node that no worker carries out, one row each.

    A lock whose lease is over means that its owner is dead. If the lock is free, a worker may be
    about to take it. So it counts only if the traversal has no journal entry for ``quiet`` seconds,
    or if the last entry says that a stopping process handed its work back. Neither counts within
    ``quiet`` seconds after a sweep took over the traversal, so that only one of two simultaneous
    sweeps does so. That sweep's process may have died since: ``asked_for``, by an operator, it
    counts at once.
    """
    query = _stalled(tx.clock(), group_id is not None, asked_for)
    here = _here(tx, group_id) | {"quiet": quiet}
    found: dict[str, Stalled] = {}
    for row in tx.connection.execute(query, here):
        found.setdefault(
            row.traversal_id,
            Stalled(row.traversal_id, row.group_id, row.group, row.resource, row.owner),
        )
    return list(found.values())


def _here(tx: ProjectSession, group_id: str | None) -> dict[str, Any]:
    """Return the parameters of the statements below."""
    return {"this_project": tx.project_id} | ({} if group_id is None else {"this_group": group_id})


@functools.lru_cache(_BUILT)
def _stalled(now: sa.ColumnElement[float], of_group: bool, asked_for: bool) -> sa.Select[Any]:
    here = (journal.c.group_id == groups.c.id, journal.c.traversal_id == nodes.c.traversal_id)
    lately, by_sweep = journal.c.at > now - _QUIET, journal.c.kind == JournalKind.SWEEP
    heard = sa.exists().where(*here, lately, sa.not_(by_sweep))
    swept = sa.exists().where(*here, lately, by_sweep)
    last = (
        sa.select(journal.c.kind)
        .where(*here, sa.not_(by_sweep))
        .order_by(journal.c.id.desc())
        .limit(1)
        .correlate(groups, nodes)
        .scalar_subquery()
    )
    query = (
        sa.select(
            nodes.c.traversal_id,
            groups.c.id.label("group_id"),
            groups.c.name.label("group"),
            resources.c.name.label("resource"),
            resources.c.owner,
        )
        .join(groups, groups.c.current_traversal == nodes.c.traversal_id)
        .join(traversals, traversals.c.id == nodes.c.traversal_id)
        .join(resources, resources.c.id == nodes.c.resource_id)
        .where(
            _MINE,
            *_workable(),
            sa.or_(
                sa.and_(
                    resources.c.owner.is_(None),
                    sa.or_(sa.not_(heard), last == JournalKind.HANDED_BACK),
                ),
                resources.c.lease_until <= now,
            ),
            # While it waits for a service, a loop retries it in time.
            sa.or_(nodes.c.next_try.is_(None), nodes.c.next_try <= now - _QUIET),
        )
        .order_by(groups.c.name, nodes.c.node)
    )
    query = query if asked_for else query.where(sa.not_(swept))
    return query.where(_ONE) if of_group else query


def chain_waits(
    tx: ProjectSession, group_id: str | None, quiet: float, *, asked_for: bool = False
) -> list[ChainWait]:
    """Return the traversals in which every ready node waits for the chain to open the next stage,
    or that have made room for a member, without a journal entry for ``quiet`` seconds.
    ``asked_for``: as in :func:`stalled`."""
    query = _chain_waits(tx.clock(), group_id is not None, asked_for)
    here = _here(tx, group_id) | {"quiet": quiet}
    return [ChainWait(*row) for row in tx.connection.execute(query, here)]


@functools.lru_cache(_BUILT)
def _chain_waits(now: sa.ColumnElement[float], of_group: bool, asked_for: bool) -> sa.Select[Any]:
    waiting = (
        nodes.c.traversal_id == traversals.c.id,
        nodes.c.status == NodeStatus.WAITING,
        nodes.c.remaining == 0,
        nodes.c.node != END,
    )
    query = (
        sa.select(
            traversals.c.id.label("traversal_id"),
            groups.c.id.label("group_id"),
            groups.c.name.label("group"),
            traversals.c.chain,
            traversals.c.chains,
        )
        .join(groups, groups.c.current_traversal == traversals.c.id)
        .where(
            _MINE,
            sa.or_(
                sa.and_(
                    traversals.c.through.is_not(None),
                    sa.exists().where(*waiting, nodes.c.stage > traversals.c.through),
                    sa.not_(sa.exists().where(*waiting, nodes.c.stage <= traversals.c.through)),
                ),
                sa.and_(  # all is done, but the goal is not reached: it has made room
                    traversals.c.status == TraversalStatus.IN_PROGRESS,
                    sa.not_(
                        sa.exists().where(
                            nodes.c.traversal_id == traversals.c.id,
                            nodes.c.node != END,
                            nodes.c.status != NodeStatus.DONE,
                        )
                    ),
                ),
            ),
            sa.not_(
                sa.exists().where(
                    journal.c.group_id == groups.c.id,
                    journal.c.traversal_id == traversals.c.id,
                    journal.c.at > now - _QUIET,
                    journal.c.kind != JournalKind.SWEEP if asked_for else sa.true(),
                )
            ),
        )
        .order_by(groups.c.name)
    )
    return query.where(_ONE) if of_group else query


def _workable() -> tuple[sa.ColumnElement[bool], ...]:
    """Return the conditions for a node that waits for nothing, in an open stage."""
    return (
        nodes.c.status == NodeStatus.WAITING,
        nodes.c.remaining == 0,
        sa.or_(traversals.c.through.is_(None), nodes.c.stage <= traversals.c.through),
    )


def stopped(tx: ProjectSession, group_id: str | None) -> list[str]:
    """Return the ids of the current traversals that are FAILED or BLOCKED, of the project or of one
    group."""
    query = (
        sa.select(traversals.c.id)
        .join(groups, groups.c.current_traversal == traversals.c.id)
        .where(_MINE, OF_USERS, traversals.c.status.in_(_STOPPED))
        .order_by(groups.c.name)
    )
    query = query.where(_ONE) if group_id is not None else query
    return list(tx.connection.execute(query, _here(tx, group_id)).scalars())


def confirmed_fences(tx: ProjectSession, group_id: str | None) -> list[tuple[str, str, str]]:
    """Return the (group id, group, member) of blocked fences whose member an operator has confirmed
    as fenced in its present epoch: the process that recorded this died before it reopened them."""
    query = _confirmed_fences(group_id is not None)
    rows = tx.connection.execute(query, _here(tx, group_id))
    return [(row[0], row[1], row[2]) for row in rows]


@functools.cache
def _confirmed_fences(of_group: bool) -> sa.Select[Any]:
    query = (
        sa.select(groups.c.id, groups.c.name, members.c.name)
        .join(nodes, nodes.c.traversal_id == groups.c.current_traversal)
        .join(resources, resources.c.id == nodes.c.resource_id)
        .join(members, members.c.group_id == groups.c.id)
        .where(
            _MINE,
            nodes.c.status == NodeStatus.BLOCKED,
            resources.c.name == sa.literal(FENCE_PREFIX) + members.c.name,
            members.c.confirmed_epoch == members.c.epoch,
        )
        .order_by(groups.c.name, members.c.name)
    )
    return query.where(_ONE) if of_group else query


@dataclass(frozen=True)
class TargetDown:
    """A node that waits because the ``server`` of its ``member`` can take nothing: ``why``, in
    words. ``evidence`` and ``held`` as in ``cloud.volume_holders.target_down``; ``error``: of its
    latest try."""

    ready: Ready
    resource_id: str
    resource: str
    member: str
    why: str
    evidence: str
    held: bool
    server: str
    error: Mapping[str, Any]


def targets_down(tx: ProjectSession, traversal_id: str, now: float) -> list[TargetDown]:
    """Return the nodes of a traversal that wait for their member's server; those that are to be
    tried again ``now``, in seconds, are left out."""
    here = {"this_traversal": traversal_id, "this_now": now}
    return [
        TargetDown(
            Ready(row.traversal_id, Node.parse(row.node)),
            row.resource_id,
            row.resource,
            row.member,
            target["why"],
            target["evidence"],
            bool(target["held"]),
            target["server"],
            error,
        )
        for row, error in _latest_errors(tx, _errors_of_waiting(), here)
        if (target := error.get("target")) is not None and row.member is not None
    ]


def stopped_steps(
    tx: ProjectSession, group_id: str | None, *, asked_for: bool = False
) -> list[StoppedStep]:
    """Return the nodes of current traversals that failed or are blocked, if it is time to try them
    again, or if a change of a volume or server may show that earlier. ``asked_for``, by an
    operator, it is time at once."""
    now = tx.now()
    found = []
    for row, error in _latest_errors(tx, _stopped(group_id is not None), _here(tx, group_id)):
        about = error.get("about")
        due = asked_for or row.again_at is None or row.again_at <= now
        if about is None and not due:
            continue
        found.append(
            StoppedStep(
                Ready(row.traversal_id, Node.parse(row.node)),
                row.group_id,
                row.group,
                row.resource,
                row.status,
                row.stopped_since or now,
                None if about is None else BlockedBy(**about),
                due,
                row.operation,
            )
        )
    return found


def forget_change(tx: ProjectSession, stopped: StoppedStep) -> None:
    """Forget what the last operation of a node recorded of the thing that blocked it."""
    own = operations.c.key == stopped.operation
    result = tx.connection.execute(sa.select(operations.c.result).where(own)).scalar_one_or_none()
    if result and "about" in (error := result.get("error") or {}):
        kept = {key: value for key, value in error.items() if key != "about"}
        tx.connection.execute(
            sa.update(operations).where(own).values(result={**result, "error": kept})
        )


def _latest_errors(
    tx: ProjectSession, query: sa.Select[Any], here: Mapping[str, Any]
) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Return the nodes of current traversals, each with the error of its latest operation, empty if
    that had none."""
    latest = {(row.traversal_id, row.node): row for row in tx.connection.execute(query, here)}
    for row in latest.values():
        yield row, (row.result or {}).get("error") or {}


@functools.cache
def _errors_of_waiting() -> sa.Select[Any]:
    return _errors_of(
        nodes.c.traversal_id == sa.bindparam("this_traversal"),
        nodes.c.status == NodeStatus.WAITING,
        nodes.c.next_try > sa.bindparam("this_now", type_=sa.Double),
    )


@functools.cache
def _stopped(of_group: bool) -> sa.Select[Any]:
    query = _errors_of(
        _MINE, nodes.c.status.in_((NodeStatus.FAILED, NodeStatus.BLOCKED)), with_operation=False
    )
    return query.where(_ONE) if of_group else query


def _errors_of(*which: sa.ColumnElement[bool], with_operation: bool = True) -> sa.Select[Any]:
    """Return the operations of nodes of current traversals, the latest last; without
    ``with_operation`` also the nodes that had none."""
    return (
        sa.select(
            nodes.c.traversal_id,
            nodes.c.node,
            nodes.c.status,
            nodes.c.stopped_since,
            nodes.c.again_at,
            groups.c.id.label("group_id"),
            groups.c.name.label("group"),
            resources.c.id.label("resource_id"),
            resources.c.name.label("resource"),
            resources.c.member,
            operations.c.key.label("operation"),
            operations.c.result,
        )
        .join(groups, groups.c.current_traversal == nodes.c.traversal_id)
        .join(resources, resources.c.id == nodes.c.resource_id)
        .join(
            operations,
            sa.and_(
                operations.c.resource_id == nodes.c.resource_id,
                operations.c.traversal_id == nodes.c.traversal_id,
            ),
            isouter=not with_operation,
        )
        .where(*which)
        .order_by(groups.c.name, nodes.c.node, operations.c.token)
    )


def active_owners(tx: ProjectSession, within: float) -> set[str]:
    """Return the owners that hold a live lock in the project, or that began or ended an operation
    within the last ``within`` seconds: a worker holds no lock between two operations."""
    now = tx.clock()
    holders = (
        sa.select(resources.c.owner)
        .join(groups, groups.c.id == resources.c.group_id)
        .where(groups.c.project_id == tx.project_id, resources.c.lease_until > now)
    )
    found = set(tx.connection.execute(holders).scalars())
    lately = (
        sa.select(operations.c.owner)
        .join(groups, groups.c.id == operations.c.group_id)
        .where(
            groups.c.project_id == tx.project_id,
            sa.or_(operations.c.started_at > now - within, operations.c.ended_at > now - within),
        )
        .distinct()
    )
    return found | set(tx.connection.execute(lately).scalars())


def unstarted(tx: ProjectSession, quiet: float) -> bool:
    """Return whether an alarm was admitted at least ``quiet`` seconds ago and has no traversal.
    Orders of operators do not count: operators see the failure and may have chosen another way."""
    here = {"this_project": tx.project_id, "quiet": quiet}
    return tx.connection.execute(_unstarted(tx.clock()), here).first() is not None


@functools.lru_cache(_BUILT)
def _unstarted(now: sa.ColumnElement[float]) -> sa.Select[Any]:
    return (
        sa.select(incidents.c.id)
        .where(
            incidents.c.project_id == sa.bindparam("this_project"),
            incidents.c.decision == Decision.ADMITTED,
            incidents.c.source != OPERATOR,
            incidents.c.traversal_id.is_(None),
            incidents.c.group_id.is_not(None),
            incidents.c.decided_at <= now - _QUIET,
        )
        .limit(1)
    )


def started_since(tx: ProjectSession, since: float) -> bool:
    """Return whether a traversal of the project has started since a time."""
    query = (
        sa.select(traversals.c.id)
        .join(groups, groups.c.id == traversals.c.group_id)
        .where(groups.c.project_id == tx.project_id, OF_USERS, traversals.c.started_at >= since)
    )
    return tx.connection.execute(query.limit(1)).first() is not None


def guarded(tx: ProjectSession) -> bool:
    """Return whether the storm guard holds an alarm of a project."""
    return tx.connection.execute(_GUARDED, {"this_project": tx.project_id}).first() is not None


def group_of(tx: ProjectSession, traversal_id: str) -> str | None:
    """Return the id of the project's group that a traversal belongs to."""
    query = (
        sa.select(groups.c.id)
        .join(traversals, traversals.c.group_id == groups.c.id)
        .where(groups.c.project_id == tx.project_id, traversals.c.id == traversal_id)
    )
    found: str | None = tx.connection.execute(query).scalar_one_or_none()
    return found
