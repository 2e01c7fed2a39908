# SPDX-License-Identifier: Apache-2.0
"""Actions on alarms: admit, list the held ones, dismiss."""

from __future__ import annotations

from typing import Annotated, Any

from mistral_failover.actions.base import FailoverAction
from mistral_failover.alarms import alarm as alarms
from mistral_failover.orders import alarm_failovers, held_alarms
from mistral_failover.orders.held_alarms import Selection
from mistral_failover.runtime.inputs import Names, OptionalText, Text, whole
from mistral_failover.runtime.request import Request


class Admit(FailoverAction):
    """Decide on an alarm from Aodh, and start the failover that it asks for, once."""

    def answer(
        self, request: Request, alarm: Any, group: OptionalText = None, member: OptionalText = None
    ) -> Any:
        (only,) = alarms.read(alarm, "aodh", group=group, member=member)
        return alarm_failovers.on_alarm(request, only)


class AdmitEvent(FailoverAction):
    """Decide on every alarm in a body of any kind, and start the failovers that they ask for,
    once."""

    def answer(
        self,
        request: Request,
        body: Any,
        kind: OptionalText = None,
        group: OptionalText = None,
        member: OptionalText = None,
        because: OptionalText = None,
    ) -> Any:
        found = alarms.read(body, kind, group=group, member=member, because=because)
        return alarm_failovers.on_event(request, found)


class StartAdmitted(FailoverAction):
    """Start the failovers of alarms that were admitted elsewhere."""

    def answer(self, request: Request, incidents: Names) -> Any:
        return alarm_failovers.start_admitted(request, incidents)


class Held(FailoverAction):
    """List the alarms that are held in the project, or in one of its groups."""

    def answer(
        self,
        request: Request,
        group: OptionalText = None,
        limit: Annotated[int, whole(1, 1000)] = 100,
    ) -> Any:
        return held_alarms.list_held_alarms(request, group, limit)


class AdmitHeld(FailoverAction):
    """Admit several held alarms, and start their failovers."""

    def answer(
        self,
        request: Request,
        because: Text,
        group: OptionalText = None,
        host: OptionalText = None,
        incident: OptionalText = None,
        limit: Annotated[int, whole(1, 100)] = 10,
        zone: OptionalText = None,
    ) -> Any:
        selection = Selection(group, host, incident, zone)
        return held_alarms.admit_held(request, selection, because, limit)


class DismissHeld(FailoverAction):
    """Dismiss the held alarms of a group, a host, a zone or an incident."""

    def answer(
        self,
        request: Request,
        because: Text,
        group: OptionalText = None,
        host: OptionalText = None,
        incident: OptionalText = None,
        limit: Annotated[int, whole(1, 1000)] = 100,
        zone: OptionalText = None,
    ) -> Any:
        selection = Selection(group, host, incident, zone)
        return held_alarms.dismiss_held(request, selection, because, limit)


class Dismiss(FailoverAction):
    """Dismiss held alarms by their ids."""

    def answer(self, request: Request, incident: Names, because: Text) -> Any:
        return held_alarms.dismiss(request, incident, because)
