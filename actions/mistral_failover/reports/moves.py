# SPDX-License-Identifier: Apache-2.0
"""The history of groups, a row for each alarm and order: its cause, its outcome, how long the
service was away, and how much of that was waiting. Times and lengths in seconds.

One outage is one row: what was ordered while an earlier order had left the service down belongs to
that one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from mistral_failover.convergence.records import JournalKind, OperationStatus, TraversalStatus
from mistral_failover.groups.snapshot import group_snapshot
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.types import Verb, installed_types
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, moves
from mistral_failover.store.incidents import OPERATOR
from mistral_failover.store.moves import Blocking, LockWait, MadeRow, MoveRow, WorkRow
from mistral_failover.store.transaction import ProjectTransaction

RETURNED = "RETURNED"
"""The outcome of a move after which the roles are again where they were."""
ENGINE = "engine"
"""Who ordered a traversal that no alarm and no operator asked for, such as a repair."""


class Waited(TypedDict):
    """How long a move waited, within its ``seconds``. ``alarm``: from when its alarm was heard to
    its first traversal, held alarms and those that wait for their start; ``person``: while it was
    BLOCKED; ``lock``: while another owner had a resource (of a group's current traversal alone,
    otherwise 0)."""

    alarm: float
    person: float
    lock: float


class Move(TypedDict):
    """What one alarm or order led to, with those that ended its outage. ``traversal``: its first
    one; ``outcome``: the status of its last one, or RETURNED. ``by``: the alarm's source,
    ``operator``, or ``engine``. ``roles``: where they were to be, ``before`` at the move before;
    ``moved``: whether they differ. ``began_at``: when the alarm was heard, or the order's first
    traversal began. ``to_service``: from then until all that serves was made again; None: nothing
    of it was made, or the goal is not reached. ``seconds``: from then to its end, or to now while
    ``ended_at`` is None."""

    group: str
    traversal: str
    incident: str | None
    cause: str
    by: str
    outcome: str
    reason: str
    roles: dict[str, str]
    before: dict[str, str]
    moved: bool
    began_at: float
    ended_at: float | None
    to_service: float | None
    seconds: float
    waited: Waited


def listed(request: Request, name: str | None, limit: int) -> list[Move]:
    """Return the latest moves of a group, or of all groups of the project, the latest first. At
    most ``limit`` traversals are read. Raises UnknownGroup."""
    group_id = group_snapshot(request, name).state.id if name is not None else None
    return request.store.snapshot(lambda tx: since(request, tx, 0.0, limit, group_id))


def since(
    request: Request, tx: ProjectTransaction, begin: float, limit: int, group_id: str | None
) -> list[Move]:
    """Return the moves that began since then, the latest first."""
    rows = moves.moves(tx, begin, limit, group_id)
    ids = [row["id"] for row in rows]
    facts = _Facts(
        moves.work(tx, ids),
        moves.made(tx, ids),
        moves.blockings(tx, ids),
        moves.lock_waits(tx, ids),
        _serving_types(request, tx, {row["group_id"] for row in rows}),
        tx.now(),
    )
    found: list[Move] = []
    before: dict[str, dict[str, str]] = {}
    for outage in _outages(_chains(rows), facts):
        group = outage[0]["group_id"]
        found.append(_move(outage, before.get(group), facts))
        before[group] = found[-1]["roles"]
    return found[::-1]


@dataclass(frozen=True)
class _Facts:
    """What is stored of the traversals. ``serving``: by group, the types of what serves."""

    work: Sequence[WorkRow]
    made: Sequence[MadeRow]
    blockings: Sequence[Blocking]
    lock_waits: Sequence[LockWait]
    serving: Mapping[str, frozenset[str]]
    now: float


def _serving_types(
    request: Request, tx: ProjectTransaction, ids: Collection[str]
) -> dict[str, frozenset[str]]:
    found = {}
    for state in groups.states(tx):
        if state.id in ids:
            try:
                types = request.runtime.definitions.group(tx, state).types
            except InvalidDocument:  # it needs a package that is gone
                types = installed_types()
            found[state.id] = frozenset(name for name, each in types.items() if each.provides)
    return found


def _chains(rows: Sequence[MoveRow]) -> list[list[MoveRow]]:
    """Return the traversals of each alarm or order together, in the order of the first ones; the
    ``rows`` are the latest first."""
    found: dict[str, list[MoveRow]] = {}
    for row in reversed(rows):
        found.setdefault(row["incident"] or row["id"], []).append(row)
    return list(found.values())


def _outages(chains: Iterable[list[MoveRow]], facts: _Facts) -> list[list[MoveRow]]:
    """Return the traversals of each outage together: those of the alarm or order with which it
    began, and of all that followed until the group served again."""
    found: list[list[MoveRow]] = []
    down: dict[str, list[MoveRow]] = {}
    roles: dict[str, Mapping[str, str]] = {}
    for chain in chains:
        group = chain[0]["group_id"]
        outage = down.pop(group, None)
        if outage is None:
            found.append(outage := [])
        outage += chain
        if _left_down(outage, roles.get(group, {}), facts):
            down[group] = outage
        else:
            roles[group] = outage[-1]["goal"]["roles"]
    return found


def _left_down(chain: Sequence[MoveRow], before: Mapping[str, str], facts: _Facts) -> bool:
    """Return whether traversals ended, and the group served no more: not their goal was reached,
    and something that serves was released or could not be made; or nothing was done for a member
    that is lost, on which a role was ``before``."""
    last = chain[-1]
    if last["status"] == TraversalStatus.COMPLETE:
        return False
    ids, serving = {row["id"] for row in chain}, facts.serving.get(last["group_id"], frozenset())
    latest = {
        row["name"]: row
        for row in facts.work
        if row["traversal_id"] in ids and row["type"] in serving
    }
    if not latest:
        return not set(before.values()).isdisjoint(last["goal"]["lost"])
    return any(
        row["verb"] == Verb.DELETE or row["status"] != OperationStatus.DONE
        for row in latest.values()
    )


def _move(chain: Sequence[MoveRow], before: Mapping[str, str] | None, facts: _Facts) -> Move:
    first, last = chain[0], chain[-1]
    ids = {row["id"] for row in chain}
    by = ENGINE if first["incident"] is None else first["source"] or "alarm"
    heard = first["heard_at"] if by not in (ENGINE, OPERATOR) else None
    began = first["started_at"] if heard is None else min(heard, first["started_at"])
    serving = facts.serving.get(first["group_id"], frozenset())
    served = max(
        (row["at"] for row in facts.made if row["traversal_id"] in ids and row["type"] in serving),
        default=None,
    )
    roles = dict(last["goal"]["roles"])
    ended = last["ended_at"]
    done = last["status"] == TraversalStatus.COMPLETE
    end = facts.now if ended is None else ended
    return {
        "group": first["group"],
        "traversal": first["id"],
        "incident": first["incident"],
        "cause": first["cause"],
        "by": by,
        "outcome": RETURNED if done and _returned(chain, before) else last["status"],
        "reason": last["reason"],
        "roles": roles,
        "before": dict(before or {}),
        "moved": before is not None and roles != before,
        "began_at": began,
        "ended_at": ended,
        "to_service": max(0.0, served - began) if served is not None and done else None,
        "seconds": max(0.0, end - began),
        "waited": {
            "alarm": max(0.0, first["started_at"] - began),
            "person": _blocked(chain, facts),
            "lock": _union(
                (wait["since"], end if wait["until"] is None else wait["until"])
                for wait in facts.lock_waits
                if wait["traversal_id"] in ids
            ),
        },
    }


def _returned(chain: Sequence[MoveRow], before: Mapping[str, str] | None) -> bool:
    """Return whether the roles are where they were before, and were to be elsewhere in between."""
    wanted = [row["goal"]["roles"] for row in chain]
    return wanted[-1] == before and any(each != before for each in wanted)


def _blocked(chain: Sequence[MoveRow], facts: _Facts) -> float:
    """Return how long traversals waited for an operator, each until the next one began."""
    spans: list[tuple[float, float]] = []
    nexts = [*(row["started_at"] for row in chain[1:]), facts.now]
    for row, successor in zip(chain, nexts, strict=True):
        ended, since_ = row["ended_at"], None
        for entry in facts.blockings:
            if entry["traversal_id"] != row["id"]:
                continue
            if entry["kind"] == JournalKind.BLOCKED:
                since_ = entry["at"] if since_ is None else since_
            elif since_ is not None:
                spans.append((since_, entry["at"]))
                since_ = None
        if since_ is not None:
            spans.append((since_, successor if ended is None else min(ended, successor)))
    return _union(spans)


def _union(spans: Iterable[tuple[float, float]]) -> float:
    """Return how much time spans cover together."""
    total, covered = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, covered))
        covered = max(covered, end)
    return total
