# SPDX-License-Identifier: Apache-2.0
"""Actions that carry out traversals and continue work that a crash interrupted."""

from __future__ import annotations

from typing import Annotated, Any

from mistral_failover.actions.base import FailoverAction
from mistral_failover.mistral import executions
from mistral_failover.model.stages import Stage
from mistral_failover.recovery import advance, observe, sweep
from mistral_failover.runtime.inputs import Flag, OptionalText, Text, stage
from mistral_failover.runtime.request import Request


class Launch(FailoverAction):
    """Start a public workflow of this package as an execution of its own, without waiting for
    it."""

    def answer(
        self, request: Request, workflow: Text, input: Any, because: OptionalText = None
    ) -> Any:
        return executions.launch(
            request, workflow, input, because or "asked for by another workflow"
        )


class Advance(FailoverAction):
    """Carry out a traversal up to the end of a stage."""

    def answer(
        self,
        request: Request,
        traversal: Text,
        through: Annotated[Stage, stage],
        hold: Flag = False,
    ) -> Any:
        return advance.advance(request, traversal, through, hold=hold)


class Report(FailoverAction):
    """Report how a traversal ended. It is an error if it did not reach its goal or waits for
    rights, and if a planned move returned or was superseded by another goal."""

    def answer(self, request: Request, group: Text, traversal: Text) -> Any:
        return advance.report(request, group, traversal)


class Sweep(FailoverAction):
    """Find work that dead processes left unfinished in the project, and return what to start for
    it."""

    def answer(self, request: Request, group: OptionalText = None) -> Any:
        return sweep.sweep(request, group)


class Observe(FailoverAction):
    """Check the project's groups at rest, or one group at once: does the cloud still match the
    records?"""

    def answer(self, request: Request, group: OptionalText = None) -> Any:
        return observe.observe(request, group, at_once=group is not None)
