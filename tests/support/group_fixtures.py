# SPDX-License-Identifier: Apache-2.0
"""The actions on a state store of this process, without Mistral and, mostly, without a cloud."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import base
from mistral_failover.actions import groups as group_actions
from mistral_failover.convergence.records import Ready
from mistral_failover.model.goal import empty_goal, render_goal
from mistral_failover.model.ids import derived_id, group_id
from mistral_failover.model.stages import Stage
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.settings import Settings
from mistral_failover.store import groups, incidents
from support.databases import new_store

_numbers = itertools.count(1)
HOUSE = {
    "failover_type_version": "2026-11-21",
    "name": "house",
    "description": "a resource whose operations are workflows",
    "properties": {"holder": {"type": "string", "required": True}},
    "operations": {v: {"workflow": f"house.{v}"} for v in ("create", "update", "delete")},
}


@pytest.fixture(scope="session")
def _state(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    database = new_store(tmp_path_factory.mktemp("state") / "failover.sqlite")
    return Runtime(Settings(database=database, sweep_after=0.0), eager=False)


@pytest.fixture
def state(_state: Runtime, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """What the actions of this process share; no cloud is configured."""
    monkeypatch.setattr(base, "runtime", lambda: _state)
    return _state


@pytest.fixture
def context_of() -> Callable[..., ActionContext]:
    """Make the context of a request of a project; each is an execution of its own."""

    def make(
        project: str | None, *, authenticated: bool = True, execution: str | None = None
    ) -> ActionContext:
        token = "a-token" if authenticated else None
        security = SecurityContext(project_id=project, auth_token=token)
        identity = execution or f"execution-{next(_numbers)}"
        return ActionContext(security, ExecutionContext(workflow_execution_id=identity))

    return make


@pytest.fixture
def project() -> str:
    """A project of this test's own."""
    return f"project-{next(_numbers)}"


@pytest.fixture
def context(context_of: Callable[..., ActionContext], project: str) -> ActionContext:
    """A request of the project."""
    return context_of(project)


@pytest.fixture
def define(state: Runtime, context: ActionContext) -> Callable[..., str]:
    """Define a group of two resources, ``by`` whose request; returns its name."""

    def make(name: str = "payments", *, by: ActionContext = context, **more: Any) -> str:
        document = {
            "failover_template_version": "2026-11-21",
            "stack": name,
            "members": {"servers": ["db_a", "db_b"]},
            "resources": {
                "thing": {"type": "house", "properties": {"holder": {"get_param": "active"}}}
            },
            **more,
        }
        answer = group_actions.Define(document, name=name, types=[HOUSE]).run(by)
        assert not isinstance(answer, Result), answer.error
        return name

    return make


@pytest.fixture
def started(
    state: Runtime, context: ActionContext, define: Callable[..., str]
) -> Callable[..., Ready]:
    """Define a group, ``payments`` unless named, and start a traversal, ``by`` whose request;
    returns its first ready node."""

    def make(name: str = "payments", *, by: ActionContext = context, **more: Any) -> Ready:
        define(name, by=by, **more)
        found = Request(state, by)
        project = found.project_id
        identity = group_id(project, name)
        known = state.database.reading(lambda tx: groups.get(tx, identity))
        assert known is not None
        group = state.database.reading(lambda tx: state.definitions.group(tx, known))
        seen = [("db_a", "s-a", 1.0), ("db_b", "s-b", 2.0)]
        state.database.for_project(project).atomically(
            lambda tx: groups.record_members(tx, identity, seen)
        )
        first, *_ = state.engine.start(
            identity,
            render_goal(group, {"active": "db_a"}, []),
            traversal_id=derived_id(identity, found.project_id),
            expected=None,
            cause="a test",
            through=None if group.workflow is None else Stage.FENCE,
        ).ready
        return first

    return make


@pytest.fixture
def begun(started: Callable[..., Ready]) -> Ready:
    """The ready node of a traversal of the group ``payments`` in the project."""
    return started()


@pytest.fixture
def goal(state: Runtime, project: str) -> Callable[..., None]:
    """Give a group a goal: db_b is active and these are lost."""

    def give(*lost: str, group: str = "payments", incident: str | None = None) -> None:
        identity = group_id(project, group)
        found = state.database.reading(lambda tx: groups.get(tx, identity))
        assert found is not None
        started = state.engine.start(
            identity,
            render_goal(
                state.database.reading(lambda tx: state.definitions.group(tx, found)),
                {"active": "db_b"},
                lost,
            ),
            traversal_id=f"t-{next(_numbers)}-{project}",
            expected=found.current_traversal,
            cause="a test",
            incident_id=incident,
        )
        assert started.won
        if incident is not None:
            state.database.for_project(project).atomically(
                lambda tx: incidents.link(tx, incident, started.traversal_id)
            )

    return give


@pytest.fixture
def remove(state: Runtime, project: str) -> Callable[[], None]:
    """Take the group ``payments`` out of service: give it the goal that asks for nothing."""

    def give() -> None:
        identity = group_id(project, "payments")
        found = state.database.reading(lambda tx: groups.get(tx, identity))
        assert found is not None
        definition = state.database.reading(lambda tx: state.definitions.group(tx, found))
        state.engine.start(
            identity,
            empty_goal(definition),
            traversal_id=f"removed-{project}",
            expected=found.current_traversal,
            cause="removed",
        )

    return give


@pytest.fixture
def serve(
    state: Runtime, project: str, define: Callable[..., str], goal: Callable[..., None]
) -> Callable[..., str]:
    """Define groups and bring them into service; each has the servers NAME-a and NAME-b."""

    def bring(name: str, **more: Any) -> str:
        define(name, **more)
        seen = [("db_a", f"{name}-a", 1.0), ("db_b", f"{name}-b", 2.0)]
        identity = group_id(project, name)
        state.database.for_project(project).atomically(
            lambda tx: groups.record_members(tx, identity, seen)
        )
        goal(group=name)
        return name

    return bring
