# SPDX-License-Identifier: Apache-2.0
"""What the fixture ``workflow`` offers to a test."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mistral_failover.embedded.definitions import TEXT
from mistral_failover.lab.testing import run as runs
from mistral_failover.lab.testing.engine import TestEngine
from mistral_failover.lab.testing.run import Run


class Workflows:
    """Load, run and inspect workflows on the engine of this test process."""

    def __init__(self, engine: TestEngine) -> None:
        self._engine = engine

    def load(self, source: str | Path) -> list[str]:
        """Register the workflows of a file, of all YAML files of a directory, or of a text.

        :param source: a path, or YAML text (anything of more than one line).
        :returns: the names.
        :raises EmbeddedError: ``WORKFLOW_INVALID`` with Mistral's reason.
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
            return runs.read_roots()

    def look(self, execution_id: str) -> Run:
        """The execution as it is now."""
        with self._engine.context():
            return runs.read(execution_id)

    def raise_failed_check(self) -> None:
        """Raise the check that failed in a replaced action, if any, once."""
        error = self._engine.replacements.failed_check
        if error is not None:
            self._engine.replacements.failed_check = None
            raise error
