# SPDX-License-Identifier: Apache-2.0
"""Actions on locks: list and break."""

from __future__ import annotations

from typing import Any

from mistral_failover.actions.base import FailoverAction
from mistral_failover.recovery import locks
from mistral_failover.runtime.inputs import flag, optional_text, text, whole
from mistral_failover.runtime.request import Request


class Locks(FailoverAction):
    """List the locks that are held, and whether their owners are alive."""

    def __init__(self, group: Any = None) -> None:
        super().__init__()
        self.group = group

    def answer(self, request: Request) -> Any:
        return locks.listed(request, optional_text("group", self.group))


class BreakLock(FailoverAction):
    """Break the lock of a named owner; of a live one only with force and a reason."""

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
