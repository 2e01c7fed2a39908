# SPDX-License-Identifier: Apache-2.0
"""The order of the storage's blocks among failovers, whatever the clock says."""

import sqlalchemy as sa
from alembic import op

revision = "0014_since_0008"
down_revision = "0013_since_0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("failover_blocked_clients", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("number", sa.BigInteger(), server_default="0", nullable=False)
        )


def downgrade() -> None:
    with op.batch_alter_table("failover_blocked_clients", schema=None) as batch_op:
        batch_op.drop_column("number")
