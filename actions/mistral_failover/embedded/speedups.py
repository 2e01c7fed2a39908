# SPDX-License-Identifier: Apache-2.0
"""Changes to Mistral's internals that make one process fast; none of them changes a result.

1. ``jsonschema.validate`` checks the schema against the meta-schema at every call, about 200 ms
   for each task of a workflow at upload, and again for each policy of a task that runs. Mistral's
   schemas are class attributes that never change, so none is checked, and each validator is kept.
2. SQLite with a write-ahead log and ``synchronous=NORMAL`` does not wait for the disk at each
   commit. A killed process loses nothing; a power cut may lose the last commits, never the
   file's integrity (https://www.sqlite.org/pragma.html#pragma_synchronous).
3. oslo.db gives SQLite no connection pool, so each transaction opens the file, and closing the
   last connection folds the write-ahead log back. A small pool is put in its place; Mistral
   serialises its transactions anyway.
4. Mistral's JSON columns do not say that SQLAlchemy may cache the statements in which they occur,
   so each of these is compiled at every use, with a warning. They hold no state, so it may.
5. WSME reads and parses the source of each class of Mistral's API, to learn in which order its
   attributes were written: 0.8 s at each start. Classes keep that order themselves.
6. Mistral loads each large column of an execution by a query of its own when it is first used, and
   the engine uses nearly all of them in nearly every transaction. Here they are loaded with the
   rest of their row: a quarter of the queries of a workflow less.
7. Pecan inspects the signatures of the functions that a request passes, and makes a class for each,
   at every request. Functions do not change, so what it finds is kept.
8. Mistral asks the database twice for each action whether a user has defined one of that name.
   Almost no installation does, and no other process writes to the database: it asks once
   one was defined.
9. Mistral's engine sends the whole definition of a workflow along with each task that it starts,
   and does not read it where the task starts: 14 KiB of JSON for each stage. It is left out.
"""

import functools
import threading
import types
from typing import Any

import jsonschema
import sqlalchemy
import sqlalchemy.orm

_SIGNATURES = 1024  # of functions that are remembered
_validators: dict[int, tuple[Any, Any]] = {}
_own_actions = threading.Event()  # set: a user has defined an action, or may have


def _validate(instance: Any, schema: dict[str, Any]) -> None:
    # The schema is kept beside its validator, so its id cannot be given to another object.
    found = _validators.get(id(schema))
    if found is None:
        cls = jsonschema.validators.validator_for(schema)
        found = _validators[id(schema)] = (schema, cls(schema))
    error = jsonschema.exceptions.best_match(found[1].iter_errors(instance))
    if error is not None:
        raise error


def cache_schema_validators() -> None:
    """Let Mistral's language parser and its task policies keep their JSON schema validators;
    repeatable."""
    # In this order: the language first would import the expressions half way, and lose functions.
    import mistral.db.v2.api  # noqa: F401
    from mistral.engine import base as policies
    from mistral.lang import base as language

    for module in (language, policies):
        module.jsonschema = types.SimpleNamespace(
            validate=_validate, ValidationError=jsonschema.ValidationError
        )


def tune_sqlite(engine: sqlalchemy.Engine) -> None:
    """Set the pragmas on an engine's connections and keep these; call it before the first use.

    Other databases and SQLite in memory are left alone.
    """
    if engine.url.get_backend_name() != "sqlite" or not engine.url.database:
        return
    if engine.url.database == ":memory:":
        return

    @sqlalchemy.event.listens_for(engine, "connect")
    def _pragmas(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    engine.dispose()  # the connection by which oslo.db tested the database
    old = engine.pool
    engine.pool = sqlalchemy.pool.QueuePool(
        old._creator, pool_size=4, max_overflow=-1, _dispatch=old.dispatch, dialect=engine.dialect
    )


def cache_statements() -> None:
    """Let SQLAlchemy keep the compiled statements about Mistral's JSON columns; repeatable."""
    from mistral.db.sqlalchemy import types as columns

    for column in (columns.JsonEncodedMediumText, columns.JsonEncodedLongText):
        column.cache_ok = True


def load_whole_rows() -> None:
    """Let Mistral load all columns of an execution at once; repeatable, and before Mistral uses its
    database first."""
    from mistral.db.v2.sqlalchemy import models

    for model in (models.WorkflowExecution, models.TaskExecution, models.ActionExecution):
        mapper = sqlalchemy.orm.class_mapper(model, configure=False)
        for column in [] if mapper.configured else mapper._props.values():
            if isinstance(column, sqlalchemy.orm.ColumnProperty) and column.deferred:
                column.deferred = False
                column.strategy_key = (("deferred", False), ("instrument", True))


def look_for_own_actions(engine: sqlalchemy.Engine) -> None:
    """Let Mistral look for actions that users defined only if there are any; at each start, with
    the database's tables in place."""
    from mistral.actions.adhoc import AdHocActionProvider
    from mistral.db.v2.sqlalchemy.models import ActionDefinition

    with engine.connect() as connection:
        one = sqlalchemy.select(ActionDefinition.__table__.c.id).limit(1)
        if engine.url.get_backend_name() == "sqlite" and connection.execute(one).first() is None:
            _own_actions.clear()
        else:
            _own_actions.set()
    if not sqlalchemy.event.contains(ActionDefinition, "after_insert", _defined):
        sqlalchemy.event.listen(ActionDefinition, "after_insert", _defined)
        find = AdHocActionProvider.find

        def find_if_any(self: Any, action_name: str, namespace: str | None = None) -> Any:
            return find(self, action_name, namespace) if _own_actions.is_set() else None

        AdHocActionProvider.find = find_if_any


def _defined(*_of_the_event: object) -> None:
    _own_actions.set()


def keep_signatures() -> None:
    """Let Pecan keep the signatures of functions; repeatable."""
    from pecan import compat, util

    if util._getargspec is compat.getargspec:
        util._getargspec = functools.lru_cache(_SIGNATURES)(compat.getargspec)


def send_no_definitions() -> None:
    """Let Mistral's engine start tasks without the definition of their workflow; repeatable."""
    from mistral.rpc import clients

    start = clients.EngineClient.start_task
    if "failover" not in vars(start):

        @functools.wraps(start)
        def start_task(self: Any, *given: Any, **named: Any) -> Any:
            named.pop("wf_spec", None)
            return start(self, *given, **named)

        start_task.failover = True  # type: ignore[attr-defined]
        clients.EngineClient.start_task = start_task


def order_attributes() -> None:
    """Let WSME take the order of a class's attributes from the class; repeatable, and before the
    first import of Mistral's API."""
    import wsme.types

    wsme.types.sort_attributes = _sort_attributes


def _sort_attributes(class_: type, attributes: list[Any]) -> None:
    written = getattr(class_, "_wsme_attr_order", None) or [
        name for base in class_.__mro__ for name in vars(base)
    ]
    rank = {name: place for place, name in reversed(list(enumerate(written)))}
    attributes.sort(key=lambda attribute: rank.get(attribute.key, len(rank)))
