# SPDX-License-Identifier: Apache-2.0
"""The tables. Times are seconds since the epoch by the database's clock, ids are UUIDs.

Every row belongs to a group and a group to one project; nothing is read without either.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class PlainJson(sa.types.TypeDecorator[Any]):
    """JSON as text, since each database's own JSON type treats numbers and null differently."""

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> sa.types.TypeEngine[Any]:
        """MySQL's TEXT ends at 64 KiB, which a large group's graph exceeds."""
        if dialect.name in ("mysql", "mariadb"):
            return dialect.type_descriptor(mysql.LONGTEXT())
        return dialect.type_descriptor(sa.Text())

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(value, separators=(",", ":"), default=_plain)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)


def _plain(value: Any) -> Any:
    if hasattr(value, "items"):
        return dict(value.items())
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _id(name: str, **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.String(36), **options)


# Seconds with microseconds: MySQL's FLOAT would be single precision.
_Time = sa.Double
_Reason = sa.Text

groups = sa.Table(
    "failover_groups",
    metadata,
    _id("id", primary_key=True),
    sa.Column("project_id", sa.String(64), nullable=False),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("definition", PlainJson, nullable=False),
    sa.Column("definition_version", sa.String(64), nullable=False),
    _id("current_traversal"),
    sa.Column("last_complete_goal", sa.String(64)),
    sa.Column("created_at", _Time, nullable=False),
    sa.UniqueConstraint("project_id", "name"),
)

goals = sa.Table(
    "failover_goals",
    metadata,
    _id("group_id", primary_key=True),
    sa.Column("version", sa.String(64), primary_key=True),
    sa.Column("document", PlainJson, nullable=False),
    sa.Column("created_at", _Time, nullable=False),
)

members = sa.Table(
    "failover_members",
    metadata,
    _id("group_id", primary_key=True),
    sa.Column("name", sa.String(255), primary_key=True),
    _id("server_id", index=True),
    sa.Column("created_at", _Time),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("confirmed_epoch", sa.Integer),
    sa.Column("confirmed_because", _Reason),
)

traversals = sa.Table(
    "failover_traversals",
    metadata,
    _id("id", primary_key=True),
    _id("group_id", nullable=False, index=True),
    sa.Column("goal_version", sa.String(64), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("reason", _Reason, nullable=False),
    sa.Column("cause", _Reason, nullable=False),
    _id("incident_id"),
    sa.Column("graph", PlainJson, nullable=False),
    sa.Column("started_at", _Time, nullable=False),
    sa.Column("ended_at", _Time),
)

resources = sa.Table(
    "failover_resources",
    metadata,
    _id("id", primary_key=True),
    _id("group_id", nullable=False, index=True),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("type", sa.String(255), nullable=False),
    sa.Column("member", sa.String(255)),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("action", sa.String(16), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("reason", _Reason, nullable=False),
    sa.Column("properties", PlainJson),
    sa.Column("physical_id", sa.String(255)),
    sa.Column("attributes", PlainJson, nullable=False),
    sa.Column("requires", PlainJson, nullable=False),
    sa.Column("goal_version", sa.String(64), nullable=False),
    _id("replaces"),
    _id("replaced_by"),
    sa.Column("condemned", sa.Boolean, nullable=False),
    sa.Column("owner", sa.String(255)),
    sa.Column("token", sa.Integer, nullable=False),
    sa.Column("lease_until", _Time),
    sa.Column("atomic_key", sa.Integer, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("created_at", _Time, nullable=False),
)

nodes = sa.Table(
    "failover_nodes",
    metadata,
    _id("traversal_id", primary_key=True),
    sa.Column("node", sa.String(64), primary_key=True),
    _id("resource_id"),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("remaining", sa.Integer, nullable=False),
    sa.Column("wanted", PlainJson),
    sa.Column("output", PlainJson),
    sa.Column("reason", _Reason),
    sa.Column("deferred_to", sa.String(255)),
    sa.Column("deferred_at", _Time),
)

edges = sa.Table(
    "failover_edges",
    metadata,
    _id("traversal_id", primary_key=True),
    sa.Column("node", sa.String(64), primary_key=True),
    sa.Column("predecessor", sa.String(64), primary_key=True),
    sa.Index("ix_failover_edges_predecessor", "traversal_id", "predecessor"),
)

operations = sa.Table(
    "failover_operations",
    metadata,
    _id("key", primary_key=True),
    _id("group_id", nullable=False),
    _id("resource_id", nullable=False, index=True),
    _id("traversal_id", nullable=False, index=True),
    sa.Column("verb", sa.String(16), nullable=False),
    sa.Column("goal_version", sa.String(64), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("owner", sa.String(255), nullable=False),
    sa.Column("token", sa.Integer, nullable=False),
    sa.Column("intent", PlainJson, nullable=False),
    sa.Column("result", PlainJson),
    sa.Column("started_at", _Time, nullable=False),
    sa.Column("ended_at", _Time),
)

incidents = sa.Table(
    "failover_incidents",
    metadata,
    _id("id", primary_key=True),
    sa.Column("project_id", sa.String(64), nullable=False),
    _id("group_id", nullable=False),
    sa.Column("source", sa.String(64), nullable=False),
    sa.Column("fact", PlainJson, nullable=False),
    sa.Column("payload", PlainJson, nullable=False),
    sa.Column("decision", sa.String(32), nullable=False),
    sa.Column("sentence", _Reason, nullable=False),
    sa.Column("duplicates", sa.Integer, nullable=False),
    _id("traversal_id"),
    sa.Column("first_at", _Time, nullable=False),
    sa.Column("last_at", _Time, nullable=False),
    sa.Index("ix_failover_incidents_group_id_first_at", "group_id", "first_at"),
)

journal = sa.Table(
    "failover_journal",
    metadata,
    # SQLite counts up by itself only in an INTEGER primary key.
    sa.Column(
        "id",
        sa.BigInteger().with_variant(sa.Integer, "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    _id("group_id", nullable=False, index=True),
    _id("traversal_id"),
    _id("resource_id"),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("sentence", _Reason, nullable=False),
    sa.Column("at", _Time, nullable=False),
)
