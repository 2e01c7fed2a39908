# SPDX-License-Identifier: Apache-2.0
"""Notify a group's own workflow (``on_event``) of what happened.

Each event is a sentence of the journal. The workflow is started once for each, as an execution
whose id is derived from group and sentence, so Mistral drops duplicates. It is started after the
commit, by a separate thread: no failover waits for it, and none fails because of it. If a process
dies before it has sent an event, the next event or the next sweep sends it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from functools import partial
from typing import TypedDict

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.convergence.records import JournalKind
from mistral_failover.fault_points import reach
from mistral_failover.mistral.api import Mistral, mistral_of
from mistral_failover.model.ids import derived_id
from mistral_failover.runtime.errors import describe, masked
from mistral_failover.runtime.request import Request
from mistral_failover.store import hooks
from mistral_failover.store.hooks import EVENTS, Event, Pending
from mistral_failover.store.transaction import ProjectTransaction

LOG = logging.getLogger(__name__)
STALE = 86400.0
"""Seconds after which an event is no longer sent."""
_TOGETHER = 50  # events of a group that are told in one go
_TIMEOUT = 5.0  # seconds for one request to Mistral
_LIMIT = 20.0  # seconds for all that a sweep tells
_WAITING = 1000  # groups that wait for the thread; the sweep tells what more there is


class SentEvent(TypedDict):
    """An event that was sent to a group's workflow, or, with ``event`` None, one that could not be
    sent."""

    group: str
    event: str | None
    sentence: str


class EventDocument(TypedDict):
    """An event, as a group's workflow gets it. ``id``: of its journal entry. ``at``: seconds since
    the epoch."""

    id: int
    group: str
    event: str
    sentence: str
    incident: str | None
    traversal: str | None
    roles: dict[str, str]
    lost: list[str]
    at: float


_NOT_NOTIFIED = "The workflow of %s could not be notified: %s"


class EventSender:
    """Sends in a separate thread, one group after the other; one per process is enough."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, Request] = OrderedDict()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def soon(self, request: Request, group_ids: Iterable[str]) -> None:
        """Send these groups' pending events to their workflows, with the rights of the request;
        return at once."""
        with self._changed:
            for group_id in group_ids:
                if len(self._waiting) < _WAITING or group_id in self._waiting:
                    self._waiting[group_id] = request
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="events", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        """Run as long as the process: a daemon thread, because a sweep sends what it leaves."""
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                group_id, request = self._waiting.popitem(last=False)
            try:
                send(request, group_id, time.monotonic() + _LIMIT)
            except Exception as error:  # the thread must not end; a sweep tries again
                facts = request.caught(error, "sending events to a workflow")
                LOG.warning(_NOT_NOTIFIED, group_id, facts["message"])


_sender = EventSender()


def after(request: Request) -> None:
    """Have the events sent that this thread has just committed; never raises."""
    try:
        if group_ids := hooks.take():
            _sender.soon(request, group_ids)
    except RuntimeError:  # no further thread: a sweep tells
        LOG.warning("Users' workflows cannot be notified now.", exc_info=True)


def send_all(request: Request, group_id: str | None) -> list[SentEvent]:
    """Send the events that dead processes did not send, in the project or in one of its groups,
    within a bounded time; for a sweep. Return a row for each event, and for each group whose
    workflow could not be notified."""
    found = request.store.reading(lambda tx: hooks.waiting(tx, quiet=0.0))
    deadline = time.monotonic() + _LIMIT
    rows: list[SentEvent] = []
    for each in found:
        if group_id in (None, each) and time.monotonic() < deadline:
            rows += send(request, each, deadline)
    return rows


def send_soon(request: Request, group_id: str | None) -> None:
    """As :func:`send_all`, in the thread, for a caller with more urgent work."""
    found = request.store.reading(lambda tx: hooks.waiting(tx, quiet=0.0))
    if found := [each for each in found if group_id in (None, each)]:
        _sender.soon(request, found)


