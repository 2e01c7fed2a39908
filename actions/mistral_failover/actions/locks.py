# SPDX-License-Identifier: Apache-2.0
"""Actions on locks: list and break."""

from __future__ import annotations

from typing import Annotated, Any

from mistral_failover.actions.base import FailoverAction
from mistral_failover.recovery import locks
from mistral_failover.runtime.inputs import Flag, OptionalText, Text, optional_whole
from mistral_failover.runtime.request import Request


class Locks(FailoverAction):
    """List the locks that are held, and whether their owners are alive."""

    def answer(self, request: Request, group: OptionalText = None) -> Any:
        return locks.listed(request, group)


class BreakLock(FailoverAction):
    """Break the lock of a named owner; of a live one only with force and a reason."""

    def answer(
        self,
        request: Request,
        resource: Text,
        owner: Text,
        token: Annotated[int | None, optional_whole(0, 2**62)] = None,
        force: Flag = False,
        because: OptionalText = None,
    ) -> Any:
        return locks.broken(request, resource, owner, token, force=force, because=because)
