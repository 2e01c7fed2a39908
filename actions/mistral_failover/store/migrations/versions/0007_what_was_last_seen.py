# SPDX-License-Identifier: Apache-2.0
"""What was last seen of each group."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_MYSQL: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def upgrade() -> None:
    op.create_table(
        "failover_observations",
        sa.Column("group_id", sa.String(length=36), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("service", sa.String(length=16), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column(
            "document",
            sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "service IN ('SERVING', 'DEGRADED', 'DOWN', 'UNKNOWN', 'OUT_OF_SERVICE')",
            name=op.f("ck_failover_observations_service"),
        ),
        sa.ForeignKeyConstraint(
            ["group_id"],
            ["failover_groups.id"],
            name=op.f("fk_failover_observations_group_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("group_id", name=op.f("pk_failover_observations")),
        **_MYSQL,
    )


def downgrade() -> None:
    op.drop_table("failover_observations")
