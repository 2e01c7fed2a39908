# SPDX-License-Identifier: Apache-2.0
"""The first schema."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

_MYSQL: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}
_JSON = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")

revision = "0001_first"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "failover_blocked_clients",
        sa.Column("client", sa.String(length=128), nullable=False),
        sa.Column("volume_id", sa.String(length=64), nullable=False),
        sa.Column("blocked_at", sa.Double(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("client", name=op.f("pk_failover_blocked_clients")),
        **_MYSQL,
    )
    op.create_table(
        "failover_deliveries",
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("execution", sa.String(length=36), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "digest", name=op.f("pk_failover_deliveries")),
        **_MYSQL,
    )
    op.create_index(op.f("ix_failover_deliveries_at"), "failover_deliveries", ["at"], unique=False)
    op.create_table(
        "failover_former_members",
        sa.Column("group_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("server_id", sa.String(length=36), nullable=True),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("group_id", "name", name=op.f("pk_failover_former_members")),
        **_MYSQL,
    )
    op.create_table(
        "failover_groups",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("definition_version", sa.String(length=64), nullable=False),
        sa.Column("defined", sa.String(length=64), nullable=False),
        sa.Column("in_force", sa.String(length=64), nullable=True),
        sa.Column("current_traversal", sa.String(length=36), nullable=True),
        sa.Column("last_complete_goal", sa.String(length=64), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("pause", _JSON, nullable=True),
        sa.Column("maintenance", _JSON, nullable=True),
        sa.Column("stack_name", sa.String(length=255), nullable=True),
        sa.Column("stack_id", sa.String(length=36), nullable=True),
        sa.Column("adopted", sa.BigInteger(), nullable=True),
        sa.Column("hook", sa.String(length=255), nullable=True),
        sa.Column("told", sa.BigInteger(), nullable=True),
        sa.Column("stuck", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_failover_groups")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_failover_groups_project_id_name")),
        **_MYSQL,
    )
    op.create_table(
        "failover_host_fences",
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=True),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("proof", sa.Text(), nullable=True),
        sa.Column("proven_at", sa.Double(), nullable=True),
        sa.Column("claimed_at", sa.Double(), nullable=True),
        sa.Column("nova_seen", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("host", name=op.f("pk_failover_host_fences")),
        **_MYSQL,
    )
    op.create_table(
        "failover_incidents",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("group_id", sa.String(length=36), nullable=True),
        sa.Column("source", sa.String(length=64), nullable=False),
        sa.Column("fact", _JSON, nullable=False),
        sa.Column("order", _JSON, nullable=True),
        sa.Column("payload", _JSON, nullable=False),
        sa.Column("decision", sa.String(length=32), nullable=False),
        sa.Column("sentence", sa.Text(), nullable=False),
        sa.Column("duplicates", sa.Integer(), nullable=False),
        sa.Column("traversal_id", sa.String(length=36), nullable=True),
        sa.Column("decided_at", sa.Double(), nullable=False),
        sa.Column("first_at", sa.Double(), nullable=False),
        sa.Column("last_at", sa.Double(), nullable=False),
        sa.Column("rule", sa.String(length=32), nullable=False),
        sa.Column("firing", sa.Boolean(), nullable=False),
        sa.Column("series", sa.String(length=64), nullable=False),
        sa.Column("duplicate_of", sa.String(length=36), nullable=True),
        sa.Column("execution", sa.String(length=36), nullable=True),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("said", sa.BigInteger(), nullable=False),
        sa.Column("parent", sa.String(length=36), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_failover_incidents")),
        **_MYSQL,
    )
    op.create_index(
        "ix_failover_incidents_group_id_decided_at",
        "failover_incidents",
        ["group_id", "decided_at"],
        unique=False,
    )
    op.create_index(
        "ix_failover_incidents_group_id_series",
        "failover_incidents",
        ["group_id", "series"],
        unique=False,
    )
    op.create_index(
        op.f("ix_failover_incidents_parent"), "failover_incidents", ["parent"], unique=False
    )
    op.create_index(
        "ix_failover_incidents_project_id_decided_at",
        "failover_incidents",
        ["project_id", "decided_at"],
        unique=False,
    )
    op.create_index(
        "ix_failover_incidents_project_id_decision",
        "failover_incidents",
        ["project_id", "decision"],
        unique=False,
    )
    op.create_table(
        "failover_journal",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("group_id", sa.String(length=36), nullable=False),
        sa.Column("traversal_id", sa.String(length=36), nullable=True),
        sa.Column("resource_id", sa.String(length=36), nullable=True),
        sa.Column("incident_id", sa.String(length=36), nullable=True),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("sentence", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=True),
        sa.Column("token", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_failover_journal")),
        sqlite_autoincrement=True,
        **_MYSQL,
    )
    op.create_index(
        op.f("ix_failover_journal_group_id"), "failover_journal", ["group_id"], unique=False
    )
    op.create_index(
        "ix_failover_journal_group_id_kind_id",
        "failover_journal",
        ["group_id", "kind", "id"],
        unique=False,
    )
    op.create_table(
        "failover_members",
        sa.Column("group_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("server_id", sa.String(length=36), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=True),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("confirmed_epoch", sa.Integer(), nullable=True),
        sa.Column("confirmed_because", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("group_id", "name", name=op.f("pk_failover_members")),
        **_MYSQL,
    )
    op.create_index(
        op.f("ix_failover_members_server_id"), "failover_members", ["server_id"], unique=False
    )
    op.create_table(
        "failover_numbers",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_failover_numbers")),
        sqlite_autoincrement=True,
        **_MYSQL,
    )
    op.create_table(
        "failover_totals",
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("shard", sa.String(length=1), nullable=False),
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("labels", sa.String(length=350), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("first_at", sa.Double(), nullable=False),
        sa.Column("last_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint(
            "project_id", "shard", "name", "labels", name=op.f("pk_failover_totals")
        ),
        **_MYSQL,
    )
    op.create_table(
        "failover_definitions",
        sa.Column("group_id", sa.String(length=36), nullable=False),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("document", _JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"],
            ["failover_groups.id"],
            name=op.f("fk_failover_definitions_group_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("group_id", "version", name=op.f("pk_failover_definitions")),
        **_MYSQL,
    )
    op.create_table(
        "failover_goals",
        sa.Column("group_id", sa.String(length=36), nullable=False),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("document", _JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"],
            ["failover_groups.id"],
            name=op.f("fk_failover_goals_group_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("group_id", "version", name=op.f("pk_failover_goals")),
        **_MYSQL,
    )
    op.create_table(
        "failover_observations",
        sa.Column("group_id", sa.String(length=36), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("service", sa.String(length=16), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("seen", _JSON, nullable=False),
        sa.Column("memory", _JSON, nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"],
            ["failover_groups.id"],
            name=op.f("fk_failover_observations_group_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("group_id", name=op.f("pk_failover_observations")),
        **_MYSQL,
    )
    op.create_table(
        "failover_service_changes",
        sa.Column("group_id", sa.String(length=36), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("service", sa.String(length=16), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"],
            ["failover_groups.id"],
            name=op.f("fk_failover_service_changes_group_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("group_id", "at", name=op.f("pk_failover_service_changes")),
        **_MYSQL,
    )
    op.create_table(
        "failover_plans",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("group_id", sa.String(length=36), nullable=False),
        sa.Column("order", _JSON, nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("world", _JSON, nullable=False),
        sa.Column("goal_version", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"],
            ["failover_groups.id"],
            name=op.f("fk_failover_plans_group_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_failover_plans")),
        **_MYSQL,
    )
    op.create_index(
        op.f("ix_failover_plans_group_id"), "failover_plans", ["group_id"], unique=False
    )
    op.create_table(
        "failover_resources",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("group_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("type", sa.String(length=255), nullable=False),
        sa.Column("member", sa.String(length=255), nullable=True),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("action", sa.String(length=16), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("properties", _JSON, nullable=True),
        sa.Column("applied", _JSON, nullable=True),
        sa.Column("physical_id", sa.String(length=255), nullable=True),
        sa.Column("attributes", _JSON, nullable=False),
        sa.Column("requires", _JSON, nullable=False),
        sa.Column("goal_version", sa.String(length=64), nullable=False),
        sa.Column("replaces", sa.String(length=36), nullable=True),
        sa.Column("replaced_by", sa.String(length=36), nullable=True),
        sa.Column("condemned_for", sa.String(length=64), nullable=True),
        sa.Column("owner", sa.String(length=255), nullable=True),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("atomic_key", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("given_up", sa.String(length=64), nullable=True),
        sa.Column("asked", sa.String(length=255), nullable=True),
        sa.Column("settles_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["group_id"],
            ["failover_groups.id"],
            name=op.f("fk_failover_resources_group_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_failover_resources")),
        **_MYSQL,
    )
    op.create_index(
        "ix_failover_resources_group_id_action",
        "failover_resources",
        ["group_id", "action"],
        unique=False,
    )
    op.create_table(
        "failover_traversals",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("group_id", sa.String(length=36), nullable=False),
        sa.Column("goal_version", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("incident_id", sa.String(length=36), nullable=True),
        sa.Column("graph", _JSON, nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("back", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("through", sa.SmallInteger(), nullable=True),
        sa.Column("follows", sa.String(length=36), nullable=True),
        sa.Column("superseded_by", sa.String(length=36), nullable=True),
        sa.Column("chain", sa.String(length=36), nullable=True),
        sa.Column("definition_version", sa.String(length=64), nullable=False),
        sa.Column("chains", sa.Integer(), server_default="0", nullable=False),
        sa.Column("failed_node", sa.String(length=64), nullable=True),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"],
            ["failover_groups.id"],
            name=op.f("fk_failover_traversals_group_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["superseded_by"],
            ["failover_traversals.id"],
            name=op.f("fk_failover_traversals_superseded_by"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_failover_traversals")),
        **_MYSQL,
    )
    op.create_index(
        op.f("ix_failover_traversals_follows"), "failover_traversals", ["follows"], unique=False
    )
    op.create_index(
        op.f("ix_failover_traversals_group_id"), "failover_traversals", ["group_id"], unique=False
    )
    op.create_index(
        op.f("ix_failover_traversals_superseded_by"),
        "failover_traversals",
        ["superseded_by"],
        unique=False,
    )
    op.create_table(
        "failover_edges",
        sa.Column("traversal_id", sa.String(length=36), nullable=False),
        sa.Column("node", sa.String(length=64), nullable=False),
        sa.Column("predecessor", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["traversal_id"],
            ["failover_traversals.id"],
            name=op.f("fk_failover_edges_traversal_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "traversal_id", "node", "predecessor", name=op.f("pk_failover_edges")
        ),
        **_MYSQL,
    )
    op.create_index(
        "ix_failover_edges_predecessor",
        "failover_edges",
        ["traversal_id", "predecessor"],
        unique=False,
    )
    op.create_table(
        "failover_nodes",
        sa.Column("traversal_id", sa.String(length=36), nullable=False),
        sa.Column("node", sa.String(length=64), nullable=False),
        sa.Column("resource_id", sa.String(length=36), nullable=True),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("remaining", sa.Integer(), nullable=False),
        sa.Column("wanted", _JSON, nullable=True),
        sa.Column("output", _JSON, nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("deferred_to", sa.String(length=255), nullable=True),
        sa.Column("deferred_at", sa.Double(), nullable=True),
        sa.Column("stage", sa.SmallInteger(), server_default="0", nullable=False),
        sa.Column("waiting_for", sa.Text(), nullable=True),
        sa.Column("waiting_since", sa.Double(), nullable=True),
        sa.Column("next_try", sa.Double(), nullable=True),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("own_since", sa.Double(), nullable=True),
        sa.Column("stopped_since", sa.Double(), nullable=True),
        sa.Column("again_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["resource_id"],
            ["failover_resources.id"],
            name=op.f("fk_failover_nodes_resource_id"),
            ondelete="SET NULL",
        ),
        sa.ForeignKeyConstraint(
            ["traversal_id"],
            ["failover_traversals.id"],
            name=op.f("fk_failover_nodes_traversal_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("traversal_id", "node", name=op.f("pk_failover_nodes")),
        **_MYSQL,
    )
    op.create_index(
        op.f("ix_failover_nodes_resource_id"), "failover_nodes", ["resource_id"], unique=False
    )
    op.create_table(
        "failover_operations",
        sa.Column("key", sa.String(length=36), nullable=False),
        sa.Column("group_id", sa.String(length=36), nullable=False),
        sa.Column("resource_id", sa.String(length=36), nullable=False),
        sa.Column("traversal_id", sa.String(length=36), nullable=False),
        sa.Column("verb", sa.String(length=16), nullable=False),
        sa.Column("goal_version", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=False),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("intent", _JSON, nullable=False),
        sa.Column("result", _JSON, nullable=True),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("waiting_for", sa.Text(), nullable=True),
        sa.Column("waiting_since", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["group_id"],
            ["failover_groups.id"],
            name=op.f("fk_failover_operations_group_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["resource_id"],
            ["failover_resources.id"],
            name=op.f("fk_failover_operations_resource_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_failover_operations")),
        **_MYSQL,
    )
    op.create_index(
        "ix_failover_operations_group_id_status",
        "failover_operations",
        ["group_id", "status"],
        unique=False,
    )
    op.create_index(
        op.f("ix_failover_operations_resource_id"),
        "failover_operations",
        ["resource_id"],
        unique=False,
    )
    op.create_index(
        op.f("ix_failover_operations_traversal_id"),
        "failover_operations",
        ["traversal_id"],
        unique=False,
    )