def send_last(request: Request, group_id: str) -> None:
    """Send a group's pending events, because the group is about to be deleted; never raises."""
    try:
        send(request, group_id, time.monotonic() + _LIMIT)
    except Exception as error:  # a user's workflow must not prevent forgetting
        facts = request.caught(error, "sending events to a workflow")
        LOG.warning(_NOT_NOTIFIED, group_id, facts["message"])


def send(request: Request, group_id: str, deadline: float) -> list[SentEvent]:
    """Send a group's pending events to its workflow, until ``deadline`` (of the monotonic clock);
    return as :func:`send_all`. A failure is logged, and recorded once."""
    database = request.store
    rows: list[SentEvent] = []
    mistral: Mistral | None = None
    while True:
        found = database.reading(lambda tx: hooks.pending(tx, group_id, _TOGETHER))
        if found is None or not found.events:
            return rows
        for event in found.events:
            if time.monotonic() > deadline:
                return rows
            try:
                if _wanted(found, event):
                    mistral = mistral or _mistral(request)
                    rows.append(_told(request, mistral, group_id, found, event))
            except CloudError as error:
                rows.append(_untold(request, group_id, found, event, error))
                return rows
            database.atomically(partial(_move_on, group_id, event.id))


def event_id(group_id: str, sentence_id: int, at: float) -> str:
    """Return the id of the execution for a sentence of the journal.

    ``at``: when it was written, in seconds. A group that is defined again has its former id, and in
    another database its sentences may have numbers that were used before.
    """
    return derived_id(group_id, "event", str(sentence_id), f"{at:.6f}")


def _move_on(group_id: str, event_id: int, tx: ProjectTransaction) -> bool:
    return hooks.mark_received(tx, group_id, event_id)


def _wanted(found: Pending, event: Event) -> bool:
    chosen = found.definition.get("events")
    return found.now - event.at < STALE and (chosen is None or EVENTS[event.kind] in chosen)


def _mistral(request: Request) -> Mistral:
    settings = request.runtime.settings
    mistral = mistral_of(request, Unguarded(min(settings.http_timeout, _TIMEOUT)))
    if mistral is None:
        raise CloudError(
            "CONFIG", "neither the token nor the configuration has the URL of Mistral's API"
        )
    return mistral


def _told(
    request: Request, mistral: Mistral, group_id: str, found: Pending, event: Event
) -> SentEvent:
    what = EVENTS[event.kind]
    why = f"{found.name}: {what}"
    said = {"event": _document(request, group_id, found, event)}
    reach("event.before")
    identity = event_id(group_id, event.id, event.at)
    mistral.start(identity, found.definition["workflow"], said, why)
    reach("event.after")
    return {"group": found.name, "event": what, "sentence": f"{why}: {event.sentence}"}


def _document(request: Request, group_id: str, found: Pending, event: Event) -> EventDocument:
    """Return the workflow's input; for an alarm the roles are those of the current goal."""
    version = found.goals.get(event.traversal or found.current or "")
    goal = version and request.store.reading(lambda tx: tx.goal(group_id, version))
    return {
        "id": event.id,
        "group": found.name,
        "event": EVENTS[event.kind],
        "sentence": event.sentence,
        "incident": event.incident,
        "traversal": event.traversal,
        "roles": dict(goal.document["roles"]) if goal else {},
        "lost": list(goal.document["lost"]) if goal else [],
        "at": event.at,
    }


def _untold(
    request: Request, group_id: str, found: Pending, event: Event, error: CloudError
) -> SentEvent:
    """Record that the notification failed, once until it works again."""
    workflow, reason = found.definition["workflow"], masked(describe(error)["message"])
    sentence = f"{workflow} could not be notified of {EVENTS[event.kind]}: {reason}"
    LOG.warning("%s: %s", found.name, sentence)

    def note(tx: ProjectTransaction) -> None:
        if hooks.mark_stuck(tx, group_id, event.id):
            tx.journal(group_id, sentence, kind=JournalKind.UNTOLD, traversal_id=event.traversal)

    request.store.atomically(note)
    return {"group": found.name, "event": None, "sentence": sentence}
