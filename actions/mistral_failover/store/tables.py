# SPDX-License-Identifier: Apache-2.0
"""The tables. Times are seconds since the epoch by the database's clock. Ids are UUIDs.

Every row belongs to a project or to a group, and each group belongs to one project. `project_scope`
narrows every statement of a project's transaction to its own. Only the rows of `host_fences`,
`blocked_clients` and `numbers` belong to the cloud: a compute host serves many projects, and a
block outlives the group that needed it.

A column that names a row of another table has a foreign key, except where the row may outlive the
other one: the journal and incidents outlive the traversals, records and groups that they name,
former members outlive their group, and an operation outlives its traversal while its record is
there. Members have none, because they are recorded while the group is not locked.
"""

from __future__ import annotations

import dataclasses
import json
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect

from mistral_failover.convergence.records import (
    Action,
    GroupState,
    JournalKind,
    NodeStatus,
    OperationStatus,
    Status,
    TraversalStatus,
)
from mistral_failover.model.alarm_fact import AlarmFact
from mistral_failover.model.decisions import AdmissionRule, Decision
from mistral_failover.model.observation import Observation, ObservationMemory, Service
from mistral_failover.model.order import Order
from mistral_failover.model.rehearsals import RehearsalOutcome
from mistral_failover.model.stored import Stored
from mistral_failover.model.types import Verb

ASKED = 255
"""Characters of a request that are kept."""
# docs/_ext/columns.py describes each column; the documentation is made from it.
metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    }
)


class PlainJson(sa.types.TypeDecorator[Any]):
    """JSON as text, because each database's own JSON type treats numbers and null differently."""

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> sa.types.TypeEngine[Any]:
        """Use LONGTEXT in MySQL: its TEXT ends at 64 KiB, and a large group's graph exceeds
        that."""
        if dialect.name in ("mysql", "mariadb"):
            return dialect.type_descriptor(mysql.LONGTEXT())
        return dialect.type_descriptor(sa.Text())

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(value, separators=(",", ":"), default=_plain)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)  # noqa: TID251 - what we wrote


class StoredJson(PlainJson):
    """A type of the model as JSON: statements take it, and rows have it."""

    cache_ok = True

    def __init__(self, of: type[Stored]) -> None:
        super().__init__()
        self.of = of

    def process_bind_param(self, value: Stored | None, dialect: Dialect) -> str | None:
        return super().process_bind_param(value and value.document(), dialect)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Stored | None:
        found = super().process_result_value(value, dialect)
        return None if found is None else self.of.read(found)


def _plain(value: Any) -> Any:
    if hasattr(value, "items"):
        return dict(value.items())
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _id(name: str, *items: sa.schema.SchemaItem, **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.String(36), *items, **options)


def _part_of(table: str) -> sa.ForeignKey:
    """Return a foreign key that deletes the row together with the row that it belongs to.

    Only tables whose rows are written while the other row is locked, or new, have this key, because
    InnoDB locks the other row for it.
    """
    return sa.ForeignKey(f"failover_{table}.id", ondelete="CASCADE")


def _table(name: str, *items: sa.schema.SchemaItem, **options: Any) -> sa.Table:
    """Define a table. In MySQL it accepts any script and distinguishes names by case. The server's
    defaults may do neither."""
    return sa.Table(
        name,
        metadata,
        *items,
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        **options,
    )


# Seconds with microseconds: MySQL's FLOAT would be single precision.
_Time = sa.Double
_Reason = sa.Text
# SQLite increments only an INTEGER primary key by itself.
_Counted = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _number(name: str) -> sa.Column[int]:
    """Return a column for one of `numbers`."""
    return sa.Column(name, sa.BigInteger, nullable=False)


# An order for rows of other tables: a clock can give two rows the same time, and can step back. A
# row in this table does not outlive the transaction that takes its number.
numbers = _table(
    "failover_numbers",
    sa.Column("id", _Counted, primary_key=True, autoincrement=True),
    # Without this SQLite reuses the numbers of deleted rows.
    sqlite_autoincrement=True,
)


class Word(sa.types.TypeDecorator[str]):
    """A word of an enumeration, in rows too. A statement with another word raises ValueError before
    it is sent; a row may have one that only a later version knows, as text.

    A CHECK in the database would need a migration for each new word.
    """

    impl = sa.String
    cache_ok = True

    def __init__(self, kind: type[StrEnum], length: int) -> None:
        super().__init__(length)
        self.kind, self.length = kind, length

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else self.kind(value).value

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        try:
            return None if value is None else self.kind(value)
        except ValueError:
            return value


def _one_of(name: str, kind: type[StrEnum], length: int = 16) -> sa.Column[str]:
    """Return a column for a word of ``kind``."""
    return sa.Column(name, Word(kind, length), nullable=False)


