# SPDX-License-Identifier: Apache-2.0
"""Actions that report: status, history, goals, metrics, details of one id."""

from __future__ import annotations

from typing import Any

from mistral_failover.actions.base import FailoverAction
from mistral_failover.metrics.numbers import GROUPS, measured
from mistral_failover.orders import define_group
from mistral_failover.recovery.retention import SHOWN_DAYS
from mistral_failover.reports import availability, details, goals, moves, status
from mistral_failover.runtime.inputs import flag, optional_text, text, whole
from mistral_failover.runtime.request import Request


class Status(FailoverAction):
    """Show the status of a group, with its definition if asked for; without a group, the status of
    all groups of the project."""

    def __init__(
        self, group: Any = None, definition: Any = False, agents: Any = False, after: Any = None
    ) -> None:
        super().__init__()
        self.group = group
        self.definition = definition
        self.agents = agents
        self.after = after

    def answer(self, request: Request) -> Any:
        group = optional_text("group", self.group)
        if group is None:
            return status.project(request, after=optional_text("after", self.after))
        found = status.status(request, group, agents=flag("agents", self.agents))
        if flag("definition", self.definition):
            found |= {"definition": define_group.definition(request, group)}
        return found


class History(FailoverAction):
    """Show the journal of a group, or of all groups of the project, one sentence per step, oldest
    first.

    ``after`` is the id of the last sentence that the caller knows; ``wait`` the seconds to wait for
    one if there is none.
    """

    def __init__(
        self,
        group: Any = None,
        after: Any = 0,
        limit: Any = 100,
        traversal: Any = None,
        wait: Any = 0,
    ) -> None:
        super().__init__()
        self.group = group
        self.after = after
        self.limit = limit
        self.traversal = traversal
        self.wait = wait

    def answer(self, request: Request) -> Any:
        return status.history(
            request,
            optional_text("group", self.group),
            after=whole("after", self.after, 0, 2**62),
            limit=whole("limit", self.limit, 1, 1000),
            traversal=optional_text("traversal", self.traversal),
            wait=whole("wait", self.wait, 0, 20),
        )


class Moves(FailoverAction):
    """List what moved or changed a group, or all groups of the project, the latest first: a row for
    each alarm and order that led to traversals."""

    def __init__(self, group: Any = None, limit: Any = 100) -> None:
        super().__init__()
        self.group = group
        self.limit = limit

    def answer(self, request: Request) -> Any:
        limit = whole("limit", self.limit, 1, 1000)
        return moves.listed(request, optional_text("group", self.group), limit)


class Availability(FailoverAction):
    """Show how much of the last ``seconds`` a group served: at most 31 days; without a group, all
    groups of the project."""

    def __init__(self, group: Any = None, seconds: Any = 86400) -> None:
        super().__init__()
        self.group = group
        self.seconds = seconds

    def answer(self, request: Request) -> Any:
        seconds = whole("seconds", self.seconds, 60, int(SHOWN_DAYS * availability.DAY))
        return availability.report(request, optional_text("group", self.group), seconds)


class Goals(FailoverAction):
    """List the goals of a group, the latest first, and their outcomes."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group = group

    def answer(self, request: Request) -> Any:
        return goals.listed(request, text("group", self.group))


class CompareGoals(FailoverAction):
    """Show the differences between two goals of a group; their versions may be shortened."""

    def __init__(self, group: Any, before: Any, after: Any) -> None:
        super().__init__()
        self.group = group
        self.before = before
        self.after = after

    def answer(self, request: Request) -> Any:
        return goals.compared(
            request,
            text("group", self.group),
            text("before", self.before),
            text("after", self.after),
        )


class Show(FailoverAction):
    """Show what an id means, and everything about it; its first 8 digits are enough.

    ``id`` is that of an incident, traversal, goal, operation, plan, or of a locked resource.
    """

    def __init__(self, id: Any, group: Any = None, executions: Any = True) -> None:
        super().__init__()
        self.id = id
        self.group = group
        self.executions = executions

    def answer(self, request: Request) -> Any:
        return details.show(
            request,
            text("id", self.id),
            optional_text("group", self.group),
            trees=flag("executions", self.executions),
        )


class Metrics(FailoverAction):
    """Count what happened in the project, and show the status of its groups."""

    def __init__(self, group_limit: Any = GROUPS) -> None:
        super().__init__()
        self.group_limit = group_limit

    def answer(self, request: Request) -> Any:
        limit = whole("group_limit", self.group_limit, 0, 10_000)
        return measured(request, limit)
