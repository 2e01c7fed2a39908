# SPDX-License-Identifier: Apache-2.0
"""Actions that hold a group's alarms for a while."""

from __future__ import annotations

from typing import Annotated, Any

from mistral_failover.actions.base import FailoverAction
from mistral_failover.orders import suspensions
from mistral_failover.runtime.inputs import Names, OptionalText, Text, optional_whole
from mistral_failover.runtime.request import Request


class Pause(FailoverAction):
    """Hold every alarm of a group until it is resumed."""

    def answer(self, request: Request, group: Text, because: Text) -> Any:
        return suspensions.pause(request, group, because)


class Resume(FailoverAction):
    """End a group's pause and its maintenance, only one of them, or only that of some members."""

    def answer(
        self,
        request: Request,
        group: Text,
        because: Text,
        only: OptionalText = None,
        members: Names = (),
    ) -> Any:
        return suspensions.resume(request, group, because, only=only, members=members)


class Maintenance(FailoverAction):
    """Hold the alarms of a group, or of some of its members, until a time."""

    def answer(
        self,
        request: Request,
        group: Text,
        because: Text,
        until: OptionalText = None,
        minutes: Annotated[int | None, optional_whole(1, 40320)] = None,
        members: Names = (),
    ) -> Any:
        return suspensions.maintain(
            request, group, because, until=until, minutes=minutes, members=members
        )