groups = _table(
    "failover_groups",
    _id("id", primary_key=True),
    sa.Column("project_id", sa.String(64), nullable=False),
    sa.Column("name", sa.String(255), nullable=False),
    # Versions of `definitions`: of the current traversal (before the first one, as `defined`), of
    # what the user gave last, and of the last traversal that reached its goal.
    sa.Column("definition_version", sa.String(64), nullable=False),
    sa.Column("defined", sa.String(64), nullable=False),
    sa.Column("in_force", sa.String(64)),
    _id("current_traversal"),
    sa.Column("last_complete_goal", sa.String(64)),
    sa.Column("created_at", _Time, nullable=False),
    sa.Column("pause", PlainJson),
    sa.Column("maintenance", PlainJson),
    # The stack that the group file names, its id since the group took members from it, and one of
    # `numbers` since an operator let the group take another one of that name.
    sa.Column("stack_name", sa.String(255)),
    _id("stack_id"),
    sa.Column("adopted", sa.BigInteger),
    # Its other rows are older than what happened in the cloud: see docs/backup.md.
    sa.Column("restored", sa.Boolean, nullable=False, server_default="0"),
    # The user's workflow that receives events; the last row of the journal that it received; and
    # the event whose delivery failed, once that was recorded.
    sa.Column("hook", sa.String(255)),
    sa.Column("told", sa.BigInteger),
    sa.Column("stuck", sa.BigInteger),
    # The group whose failover is rehearsed here; none: it is a group of a user.
    _id("rehearses"),
    sa.UniqueConstraint("project_id", "name"),
)

OF_USERS = groups.c.rehearses.is_(None)
"""The groups that users have defined."""

GROUP_STATE = [groups.c[each.name] for each in dataclasses.fields(GroupState)]
"""The columns of a GroupState, in the order of its fields."""

# No key: a traversal names a definition by its group and version, and outlives none of them.
definitions = _table(
    "failover_definitions",
    _id("group_id", _part_of("groups"), primary_key=True),
    sa.Column("version", sa.String(64), primary_key=True),
    sa.Column("document", PlainJson, nullable=False),
    sa.Column("created_at", _Time, nullable=False),
)

goals = _table(
    "failover_goals",
    _id("group_id", _part_of("groups"), primary_key=True),
    sa.Column("version", sa.String(64), primary_key=True),
    sa.Column("document", PlainJson, nullable=False),
    sa.Column("created_at", _Time, nullable=False),
)

members = _table(
    "failover_members",
    _id("group_id", primary_key=True),
    sa.Column("name", sa.String(255), primary_key=True),
    _id("server_id", index=True),
    sa.Column("created_at", _Time),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("confirmed_epoch", sa.Integer),
    sa.Column("confirmed_because", _Reason),
)

# Of former members the epoch remains, because the agent on a server remembers it: a member that
# comes back continues from there and never gets a command of its predecessor.
former_members = _table(
    "failover_former_members",
    _id("group_id", primary_key=True),
    sa.Column("name", sa.String(255), primary_key=True),
    _id("server_id"),
    sa.Column("epoch", sa.Integer, nullable=False),
)

traversals = _table(
    "failover_traversals",
    _id("id", primary_key=True),
    _id("group_id", _part_of("groups"), nullable=False, index=True),
    sa.Column("goal_version", sa.String(64), nullable=False),
    _one_of("status", TraversalStatus),
    sa.Column("reason", _Reason, nullable=False),
    sa.Column("cause", _Reason, nullable=False),
    _id("incident_id"),
    sa.Column("graph", PlainJson, nullable=False),
    sa.Column("started_at", _Time, nullable=False),
    sa.Column("ended_at", _Time),
    sa.Column("back", sa.Boolean, nullable=False, server_default="0"),
    sa.Column("through", sa.SmallInteger),
    _id("follows", index=True),
    _id(
        "superseded_by",
        sa.ForeignKey("failover_traversals.id", ondelete="SET NULL"),
        index=True,
    ),
    _id("chain"),
    sa.Column("definition_version", sa.String(64), nullable=False),
    sa.Column("chains", sa.Integer, nullable=False, server_default="0"),
    sa.Column("failed_node", sa.String(64)),
    _number("number"),
)

