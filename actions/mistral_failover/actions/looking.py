# SPDX-License-Identifier: Apache-2.0
"""Actions for whoever has to find out what happened, and to set it going again."""

from __future__ import annotations

from typing import Any

from mistral_lib.actions import Result

from mistral_failover.actions import doctoring, locks, showing
from mistral_failover.actions.base import FailoverAction, flag, optional_text, text, whole
from mistral_failover.actions.runtime import Request


class Show(FailoverAction):
    """Show what an id stands for, and everything about it; its first 8 digits do.

    ``id`` is that of an incident, traversal, goal, operation, plan, or of a locked resource.
    """

    def __init__(self, id: Any, group: Any = None) -> None:
        super().__init__()
        self.id = id
        self.group = group

    def answer(self, request: Request) -> Any:
        return showing.show(request, text("id", self.id), optional_text("group", self.group))


class Locks(FailoverAction):
    """List the locks that are held, and whether their owners live."""

    def __init__(self, group: Any = None) -> None:
        super().__init__()
        self.group = group

    def answer(self, request: Request) -> Any:
        return locks.listed(request, optional_text("group", self.group))


class BreakLock(FailoverAction):
    """Break the lock of an owner that is named; of a live one by force, and with a reason only."""

    def __init__(
        self,
        resource: Any,
        owner: Any,
        token: Any = None,
        force: Any = False,
        because: Any = None,
    ) -> None:
        super().__init__()
        self.resource = resource
        self.owner = owner
        self.token = token
        self.force = force
        self.because = because

    def answer(self, request: Request) -> Any:
        return locks.broken(
            request,
            text("resource", self.resource),
            text("owner", self.owner),
            None if self.token is None else whole("token", self.token, 0, 2**62),
            force=flag("force", self.force),
            because=None
            if optional_text("because", self.because) is None
            else text("because", self.because),
        )


class Doctor(FailoverAction):
    """Check everything that a failover will need; each finding says what helps. Never fails."""

    def __init__(self, group: Any = None) -> None:
        super().__init__()
        self.group = group

    def run(self, context: Any) -> Any:
        """As the others, but what keeps an action from running at all is a finding."""
        answer = super().run(context)
        return doctoring.unable(answer.error) if isinstance(answer, Result) else answer

    def answer(self, request: Request) -> Any:
        return doctoring.doctor(request, optional_text("group", self.group))
