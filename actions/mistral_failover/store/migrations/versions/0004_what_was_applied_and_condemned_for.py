# SPDX-License-Identifier: Apache-2.0
"""A record knows what was applied to it last, and for which goal it is condemned."""

import json

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

_JSON = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_resources = sa.table(
    "failover_resources",
    *(
        sa.column(name, sa.String)
        for name in ("id", "group_id", "action", "status", "properties", "applied", "condemned_for")
    ),
    sa.column("condemned", sa.Boolean),
)
_groups = sa.table("failover_groups", sa.column("id"), sa.column("current_traversal"))
_traversals = sa.table("failover_traversals", sa.column("id"), sa.column("goal_version"))
_operations = sa.table(
    "failover_operations",
    *(sa.column(name) for name in ("resource_id", "verb", "status", "intent", "ended_at")),
)


def upgrade() -> None:
    with op.batch_alter_table("failover_resources", schema=None) as batch_op:
        batch_op.add_column(sa.Column("applied", _JSON, nullable=True))
        batch_op.add_column(sa.Column("condemned_for", sa.String(length=64), nullable=True))
    current_goal = (
        sa.select(_traversals.c.goal_version)
        .join_from(_groups, _traversals, _traversals.c.id == _groups.c.current_traversal)
        .where(_groups.c.id == _resources.c.group_id)
        .scalar_subquery()
    )
    op.execute(_resources.update().where(_resources.c.condemned).values(condemned_for=current_goal))
    _remember_what_was_applied()
    with op.batch_alter_table("failover_resources", schema=None) as batch_op:
        batch_op.drop_column("condemned")


def _remember_what_was_applied() -> None:
    """It is what the record has, or, after a failure, what the ledger says that was done last."""
    as_it_is = sa.and_(
        _resources.c.action.in_(("CREATE", "UPDATE")), _resources.c.status == "COMPLETE"
    )
    op.execute(_resources.update().where(as_it_is).values(applied=_resources.c.properties))
    done = (
        sa.select(_resources.c.id, _operations.c.intent)
        .join_from(_resources, _operations, _operations.c.resource_id == _resources.c.id)
        .where(
            sa.not_(as_it_is),
            _operations.c.verb.in_(("create", "update")),
            _operations.c.status == "done",
        )
        .order_by(_operations.c.ended_at)
    )
    rows = op.get_bind().execute(done)
    last = {row.id: json.loads(row.intent)["properties"] for row in rows}  # noqa: TID251 - ours
    for identity, properties in last.items():
        op.execute(
            _resources.update()
            .where(_resources.c.id == identity)
            .values(applied=json.dumps(properties, separators=(",", ":")))
        )


def downgrade() -> None:
    with op.batch_alter_table("failover_resources", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("condemned", sa.Boolean(), nullable=False, server_default=sa.false())
        )
    op.execute(
        _resources.update().where(_resources.c.condemned_for.is_not(None)).values(condemned=True)
    )
    with op.batch_alter_table("failover_resources", schema=None) as batch_op:
        batch_op.alter_column("condemned", existing_type=sa.Boolean(), server_default=None)
        batch_op.drop_column("condemned_for")
        batch_op.drop_column("applied")
