# SPDX-License-Identifier: Apache-2.0
"""Actions that operators order. Each starts a traversal."""

from __future__ import annotations

from typing import Any

from mistral_failover.actions.base import FailoverAction
from mistral_failover.orders import failback, held_alarms, operator_order, rollback, switchover
from mistral_failover.orders.failover import failover_order
from mistral_failover.runtime.inputs import names, optional_text, text
from mistral_failover.runtime.request import Request


class Begin(FailoverAction):
    """Give a group its next goal, as an operator asks for."""

    def __init__(
        self,
        group: Any,
        to: Any = None,
        lost: Any = None,
        recovered: Any = None,
        incident: Any = None,
        because: Any = None,
        after: Any = None,
    ) -> None:
        super().__init__()
        self.group = group
        self.to = to
        self.lost = lost
        self.recovered = recovered
        self.incident = incident
        self.because = because
        self.after = after

    def answer(self, request: Request) -> Any:
        group = text("group", self.group)
        because = optional_text("because", self.because) or "started by hand"
        incident = optional_text("incident", self.incident)
        order = failover_order(self.to, self.lost, self.recovered)
        if incident is None:
            after = optional_text("after", self.after)
            return operator_order.failover_now(request, group, order, because, after)
        return held_alarms.admit(request, group, incident, order, because)


class Switchover(FailoverAction):
    """Move a role to another member as planned; if a step fails, everything is moved back."""

    def __init__(
        self,
        group: Any,
        to: Any = None,
        role: Any = None,
        holder: Any = None,
        because: Any = None,
    ) -> None:
        super().__init__()
        self.group = group
        self.to = to
        self.role = role
        self.holder = holder
        self.because = because

    def answer(self, request: Request) -> Any:
        return switchover.switchover(
            request,
            text("group", self.group),
            optional_text("to", self.to),
            optional_text("role", self.role),
            optional_text("because", self.because) or "switched over by hand",
            holder=optional_text("holder", self.holder),
        )


class Failback(FailoverAction):
    """Move the roles home as planned, where their home can take them."""

    def __init__(
        self,
        group: Any,
        to: Any = None,
        role: Any = None,
        recovered: Any = None,
        because: Any = None,
    ) -> None:
        super().__init__()
        self.group = group
        self.to = to
        self.role = role
        self.recovered = recovered
        self.because = because

    def answer(self, request: Request) -> Any:
        return failback.failback(
            request,
            text("group", self.group),
            optional_text("to", self.to),
            optional_text("role", self.role),
            names("recovered", self.recovered),
            optional_text("because", self.because) or "failed back by hand",
        )


class Rollback(FailoverAction):
    """Return a group to an earlier goal: the last one that it reached, or the named one."""

    def __init__(
        self, group: Any, goal: Any = None, recovered: Any = None, because: Any = None
    ) -> None:
        super().__init__()
        self.group = group
        self.goal = goal
        self.recovered = recovered
        self.because = because

    def answer(self, request: Request) -> Any:
        return rollback.rollback(
            request,
            text("group", self.group),
            optional_text("goal", self.goal),
            names("recovered", self.recovered),
            optional_text("because", self.because) or "rolled back by hand",
        )


class Remove(FailoverAction):
    """Give a group the goal that asks for nothing."""

    def __init__(self, group: Any, lost: Any = None, because: Any = None) -> None:
        super().__init__()
        self.group = group
        self.lost = lost
        self.because = because

    def answer(self, request: Request) -> Any:
        because = optional_text("because", self.because) or "removed by hand"
        lost = names("lost", self.lost)
        return rollback.remove(request, text("group", self.group), lost, because)
