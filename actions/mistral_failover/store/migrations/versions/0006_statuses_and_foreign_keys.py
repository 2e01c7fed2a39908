# SPDX-License-Identifier: Apache-2.0
"""The database refuses a status that no version knows, and rows whose owner is gone."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# Table, column, and the words that it may hold.
_WORDS = (
    ("failover_traversals", "status", "IN_PROGRESS COMPLETE FAILED BLOCKED SUPERSEDED"),
    ("failover_resources", "action", "INIT CREATE UPDATE DELETE"),
    ("failover_resources", "status", "IN_PROGRESS COMPLETE FAILED"),
    ("failover_nodes", "status", "WAITING DONE FAILED BLOCKED"),
    ("failover_operations", "status", "started done failed unknown overtaken"),
    ("failover_incidents", "decision", "ADMITTED HELD IGNORED DUPLICATE DISMISSED REFUSED"),
)
# Table, column, the table whose row it names, and what becomes of the row when that one goes. Those
# come first on which others depend.
_OWNERS = (
    ("failover_goals", "group_id", "failover_groups", "CASCADE"),
    ("failover_traversals", "group_id", "failover_groups", "CASCADE"),
    ("failover_traversals", "superseded_by", "failover_traversals", "SET NULL"),
    ("failover_resources", "group_id", "failover_groups", "CASCADE"),
    ("failover_nodes", "traversal_id", "failover_traversals", "CASCADE"),
    ("failover_edges", "traversal_id", "failover_traversals", "CASCADE"),
    ("failover_operations", "resource_id", "failover_resources", "CASCADE"),
)
_TABLES = tuple(dict.fromkeys(name for name, *_ in (*_OWNERS, *_WORDS)))


def upgrade() -> None:
    for table, column, owner, _ in _OWNERS:
        _without_orphans(table, column, owner)
    for name in _TABLES:
        with op.batch_alter_table(name, schema=None) as batch_op:
            for table, column, words in _WORDS:
                if table == name:
                    allowed = sa.column(column).in_(words.split())
                    batch_op.create_check_constraint(op.f(f"ck_{table}_{column}"), allowed)
            for table, column, owner, ondelete in _OWNERS:
                if table == name:
                    key = op.f(f"fk_{table}_{column}")
                    batch_op.create_foreign_key(key, owner, [column], ["id"], ondelete=ondelete)


def _without_orphans(table: str, column: str, owner: str) -> None:
    """Remove what a row that is gone left behind; of a traversal, forget which superseded it."""
    rows, owners = sa.table(table, sa.column(column)), sa.table(owner, sa.column("id")).alias()
    orphaned = rows.c[column].not_in(sa.select(owners.c.id))
    if table == owner:  # MySQL does not read the table that it changes
        found = op.get_bind().execute(sa.select(rows.c[column]).where(orphaned)).scalars().all()
        op.execute(rows.update().where(rows.c[column].in_(found)).values({column: None}))
    else:
        op.execute(rows.delete().where(orphaned))


def downgrade() -> None:
    for name in reversed(_TABLES):
        with op.batch_alter_table(name, schema=None) as batch_op:
            for table, column, *_ in _OWNERS:
                if table == name:
                    batch_op.drop_constraint(op.f(f"fk_{table}_{column}"), type_="foreignkey")
            for table, column, _ in _WORDS:
                if table == name:
                    batch_op.drop_constraint(op.f(f"ck_{table}_{column}"), type_="check")