resources = _table(
    "failover_resources",
    _id("id", primary_key=True),
    _id("group_id", _part_of("groups"), nullable=False),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("type", sa.String(255), nullable=False),
    sa.Column("member", sa.String(255)),
    sa.Column("epoch", sa.Integer, nullable=False),
    _one_of("action", Action),
    _one_of("status", Status),
    sa.Column("reason", _Reason, nullable=False),
    sa.Column("properties", PlainJson),
    sa.Column("applied", PlainJson),
    sa.Column("physical_id", sa.String(255)),
    sa.Column("attributes", PlainJson, nullable=False),
    sa.Column("requires", PlainJson, nullable=False),
    sa.Column("goal_version", sa.String(64), nullable=False),
    _id("replaces"),
    _id("replaced_by"),
    sa.Column("condemned_for", sa.String(64)),
    sa.Column("owner", sa.String(255)),
    sa.Column("token", sa.Integer, nullable=False),
    sa.Column("lease_until", _Time),
    sa.Column("atomic_key", sa.Integer, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("created_at", _Time, nullable=False),
    _number("number"),
    sa.Column("given_up", sa.String(64)),
    sa.Column("asked", sa.String(ASKED)),
    sa.Column("settles_at", _Time),
    sa.Index("ix_failover_resources_group_id_action", "group_id", "action"),
)

nodes = _table(
    "failover_nodes",
    _id("traversal_id", _part_of("traversals"), primary_key=True),
    sa.Column("node", sa.String(64), primary_key=True),
    # Of a record that is forgotten the node remains.
    _id("resource_id", sa.ForeignKey("failover_resources.id", ondelete="SET NULL"), index=True),
    _one_of("status", NodeStatus),
    sa.Column("remaining", sa.Integer, nullable=False),
    sa.Column("wanted", PlainJson),
    sa.Column("output", PlainJson),
    sa.Column("reason", _Reason),
    sa.Column("deferred_to", sa.String(255)),
    sa.Column("deferred_at", _Time),
    sa.Column("stage", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Column("waiting_for", _Reason),
    sa.Column("waiting_since", _Time),
    sa.Column("next_try", _Time),
    sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("own_since", _Time),
    sa.Column("stopped_since", _Time),
    sa.Column("again_at", _Time),
)

edges = _table(
    "failover_edges",
    _id("traversal_id", _part_of("traversals"), primary_key=True),
    sa.Column("node", sa.String(64), primary_key=True),
    sa.Column("predecessor", sa.String(64), primary_key=True),
    sa.Index("ix_failover_edges_predecessor", "traversal_id", "predecessor"),
)

operations = _table(
    "failover_operations",
    _id("key", primary_key=True),
    _id("group_id", _part_of("groups"), nullable=False),
    _id("resource_id", _part_of("resources"), nullable=False, index=True),
    # No key: the last operation on a record stays with the record when its traversal is forgotten.
    _id("traversal_id", nullable=False, index=True),
    _one_of("verb", Verb),
    sa.Column("goal_version", sa.String(64), nullable=False),
    _one_of("status", OperationStatus),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("owner", sa.String(255), nullable=False),
    sa.Column("token", sa.Integer, nullable=False),
    sa.Column("intent", PlainJson, nullable=False),
    sa.Column("result", PlainJson),
    sa.Column("started_at", _Time, nullable=False),
    sa.Column("ended_at", _Time),
    sa.Column("waiting_for", _Reason),
    sa.Column("waiting_since", _Time),
    sa.Index("ix_failover_operations_group_id_status", "group_id", "status"),
)

incidents = _table(
    "failover_incidents",
    _id("id", primary_key=True),
    sa.Column("project_id", sa.String(64), nullable=False),
    _id("group_id"),  # none: the group is not known yet
    sa.Column("source", sa.String(64), nullable=False),
    sa.Column("fact", StoredJson(AlarmFact), nullable=False),
    sa.Column("order", StoredJson(Order)),
    sa.Column("payload", PlainJson, nullable=False),
    _one_of("decision", Decision, 32),
    sa.Column("sentence", _Reason, nullable=False),
    sa.Column("duplicates", sa.Integer, nullable=False),
    _id("traversal_id"),
    sa.Column("decided_at", _Time, nullable=False),
    sa.Column("first_at", _Time, nullable=False),
    sa.Column("last_at", _Time, nullable=False),
    _one_of("rule", AdmissionRule, 32),
    sa.Column("firing", sa.Boolean, nullable=False),
    sa.Column("series", sa.String(64), nullable=False),
    _id("duplicate_of"),
    _id("execution"),
    _number("number"),
    _number("said"),
    _id("parent", index=True),
    sa.Index("ix_failover_incidents_group_id_decided_at", "group_id", "decided_at"),
    sa.Index("ix_failover_incidents_group_id_series", "group_id", "series"),
    sa.Index("ix_failover_incidents_project_id_decided_at", "project_id", "decided_at"),
    sa.Index("ix_failover_incidents_project_id_decision", "project_id", "decision"),
)

# The last observation of a group.
observations = _table(
    "failover_observations",
    _id("group_id", _part_of("groups"), primary_key=True),
    sa.Column("at", _Time, nullable=False),
    _one_of("service", Service),
    sa.Column("since", _Time, nullable=False),
    sa.Column("seen", StoredJson(Observation), nullable=False),
    sa.Column("memory", StoredJson(ObservationMemory), nullable=False),
)

# Since when a group's word was so; until its next row.
service_changes = _table(
    "failover_service_changes",
    _id("group_id", _part_of("groups"), primary_key=True),
    sa.Column("at", _Time, primary_key=True),
    _one_of("service", Service),
)

# The fences of compute hosts. A host is fenced once for all groups that have a member on it.
host_fences = _table(
    "failover_host_fences",
    sa.Column("host", sa.String(255), primary_key=True),
    sa.Column("owner", sa.String(255)),
    sa.Column("token", sa.Integer, nullable=False),
    sa.Column("lease_until", _Time),
    sa.Column("proof", _Reason),
    sa.Column("proven_at", _Time),
    sa.Column("claimed_at", _Time),
    sa.Column("nova_seen", sa.String(64)),
)

# What the storage refuses until the host of the client was off.
blocked_clients = _table(
    "failover_blocked_clients",
    sa.Column("client", sa.String(128), primary_key=True),
    sa.Column("volume_id", sa.String(64), nullable=False),
    sa.Column("blocked_at", _Time, nullable=False),
    _number("number"),
)

# The rehearsals of a group's failover; the id is that of the group in which it is carried out.
rehearsals = _table(
    "failover_rehearsals",
    _id("id", primary_key=True),
    _id("group_id", _part_of("groups"), nullable=False, index=True),
    _one_of("outcome", RehearsalOutcome),
    sa.Column("cause", _Reason, nullable=False),
    sa.Column("reason", _Reason, nullable=False),
    sa.Column("planned", PlainJson, nullable=False),
    sa.Column("report", PlainJson),
    sa.Column("began_at", _Time, nullable=False),
    sa.Column("ended_at", _Time),
    sa.Column("cleaned_at", _Time),
    _number("number"),
)

# Of each role and each member that was rehearsed for it: its last rehearsal.
rehearsed_roles = _table(
    "failover_rehearsed_roles",
    _id("group_id", _part_of("groups"), primary_key=True),
    sa.Column("role", sa.String(255), primary_key=True),
    sa.Column("member", sa.String(255), primary_key=True),
    sa.Column("tried_at", _Time, nullable=False),
    _one_of("outcome", RehearsalOutcome),
    sa.Column("at", _Time),
    _id("server_id"),
    sa.Column("reason", _Reason, nullable=False),
    sa.Column("to_service", _Time),
)

plans = _table(
    "failover_plans",
    _id("id", primary_key=True),
    sa.Column("project_id", sa.String(64), nullable=False),
    _id("group_id", _part_of("groups"), nullable=False, index=True),
    sa.Column("order", StoredJson(Order), nullable=False),
    sa.Column("fingerprint", sa.String(64), nullable=False),
    sa.Column("world", PlainJson, nullable=False),
    sa.Column("goal_version", sa.String(64), nullable=False),
    sa.Column("created_at", _Time, nullable=False),
    sa.Column("expires_at", _Time, nullable=False),
)

deliveries = _table(
    "failover_deliveries",
    sa.Column("project_id", sa.String(64), primary_key=True),
    sa.Column("digest", sa.String(64), primary_key=True),
    _id("execution", nullable=False),
    sa.Column("at", _Time, nullable=False, index=True),
)

journal = _table(
    "failover_journal",
    sa.Column("id", _Counted, primary_key=True, autoincrement=True),
    _id("group_id", nullable=False, index=True),
    _id("traversal_id"),
    _id("resource_id"),
    _id("incident_id"),
    _one_of("kind", JournalKind),
    sa.Column("sentence", _Reason, nullable=False),
    sa.Column("at", _Time, nullable=False),
    sa.Column("owner", sa.String(255)),
    sa.Column("token", sa.Integer),
    sa.Index("ix_failover_journal_group_id_kind_id", "group_id", "kind", "id"),
    # Without this SQLite reuses the ids of deleted rows, and the cursor of events refers to ids.
    sqlite_autoincrement=True,
)

totals = _table(
    "failover_totals",
    sa.Column("project_id", sa.String(64), primary_key=True),
    sa.Column("shard", sa.String(1), primary_key=True),
    sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("labels", sa.String(350), primary_key=True),
    sa.Column("value", sa.Double, nullable=False),
    sa.Column("first_at", _Time, nullable=False),
    sa.Column("last_at", _Time, nullable=False),
)

OF_TRAVERSAL = sa.and_(
    goals.c.group_id == traversals.c.group_id, goals.c.version == traversals.c.goal_version
)
"""Joins a goal to a traversal."""
ALIVE = sa.not_(sa.and_(resources.c.action == Action.DELETE, resources.c.status == Status.COMPLETE))
"""Holds for records of what exists, or may."""
