# SPDX-License-Identifier: Apache-2.0
"""Numbers for the order of rows; those that are there keep the order of their clocks."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

_MYSQL: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}
# Table, column, and what said so far which row is later.
_ORDERS: Sequence[tuple[str, str, Sequence[str]]] = (
    ("failover_incidents", "number", ("first_at", "decided_at", "id")),
    ("failover_incidents", "said", ("last_at", "first_at", "id")),
    ("failover_resources", "number", ("created_at", "id")),
    ("failover_traversals", "number", ("started_at", "id")),
)

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "failover_numbers",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_failover_numbers")),
        sqlite_autoincrement=True,
        **_MYSQL,
    )
    highest = 0
    for table, column, by in _ORDERS:
        with op.batch_alter_table(table, schema=None) as batch_op:
            batch_op.add_column(
                sa.Column(column, sa.BigInteger(), nullable=False, server_default="0")
            )
        highest = max(highest, _count_up(table, column, by))
    _begin_behind(highest)


def _count_up(table: str, column: str, by: Sequence[str]) -> int:
    """Number the rows of a table; returns the last number."""
    connection = op.get_bind()
    rows = sa.table(table, *map(sa.column, dict.fromkeys(["id", column, *by])))
    found = connection.execute(sa.select(rows.c.id).order_by(*(rows.c[name] for name in by)))
    numbered = [{"row": row, "number": at} for at, row in enumerate(found.scalars().all(), 1)]
    if numbered:
        update = rows.update().where(rows.c.id == sa.bindparam("row"))
        connection.execute(update.values({column: sa.bindparam("number")}), numbered)
    return len(numbered)


def _begin_behind(highest: int) -> None:
    """Have the next number be greater."""
    if highest == 0:
        return
    connection = op.get_bind()
    numbers = sa.table("failover_numbers", sa.column("id"))
    connection.execute(numbers.insert().values(id=highest))
    connection.execute(numbers.delete())


def downgrade() -> None:
    for table, column, _ in _ORDERS:
        with op.batch_alter_table(table, schema=None) as batch_op:
            batch_op.drop_column(column)
    op.drop_table("failover_numbers")
