# SPDX-License-Identifier: Apache-2.0
"""Who fences which compute host, and what proved it."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_MYSQL: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def upgrade() -> None:
    op.create_table(
        "failover_host_fences",
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=True),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("proof", sa.Text(), nullable=True),
        sa.Column("proven_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("host", name=op.f("pk_failover_host_fences")),
        **_MYSQL,
    )


def downgrade() -> None:
    op.drop_table("failover_host_fences")
