# SPDX-License-Identifier: Apache-2.0
"""Whatever somebody names of another project reads as if it were not there, and stays as it is.

Every action is tried, as the entry points name them: a new one needs a case of its own."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import alarms, reports, suspensions
from mistral_failover.actions import groups as group_actions
from mistral_failover.model.goal import render_goal
from mistral_failover.model.ids import derived_id
from mistral_failover.runtime.process import Runtime
from mistral_failover.store import groups
from support.databases import empty
from support.driving import conclude, handed_out
from support.foreign_names import (
    ACTIONS,
    KnownNames,
    answer_of,
    aodh,
    changes,
    rows,
    told,
    unknown_ones,
)

HOUSE = {
    "failover_type_version": "2026-11-21",
    "name": "house",
    "description": "a resource whose operations are workflows",
    "properties": {"holder": {"type": "string", "required": True}},
    "operations": {v: {"workflow": f"house.{v}"} for v in ("create", "update", "delete")},
}
INSTALLED = {
    entry.name: entry
    for entry in entry_points(group="mistral.actions")
    if entry.value.startswith("mistral_failover.")
}


def protect(
    state: Runtime, context: ActionContext, label: str, group: str | None = None
) -> KnownNames:
    """A group that is being brought up, with an alarm held back; everything bears the label."""
    group, members = group or f"{label}-group", [f"{label}_a", f"{label}_b"]
    document = {
        "failover_template_version": "2026-11-21",
        "stack": f"{label}-stack",
        "members": {"servers": members},
        "resources": {
            "thing": {"type": "house", "properties": {"holder": {"get_param": "active"}}}
        },
    }
    answer = group_actions.Define(document, name=group, types=[HOUSE]).run(context)
    assert not isinstance(answer, Result), answer.error
    identity = groups.group_id(context.security.project_id, group)
    definition = state.database.reading(
        lambda tx: state.definitions.group(tx, tx.lock_group(identity, shared=True))
    )
    seen = [(name, f"{label}-server-{name[-1]}", 1.0) for name in members]
    state.database.atomically(lambda tx: groups.record_members(tx, identity, seen))
    goal = render_goal(definition, {"active": members[0]}, [])
    started = state.engine.start(
        identity, goal, traversal_id=derived_id(identity, label), expected=None, cause=label
    )
    (ready,) = started.ready
    document = handed_out(state, context, ready)
    said = {"group": group, "member": members[0]}
    people_s_word = suspensions.Pause(group, because="work").run(context)
    assert not isinstance(people_s_word, Result), people_s_word.error
    held = alarms.Admit({"previous": "ok", "current": "alarm", "alarm_id": "x"}, **said).run(
        context
    )
    return KnownNames(
        group=group,
        stack=f"{label}-stack",
        member=members[0],
        server=seen[0][1],
        traversal=ready.traversal_id,
        node=ready.node.key,
        resource=ready.node.resource_id,
        incident=held["incident"],
        goal=goal.version,
        document=document,
    )


@pytest.fixture(autouse=True)
def nothing_else(state: Runtime) -> None:
    """Every row is read twice in each case: those of the cases before would take most of the
    time."""
    empty(state.database)


@pytest.fixture
def stranger(context_of: Callable[..., ActionContext], project: str) -> ActionContext:
    """A request of another project."""
    return context_of(f"not-{project}")


@pytest.fixture
def theirs(state: Runtime, context: ActionContext) -> KnownNames:
    """What one project has."""
    return protect(state, context, "theirs")


@pytest.fixture
def own(state: Runtime, stranger: ActionContext) -> KnownNames:
    """What the stranger has; of a name that is like no other, since a name that is like an asked
    one is proposed."""
    return protect(state, stranger, "own", "zzz")


def run(name: str, inputs: dict[str, Any], context: ActionContext) -> Any:
    return INSTALLED[name].load()(**inputs).run(context)


def test_every_action_has_a_case() -> None:
    assert {f"failover.{name}" for name in ACTIONS} == set(INSTALLED)


@pytest.mark.parametrize("name", sorted(ACTIONS))
def test_what_another_project_has_is_not_there(
    state: Runtime,
    theirs: KnownNames,
    own: KnownNames,
    stranger: ActionContext,
    project: str,
    name: str,
) -> None:
    others = unknown_ones(theirs)
    pairs = zip(ACTIONS[name](theirs, own.group), ACTIONS[name](others, own.group), strict=True)
    for foreign, unknown in pairs:
        assert any(said in str(foreign) for said in theirs.strings.values())
        before = rows(state.database)

        answer = answer_of(run(f"failover.{name}", foreign, stranger))

        assert told(theirs, answer, foreign) == []
        for row in changes(before, rows(state.database)):
            assert f'"not-{project}"' in row or own.group in row or _of(own, stranger, row), row
        likewise = answer_of(run(f"failover.{name}", unknown, stranger))
        for what, said in theirs.strings.items():
            answer = answer.replace(said, others.strings[what])
        assert answer == likewise


def _of(own: KnownNames, stranger: ActionContext, row: str) -> bool:
    """Whether a row belongs to one of the stranger's own groups."""
    project = stranger.security.project_id
    names = (own.group, "theirs-group", "unknown-group")
    return any(f'"group_id": "{groups.group_id(project, name)}"' in row for name in names)


def test_a_stranger_s_ticket_with_one_s_own_traversal_carries_nothing_out(
    state: Runtime, theirs: KnownNames, own: KnownNames, stranger: ActionContext
) -> None:
    mixed = {**theirs.document["ticket"], "traversal_id": own.traversal}
    before = rows(state.database)

    refused = run("failover.quiesce", {"operation": {**theirs.document, "ticket": mixed}}, stranger)

    assert refused.error["code"] == "UNKNOWN_OPERATION"
    assert changes(before, rows(state.database)) == []


def test_one_name_in_two_projects_is_two_groups(
    state: Runtime, context: ActionContext, stranger: ActionContext
) -> None:
    mine, theirs = (protect(state, each, "same") for each in (context, stranger))

    assert mine.traversal != theirs.traversal
    assert mine.incident != theirs.incident
    suspensions.Resume("same-group", because="done").run(context)
    conclude(state, dict(mine.document))

    assert reports.Status("same-group").run(context)["status"] == "COMPLETE"
    assert reports.Status("same-group").run(stranger)["status"] == "IN_PROGRESS"
    assert reports.Status().run(stranger)["groups"] == ["same-group"]
    assert [row["held"] for row in reports.Status().run(stranger)["overview"]] == [1]
    assert [row["incident"] for row in alarms.Held().run(stranger)["held"]] == [theirs.incident]


def test_an_alarm_about_a_server_of_two_projects_concerns_the_caller_s(
    state: Runtime, context: ActionContext, stranger: ActionContext
) -> None:
    for each in (context, stranger):
        known = protect(state, each, "same")
        suspensions.Resume(known.group, because="done").run(each)
    before = rows(state.database)

    alarms.Admit(aodh(known)).run(stranger)

    changed = changes(before, rows(state.database))
    assert changed
    assert not [row for row in changed if f'"{context.security.project_id}"' in row]
