# SPDX-License-Identifier: Apache-2.0
"""Actions that report: status, history, goals, metrics, details of one id."""

from __future__ import annotations

from typing import Annotated, Any

from mistral_failover.actions.base import FailoverAction
from mistral_failover.metrics.numbers import GROUPS, measured
from mistral_failover.orders import define_group
from mistral_failover.recovery.retention import SHOWN_DAYS
from mistral_failover.reports import availability, details, goals, moves, status
from mistral_failover.runtime.inputs import Flag, OptionalText, Text, whole
from mistral_failover.runtime.request import Request

_Limit = Annotated[int, whole(1, 1000)]


class Status(FailoverAction):
    """Show the status of a group, with its definition if asked for; without a group, the status of
    all groups of the project."""

    def answer(
        self,
        request: Request,
        group: OptionalText = None,
        definition: Flag = False,
        agents: Flag = False,
        after: OptionalText = None,
    ) -> Any:
        if group is None:
            return status.project(request, after=after)
        found = status.status(request, group, agents=agents)
        if definition:
            found |= {"definition": define_group.definition(request, group)}
        return found


class History(FailoverAction):
    """Show the journal of a group, or of all groups of the project, one sentence per step, oldest
    first.

    ``after`` is the id of the last sentence that the caller knows; ``wait`` the seconds to wait for
    one if there is none.
    """

    def answer(
        self,
        request: Request,
        group: OptionalText = None,
        after: Annotated[int, whole(0, 2**62)] = 0,
        limit: _Limit = 100,
        traversal: OptionalText = None,
        wait: Annotated[int, whole(0, 20)] = 0,
    ) -> Any:
        return status.history(
            request, group, after=after, limit=limit, traversal=traversal, wait=wait
        )


class Moves(FailoverAction):
    """List what moved or changed a group, or all groups of the project, the latest first: a row for
    each alarm and order that led to traversals."""

    def answer(self, request: Request, group: OptionalText = None, limit: _Limit = 100) -> Any:
        return moves.listed(request, group, limit)


class Availability(FailoverAction):
    """Show how much of the last ``seconds`` a group served: at most 31 days; without a group, all
    groups of the project."""

    def answer(
        self,
        request: Request,
        group: OptionalText = None,
        seconds: Annotated[int, whole(60, int(SHOWN_DAYS * availability.DAY))] = 86400,
    ) -> Any:
        return availability.report(request, group, seconds)


class Goals(FailoverAction):
    """List the goals of a group, the latest first, and their outcomes."""

    def answer(self, request: Request, group: Text) -> Any:
        return goals.listed(request, group)


class CompareGoals(FailoverAction):
    """Show the differences between two goals of a group; their versions may be shortened."""

    def answer(self, request: Request, group: Text, before: Text, after: Text) -> Any:
        return goals.compared(request, group, before, after)


class Show(FailoverAction):
    """Show what an id means, and everything about it; its first 8 digits are enough.

    ``id`` is that of an incident, traversal, goal, operation, plan, or of a locked resource.
    """

    def answer(
        self, request: Request, id: Text, group: OptionalText = None, executions: Flag = True
    ) -> Any:
        return details.show(request, id, group, trees=executions)


class Metrics(FailoverAction):
    """Count what happened in the project, and show the status of its groups."""

    def answer(
        self, request: Request, group_limit: Annotated[int, whole(0, 10_000)] = GROUPS
    ) -> Any:
        return measured(request, group_limit)
