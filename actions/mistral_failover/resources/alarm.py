# SPDX-License-Identifier: Apache-2.0
"""The operation of an ``alarm``.

An alarm is about a member, and not on it: no fence has to cut it off, and none waits for it. A
group serves without its alarms. So if Aodh refuses the change for good, because the alarm was
deleted, for example, the operation does not fail, and no failover returns for that reason. The
observation says what is wrong with the alarm.
"""

from __future__ import annotations

from typing import Any

from mistral_failover.cloud import event_alarms
from mistral_failover.cloud.errors import CloudError
from mistral_failover.convergence.records import Record
from mistral_failover.groups.project_view import ProjectView, unknown
from mistral_failover.mistral.operation_documents import OperationDocument
from mistral_failover.model.observation import AS_RECORDED, ObservedPresence, Presence
from mistral_failover.model.remedies import need
from mistral_failover.resources.modules import ExaminedResource, about
from mistral_failover.resources.operation_context import OperationContext, no_server
from mistral_failover.runtime.errors import says_how_to_continue
from mistral_failover.store import groups

_FINAL = frozenset({"BAD_REQUEST", "FORBIDDEN", "NO_ENDPOINT", "NOT_FOUND"})
"""Errors that a repeat does not change."""


def point_alarm(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Let the alarm watch the member's server. If Aodh refuses that for good, say so (attribute
    ``refused``). Raises ActionError UNKNOWN_MEMBER."""
    named, member = operation["properties"]["alarm"], operation["properties"]["server"]
    rows = context.request.store.reading(lambda tx: groups.members_of(tx, operation["group_id"]))
    server_id = rows[member].server_id if member in rows else None
    if not server_id:
        raise no_server(member, operation)
    with says_how_to_continue(operation["group"]):
        try:
            found = event_alarms.watch(context.cloud, named, server_id, operation["timeout"])
        except CloudError as error:
            if error.code not in _FINAL:
                raise
            return {"attributes": {"refused": f"{error.message.rstrip('.')} [{error.code}]"}}
    return {
        "physical_id": found.id,
        "attributes": {"alarm_id": found.id, "server_id": server_id, "refused": ""},
    }


OPERATIONS = (point_alarm,)


def examine(subject: ExaminedResource) -> str:
    """Return what is right about an alarm. Raises CloudError if Aodh does not have it."""
    with about("alarm"):
        found = event_alarms.alarm(subject.cloud, str(subject.spec.properties["alarm"]))
    return f"{found} exists"


def observe(view: ProjectView, record: Record, group: str) -> ObservedPresence:
    """Return whether the alarm watches the present server of its member."""
    wanted = record.properties or {}
    named, member = str(wanted.get("alarm")), str(wanted.get("server"))
    server_id = view.servers.get(member) or record.attributes.get("server_id")
    try:
        found = view.listing.alarm(named)
    except CloudError as error:
        return unknown(error)
    if found is None:
        return ObservedPresence(
            Presence.GONE, f"alarm {named} does not exist", (need("ANOTHER_ALARM"),)
        )
    if not found.enabled:
        words = f"{found} is disabled"
        return ObservedPresence(Presence.GONE, words, (need("ENABLE_ALARM", alarm=found.id),))
    if server_id is None or found.watches(server_id):
        return AS_RECORDED
    there = ", ".join(map(view.called, sorted(found.servers)))
    words = f"{found} watches {there}, not {member}"
    refused = record.attributes.get("refused")
    return ObservedPresence(Presence.CHANGED, f"{words} ({refused})" if refused else words)
