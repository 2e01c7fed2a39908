# SPDX-License-Identifier: Apache-2.0
"""Narrow every statement of a transaction to the rows of one project.

Whatever a statement itself asks for, in a transaction of one project (``Database.for_project``) it
finds, changes and deletes only rows of this project. So a query that forgets the project cannot
show the row of another one, and neither can an id that a caller guessed:

- To a SELECT, an UPDATE or a DELETE the project is added as a condition for each of its tables.
- An INSERT of a row that would belong to another project is refused.
- What cannot be narrowed is refused: text, and a subquery that a SELECT reads from and that does
  not name the project itself.

Other nested queries need nothing: they only choose among the rows that the statement may see.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from sqlalchemy.sql import visitors

from mistral_failover.store.tables import (
    blocked_clients,
    groups,
    host_fences,
    metadata,
    numbers,
    traversals,
)

OPTION = "failover_scope"
"""The execution option of a connection that has its :class:`Scope`."""
OF_NO_PROJECT = frozenset({blocked_clients, host_fences, numbers})
"""The tables whose rows belong to no project."""

_PROJECT = "failover_project"  # the parameter
# The conditions by a SELECT's structure: to find its tables, SQLAlchemy has to render it.
_known: dict[Any, tuple[sa.ColumnElement[bool], ...]] = {}
# What a statement that was built once was narrowed to.
_narrowed_before: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_MOST_KNOWN = 2000
_Insert = sa.sql.dml.Insert
_Changes = (sa.sql.dml.Update, sa.sql.dml.Delete)
_Values = Mapping[str, Any]


@dataclass(frozen=True)
class Scope:
    """The project of a transaction. ``owners``: the groups and traversals that are known to belong
    to it."""

    project_id: str
    owners: set[str] = field(default_factory=set)


class OutOfProject(Exception):  # noqa: N818 - it is a mistake in the code, and no condition
    """A statement that could see or write rows of another project."""


def install(engine: sa.Engine) -> None:
    """Let an engine narrow the statements of connections that have the :data:`OPTION`."""
    sa.event.listen(engine, "before_execute", _before_execute, retval=True)


def _before_execute(
    connection: sa.Connection,
    statement: Any,
    multiparams: Sequence[_Values],
    params: _Values,
    options: Mapping[str, Any],
) -> tuple[Any, Sequence[_Values], _Values]:
    scope: Scope | None = options.get(OPTION)
    if scope is None:
        return statement, multiparams, params
    if isinstance(statement, _Insert):
        _check_rows(connection, statement, multiparams or [params], scope)
        return statement, multiparams, params
    here = {_PROJECT: scope.project_id}
    statement = _narrowed(statement, scope.project_id)
    if multiparams:
        return statement, [{**each, **here} for each in multiparams], {}
    return statement, [], {**params, **here}


def _narrowed(statement: Any, project_id: str) -> Any:
    """Return a statement that finds only rows of the project in the parameter `_PROJECT`. Raises
    OutOfProject."""
    before = _narrowed_before.get(statement)
    if before is not None:
        return before
    if isinstance(statement, _Changes):
        changes = statement.where(*_of_project(statement.table))
        _narrowed_before[statement] = changes
        return changes
    if not isinstance(statement, sa.Select):
        raise OutOfProject(f"a {type(statement).__name__} cannot be narrowed to a project")
    key = statement._generate_cache_key()
    conditions = _known.get(key.key) if key is not None else None
    for_all = True
    if conditions is None:
        sources = [
            each for source in statement.get_final_froms() for each in _sources(source, False)
        ]
        nested: list[sa.SelectBase] = [
            *_columns_of_their_own(statement, [source for source, _ in sources])
        ]
        tables: list[tuple[sa.FromClause, bool]] = []
        for source, optional in sources:
            if isinstance(source, sa.Subquery):
                nested.append(source.element)
            else:
                tables.append((source, optional))
        for query in nested:
            _must_name(query, project_id)
        conditions = tuple(
            condition for source, optional in tables for condition in _seen(source, optional)
        )
        for_all = not nested
        plain = all(isinstance(source, sa.Table) for source, _ in tables)
        if key is not None and plain and for_all:
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[key.key] = conditions
    narrowed = statement.where(*conditions)
    if for_all:  # and not for the project that a nested query names
        _narrowed_before[statement] = narrowed
    return narrowed


def _sources(source: sa.FromClause, optional: bool) -> Iterator[tuple[sa.FromClause, bool]]:
    """Yield what a SELECT reads from, and whether its row may be absent, because it is on the right
    side of an outer join."""
    if isinstance(source, sa.Join):
        yield from _sources(source.left, optional or source.full)
        yield from _sources(source.right, optional or source.isouter or source.full)
    else:
        yield source, optional


def _seen(source: sa.FromClause, optional: bool) -> Iterator[sa.ColumnElement[bool]]:
    """Yield the conditions for one that a SELECT reads from."""
    for condition in _of_project(source):
        absent = [column.is_(None) for column in source.primary_key]
        yield sa.or_(condition, *absent) if optional else condition


@functools.lru_cache(maxsize=256)
def _of_project(source: sa.FromClause) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the condition that a table's rows belong to the project; none if they belong to no
    project at all."""
    table = source.element if isinstance(source, sa.Alias) else source
    if table in OF_NO_PROJECT:
        return ()
    if not isinstance(table, sa.Table) or table.metadata is not metadata:
        raise OutOfProject(f"{source} is not a table of the state store")
    project = sa.bindparam(_PROJECT, type_=sa.String)
    if "project_id" in source.c:
        return (source.c.project_id == project,)
    mine = groups.alias()
    of_group = sa.exists().where(mine.c.project_id == project)
    if "group_id" in source.c:
        return (of_group.where(mine.c.id == source.c.group_id),)
    its = traversals.alias()
    return (of_group.where(mine.c.id == its.c.group_id, its.c.id == source.c.traversal_id),)


