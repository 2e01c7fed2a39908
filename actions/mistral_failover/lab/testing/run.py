# SPDX-License-Identifier: Apache-2.0
"""The result of an execution: a snapshot taken after its end."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Task:
    """One task of an execution.

    :ivar result: as ``task().result`` in YAQL; the error's value for a failed task.
    :ivar attempts: how many actions or sub-workflows it started (retries, with-items).
    :ivar subs: the sub-workflow executions, in the order of their start.
    """

    name: str
    state: str
    state_info: str | None
    result: Any
    published: dict[str, Any]
    attempts: int
    subs: tuple["Run", ...] = ()


@dataclass(frozen=True)
class Run:
    """One execution and everything below it."""

    id: str
    name: str
    state: str
    state_info: str | None
    input: dict[str, Any]
    output: dict[str, Any]
    all_tasks: tuple[Task, ...] = field(repr=False)

    @property
    def tasks(self) -> list[tuple[str, str]]:
        """(name, state) of each task, in the order of their creation."""
        return [(t.name, t.state) for t in self.all_tasks]

    def task(self, name: str) -> Task:
        """The task of that name (the last one, if it ran more than once).

        :raises AssertionError: it did not run.
        """
        found = [t for t in self.all_tasks if t.name == name]
        assert found, f"task {name!r} did not run:\n{self.tree()}"
        return found[-1]

    def sub(self, task: str, index: int = 0) -> "Run":
        """The sub-workflow that a task started; ``index`` for with-items and retries.

        :raises AssertionError: it started none, or fewer.
        """
        subs = self.task(task).subs
        assert len(subs) > index, f"task {task!r} started {len(subs)} workflows:\n{self.tree()}"
        return subs[index]

    def tree(self) -> str:
        """The execution as indented text, sub-workflows below their tasks."""
        return "\n".join(self._lines(""))

    def error_codes(self) -> set[str]:
        """Every ``code`` in the output and in the results of failed tasks, at any depth."""
        codes = set(_codes(self.output))
        for task in self.all_tasks:
            if task.state != "SUCCESS":
                codes |= set(_codes(task.result))
            for sub in task.subs:
                codes |= sub.error_codes()
        return codes

    def assert_succeeded(self) -> "Run":
        """The execution ended in SUCCESS; returns itself."""
        assert self.state == "SUCCESS", (
            f"expected SUCCESS, got {self.state}: {self.state_info}\n{self.tree()}"
        )
        return self

    def assert_failed_with(self, code: str) -> "Run":
        """The execution ended in ERROR, and ``code`` is among its errors; returns itself."""
        assert self.state == "ERROR", f"expected ERROR, got {self.state}\n{self.tree()}"
        found = self.error_codes()
        assert code in found, (
            f"no error {code!r}; found {sorted(found) or 'none'}; {self.state_info}\n{self.tree()}"
        )
        return self

    def assert_tasks(self, *names: str, any_order: bool = False) -> "Run":
        """Exactly these tasks ran, in the order of their creation; returns itself."""
        found = [t.name for t in self.all_tasks]
        same = sorted(found) == sorted(names) if any_order else found == list(names)
        assert same, f"expected the tasks {list(names)}, got {found}:\n{self.tree()}"
        return self

    def _lines(self, indent: str) -> Iterator[str]:
        output = json.dumps(self.output, default=str, sort_keys=True)
        yield f"{indent}{self.name} {self.state} {_short(output)}"
        for task in self.all_tasks:
            note = f": {_short(task.state_info)}" if task.state == "ERROR" else ""
            times = f" x{task.attempts}" if task.attempts > 1 else ""
            yield f"{indent}  {task.name}{times} {task.state}{note}"
            for sub in task.subs:
                yield from sub._lines(indent + "    ")


def read_roots() -> list[Run]:
    """Take the snapshots of all executions on top of their trees, inside Mistral's security
    context."""
    import sqlalchemy as sa
    from mistral.db.sqlalchemy import base
    from mistral.db.v2 import api as db_api
    from mistral.db.v2.sqlalchemy import models

    with db_api.transaction(read_only=True):
        rows = base.model_query(models.WorkflowExecution).order_by(sa.text("rowid")).all()
        roots = [row.id for row in rows if row.task_execution_id is None]
    return [read(root) for root in roots]


def read(execution_id: str) -> Run:
    """Take the snapshot of an execution, inside Mistral's security context."""
    import sqlalchemy as sa
    from mistral.db.sqlalchemy import base
    from mistral.db.v2 import api as db_api
    from mistral.db.v2.sqlalchemy import models
    from mistral.workflow import data_flow

    # created_at has whole seconds; SQLite's rowid is the order of creation.
    created = sa.text("rowid")

    def children(model: Any, **by: str) -> list[Any]:
        return list(base.model_query(model).filter_by(**by).order_by(created))

    def run(row: Any) -> Run:
        tasks = children(models.TaskExecution, workflow_execution_id=row.id)
        return Run(
            id=row.id,
            name=row.workflow_name,
            state=row.state,
            state_info=row.state_info,
            input=dict(row.input or {}),
            output=dict(row.output or {}),
            all_tasks=tuple(task(t) for t in tasks),
        )

    def task(row: Any) -> Task:
        subs = children(models.WorkflowExecution, task_execution_id=row.id)
        return Task(
            name=row.name,
            state=row.state,
            state_info=row.state_info,
            result=data_flow.get_task_execution_result(row),
            published=dict(row.published or {}),
            attempts=len(row.executions),
            subs=tuple(run(s) for s in subs),
        )

    with db_api.transaction(read_only=True):
        return run(db_api.get_workflow_execution(execution_id))


def _codes(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("code"), str):
            yield value["code"]
        for inner in value.values():
            yield from _codes(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _codes(inner)


def _short(text: str | None) -> str:
    line = (text or "").splitlines()[0] if text else ""
    return line if len(line) <= 120 else line[:117] + "..."
