# SPDX-License-Identifier: Apache-2.0
"""Actions at the gate: alarms of any kind come in, and people decide what is let through."""

from __future__ import annotations

from typing import Any

from mistral_failover.actions import admitting, holding, suspending
from mistral_failover.actions.base import FailoverAction, names, optional_text, text, whole
from mistral_failover.actions.runtime import Request
from mistral_failover.alarms import adapters
from mistral_failover.alarms.aodh import from_aodh


class Admit(FailoverAction):
    """Decide on an alarm of Aodh's and start, once, the failover that it asks for."""

    def __init__(self, alarm: Any, group: Any = None, member: Any = None) -> None:
        super().__init__()
        self.alarm = alarm
        self.group = group
        self.member = member

    def answer(self, request: Request) -> Any:
        alarm = from_aodh(adapters.writable(self.alarm))
        group = optional_text("group", self.group)
        member = optional_text("member", self.member)
        return admitting.on_alarm(request, alarm, group, member)


class AdmitEvent(FailoverAction):
    """Decide on every alarm in a body of any kind; start, once, the failovers that they ask for."""

    def __init__(self, body: Any, kind: Any = None, group: Any = None, member: Any = None) -> None:
        super().__init__()
        self.body = body
        self.kind = kind
        self.group = group
        self.member = member

    def answer(self, request: Request) -> Any:
        alarms = adapters.read(self.body, optional_text("kind", self.kind))
        group = optional_text("group", self.group)
        member = optional_text("member", self.member)
        return admitting.on_event(request, alarms, group, member)


class Pause(FailoverAction):
    """Hold every alarm of a group back until it is resumed."""

    def __init__(self, group: Any, because: Any) -> None:
        super().__init__()
        self.group = group
        self.because = because

    def answer(self, request: Request) -> Any:
        return suspending.pause(request, text("group", self.group), text("because", self.because))


class Resume(FailoverAction):
    """End a group's pause and its maintenance, only one of them, or only that of some members."""

    def __init__(self, group: Any, because: Any, only: Any = None, members: Any = None) -> None:
        super().__init__()
        self.group = group
        self.because = because
        self.only = only
        self.members = members

    def answer(self, request: Request) -> Any:
        return suspending.resume(
            request,
            text("group", self.group),
            text("because", self.because),
            only=optional_text("only", self.only),
            members=names("members", self.members),
        )


class Maintenance(FailoverAction):
    """Hold the alarms of a group, or of some of its members, back until a time."""

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
        return suspending.maintain(
            request,
            text("group", self.group),
            text("because", self.because),
            until=optional_text("until", self.until),
            minutes=given,
            members=names("members", self.members),
        )


class Held(FailoverAction):
    """List the alarms that are held back in the project, or in one group of it."""

    def __init__(self, group: Any = None, limit: Any = 100) -> None:
        super().__init__()
        self.group = group
        self.limit = limit

    def answer(self, request: Request) -> Any:
        group = optional_text("group", self.group)
        return holding.held(request, group, whole("limit", self.limit, 1, 1000))


class Dismiss(FailoverAction):
    """Take alarms that are held back off the list."""

    def __init__(self, incident: Any, because: Any) -> None:
        super().__init__()
        self.incident = incident
        self.because = because

    def answer(self, request: Request) -> Any:
        because = text("because", self.because)
        return holding.dismiss(request, names("incident", self.incident), because)
