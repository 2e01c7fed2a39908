# SPDX-License-Identifier: Apache-2.0
"""The request of a record's operation that has no answer yet, and until when it may take effect."""

import sqlalchemy as sa
from alembic import op

revision = "0015_since_0008"
down_revision = "0014_since_0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("failover_resources", schema=None) as batch_op:
        batch_op.add_column(sa.Column("asked", sa.String(length=255), nullable=True))
        batch_op.add_column(sa.Column("settles_at", sa.Double(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("failover_resources", schema=None) as batch_op:
        batch_op.drop_column("settles_at")
        batch_op.drop_column("asked")
