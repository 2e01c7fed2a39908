# SPDX-License-Identifier: Apache-2.0
"""What a function of the store answers for one project does not depend on another one's rows."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mistral_failover import store
from mistral_failover.store import schema
from mistral_failover.store.database import Database
from mistral_failover.store.transaction import SqlTransaction
from support.databases import Clock, empty, fresh_url
from support.two_projects import fill, ids


def scoped() -> dict[str, Callable[..., Any]]:
    """Every public function of the store that takes a project, by its name."""
    found = {}
    for info in pkgutil.iter_modules(store.__path__, "mistral_failover.store."):
        if info.ispkg:
            continue
        module = importlib.import_module(info.name)
        for name, function in inspect.getmembers(module, inspect.isfunction):
            of_here = function.__module__ == info.name and not name.startswith("_")
            parameters = inspect.signature(function).parameters
            if of_here and {"tx", "project_id"} <= set(parameters):
                found[f"{info.name.rpartition('.')[2]}.{name}"] = function
    return found


SCOPED = scoped()
UNSEEN = {
    "groups.define": "it answers with an id that follows from its arguments",
    "observations.due": "it is for groups at rest",
    "retention.forget_journal": "entries of the current traversal stay",
    "retention.forget_plans": "a plan stays for a day after it has expired",
    "stalled_work.chain_waits": "it is for groups in which nothing is ready",
    "totals.add": "it answers nothing",
    "totals.swept": "it answers nothing",
    "totals.unlisted": "it answers nothing",
}
"""Functions to whose answer the rows below make no difference, and why."""


@pytest.fixture
def database(kind: str) -> Database:
    database = Database(fresh_url(kind, "projects"), clock=Clock())
    schema.upgrade(database)
    empty(database)
    return database


class _Undo(Exception):
    """Whatever a function wrote is taken back."""


def answers(database: Database, project: str, named: dict[str, Any]) -> dict[str, str]:
    """What every function answers for a project to who names these ids."""
    found = {}
    for name, function in SCOPED.items():
        known = {**named, "project_id": project}
        given = {
            each: known[each] for each in inspect.signature(function).parameters if each != "tx"
        }

        def ask(tx: SqlTransaction, function: Any = function, given: Any = given) -> None:
            answer = function(tx, **given)
            rows = list(answer) if isinstance(answer, Iterator) else answer
            if isinstance(rows, dict):  # a database may answer in any order
                rows = sorted(rows.items(), key=repr)
            # MariaDB does not take back the numbers of what was said: they only order it.
            said = re.sub(r"\bsaid=\d+", "said=...", repr(rows))
            found[name] = said  # noqa: B023 - run at once
            raise _Undo

        with pytest.raises(_Undo):
            database.atomically(ask)
    return found


def test_the_rows_of_another_project_change_no_answer(database: Database) -> None:
    """Also for who names ids of the other project."""
    with database.engine.begin() as connection:
        fill(connection, "mine")
    before = [answers(database, "mine", ids(named)) for named in ("mine", "theirs")]
    nothing = answers(database, "theirs", ids("theirs"))

    with database.engine.begin() as connection:
        fill(connection, "theirs")

    after = [answers(database, "mine", ids(named)) for named in ("mine", "theirs")]
    assert after == before
    seen = answers(database, "theirs", ids("theirs"))
    unseen = {name for name, said in seen.items() if said == nothing[name]}
    assert unseen == UNSEEN.keys(), "the rows must be such that their own project sees them"
