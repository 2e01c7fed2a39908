# SPDX-License-Identifier: Apache-2.0
"""Actions that start traversals and carry them on."""

from __future__ import annotations

from typing import Any

from mistral_failover.actions import (
    admitting,
    advance,
    failing_back,
    launching,
    returning,
    sweeping,
    switching,
)
from mistral_failover.actions.base import FailoverAction, flag, names, optional_text, stage, text
from mistral_failover.actions.runtime import Request
from mistral_failover.actions.starting import Facts


class Begin(FailoverAction):
    """Give a group its next goal, as a person asks for."""

    def __init__(
        self,
        group: Any,
        to: Any = None,
        lost: Any = None,
        recovered: Any = None,
        incident: Any = None,
        because: Any = None,
    ) -> None:
        super().__init__()
        self.group = group
        self.to = to
        self.lost = lost
        self.recovered = recovered
        self.incident = incident
        self.because = because

    def answer(self, request: Request) -> Any:
        group = text("group", self.group)
        because = optional_text("because", self.because) or "started by hand"
        incident = optional_text("incident", self.incident)
        facts = facts_of(self.to, self.lost, self.recovered)
        return admitting.by_hand(request, group, facts, incident_id=incident, cause=because)


class Switchover(FailoverAction):
    """Move a role to another member as planned; what fails on the way takes it back."""

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
        return switching.switchover(
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
        return failing_back.failback(
            request,
            text("group", self.group),
            optional_text("to", self.to),
            optional_text("role", self.role),
            names("recovered", self.recovered),
            optional_text("because", self.because) or "failed back by hand",
        )


class Rollback(FailoverAction):
    """Give a group a goal back that it had: the last one that it reached, or the one named."""

    def __init__(
        self, group: Any, goal: Any = None, recovered: Any = None, because: Any = None
    ) -> None:
        super().__init__()
        self.group = group
        self.goal = goal
        self.recovered = recovered
        self.because = because

    def answer(self, request: Request) -> Any:
        return returning.rollback(
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
        return returning.remove(request, text("group", self.group), lost, because)


class Launch(FailoverAction):
    """Start a workflow of this pack as an execution of its own, and do not wait for it."""

    def __init__(self, workflow: Any, input: Any, because: Any = None) -> None:
        super().__init__()
        self.workflow = workflow
        self.input = input
        self.because = because

    def answer(self, request: Request) -> Any:
        because = optional_text("because", self.because) or "asked for by another workflow"
        return launching.launch(request, text("workflow", self.workflow), self.input, because)


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
        return sweeping.sweep(request, optional_text("group", self.group))


class ConfirmFenced(FailoverAction):
    """A person vouches that a member no longer writes; the blocked failover goes on."""

    def __init__(self, group: Any, member: Any, because: Any) -> None:
        super().__init__()
        self.group = group
        self.member = member
        self.because = because

    def answer(self, request: Request) -> Any:
        return sweeping.confirm_fenced(
            request,
            text("group", self.group),
            text("member", self.member),
            text("because", self.because),
        )


def facts_of(to: Any, lost: Any, recovered: Any) -> Facts:
    """The facts among an action's inputs. Raises ActionError BAD_INPUT."""
    if isinstance(to, dict):
        to = {role: text(f"to.{role}", member) for role, member in to.items()}
    return Facts(
        to=to if isinstance(to, dict) else optional_text("to", to),
        lost=None if lost is None else names("lost", lost),
        recovered=names("recovered", recovered),
    )