def _columns_of_their_own(
    statement: sa.Select[Any], tables: Sequence[sa.FromClause]
) -> Iterator[sa.Select[Any]]:
    """Yield the queries whose value a SELECT shows as a column, unless they depend on its rows.
    ``tables``: what it reads from."""
    for column in statement.selected_columns:
        for element in visitors.iterate(column):
            if isinstance(element, sa.ScalarSelect) and isinstance(element.element, sa.Select):
                inner = element.element
                if set(_named_in(inner)).isdisjoint(tables):
                    yield inner


def _named_in(statement: sa.Select[Any]) -> list[sa.FromClause]:
    """Return the tables whose columns a query's conditions name."""
    clause = statement.whereclause
    found = visitors.iterate(clause) if clause is not None else ()
    return [each.table for each in found if isinstance(each, sa.Column)]


def _must_name(statement: Any, project_id: str) -> None:
    """Raise OutOfProject unless the conditions of a query require the project."""
    clause = statement.whereclause if isinstance(statement, sa.Select) else None
    terms = clause.clauses if isinstance(clause, sa.BooleanClauseList) else [clause]
    for term in terms:
        if (
            isinstance(term, sa.BinaryExpression)
            and term.operator is sa.sql.operators.eq
            and isinstance(term.left, sa.Column)
            and term.left.name == "project_id"
            and isinstance(term.right, sa.BindParameter)
            and term.right.value == project_id
        ):
            return
    raise OutOfProject("a nested query does not name the project of the transaction")


def _check_rows(
    connection: sa.Connection,
    statement: _Insert,
    rows: Sequence[_Values],
    scope: Scope,
) -> None:
    """Raise OutOfProject if a row would belong to another project."""
    table = statement.table
    if table in OF_NO_PROJECT:
        return
    owner = next(name for name in ("project_id", "group_id", "traversal_id") if name in table.c)
    fixed = statement.compile().params if not any(owner in row for row in rows) else {}
    named = {row.get(owner, fixed.get(owner)) for row in rows}
    if owner == "project_id":
        foreign = named - {scope.project_id}
    elif foreign := named - scope.owners:
        parent = groups if owner == "group_id" else traversals
        known = connection.execute(sa.select(parent.c.id).where(parent.c.id.in_(foreign)))
        scope.owners.update(known.scalars())
        foreign -= scope.owners
    if foreign:
        raise OutOfProject(f"a row of {table.name} would belong to another project")
