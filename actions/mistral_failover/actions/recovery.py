# SPDX-License-Identifier: Apache-2.0
"""Actions that carry out traversals and continue work that a crash interrupted."""

from __future__ import annotations

from typing import Any

from mistral_failover.actions.base import FailoverAction
from mistral_failover.mistral import executions
from mistral_failover.recovery import advance, observe, sweep
from mistral_failover.runtime.inputs import flag, optional_text, stage, text
from mistral_failover.runtime.request import Request


class Launch(FailoverAction):
    """Start a public workflow of this package as an execution of its own, without waiting for
    it."""

    def __init__(self, workflow: Any, input: Any, because: Any = None) -> None:
        super().__init__()
        self.workflow = workflow
        self.input = input
        self.because = because

    def answer(self, request: Request) -> Any:
        because = optional_text("because", self.because) or "asked for by another workflow"
        return executions.launch(request, text("workflow", self.workflow), self.input, because)


class Advance(FailoverAction):
    """Carry out a traversal up to the end of a stage."""

    def __init__(self, traversal: Any, through: Any, hold: Any = False) -> None:
        super().__init__()
        self.traversal = traversal
        self.through = through
        self.hold = hold

    def answer(self, request: Request) -> Any:
        return advance.advance(
            request,
            text("traversal", self.traversal),
            stage("through", self.through),
            hold=flag("hold", self.hold),
        )


class Report(FailoverAction):
    """Report how a traversal ended. It is an error if it did not reach its goal or waits for
    rights, and if a planned move returned or was superseded by another goal."""

    def __init__(self, group: Any, traversal: Any) -> None:
        super().__init__()
        self.group = group
        self.traversal = traversal

    def answer(self, request: Request) -> Any:
        return advance.report(request, text("group", self.group), text("traversal", self.traversal))


class Sweep(FailoverAction):
    """Find work that dead processes left unfinished in the project, and return what to start for
    it."""

    def __init__(self, group: Any = None) -> None:
        super().__init__()
        self.group = group

    def answer(self, request: Request) -> Any:
        return sweep.sweep(request, optional_text("group", self.group))


class Observe(FailoverAction):
    """Check the project's groups at rest, or one group at once: does the cloud still match the
    records?"""

    def __init__(self, group: Any = None) -> None:
        super().__init__()
        self.group = group

    def answer(self, request: Request) -> Any:
        group = optional_text("group", self.group)
        return observe.observe(request, group, at_once=group is not None)
