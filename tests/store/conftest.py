# SPDX-License-Identifier: Apache-2.0
"""Every test of the store runs on each database that is at hand, by the database's own clock."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.convergence.records import Record, Traversal, TraversalStatus
from mistral_failover.model.goal import Goal, render_goal
from mistral_failover.model.group import parse_group
from mistral_failover.store import groups, tables
from mistral_failover.store.database import Database
from support.databases import KINDS, empty, fresh_url, upgrade
from support.simulation import PROJECT
from support.world import TYPES


@functools.cache
def _with_schema(kind: str) -> Database:
    database = Database(fresh_url(kind, "store"))
    upgrade(database)
    return database


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Which database: ``sqlite`` or ``server``."""
    return str(request.param)


@pytest.fixture
def database(kind: str) -> Database:
    """An empty database."""
    database = _with_schema(kind)
    empty(database)
    return database


@pytest.fixture
def define(database: Database) -> Callable[..., tuple[str, Goal]]:
    """Define a group of these resources; returns its id and its goal."""

    def defined(
        resources: dict[str, Any], name: str = "g", types: list[dict[str, Any]] = TYPES
    ) -> tuple[str, Goal]:
        document = {
            "failover_template_version": "2026-11-21",
            "stack": "s",
            "members": {"servers": ["a", "b"]},
            "resources": resources,
        }
        group = parse_group(document, name=name, types=types)
        definition = {"document": document, "types": types}
        identity = database.for_project(PROJECT).atomically(
            lambda tx: groups.define(tx, name, definition)
        )
        return identity, render_goal(group, {"active": "a"}, [])

    return defined


@pytest.fixture
def group(database: Database) -> str:
    """The id of a group without a goal, for rows that need one."""
    row = {"id": "g", "project_id": "elsewhere", "name": "g", "created_at": 0.0}
    nothing = {"definition_version": "", "defined": ""}
    database.atomically(lambda tx: tx.insert(tables.groups, **row, **nothing))
    return "g"


@pytest.fixture
def record(database: Database, group: str) -> Record:
    """One record whose lock is free."""
    fresh = Record(id="r", group_id=group, name="r", type="shared", goal_version="v")
    database.atomically(lambda tx: tx.insert_records((fresh,), tx.now()))
    return fresh


@pytest.fixture
def traversal(group: str) -> Traversal:
    """A traversal that is not in the database."""
    return Traversal("t", group, "v", TraversalStatus.IN_PROGRESS)
