# SPDX-License-Identifier: Apache-2.0
"""The view of one round of observation: a project's listing, and its agents' latest heartbeats.

Nothing here changes anything. A round is bounded: what it does not reach is unknown.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from mistral_failover.agent.channel.interface import ChannelError, Heartbeat
from mistral_failover.agent.wire import Address
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.project_listing import ProjectListing
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.convergence.records import Record
from mistral_failover.model.observation import (
    AS_RECORDED,
    Condition,
    ObservedPresence,
    Presence,
)
from mistral_failover.model.remedies import Need
from mistral_failover.model.text import plain
from mistral_failover.runtime.request import Request
from mistral_failover.store.services import made_at

LISTEN = 20.0
"""Seconds of a round after which no further agent is asked."""
REMEMBERED = 1800.0
"""Seconds by which an observation's record of when an agent was last heard may be too old: so that
agents that send all the time do not change it in each round."""
_NOT_RUNNING = frozenset(
    {"SHUTOFF", "ERROR", "DELETED", "SOFT_DELETED", "SHELVED", "SHELVED_OFFLOADED", "SUSPENDED"}
    | {"PAUSED", "RESCUE", "BUILD", "REBUILD"}
)
"""Nova's statuses in which a guest does not serve."""
_PRESENCE = {
    Condition.STOPPED: Presence.GONE,
    Condition.DELETED: Presence.GONE,
    Condition.UNREACHABLE: Presence.UNKNOWN,
    Condition.UNKNOWN: Presence.UNKNOWN,
}
HOST_NOT_SEEN = frozenset({"DOWN", "UNKNOWN"})
"""Statuses of a host whose guests Nova does not see."""


class ProjectView:
    """One round's view of a project."""

    def __init__(self, request: Request) -> None:
        guard = Unguarded(request.runtime.settings.http_timeout)
        self.cloud = cloud = request.cloud(guard)
        self.listing = ProjectListing(cloud)
        self._channel = request.channel(cloud, guard)
        self._listen_until = time.monotonic() + LISTEN
        self.unheard = ""
        """Why the channel to the agents could not be asked, in words; empty if it could."""
        self.heard: dict[Address, Heartbeat | None] = {}
        """Of each agent that was asked in this round its last heartbeat; None: there is none."""
        self._known: Mapping[str, str] = {}
        self.well: dict[str, str] = {}
        """By record, the version of the cloud's state that matched the record."""
        self.servers: Mapping[str, str | None] = {}
        """The ids of the group's present servers, by member."""
        self._records: Mapping[str, Record] = {}
        self._store = request.store

    def begin(
        self,
        known: Mapping[str, str],
        servers: Mapping[str, str | None],
        records: Iterable[Record] = (),
    ) -> None:
        """Begin with the next group; ``known``: its ``well`` of the round before; ``servers``:
        those of its members; ``records``: all that it has."""
        self._known, self.well, self.servers = known, {}, servers
        self._records = {each.id: each for each in records}

    def needed_by(self, record: Record) -> list[Record]:
        """Return the records of the group without which a record does not work."""
        return [self._records[each] for each in record.requires if each in self._records]

    def called(self, server_id: str) -> str:
        """Return a server in words: its member of the group, or its id if it belongs to none."""
        members = (name for name, known in self.servers.items() if known == server_id)
        return next(members, f"server {server_id}")

    def made_at(self, record: Record) -> float | None:
        """Return when a resource was made or changed last, in seconds of the store's clock; None if
        that is not known any more."""
        return self._store.reading(lambda tx: made_at(tx, [record.group_id])).get(record.id)

    def same(self, record_id: str, version: str) -> bool:
        """Return whether a record matched the cloud in this version before: then no check is
        needed."""
        if self._known.get(record_id) != version:
            return False
        self.found_well(record_id, version)
        return True

    def found_well(self, record_id: str, version: str) -> None:
        """Note the version in which a record matched the cloud."""
        self.well[record_id] = version

    def server(self, server_id: str | None) -> ObservedPresence:
        """Return whether a server runs; if its host is down, that is unknown."""
        found, why = self.condition(server_id)
        return AS_RECORDED if found is Condition.RUNS else ObservedPresence(_PRESENCE[found], why)

    def needs(self, server_id: str | None) -> tuple[Need, ...]:
        """Return what a person does so that a server runs; empty if it does, or that depends."""
        try:
            return self.listing.server(server_id).needs if server_id else ()
        except CloudError:
            return ()

    def kept_busy(self, server_id: str | None) -> tuple[str, tuple[Need, ...]]:
        """Return in words the state of a server in which Nova neither stops it nor takes what moves
        from it, and what a person does to end that, in order; both empty if there is no such."""
        try:
            state = self.listing.server(server_id) if server_id else None
        except CloudError:
            return "", ()
        if state is None or not state.freeing:
            return "", ()
        return f"its server is {state}", state.freeing

    def condition(self, server_id: str | None) -> tuple[Condition, str]:
        """Return the condition of a server as Nova shows it, and the reason in words, empty if it
        runs."""
        if server_id is None:
            return Condition.DELETED, "it has no server"
        try:
            state = self.listing.server(server_id)
        except CloudError as error:
            return Condition.UNKNOWN, unknown(error).why
        if not state.exists:
            return Condition.DELETED, f"its server {server_id} does not exist"
        if state.status in _NOT_RUNNING:
            return Condition.STOPPED, f"its server is {state}"
        if state.status == "UNKNOWN" or state.host_status in HOST_NOT_SEEN:
            return Condition.UNREACHABLE, f"its server is {state}: the guest may be running"
        return Condition.RUNS, ""

    def host(self, server_id: str | None) -> tuple[str, ...] | None:
        """Return where a server runs (the fields of a `ServerHost`), None if Nova does not say."""
        try:
            found = self.listing.hosts().get(server_id or "")
        except CloudError:
            return None
        return None if found is None else (found.host_id, found.project_id, found.name)

    def zone(self, server_id: str | None) -> str | None:
        """Return the availability zone of a server, None if Nova does not say."""
        try:
            return self.listing.zones().get(server_id or "")
        except CloudError:
            return None

    def stack_version(self, record: Record) -> str | ObservedPresence:
        """Return the version of a record's stack, for :meth:`same`; or what is seen without reading
        the stack itself, because it is gone, changes now, or has not changed since the last look.
        Raises CloudError."""
        stack = (record.physical_id or "").partition("/")[0]
        listed = self.listing.stack(stack)
        if listed is None:
            return ObservedPresence(Presence.GONE, f"stack {stack} no longer exists")
        version = f"{listed.version} {record.generation}"
        if listed.status.endswith("_IN_PROGRESS") or self.same(record.id, version):
            return AS_RECORDED  # after a change, the next look sees what came of it
        return version

    def heartbeat(self, to: Address) -> Heartbeat | None:
        """Return the last heartbeat of an agent; None if there is none, or if the channel is
        unreachable."""
        if to in self.heard:
            return self.heard[to]
        if self.unheard or time.monotonic() > self._listen_until:
            return None
        try:
            self.heard[to] = self._channel.heard(to)
        except (ChannelError, CloudError) as error:
            self.unheard = f"{error.message.rstrip('.')} [{error.code}]"  # for the others as well
            return None
        return self.heard[to]


def unknown(error: CloudError) -> ObservedPresence:
    """Return the look for a request that failed."""
    return ObservedPresence(Presence.UNKNOWN, f"{error.message.rstrip('.')} [{error.code}]")


def shorter(value: Any) -> str:
    """Return a value as part of a sentence."""
    text = plain(str(value))
    return text if len(text) <= 60 else f"{text[:57]}..."
