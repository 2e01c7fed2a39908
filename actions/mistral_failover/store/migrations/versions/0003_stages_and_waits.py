# SPDX-License-Identifier: Apache-2.0
"""Stages, the wait for a service that is away, and the chain of executions that drives a traversal.

What is under way while the schema changes has no stage: its nodes count as of the earliest one, so
nothing holds them back.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_NODES = ("stage", "waiting_for", "waiting_since", "next_try", "tries")
_TRAVERSALS = ("through", "follows", "chain", "chains")


def upgrade() -> None:
    with op.batch_alter_table("failover_nodes", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("stage", sa.SmallInteger(), nullable=False, server_default="0")
        )
        batch_op.add_column(sa.Column("waiting_for", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("waiting_since", sa.Double(), nullable=True))
        batch_op.add_column(sa.Column("next_try", sa.Double(), nullable=True))
        batch_op.add_column(sa.Column("tries", sa.Integer(), nullable=False, server_default="0"))

    with op.batch_alter_table("failover_traversals", schema=None) as batch_op:
        batch_op.add_column(sa.Column("through", sa.SmallInteger(), nullable=True))
        batch_op.add_column(sa.Column("follows", sa.String(length=36), nullable=True))
        batch_op.add_column(sa.Column("chain", sa.String(length=36), nullable=True))
        batch_op.add_column(sa.Column("chains", sa.Integer(), nullable=False, server_default="0"))
        batch_op.create_index(
            batch_op.f("ix_failover_traversals_follows"), ["follows"], unique=False
        )


def downgrade() -> None:
    with op.batch_alter_table("failover_traversals", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_failover_traversals_follows"))
        for name in reversed(_TRAVERSALS):
            batch_op.drop_column(name)

    with op.batch_alter_table("failover_nodes", schema=None) as batch_op:
        for name in reversed(_NODES):
            batch_op.drop_column(name)
