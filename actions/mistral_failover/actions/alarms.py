# SPDX-License-Identifier: Apache-2.0
"""Actions on alarms: admit, list the held ones, dismiss."""

from __future__ import annotations

from typing import Any

from mistral_failover.actions.base import FailoverAction
from mistral_failover.alarms import alarm
from mistral_failover.orders import alarm_failovers, held_alarms
from mistral_failover.runtime.inputs import names, optional_text, text, whole
from mistral_failover.runtime.request import Request


class Admit(FailoverAction):
    """Decide on an alarm from Aodh, and start the failover that it asks for, once."""

    def __init__(self, alarm: Any, group: Any = None, member: Any = None) -> None:
        super().__init__()
        self.alarm = alarm
        self.group = group
        self.member = member

    def answer(self, request: Request) -> Any:
        group = optional_text("group", self.group)
        member = optional_text("member", self.member)
        (only,) = alarm.read(self.alarm, "aodh", group=group, member=member)
        return alarm_failovers.on_alarm(request, only)


class AdmitEvent(FailoverAction):
    """Decide on every alarm in a body of any kind, and start the failovers that they ask for,
    once."""

    def __init__(
        self,
        body: Any,
        kind: Any = None,
        group: Any = None,
        member: Any = None,
        because: Any = None,
    ) -> None:
        super().__init__()
        self.body = body
        self.kind = kind
        self.group = group
        self.member = member
        self.because = because

    def answer(self, request: Request) -> Any:
        alarms = alarm.read(
            self.body,
            optional_text("kind", self.kind),
            group=optional_text("group", self.group),
            member=optional_text("member", self.member),
            because=optional_text("because", self.because),
        )
        return alarm_failovers.on_event(request, alarms)


class StartAdmitted(FailoverAction):
    """Start the failovers of alarms that were admitted elsewhere."""

    def __init__(self, incidents: Any) -> None:
        super().__init__()
        self.incidents = incidents

    def answer(self, request: Request) -> Any:
        return alarm_failovers.start_admitted(request, names("incidents", self.incidents))


class Held(FailoverAction):
    """List the alarms that are held in the project, or in one of its groups."""

    def __init__(self, group: Any = None, limit: Any = 100) -> None:
        super().__init__()
        self.group = group
        self.limit = limit

    def answer(self, request: Request) -> Any:
        group = optional_text("group", self.group)
        return held_alarms.list_held_alarms(request, group, whole("limit", self.limit, 1, 1000))


class AdmitHeld(FailoverAction):
    """Admit several held alarms, and start their failovers."""

    def __init__(
        self,
        because: Any,
        group: Any = None,
        host: Any = None,
        incident: Any = None,
        limit: Any = 10,
        zone: Any = None,
    ) -> None:
        super().__init__()
        self.because = because
        self.group = group
        self.host = host
        self.incident = incident
        self.limit = limit
        self.zone = zone

    def answer(self, request: Request) -> Any:
        selection = _selection(self.group, self.host, self.incident, self.zone)
        because, limit = text("because", self.because), whole("limit", self.limit, 1, 100)
        return held_alarms.admit_held(request, selection, because, limit)


class DismissHeld(FailoverAction):
    """Dismiss the held alarms of a group, a host, a zone or an incident."""

    def __init__(
        self,
        because: Any,
        group: Any = None,
        host: Any = None,
        incident: Any = None,
        limit: Any = 100,
        zone: Any = None,
    ) -> None:
        super().__init__()
        self.because = because
        self.group = group
        self.host = host
        self.incident = incident
        self.limit = limit
        self.zone = zone

    def answer(self, request: Request) -> Any:
        selection = _selection(self.group, self.host, self.incident, self.zone)
        because, limit = text("because", self.because), whole("limit", self.limit, 1, 1000)
        return held_alarms.dismiss_held(request, selection, because, limit)


def _selection(group: Any, host: Any, incident: Any, zone: Any) -> held_alarms.Selection:
    return held_alarms.Selection(
        optional_text("group", group),
        optional_text("host", host),
        optional_text("incident", incident),
        optional_text("zone", zone),
    )


class Dismiss(FailoverAction):
    """Dismiss held alarms by their ids."""

    def __init__(self, incident: Any, because: Any) -> None:
        super().__init__()
        self.incident = incident
        self.because = because

    def answer(self, request: Request) -> Any:
        because = text("because", self.because)
        return held_alarms.dismiss(request, names("incident", self.incident), because)
