# SPDX-License-Identifier: Apache-2.0
"""What a running operation waits for, and since when a node's failures have a patience of their
own."""

import sqlalchemy as sa
from alembic import op

revision = "0011_since_0008"
down_revision = "0010_since_0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("failover_operations", schema=None) as batch_op:
        batch_op.add_column(sa.Column("waiting_for", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("waiting_since", sa.Double(), nullable=True))
    with op.batch_alter_table("failover_nodes", schema=None) as batch_op:
        batch_op.add_column(sa.Column("own_since", sa.Double(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("failover_nodes", schema=None) as batch_op:
        batch_op.drop_column("own_since")
    with op.batch_alter_table("failover_operations", schema=None) as batch_op:
        batch_op.drop_column("waiting_since")
        batch_op.drop_column("waiting_for")
