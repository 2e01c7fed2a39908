# SPDX-License-Identifier: Apache-2.0
"""Columns for what was only said in sentences: which traversal superseded another one, why an
operation was given up, whose lock was broken.

They are filled from the sentences of the versions before.
"""

import re

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_SUPERSEDED = re.compile(r"superseded by (\S+)")
_RIGHTS_ENDED = re.compile(r"the rights of the request ended; .*\[([A-Z_]+)\]", re.DOTALL)
_BROKEN = re.compile(r".*?: the lock of (.+?), which (?:is|was) (?:dead|alive), was broken.*", re.S)

_traversals = sa.table(
    "failover_traversals", *map(sa.column, ("id", "status", "reason", "superseded_by"))
)
_resources = sa.table(
    "failover_resources", *map(sa.column, ("id", "status", "owner", "reason", "given_up"))
)
_journal = sa.table("failover_journal", *map(sa.column, ("id", "kind", "sentence", "owner")))


def upgrade() -> None:
    with op.batch_alter_table("failover_traversals", schema=None) as batch_op:
        batch_op.add_column(sa.Column("superseded_by", sa.String(length=36), nullable=True))
        batch_op.create_index(
            batch_op.f("ix_failover_traversals_superseded_by"), ["superseded_by"], unique=False
        )
    with op.batch_alter_table("failover_resources", schema=None) as batch_op:
        batch_op.add_column(sa.Column("given_up", sa.String(length=64), nullable=True))
    with op.batch_alter_table("failover_journal", schema=None) as batch_op:
        batch_op.add_column(sa.Column("owner", sa.String(length=255), nullable=True))
        batch_op.add_column(sa.Column("token", sa.Integer(), nullable=True))
    connection = op.get_bind()
    there = set(connection.execute(sa.select(_traversals.c.id)).scalars())
    superseded = _traversals.c.status == "SUPERSEDED"
    _fill(_traversals, "superseded_by", ("reason", _SUPERSEDED), superseded, among=there)
    left = sa.and_(_resources.c.status == "FAILED", _resources.c.owner.is_(None))
    _fill(_resources, "given_up", ("reason", _RIGHTS_ENDED), left)
    broken = _journal.c.kind.in_(("steal", "broken"))
    _fill(_journal, "owner", ("sentence", _BROKEN), broken)


def _fill(
    table: sa.TableClause,
    column: str,
    source: tuple[str, re.Pattern[str]],
    where: sa.ColumnElement[bool],
    among: set[str] | None = None,
) -> None:
    """Fill a column with what sentences name; ``source``: their column and form; ``among``: only if
    it is one of these."""
    sentence, form = source
    connection = op.get_bind()
    found = []
    for identity, said in connection.execute(sa.select(table.c.id, table.c[sentence]).where(where)):
        named = form.fullmatch(said)
        if named and (among is None or named[1] in among):
            found.append({"row": identity, "value": named[1]})
    if found:
        update = table.update().where(table.c.id == sa.bindparam("row"))
        connection.execute(update.values({column: sa.bindparam("value")}), found)


def downgrade() -> None:
    with op.batch_alter_table("failover_journal", schema=None) as batch_op:
        batch_op.drop_column("token")
        batch_op.drop_column("owner")
    with op.batch_alter_table("failover_resources", schema=None) as batch_op:
        batch_op.drop_column("given_up")
    with op.batch_alter_table("failover_traversals", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_failover_traversals_superseded_by"))
        batch_op.drop_column("superseded_by")
