# SPDX-License-Identifier: Apache-2.0
"""Actions that people call: define, plan, status, history, goals, agents."""

from __future__ import annotations

from typing import Any

from mistral_failover.actions import (
    defining,
    enrolling,
    goal_books,
    hearing,
    overseeing,
    roll_call,
    undefining,
    viewing,
)
from mistral_failover.actions.base import FailoverAction, flag, optional_text, text, whole
from mistral_failover.actions.runtime import Request


class Define(FailoverAction):
    """Define a group, or change its definition; nothing else happens until it gets a goal.

    ``definition`` is a group file (text or parsed), ``types`` a list of type files.
    """

    def __init__(
        self, definition: Any, name: Any = None, types: Any = None, dry_run: Any = False
    ) -> None:
        super().__init__()
        self.definition = definition
        self.name = name
        self.types = types
        self.dry_run = dry_run

    def answer(self, request: Request) -> Any:
        return defining.define(
            request,
            self.definition,
            optional_text("name", self.name),
            self.types,
            dry_run=flag("dry_run", self.dry_run),
        )


class Undefine(FailoverAction):
    """Forget a group of which nothing is left: its definition, its goals, its history."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group = group

    def answer(self, request: Request) -> Any:
        return undefining.undefine(request, text("group", self.group))


class Status(FailoverAction):
    """Show where a group stands, with its definition if asked for; without a group, where all
    groups of the project do."""

    def __init__(self, group: Any = None, definition: Any = False, agents: Any = False) -> None:
        super().__init__()
        self.group = group
        self.definition = definition
        self.agents = agents

    def answer(self, request: Request) -> Any:
        group = optional_text("group", self.group)
        if group is None:
            return overseeing.project(request)
        found = viewing.status(request, group, agents=flag("agents", self.agents))
        if flag("definition", self.definition):
            found |= {"definition": defining.definition(request, group)}
        return found


class History(FailoverAction):
    """Show a group's journal, one sentence per step, oldest first.

    ``after`` is the id of the last sentence that the caller knows.
    """

    def __init__(self, group: Any, after: Any = 0, limit: Any = 100, traversal: Any = None) -> None:
        super().__init__()
        self.group = group
        self.after = after
        self.limit = limit
        self.traversal = traversal

    def answer(self, request: Request) -> Any:
        return viewing.history(
            request,
            text("group", self.group),
            after=whole("after", self.after, 0, 2**62),
            limit=whole("limit", self.limit, 1, 1000),
            traversal=optional_text("traversal", self.traversal),
        )


class Goals(FailoverAction):
    """List the goals that a group was given, the latest first, and what came of them."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group = group

    def answer(self, request: Request) -> Any:
        return goal_books.listed(request, text("group", self.group))


class CompareGoals(FailoverAction):
    """Show what differs between two goals of a group; their versions may be shortened."""

    def __init__(self, group: Any, before: Any, after: Any) -> None:
        super().__init__()
        self.group = group
        self.before = before
        self.after = after

    def answer(self, request: Request) -> Any:
        return goal_books.compared(
            request,
            text("group", self.group),
            text("before", self.before),
            text("after", self.after),
        )


class Agents(FailoverAction):
    """Show what the agents on a group's members last said."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group = group

    def answer(self, request: Request) -> Any:
        return hearing.agents(request, text("group", self.group))


class Members(FailoverAction):
    """List a group's members: what they hold, and whether and why not they may take a role."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group = group

    def answer(self, request: Request) -> Any:
        return roll_call.members(request, text("group", self.group))


class Enroll(FailoverAction):
    """Hand out the key of a member's agent, or of all of a group's agents.

    To be run by itself, with run_sync true and save_result false: Mistral then keeps nothing.
    """

    def __init__(self, group: Any, member: Any = None) -> None:
        super().__init__()
        self.group = group
        self.member = member

    def answer(self, request: Request) -> Any:
        group, member = text("group", self.group), optional_text("member", self.member)
        return enrolling.enroll(request, group, member)
