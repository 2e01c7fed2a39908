# SPDX-License-Identifier: Apache-2.0
"""One transaction: the primitives that convergence composes, in SQL.

``convergence.ports`` defines what each primitive must do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import networkx as nx
import sqlalchemy as sa

from mistral_failover.convergence import node_link
from mistral_failover.convergence.graph import TraversalPlan
from mistral_failover.convergence.records import (
    GroupState,
    JournalKind,
    Node,
    NodeView,
    Traversal,
    TraversalStatus,
)
from mistral_failover.model.goal import Goal
from mistral_failover.model.text import clean
from mistral_failover.store import goals as kept_goals
from mistral_failover.store.counters import KINDS, count_time
from mistral_failover.store.hooks import EVENTS
from mistral_failover.store.records import COLUMNS, Records, read_record
from mistral_failover.store.session import ProjectSession, chunks
from mistral_failover.store.sync_points import STATE_COLUMNS, SyncPoints, read_state
from mistral_failover.store.tables import (
    GROUP_STATE,
    definitions,
    former_members,
    goals,
    groups,
    journal,
    members,
    nodes,
    resources,
    traversals,
)

# Building a statement takes longer than running it, so the statements of every check are built
# once.
_GROUP = sa.select(
    *GROUP_STATE,
    groups.c.hook,
).where(groups.c.id == sa.bindparam("group_id"))
_LOCKED = {shared: _GROUP.with_for_update(read=shared) for shared in (True, False)}
# The nested query locks nothing: a traversal never changes its group.
_GROUP_OF = sa.select(*_GROUP.selected_columns).where(
    groups.c.id
    == sa.select(traversals.c.group_id)
    .where(traversals.c.id == sa.bindparam("traversal_id"))
    .scalar_subquery()
)
_LOCKED_OF = {shared: _GROUP_OF.with_for_update(read=shared) for shared in (True, False)}
_TRAVERSAL_COLUMNS = [traversals.c[each.name] for each in dataclasses.fields(Traversal)]
_TRAVERSAL = sa.select(*_TRAVERSAL_COLUMNS).where(traversals.c.id == sa.bindparam("traversal_id"))
_VIEW = (
    sa.select(*_TRAVERSAL_COLUMNS, *STATE_COLUMNS, *COLUMNS, members.c.epoch.label("now"))
    .join(
        nodes,
        sa.and_(nodes.c.traversal_id == traversals.c.id, nodes.c.node == sa.bindparam("this_node")),
        isouter=True,
    )
    .join(
        resources,
        sa.and_(
            resources.c.id == sa.bindparam("this_record"),
            resources.c.group_id == traversals.c.group_id,
        ),
        isouter=True,
    )
    .join(
        members,
        sa.and_(members.c.group_id == resources.c.group_id, members.c.name == resources.c.member),
        isouter=True,
    )
    .where(traversals.c.id == sa.bindparam("this_traversal"))
)
_PARTS = (
    len(_TRAVERSAL_COLUMNS),
    len(_TRAVERSAL_COLUMNS) + len(STATE_COLUMNS),
    len(_TRAVERSAL_COLUMNS) + len(STATE_COLUMNS) + len(COLUMNS),
)
_ENDING = sa.select(
    traversals.c.group_id, traversals.c.back, traversals.c.started_at, traversals.c.ended_at
)
_next = traversals.alias()
_FOLLOWED = (
    sa.select(*_TRAVERSAL_COLUMNS, _next.c.id.label("next"))
    .join(_next, _next.c.follows == traversals.c.id, isouter=True)
    .where(traversals.c.id == sa.bindparam("traversal_id"))
)
_OF_GOAL = (
    sa.select(traversals.c.definition_version)
    .where(traversals.c.group_id == goals.c.group_id, traversals.c.goal_version == goals.c.version)
    .order_by(
        sa.case((traversals.c.status == TraversalStatus.COMPLETE, 0), else_=1),
        traversals.c.number.desc(),
    )
    .limit(1)
    .correlate(goals)
    .scalar_subquery()
)
_GOAL = sa.select(goals.c.document, _OF_GOAL.label("definition")).where(
    goals.c.group_id == sa.bindparam("group_id"), goals.c.version == sa.bindparam("goal_version")
)
_DEFINITION = sa.select(definitions.c.document).where(
    definitions.c.group_id == sa.bindparam("group_id"),
    definitions.c.version == sa.bindparam("version"),
)
_DEFINED = (
    sa.select(definitions.c.document)
    .join(groups, groups.c.id == definitions.c.group_id)
    .where(groups.c.id == sa.bindparam("group_id"), definitions.c.version == groups.c.defined)
)
_EPOCHS = sa.select(members.c.name, members.c.epoch).where(
    members.c.group_id == sa.bindparam("group_id")
)


class SqlTransaction(Records, SyncPoints):
    """Implements ``convergence.ports.Transaction``."""

    def __init__(
        self, connection: sa.Connection, clock: Callable[[], sa.ColumnElement[float]]
    ) -> None:
        super().__init__(connection, clock)
        self.to_tell: set[str] = set()
        """The ids of groups with a new event in the journal that a workflow must receive."""
        self._hooked: set[str] = set()
        self._rehearsing: set[str] = set()

    def lock_group(self, group_id: str, *, shared: bool) -> GroupState | None:
        return self._group(_LOCKED[shared], {"group_id": group_id})

    def lock_group_of(self, traversal_id: str, *, shared: bool) -> GroupState | None:
        return self._group(_LOCKED_OF[shared], {"traversal_id": traversal_id})

    def _group(self, query: sa.Select[Any], here: Mapping[str, str]) -> GroupState | None:
        row = self.connection.execute(query, here).one_or_none()
        if row is None:
            return None
        *values, hook = row
        state = GroupState(*values)
        self.projects[state.id] = state.project_id
        if hook is not None:
            self._hooked.add(state.id)
        if state.rehearses is not None:
            self._rehearsing.add(state.id)
        return state

    def count(self, owner: str | None, name: str, *labels: str, value: float = 1.0) -> None:
        """As of the session. What a rehearsal does is no failover, and is not counted as one."""
        if owner not in self._rehearsing:
            super().count(owner, name, *labels, value=value)

    def definition(self, group_id: str, version: str | None = None) -> Mapping[str, Any]:
        here = {"group_id": group_id}
        found = (
            self.connection.execute(_DEFINED, here)
            if version is None
            else self.connection.execute(_DEFINITION, {**here, "version": version})
        )
        return cast(Mapping[str, Any], found.scalar_one())

    def goal(self, group_id: str, version: str) -> Goal | None:
        here = {"group_id": group_id, "goal_version": version}
        row = self.connection.execute(_GOAL, here).one_or_none()
        return Goal(row.document, definition=row.definition or "") if row is not None else None

    def save_goal(self, group_id: str, goal: Goal) -> None:
        if self.goal(group_id, goal.version) is None:
            self.insert(
                goals,
                group_id=group_id,
                version=goal.version,
                document=goal.document,
                created_at=self.clock(),
            )

    def traversal(self, traversal_id: str) -> Traversal | None:
        row = self.connection.execute(_TRAVERSAL, {"traversal_id": traversal_id}).one_or_none()
        return Traversal(*row) if row else None

    def view(self, traversal_id: str, node: Node) -> NodeView | None:
        here = {
            "this_traversal": traversal_id,
            "this_node": node.key,
            "this_record": node.resource_id,
        }
        row = self.connection.execute(_VIEW, here).one_or_none()
        if row is None:
            return None
        to_state, to_record, to_epoch = _PARTS
        state, record = row[to_state:to_record], row[to_record:to_epoch]
        return NodeView(
            Traversal(*row[:to_state]),
            None if state[0] is None else read_state(node, state),
            None if record[0] is None else read_record(record),
            row[to_epoch] or 0,
        )

    def followed(self, traversal_id: str) -> tuple[Traversal, str | None] | None:
        row = self.connection.execute(_FOLLOWED, {"traversal_id": traversal_id}).one_or_none()
        return (Traversal(*row[:-1]), row[-1]) if row else None

    def open_through(self, traversal_id: str, through: int | None) -> None:
        opening = traversals.update().where(traversals.c.id == traversal_id)
        if through is not None:  # null is never less: if all stages are open, they stay open
            opening = opening.where(traversals.c.through < through)
        self.execute(opening.values(through=through))

    def swap_traversal(
        self, group_id: str, expected: str | None, new: str, definition_version: str
    ) -> bool:
        return self.changed(
            groups.update()
            .where(
                groups.c.id == group_id,
                groups.c.current_traversal.is_not_distinct_from(expected),
            )
            .values(current_traversal=new, definition_version=definition_version)
        )

    def open_traversal(self, traversal: Traversal, plan: TraversalPlan) -> None:
        now = self.now()
        graph = plan.graph.copy()
        nx.set_node_attributes(
            graph, {key: str(each) for key, each in plan.stages.items()}, "stage"
        )
        self.insert(
            traversals,
            **vars(traversal),
            chains=0 if traversal.chain is None else 1,
            graph=node_link.written(graph),
            started_at=now,
            number=self.number(),
        )
        self.count(traversal.group_id, "traversals_started")
        self.insert_records(plan.new, now)
        for record_ids in chunks(plan.kept):
            self.execute(
                resources.update().where(resources.c.id.in_(record_ids)).values(replaced_by=None)
            )
        for old_ids in chunks(list(plan.replaced)):
            heirs = sa.case({old: plan.replaced[old] for old in old_ids}, value=resources.c.id)
            self.execute(
                resources.update().where(resources.c.id.in_(old_ids)).values(replaced_by=heirs)
            )
        self.insert_sync_points(traversal.id, plan)

    def driven_by(self, traversal_id: str, execution: str) -> None:
        """Record which Mistral execution drives a traversal, and count the executions."""
        self.execute(
            traversals.update()
            .where(
                traversals.c.id == traversal_id,
                sa.or_(traversals.c.chain.is_(None), traversals.c.chain != execution),
            )
            .values(chain=execution, chains=traversals.c.chains + 1)
        )

    def mark_traversal(
        self, traversal_id: str, status: TraversalStatus, reason: str, failed: Node | None = None
    ) -> None:
        self._mark(traversal_id, status, reason, failed_node=failed.key if failed else None)

    def supersede(self, traversal_id: str, by: str) -> None:
        self._mark(
            traversal_id, TraversalStatus.SUPERSEDED, f"superseded by {by}", superseded_by=by
        )
        self.drop_sync_points(traversal_id)

    def _mark(
        self, traversal_id: str, status: TraversalStatus, reason: str, **changes: Any
    ) -> None:
        ended: Any = None
        if status not in (TraversalStatus.IN_PROGRESS, TraversalStatus.BLOCKED):
            # It ended when it first failed, whatever fails later beside it. Do not test the status
            # here: MySQL evaluates assignments from left to right, so it would be the new status.
            ended = sa.func.coalesce(traversals.c.ended_at, self.clock())
        replaceable = traversals.c.status != TraversalStatus.COMPLETE
        if status == TraversalStatus.SUPERSEDED:  # a traversal that ended keeps its outcome
            replaceable = traversals.c.status.in_(
                (TraversalStatus.IN_PROGRESS, TraversalStatus.BLOCKED)
            )
        elif ended is None:
            replaceable = traversals.c.status.in_(
                (TraversalStatus.IN_PROGRESS, TraversalStatus.BLOCKED, TraversalStatus.FAILED)
            )
        query = _ENDING.add_columns(self.clock()).where(traversals.c.id == traversal_id)
        before = self.connection.execute(query).one_or_none() if ended is not None else None
        changed = self.changed(
            traversals.update()
            .where(traversals.c.id == traversal_id, replaceable)
            .values(status=status, reason=reason, ended_at=ended, **changes)
        )
        if changed and before is not None and before.ended_at is None:
            self._count_outcome(before, status)

    def _count_outcome(self, before: Any, status: TraversalStatus) -> None:
        """Count the outcome of a traversal. ``before``: its :data:`_ENDING`, and the time."""
        came_back = before.back and status == TraversalStatus.COMPLETE
        outcome = "RETURNED" if came_back else TraversalStatus(status).value
        self.count(before.group_id, "traversals", outcome)
        if status != TraversalStatus.SUPERSEDED:
            seconds = before[-1] - before.started_at
            count_time(self, before.group_id, "traversal_seconds", (outcome,), seconds)

    def set_last_complete(self, group_id: str, goal_version: str, in_force: str | None) -> None:
        self.execute(
            groups.update()
            .where(groups.c.id == group_id)
            .values(last_complete_goal=goal_version, in_force=in_force)
        )

    def reached_goals(self, group_id: str) -> Sequence[str]:
        return kept_goals.reached(self, group_id)

    def epochs(self, group_id: str) -> Mapping[str, int]:
        rows = self.connection.execute(_EPOCHS, {"group_id": group_id})
        return {row.name: row.epoch for row in rows}

    def raise_epochs(self, group_id: str, names: Iterable[str]) -> None:
        self.execute(
            members.update()
            .where(members.c.group_id == group_id, members.c.name.in_(list(names)))
            .values(epoch=members.c.epoch + 1)
        )

    def return_members(self, group_id: str, names: Iterable[str]) -> None:
        back = (former_members.c.group_id == group_id, former_members.c.name.in_(list(names)))
        known = self.epochs(group_id)
        for row in self.connection.execute(sa.select(former_members).where(*back)).all():
            if row.name not in known:
                self.insert(
                    members,
                    group_id=group_id,
                    name=row.name,
                    server_id=row.server_id,
                    epoch=row.epoch,
                )
        self.execute(former_members.delete().where(*back))

    def journal(
        self,
        group_id: str,
        sentence: str,
        *,
        kind: JournalKind,
        traversal_id: str | None = None,
        resource_id: str | None = None,
        incident_id: str | None = None,
        owner: str | None = None,
        token: int | None = None,
    ) -> None:
        if kind in EVENTS and group_id in self._hooked:
            self.to_tell.add(group_id)
        if kind in KINDS:
            self.count(group_id, "journal", JournalKind(kind).value)
        self.insert(
            journal,
            group_id=group_id,
            traversal_id=traversal_id,
            resource_id=resource_id,
            incident_id=incident_id,
            kind=kind,
            sentence=clean(sentence),
            at=self.clock(),
            owner=owner,
            token=token,
        )


class ProjectTransaction(SqlTransaction, ProjectSession):
    """A transaction that sees the rows of one project alone (``store.project_scope``)."""

    def __init__(
        self,
        connection: sa.Connection,
        clock: Callable[[], sa.ColumnElement[float]],
        project_id: str,
    ) -> None:
        super().__init__(connection, clock)
        self.project_id = project_id
