# SPDX-License-Identifier: Apache-2.0
"""Actions that plan, and that start a plan."""

from __future__ import annotations

from typing import Any

from mistral_failover.actions.base import FailoverAction
from mistral_failover.orders.plan import planner
from mistral_failover.orders.plan.verbs import read_order
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.inputs import optional_text, text
from mistral_failover.runtime.request import Request


class Plan(FailoverAction):
    """Show what a verb would do to a group now, without changing anything; or check an earlier plan
    again."""

    def __init__(
        self,
        group: Any = None,
        verb: Any = None,
        to: Any = None,
        lost: Any = None,
        recovered: Any = None,
        role: Any = None,
        goal: Any = None,
        member: Any = None,
        resource: Any = None,
        plan: Any = None,
    ) -> None:
        super().__init__()
        self.group = group
        self.verb = verb
        self.to = to
        self.lost = lost
        self.recovered = recovered
        self.role = role
        self.goal = goal
        self.member = member
        self.resource = resource
        self.plan = plan

    def answer(self, request: Request) -> Any:
        given = {
            "to": self.to,
            "lost": self.lost,
            "recovered": self.recovered,
            "role": self.role,
            "goal": self.goal,
            "member": self.member,
            "resource": self.resource,
        }
        plan, group = optional_text("plan", self.plan), optional_text("group", self.group)
        if (plan is None) == (group is None):
            raise ActionError(
                "BAD_INPUT", "group: either a group or a plan is expected", "Give one of the two."
            )
        if plan is not None:
            return planner.plan_again(request, plan)
        return planner.plan(request, text("group", group), read_order(self.verb, given))


class StartPlan(FailoverAction):
    """Start exactly what a plan says, if nothing it depends on has changed."""

    def __init__(self, plan: Any, because: Any = None) -> None:
        super().__init__()
        self.plan = plan
        self.because = because

    def answer(self, request: Request) -> Any:
        because = optional_text("because", self.because)
        return planner.start(request, text("plan", self.plan), because)
