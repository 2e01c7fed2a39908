# SPDX-License-Identifier: Apache-2.0
"""The database refuses unknown verbs, kinds and rules, and more rows whose owner is gone.

An entry of the journal with a kind that is no longer written keeps its sentence, as ``other``; a
rule that is no longer known is forgotten; a plan with such a verb is deleted.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from alembic import op
from alembic.operations import BatchOperations

revision = "0012_since_0008"
down_revision = "0011_since_0008"
branch_labels = None
depends_on = None

_VERBS = ("create", "update", "delete")
_ORDERS = ("failover", "switchover", "failback", "replace", "rollback", "remove")
_KINDS = (
    *("admitted", "held", "ignored", "duplicate", "dismissed", "refused"),
    *("pause", "maintenance", "resumed", "guarded"),
    *("traversal", "complete", "returned", "not_reached", "blocked"),
    *("started", "done", "failed", "waiting", "late", "given_up", "handed_back", "steal"),
    *("broken", "confirmed", "forgotten", "rolling", "sweep", "ended"),
    *("no_other_target", "untold", "well", "degraded", "down", "other"),
)
_RULES = (
    *("", "not_firing", "not_in_service", "stranger", "unnamed", "heard_before", "known_fact"),
    *("paused", "maintenance", "old_news", "cooldown", "per_hour", "storm"),
    *("unknown", "host", "nowhere", "released", "too_late"),
)
# Table, column, and the words that it may hold.
_WORDS = (
    ("failover_operations", "verb", _VERBS),
    ("failover_plans", "verb", _ORDERS),
    ("failover_journal", "kind", _KINDS),
    ("failover_incidents", "rule", _RULES),
)
# Table, column, the table whose row it names, and what becomes of the row when that one goes.
_OWNERS = (
    ("failover_operations", "group_id", "failover_groups", "CASCADE"),
    ("failover_plans", "group_id", "failover_groups", "CASCADE"),
    ("failover_nodes", "resource_id", "failover_resources", "SET NULL"),
)
_TABLES = tuple(dict.fromkeys(name for name, *_ in (*_OWNERS, *_WORDS)))


def upgrade() -> None:
    _replace("failover_journal", "kind", _KINDS, "other")
    _replace("failover_incidents", "rule", _RULES, "")
    plans = sa.table("failover_plans", sa.column("verb"))
    op.execute(plans.delete().where(plans.c.verb.not_in(_ORDERS)))
    for table, column, owner, ondelete in _OWNERS:
        _without_orphans(table, column, owner, ondelete)
    op.create_index(op.f("ix_failover_nodes_resource_id"), "failover_nodes", ["resource_id"])
    for name in _TABLES:
        with _altered(name) as batch_op:
            for table, column, words in _WORDS:
                if table == name:
                    allowed = sa.column(column).in_(words)
                    batch_op.create_check_constraint(op.f(f"ck_{table}_{column}"), allowed)
            for table, column, owner, ondelete in _OWNERS:
                if table == name:
                    key = op.f(f"fk_{table}_{column}")
                    batch_op.create_foreign_key(key, owner, [column], ["id"], ondelete=ondelete)


@contextmanager
def _altered(name: str) -> Iterator[BatchOperations]:
    """Alter a table. SQLite makes a new one for it, which must not give the numbers of deleted
    entries of the journal again, because cursors refer to them."""
    numbered = name == "failover_journal" and op.get_bind().dialect.name == "sqlite"
    sequences = sa.table("sqlite_sequence", sa.column("name"), sa.column("seq"))
    of_it = sequences.c.name == name
    last = None
    if numbered:
        last = op.get_bind().execute(sa.select(sequences.c.seq).where(of_it)).scalar_one_or_none()
    options = {"sqlite_autoincrement": True} if numbered else {}
    with op.batch_alter_table(name, schema=None, table_kwargs=options) as batch_op:
        yield batch_op
    if last is not None:
        op.execute(sequences.delete().where(of_it))
        op.execute(sequences.insert().values(name=name, seq=last))


def _replace(table: str, column: str, words: tuple[str, ...], instead: str) -> None:
    """Write ``instead`` for every other word."""
    rows = sa.table(table, sa.column(column))
    op.execute(rows.update().where(rows.c[column].not_in(words)).values({column: instead}))


def _without_orphans(table: str, column: str, owner: str, ondelete: str) -> None:
    """Do to the rows whose owner is gone what the key would have done."""
    rows, owners = sa.table(table, sa.column(column)), sa.table(owner, sa.column("id"))
    orphaned = rows.c[column].not_in(sa.select(owners.c.id))
    gone = rows.delete() if ondelete == "CASCADE" else rows.update().values({column: None})
    op.execute(gone.where(orphaned))


def downgrade() -> None:
    for name in reversed(_TABLES):
        with _altered(name) as batch_op:
            for table, column, *_ in _OWNERS:
                if table == name:
                    batch_op.drop_constraint(op.f(f"fk_{table}_{column}"), type_="foreignkey")
            for table, column, _ in _WORDS:
                if table == name:
                    batch_op.drop_constraint(op.f(f"ck_{table}_{column}"), type_="check")
    op.drop_index(op.f("ix_failover_nodes_resource_id"), "failover_nodes")
