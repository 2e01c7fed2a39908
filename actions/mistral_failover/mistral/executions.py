# SPDX-License-Identifier: Apache-2.0
"""Executions in Mistral: start one without waiting for its end; show those that carried out
something as trees: execution, tasks, the executions below them. Mistral is asked with the caller's
rights, and for the trees only for a limited time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from mistral_failover.cloud.errors import CloudError
from mistral_failover.fault_points import reach
from mistral_failover.mistral.api import Execution, Mistral, Task, mistral_of
from mistral_failover.model.canonical import canonical_json
from mistral_failover.model.ids import derived_id
from mistral_failover.runtime.deadlines import DeadlineGuard
from mistral_failover.runtime.errors import ActionError, describe
from mistral_failover.runtime.request import Request

LIMIT = 10.0
"""Seconds for all requests to Mistral; what is not read by then is omitted, and the answer says
so."""
CALL = 4.0
"""Seconds for one call. An engine that waits for this very action answers nothing, so the call must
be short."""
PUBLIC = "failover."
PRIVATE = "failover._"
ASKED_FOR = 12
"""Maximum executions whose trees are looked for."""
SHOWN = 60
"""Maximum executions that are shown, all trees together."""


class ShownTask(TypedDict):
    """A task of an execution, with the executions below it. ``began`` and ``changed``: seconds
    since the epoch, by Mistral's clock."""

    id: str
    name: str
    state: str
    began: float
    changed: float
    executions: list[ShownExecution]


class ShownExecution(TypedDict):
    """An execution with its tasks. ``operations``: what it held, in words."""

    id: str
    workflow: str
    state: str
    began: float
    changed: float
    operations: list[str]
    tasks: list[ShownTask]


class ExecutionTrees(TypedDict):
    """Trees of executions. ``left_out``: a sentence about what is not shown; empty if nothing."""

    trees: list[ShownExecution]
    left_out: str


@dataclass
class _TreeReader:
    """A bounded look at Mistral."""

    mistral: Mistral
    work: Mapping[str, list[str]]
    deadline: float
    left: int = SHOWN
    seen: set[str] = field(default_factory=set)
    cut: bool = False
    failed: str = ""

    def fail(self, error: CloudError) -> None:
        """Stop, because Mistral does not answer; what was read stays."""
        self.failed = f"The request to Mistral failed: {describe(error)['message']}"
        self.cut = True

    @property
    def over(self) -> bool:
        if self.left <= 0 or time.monotonic() > self.deadline:
            self.cut = True
        return self.cut


def execution_of(owner: str | None) -> str | None:
    """Return the id of the workflow execution in an owner's name; None if there is none."""
    identity = (owner or "").partition("/")[0]
    return identity if identity not in ("", "-") else None


def trees(
    request: Request, asked: Iterable[str | None], work: Mapping[str, list[str]]
) -> ExecutionTrees:
    """Return the whole trees of some executions, each tree once.

    ``asked``: ids, the most important first. ``work``: by execution the operations that it held, in
    words.
    """
    wanted = list(dict.fromkeys(filter(None, asked)))
    try:
        mistral = mistral_of(request, DeadlineGuard(time.monotonic() + LIMIT, CALL))
    except CloudError as error:
        return _answer([], f"The request to Mistral failed: {describe(error)['message']}")
    if mistral is None:
        return _answer([], "Mistral is not reachable: [failover] mistral_url is not set")
    look = _TreeReader(mistral, work, time.monotonic() + LIMIT)
    found, unknown = [], 0
    for identity in wanted[:ASKED_FOR]:
        if identity in look.seen or look.over:
            continue
        try:
            execution = mistral.find(identity)
            if execution is None:
                unknown += 1
            elif execution.root not in look.seen:
                found.append(_tree(look, execution.root))
        except CloudError as error:
            look.fail(error)
    said = []
    if unknown:
        said.append(f"Mistral does not have {unknown} of the executions any more")
    if look.failed:
        said.append(f"{look.failed}; the rest is not shown")
    elif look.cut or len(wanted) > ASKED_FOR:
        said.append("the rest is not shown, because it is too large or took too long")
    return _answer([tree for tree in found if tree], "; ".join(said))


def _answer(found: list[ShownExecution], left_out: str) -> ExecutionTrees:
    return {"trees": found, "left_out": left_out}


def _tree(look: _TreeReader, root: str) -> ShownExecution | None:
    look.seen.add(root)
    executions = look.mistral.tree(root)
    below: dict[str | None, list[Execution]] = {}
    for execution in executions[1:]:
        below.setdefault(execution.task, []).append(execution)
    return _shown(look, executions[0], below) if executions else None


def _tasks(look: _TreeReader, execution: str) -> list[Task]:
    """Return the tasks of an execution; none if the time is over or Mistral does not answer."""
    if look.over:
        return []
    try:
        return look.mistral.tasks(execution)
    except CloudError as error:
        look.fail(error)
        return []


def _shown(
    look: _TreeReader, execution: Execution, below: Mapping[str | None, list[Execution]]
) -> ShownExecution:
    look.seen.add(execution.id)
    look.left -= 1
    tasks: list[ShownTask] = []
    for task in _tasks(look, execution.id):
        under = []
        for each in below.get(task.id, ()):
            if look.over:
                break
            under.append(_shown(look, each, below))
        tasks.append(
            {
                "id": task.id,
                "name": task.name,
                "state": task.state,
                "began": task.began.timestamp(),
                "changed": task.changed.timestamp(),
                "executions": under,
            }
        )
    return {
        "id": execution.id,
        "workflow": execution.workflow,
        "state": execution.state,
        "began": execution.began.timestamp(),
        "changed": execution.changed.timestamp(),
        "operations": look.work.get(execution.id, []),
        "tasks": tasks,
    }


def launch(request: Request, workflow: str, input: Any, because: str) -> dict[str, Any]:
    """Start a workflow as an execution of its own, once for each execution that asks for it.

    A workflow that waits for a stack cannot wait for a failover that itself waits for the stack:
    the first activation, which the stack's creation starts, ends with a PATCH of that stack.

    The new execution's id is derived from the asking one's, so a repeat starts nothing. Returns
    ``workflow`` and ``execution``, its id. Raises ActionError BAD_INPUT for anything but a public
    workflow of this package, or if there is no execution to derive the id from; CloudError.
    """
    if not workflow.startswith(PUBLIC) or workflow.startswith(PRIVATE):
        raise ActionError(
            "BAD_INPUT",
            f"workflow: {workflow} is not one of the public workflows of this package",
            "Name one of the workflows failover.*; start any other workflow in Mistral itself.",
        )
    if not isinstance(input, Mapping):
        raise ActionError("BAD_INPUT", "input: a mapping is expected", "Correct input.")
    asking = request.context.execution.workflow_execution_id
    if not asking:
        raise ActionError(
            "BAD_INPUT",
            "this was not called by a workflow, so a repeat could not be recognized",
            f"Start {workflow} itself.",
        )
    mistral = mistral_of(request)
    if mistral is None:
        raise ActionError(
            "CONFIG",
            "neither the token nor the configuration has the URL of Mistral's API",
            "Set [failover] mistral_url, or call with a token.",
        )
    execution = derived_id("launch", request.project_id, asking, workflow, canonical_json(input))
    reach("launch.before")
    # Where the asking workflow is, this one is too; Mistral itself looks there for sub-workflows
    # only.
    namespace = mistral.namespace_of(asking)
    mistral.start(execution, workflow, input, because, namespace)
    reach("launch.after")
    return {"workflow": workflow, "execution": execution}
