# SPDX-License-Identifier: Apache-2.0
"""Actions on alarms: admit, list those that are held, dismiss."""

from __future__ import annotations

from typing import Any

from mistral_failover.actions.base import FailoverAction
from mistral_failover.alarms import adapters, held_alarms
from mistral_failover.alarms.aodh import from_aodh
from mistral_failover.orders import intake
from mistral_failover.runtime.inputs import names, optional_text, text, whole
from mistral_failover.runtime.process import Request


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
        return intake.on_alarm(request, alarm, group, member)


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
        return intake.on_event(request, alarms, group, member)


class Held(FailoverAction):
    """List the alarms that are held back in the project, or in one group of it."""

    def __init__(self, group: Any = None, limit: Any = 100) -> None:
        super().__init__()
        self.group = group
        self.limit = limit

    def answer(self, request: Request) -> Any:
        group = optional_text("group", self.group)
        return held_alarms.list_held_alarms(request, group, whole("limit", self.limit, 1, 1000))


class Dismiss(FailoverAction):
    """Take alarms that are held back off the list."""

    def __init__(self, incident: Any, because: Any) -> None:
        super().__init__()
        self.incident = incident
        self.because = because

    def answer(self, request: Request) -> Any:
        because = text("because", self.because)
        return held_alarms.dismiss(request, names("incident", self.incident), because)
