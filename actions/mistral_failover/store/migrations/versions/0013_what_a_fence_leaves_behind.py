# SPDX-License-Identifier: Apache-2.0
"""Which clients the storage refuses, and what lifts a fence: since when a host is proven off, and
what Nova showed of it."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0013_since_0008"
down_revision = "0012_since_0008"
branch_labels = None
depends_on = None

_MYSQL: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def upgrade() -> None:
    op.create_table(
        "failover_blocked_clients",
        sa.Column("client", sa.String(length=128), nullable=False),
        sa.Column("volume_id", sa.String(length=64), nullable=False),
        sa.Column("blocked_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("client", name=op.f("pk_failover_blocked_clients")),
        **_MYSQL,
    )
    with op.batch_alter_table("failover_host_fences", schema=None) as batch_op:
        batch_op.add_column(sa.Column("claimed_at", sa.Double(), nullable=True))
        batch_op.add_column(sa.Column("nova_seen", sa.String(length=64), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("failover_host_fences", schema=None) as batch_op:
        batch_op.drop_column("nova_seen")
        batch_op.drop_column("claimed_at")
    op.drop_table("failover_blocked_clients")
