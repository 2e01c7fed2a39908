# SPDX-License-Identifier: Apache-2.0
"""What the fixture ``workflow`` offers to a test, and the result of an execution: a snapshot taken
after its end."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mistral_failover.embedded.definitions import TEXT
from mistral_failover.lab.testing.engine import TestEngine


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
    return [read_run(root) for root in roots]


def read_run(execution_id: str) -> Run:
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


class Workflows:
    """Load, run and inspect workflows on the engine of this test process."""

    def __init__(self, engine: TestEngine) -> None:
        self._engine = engine

    def load(self, source: str | Path) -> list[str]:
        """Register the workflows of a file, of all YAML files of a directory, or of a text.

        :param source: a path, or YAML text (anything of more than one line).
        :returns: the names.
        :raises CodedError: ``WORKFLOW_INVALID`` with Mistral's reason.
        """
        if isinstance(source, str) and "\n" in source:
            return self._engine.load(source, TEXT)
        path = Path(source)
        files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
        return [n for f in files for n in self._engine.load(f.read_text("utf-8"), str(f))]

    def replace(
        self,
        name: str,
        outcome: Any = None,
        *,
        sequence: Sequence[Any] | None = None,
        unchecked: bool = False,
    ) -> None:
        """Let an action do something else until the test ends; its signature stays.

        :param outcome: a value or ``Result`` is returned; an exception is raised; a callable is
            called with the action's inputs as keyword arguments (and with Mistral's action
            context, if it has a parameter ``context``) and its result returned. It runs in the
            executor's thread; an assertion that fails in it fails the test.
        :param sequence: one outcome for each call, e.g. for a task that is retried; one call
            more fails the test.
        :param unchecked: accept any inputs; for actions that are not installed here.
        :raises LookupError: there is no such action and ``unchecked`` is not set.
        """
        with self._engine.context():
            self._engine.replacements.replace(name, outcome, sequence, unchecked)

    def calls(self, name: str) -> list[dict[str, Any]]:
        """The inputs of each call of a replaced action, in order.

        :raises KeyError: the action is not replaced.
        """
        return self._engine.replacements.calls(name)

    def run(
        self,
        name: str,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - Mistral's own word
        *,
        timeout: float = 10,
        **params: Any,
    ) -> Run:
        """Run a workflow to its end.

        :param timeout: seconds; more fail the test.
        :param params: Mistral's execution parameters, e.g. ``env={...}``.
        :raises AssertionError: the time is over, or a check in a replaced action failed.
        :raises mistral.exceptions.MistralException: the start was refused (unknown workflow,
            wrong inputs).
        """
        return self.wait(self.start(name, input, **params), timeout=timeout)

    def start(
        self,
        name: str,
        input: Mapping[str, Any] | None = None,  # noqa: A002
        **params: Any,
    ) -> str:
        """Start a workflow and return its execution's id, for :meth:`wait` or :meth:`look`."""
        return self._engine.start(name, dict(input or {}), params)

    def wait(self, execution_id: str, *, timeout: float = 10) -> Run:
        """Wait for the end of an execution; see :meth:`run`."""
        ended = self._engine.wait(execution_id, timeout)
        self.raise_failed_check()
        picture = self.look(execution_id)
        assert ended, f"still {picture.state} after {timeout:g} s:\n{picture.tree()}"
        return picture

    def executions(self) -> list[Run]:
        """Every execution that no other workflow started, oldest first, as :meth:`wait` shows
        one."""
        with self._engine.context():
            return read_roots()

    def look(self, execution_id: str) -> Run:
        """The execution as it is now."""
        with self._engine.context():
            return read_run(execution_id)

    def raise_failed_check(self) -> None:
        """Raise the check that failed in a replaced action, if any, once."""
        error = self._engine.replacements.failed_check
        if error is not None:
            self._engine.replacements.failed_check = None
            raise error
