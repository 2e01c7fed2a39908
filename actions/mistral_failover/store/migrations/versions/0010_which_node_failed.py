# SPDX-License-Identifier: Apache-2.0
"""The node whose failure is the reason of a traversal's status.

It was found by the words of the reason, which the node has as well. So it is filled from them once.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010_since_0008"
down_revision = "0009"
branch_labels = None
depends_on = None

_traversals = sa.table(
    "failover_traversals", *map(sa.column, ("id", "status", "reason", "failed_node"))
)
_nodes = sa.table("failover_nodes", *map(sa.column, ("traversal_id", "node", "status", "reason")))


def upgrade() -> None:
    with op.batch_alter_table("failover_traversals", schema=None) as batch_op:
        batch_op.add_column(sa.Column("failed_node", sa.String(length=64), nullable=True))
    failed = (
        sa.select(sa.func.min(_nodes.c.node))
        .where(
            _nodes.c.traversal_id == _traversals.c.id,
            _nodes.c.status == _traversals.c.status,
            _nodes.c.reason == _traversals.c.reason,
        )
        .scalar_subquery()
    )
    op.execute(
        _traversals.update()
        .where(_traversals.c.status.in_(("FAILED", "BLOCKED")))
        .values(failed_node=failed)
    )


def downgrade() -> None:
    with op.batch_alter_table("failover_traversals", schema=None) as batch_op:
        batch_op.drop_column("failed_node")
