# SPDX-License-Identifier: Apache-2.0
"""Actions that work traversals off and take up what a crash left behind."""

from __future__ import annotations

from typing import Any

from mistral_failover.actions.base import FailoverAction
from mistral_failover.mistral import launch
from mistral_failover.recovery import advance, observe, sweep
from mistral_failover.runtime.inputs import flag, optional_text, stage, text
from mistral_failover.runtime.process import Request


class Launch(FailoverAction):
    """Start a workflow of this pack as an execution of its own, and do not wait for it."""

    def __init__(self, workflow: Any, input: Any, because: Any = None) -> None:
        super().__init__()
        self.workflow = workflow
        self.input = input
        self.because = because

    def answer(self, request: Request) -> Any:
        because = optional_text("because", self.because) or "asked for by another workflow"
        return launch.launch(request, text("workflow", self.workflow), self.input, because)


class Advance(FailoverAction):
    """Work a traversal off up to the end of a stage."""

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
    """How a traversal ended; an error when it did not reach its goal, or waits for rights. So is a
    planned move that came back, or whose place another goal has taken."""

    def __init__(self, group: Any, traversal: Any) -> None:
        super().__init__()
        self.group = group
        self.traversal = traversal

    def answer(self, request: Request) -> Any:
        return advance.report(request, text("group", self.group), text("traversal", self.traversal))


class Sweep(FailoverAction):
    """Find what dead processes left behind in the project, and say what is to be started for it."""

    def __init__(self, group: Any = None) -> None:
        super().__init__()
        self.group = group

    def answer(self, request: Request) -> Any:
        return sweep.sweep(request, optional_text("group", self.group))


class Observe(FailoverAction):
    """Look at the project's groups at rest, or at one at once: is it still as the records say?"""

    def __init__(self, group: Any = None) -> None:
        super().__init__()
        self.group = group

    def answer(self, request: Request) -> Any:
        group = optional_text("group", self.group)
        return observe.observe(request, group, at_once=group is not None)
