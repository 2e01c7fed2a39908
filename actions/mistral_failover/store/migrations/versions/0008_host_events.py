# SPDX-License-Identifier: Apache-2.0
"""The host event that an incident is part of."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("failover_incidents", schema=None) as batch_op:
        batch_op.add_column(sa.Column("parent", sa.String(length=36), nullable=True))
        batch_op.create_index(batch_op.f("ix_failover_incidents_parent"), ["parent"], unique=False)


def downgrade() -> None:
    incidents = sa.table("failover_incidents", *map(sa.column, ("decision", "group_id")))
    # The version before takes an admitted incident for one of a group that is to be started.
    op.execute(
        incidents.update()
        .where(incidents.c.decision == "ADMITTED", incidents.c.group_id.is_(None))
        .values(decision="DISMISSED")
    )
    with op.batch_alter_table("failover_incidents", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_failover_incidents_parent"))
        batch_op.drop_column("parent")
