# SPDX-License-Identifier: Apache-2.0
"""Every workflow, run with the token of another project: what is named of a foreign group reads as
if it were not there, the cloud is asked for nothing but what the token is worth, and nothing of the
group changes. A new workflow needs a case of its own."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover import workflows as shipped
from mistral_failover.actions import alarms, suspensions
from mistral_failover.convergence.records import Lock, Node, Ticket
from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.lab.testing.workflows import Run, Workflows
from mistral_failover.mistral.operation_documents import ticket_document
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import DEFAULT_PROJECT
from mistral_failover.store import details, groups, views
from support.as_user import run_as
from support.foreign_names import (
    OPERATIONS,
    WORKFLOWS,
    KnownNames,
    answer_of,
    changes,
    rows,
    told,
    unknown_ones,
)


@pytest.fixture
def theirs(protect: Callable[..., Any]) -> KnownNames:
    """What one project has: a group that is active, and an alarm that is held."""
    group = protect()
    group.activate()
    context = ActionContext(SecurityContext(), ExecutionContext())
    suspensions.Pause(group.name, because="work").run(context)
    held = alarms.Admit(group.fails("hang"), group=group.name, member="db_a").run(context)
    identity = groups.group_id(DEFAULT_PROJECT, group.name)
    return group.state.database.reading(lambda tx: known(tx, identity, group, held["incident"]))


def known(tx: Any, identity: str, group: Any, incident: str) -> KnownNames:
    state = groups.get(tx, identity)
    traversal = tx.traversal(state.current_traversal)
    (record,) = [r for r in tx.records(identity) if r.name == "database"]
    entry = next(
        row
        for row in details.operations_of(tx, traversal_id=traversal.id)
        if row["resource_id"] == record.id and row["verb"] == "create"
    )
    node = Node("update", record.id)
    lock = Lock(record.id, "somebody", views.operation(tx, entry["key"])["token"], 10.0)
    ticket = Ticket(entry["key"], "create", traversal.id, node, lock, traversal.goal_version)
    return KnownNames(
        group=group.name,
        stack=group.name,
        member="db_a",
        server=group.server("db_a"),
        traversal=traversal.id,
        node=node.key,
        resource=record.id,
        incident=incident,
        goal=traversal.goal_version,
        document={
            "ticket": ticket_document(ticket),
            "verb": "create",
            "key": entry["key"],
            "group": group.name,
            "stack": group.name,
            "resource": {"id": record.id, "attributes": {"server_id": group.server("db_a")}},
            "member": {"name": "db_a", "server_id": group.server("db_a"), "epoch": 1},
            "properties": dict(record.properties),
            "previous": None,
            "inputs": {},
            "unknown": False,
            "timeout": 30,
        },
    )


@pytest.fixture
def strangers(emulated: EmulatedCloud) -> Iterator[SimpleNamespace]:
    """What requests bring along of users of other projects, each of another one."""

    def stranger(number: int) -> SimpleNamespace:
        name = f"stranger{number}-{uuid.uuid4().hex}"
        return SimpleNamespace(
            project_id=emulated.client.add_user(name),
            auth_token=emulated.client.mint_token(user=name, trust=True),
            auth_uri=emulated.auth_url,
        )

    return map(stranger, itertools.count())


@pytest.fixture
def everything(pack: Workflows) -> Workflows:
    """All the shipped workflows, those of operations too."""
    for path in shipped.paths():
        if Path(path).stem in OPERATIONS:
            pack.load(path)
    return pack


def calls(cloud: EmulatorClient, project: str, since: int) -> list[str]:
    """The calls that a project made of the cloud, but for Keystone's."""
    return [
        f"{event['method']} {event['path']}"
        for event in cloud.audit(since, "request")
        if event["project_id"] == project and not event["path"].startswith("/identity/")
    ]


def test_every_workflow_has_a_case() -> None:
    assert set(WORKFLOWS) == {Path(path).stem for path in shipped.paths()}


def test_what_another_project_has_is_not_there(
    everything: Workflows,
    state: Runtime,
    cloud: EmulatorClient,
    theirs: KnownNames,
    strangers: Iterator[SimpleNamespace],
) -> None:
    others = unknown_ones(theirs)
    for name, stranger in zip(sorted(WORKFLOWS), strangers, strict=False):
        foreign_and_unknown = zip(
            WORKFLOWS[name](theirs, "own"), WORKFLOWS[name](others, "own"), strict=True
        )
        for foreign, unknown in foreign_and_unknown:
            before, heard = rows(state.database), len(cloud.audit())

            run = run_as(everything, stranger, f"failover.{name}", foreign)

            answer = answer_of({"output": run.output, "tasks": results_of(run)})
            assert told(theirs, answer, foreign) == [], name
            made = calls(cloud, stranger.project_id, heard)
            if name == "protect":  # it looks for the stack of that name in the caller's project
                made = [each for each in made if f"/{stranger.project_id}/stacks" not in each]
            assert made == [], name
            for row in changes(before, rows(state.database)):
                assert is_of(stranger, theirs, row), f"{name}: {row}"
            likewise = run_as(everything, stranger, f"failover.{name}", unknown)
            for what, said in theirs.strings.items():
                answer = answer.replace(said, others.strings[what])
            read = answer_of({"output": likewise.output, "tasks": results_of(likewise)})
            assert answer == read, name


def is_of(stranger: SimpleNamespace, theirs: KnownNames, row: str) -> bool:
    """Whether a row belongs to the stranger's project, or to the group that it has under the name
    of the foreign one."""
    project = f'"project_id": "{stranger.project_id}"'
    group = f'"group_id": "{groups.group_id(stranger.project_id, theirs.group)}"'
    return project in row or group in row


def results_of(run: Run) -> list[Any]:
    """What each task of an execution came to, and those below it."""
    return [
        [task.name, task.state, task.result, [results_of(sub) for sub in task.subs]]
        for task in run.all_tasks
    ]


def test_a_stack_of_another_project_is_unknown_to_heat(
    everything: Workflows,
    state: Runtime,
    cloud: EmulatorClient,
    theirs: KnownNames,
    strangers: Iterator[SimpleNamespace],
) -> None:
    stranger = next(strangers)
    definition = {
        "failover_template_version": "2026-11-21",
        "stack": theirs.stack,
        "members": {"servers": ["db_a", "db_b"]},
        "resources": {},
    }
    inputs = {"name": "mine", "definition": definition}
    run_as(everything, stranger, "failover.protect", inputs)

    run = run_as(everything, stranger, "failover.activate_first", {"group": "mine"})

    assert run.output["error"]["code"] == "NOT_FOUND"
    assert theirs.stack in run.output["error"]["message"]
    assert "project" in run.output["error"]["remedy"]
    assert theirs.server not in str(results_of(run))
