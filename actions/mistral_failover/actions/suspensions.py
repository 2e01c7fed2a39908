# SPDX-License-Identifier: Apache-2.0
"""Actions that hold a group's alarms for a while."""

from __future__ import annotations

from typing import Any

from mistral_failover.actions.base import FailoverAction
from mistral_failover.orders import suspensions
from mistral_failover.runtime.inputs import names, optional_text, text, whole
from mistral_failover.runtime.request import Request


class Pause(FailoverAction):
    """Hold every alarm of a group until it is resumed."""

    def __init__(self, group: Any, because: Any) -> None:
        super().__init__()
        self.group = group
        self.because = because

    def answer(self, request: Request) -> Any:
        return suspensions.pause(request, text("group", self.group), text("because", self.because))


class Resume(FailoverAction):
    """End a group's pause and its maintenance, only one of them, or only that of some members."""

    def __init__(self, group: Any, because: Any, only: Any = None, members: Any = None) -> None:
        super().__init__()
        self.group = group
        self.because = because
        self.only = only
        self.members = members

    def answer(self, request: Request) -> Any:
        return suspensions.resume(
            request,
            text("group", self.group),
            text("because", self.because),
            only=optional_text("only", self.only),
            members=names("members", self.members),
        )


class Maintenance(FailoverAction):
    """Hold the alarms of a group, or of some of its members, until a time."""

    def __init__(
        self, group: Any, because: Any, until: Any = None, minutes: Any = None, members: Any = None
    ) -> None:
        super().__init__()
        self.group = group
        self.because = because
        self.until = until
        self.minutes = minutes
        self.members = members

    def answer(self, request: Request) -> Any:
        given = None if self.minutes in (None, "") else whole("minutes", self.minutes, 1, 40320)
        return suspensions.maintain(
            request,
            text("group", self.group),
            text("because", self.because),
            until=optional_text("until", self.until),
            minutes=given,
            members=names("members", self.members),
        )
