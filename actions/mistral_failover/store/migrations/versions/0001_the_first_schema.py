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

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "failover_deliveries",
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("execution", sa.String(length=36), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "digest", name=op.f("pk_failover_deliveries")),
        **_MYSQL,
    )
    with op.batch_alter_table("failover_deliveries", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_failover_deliveries_at"), ["at"], unique=False)

    op.create_table(
        "failover_edges",
        sa.Column("traversal_id", sa.String(length=36), nullable=False),
        sa.Column("node", sa.String(length=64), nullable=False),
        sa.Column("predecessor", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint(
            "traversal_id", "node", "predecessor", name=op.f("pk_failover_edges")
        ),
        **_MYSQL,
    )
    with op.batch_alter_table("failover_edges", schema=None) as batch_op:
        batch_op.create_index(
            "ix_failover_edges_predecessor", ["traversal_id", "predecessor"], unique=False
        )

    op.create_table(
        "failover_goals",
        sa.Column("group_id", sa.String(length=36), nullable=False),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("document", _JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("group_id", "version", name=op.f("pk_failover_goals")),
        **_MYSQL,
    )
    op.create_table(
        "failover_groups",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("definition", _JSON, nullable=False),
        sa.Column("definition_version", sa.String(length=64), nullable=False),
        sa.Column("current_traversal", sa.String(length=36), nullable=True),
        sa.Column("last_complete_goal", sa.String(length=64), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("pause", _JSON, nullable=True),
        sa.Column("maintenance", _JSON, nullable=True),
        sa.Column("hook", sa.String(length=255), nullable=True),
        sa.Column("told", sa.BigInteger(), nullable=True),
        sa.Column("stuck", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_failover_groups")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_failover_groups_project_id_name")),
        **_MYSQL,
    )
    op.create_table(
        "failover_incidents",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("group_id", sa.String(length=36), nullable=True),
        sa.Column("source", sa.String(length=64), nullable=False),
        sa.Column("fact", _JSON, nullable=False),
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
        sa.PrimaryKeyConstraint("id", name=op.f("pk_failover_incidents")),
        **_MYSQL,
    )
    with op.batch_alter_table("failover_incidents", schema=None) as batch_op:
        batch_op.create_index(
            "ix_failover_incidents_group_id_decided_at", ["group_id", "decided_at"], unique=False
        )
        batch_op.create_index(
            "ix_failover_incidents_group_id_series", ["group_id", "series"], unique=False
        )
        batch_op.create_index(
            "ix_failover_incidents_project_id_decided_at",
            ["project_id", "decided_at"],
            unique=False,
        )
        batch_op.create_index(
            "ix_failover_incidents_project_id_decision", ["project_id", "decision"], unique=False
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
        sa.PrimaryKeyConstraint("id", name=op.f("pk_failover_journal")),
        sqlite_autoincrement=True,
        **_MYSQL,
    )
    with op.batch_alter_table("failover_journal", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_failover_journal_group_id"), ["group_id"], unique=False
        )
        batch_op.create_index(
            "ix_failover_journal_group_id_kind_id", ["group_id", "kind", "id"], unique=False
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
    with op.batch_alter_table("failover_members", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_failover_members_server_id"), ["server_id"], unique=False
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
        sa.Column("deferrals", sa.Integer(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("traversal_id", "node", name=op.f("pk_failover_nodes")),
        **_MYSQL,
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
        sa.Column("unknowns", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("owner", sa.String(length=255), nullable=False),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("intent", _JSON, nullable=False),
        sa.Column("result", _JSON, nullable=True),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_failover_operations")),
        **_MYSQL,
    )
    with op.batch_alter_table("failover_operations", schema=None) as batch_op:
        batch_op.create_index(
            "ix_failover_operations_group_id_status", ["group_id", "status"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_failover_operations_resource_id"), ["resource_id"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_failover_operations_traversal_id"), ["traversal_id"], unique=False
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
        sa.Column("physical_id", sa.String(length=255), nullable=True),
        sa.Column("attributes", _JSON, nullable=False),
        sa.Column("requires", _JSON, nullable=False),
        sa.Column("goal_version", sa.String(length=64), nullable=False),
        sa.Column("replaces", sa.String(length=36), nullable=True),
        sa.Column("replaced_by", sa.String(length=36), nullable=True),
        sa.Column("condemned", sa.Boolean(), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=True),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("atomic_key", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_failover_resources")),
        **_MYSQL,
    )
    with op.batch_alter_table("failover_resources", schema=None) as batch_op:
        batch_op.create_index(
            "ix_failover_resources_group_id_action", ["group_id", "action"], unique=False
        )

    op.create_table(
        "failover_plans",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("group_id", sa.String(length=36), nullable=False),
        sa.Column("verb", sa.String(length=16), nullable=False),
        sa.Column("inputs", _JSON, nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("world", _JSON, nullable=False),
        sa.Column("goal_version", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_failover_plans")),
        **_MYSQL,
    )
    with op.batch_alter_table("failover_plans", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_failover_plans_group_id"), ["group_id"], unique=False)

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
        sa.Column("back", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("deferrals", sa.Integer(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_failover_traversals")),
        **_MYSQL,
    )
    with op.batch_alter_table("failover_traversals", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_failover_traversals_group_id"), ["group_id"], unique=False
        )


def downgrade() -> None:
    with op.batch_alter_table("failover_traversals", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_failover_traversals_group_id"))

    op.drop_table("failover_traversals")
    op.drop_table("failover_totals")
    with op.batch_alter_table("failover_plans", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_failover_plans_group_id"))

    op.drop_table("failover_plans")
    with op.batch_alter_table("failover_resources", schema=None) as batch_op:
        batch_op.drop_index("ix_failover_resources_group_id_action")

    op.drop_table("failover_resources")
    with op.batch_alter_table("failover_operations", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_failover_operations_traversal_id"))
        batch_op.drop_index(batch_op.f("ix_failover_operations_resource_id"))
        batch_op.drop_index("ix_failover_operations_group_id_status")

    op.drop_table("failover_operations")
    op.drop_table("failover_nodes")
    with op.batch_alter_table("failover_members", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_failover_members_server_id"))

    op.drop_table("failover_members")
    with op.batch_alter_table("failover_journal", schema=None) as batch_op:
        batch_op.drop_index("ix_failover_journal_group_id_kind_id")
        batch_op.drop_index(batch_op.f("ix_failover_journal_group_id"))

    op.drop_table("failover_journal")
    with op.batch_alter_table("failover_incidents", schema=None) as batch_op:
        batch_op.drop_index("ix_failover_incidents_project_id_decision")
        batch_op.drop_index("ix_failover_incidents_group_id_decided_at")

    op.drop_table("failover_incidents")
    op.drop_table("failover_groups")
    op.drop_table("failover_goals")
    with op.batch_alter_table("failover_edges", schema=None) as batch_op:
        batch_op.drop_index("ix_failover_edges_predecessor")

    op.drop_table("failover_edges")
    with op.batch_alter_table("failover_deliveries", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_failover_deliveries_at"))

    op.drop_table("failover_deliveries")
