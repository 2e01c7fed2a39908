# SPDX-License-Identifier: Apache-2.0
"""The audit of the invariants (docs/safety.md) in the test cloud.

The emulated cloud keeps one log of everything that happened. Here that log is put together from
what each part of the real one leaves:

========================  ==============================================================
the guests' audit         commands, applications, notices of epochs, what must never be
Cinder's database         who had a volume, from when until when; its API tells of now
Nova's and Heat's logs    the calls that were made under a lock, by their request id
the state store           everything else
========================  ==============================================================

Calls to Cinder are left out: Nova makes its own under the id that it was called with.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from mistral_failover.lab.drill.audit import AT_REST, State, Violation, audit, read_state
from mistral_failover.model.ids import group_id
from mistral_failover.store.database import Database
from mistral_failover.store.tables import groups
from testcloud.errors import CloudError
from testcloud.settings import SECRETS, Settings
from testcloud.tenant import Tenant, until

Event = dict[str, Any]

REST = 60.0
"""Seconds that what a test has begun may take to come to rest."""
# Of what is known by its second only, an end counts from the second's beginning and a beginning
# from its end: an unknown order is no finding.
_WHOLE_SECOND = 0.999999
_CALLS = ("nova-api", "heat-api")
_OURS = ("mistral-api", "mistral-engine", "mistral-executor-1", "mistral-executor-2")
_HEAD = r"^(?P<at>[\d-]{10} [\d:]{8}\.\d{3}) \d+ INFO "
_IDS = r"\[(?P<id>req-[0-9a-f-]{36}) req-[^\]]*\] "
_NOVA = re.compile(
    _HEAD + r"nova\.api\.openstack\.requestlog " + _IDS + r"\S+ "
    r'"(?P<method>\w+) (?P<path>/v2\.1/\S+)" .*time: (?P<took>[\d.]+)$',
    re.M,
)
_HEAT = re.compile(
    _HEAD + r"heat\.common\.wsgi " + _IDS + r"Processing request: (?P<method>\w+) (?P<path>\S+)$",
    re.M,
)
_TOKEN = re.compile(r"gAAAA[\w-]{100,}")  # as Keystone's begin, and they are longer
_ATTACHMENTS = sa.text(
    "SELECT volume_id, instance_uuid, created_at, attach_time, detach_time, deleted_at"
    " FROM volume_attachment WHERE volume_id IN :volumes ORDER BY created_at"
).bindparams(sa.bindparam("volumes", expanding=True))


def calls(log: str) -> Iterator[Event]:
    """The requests that a caller made under a request id of its own, by the log of Nova's or Heat's
    API. Nova writes its line at the end, with the seconds that the request took. A request for
    the versions needs no token, and Nova logs that under the id of the request that the
    thread had before: such lines say nothing."""
    for found in (*_NOVA.finditer(log), *_HEAT.finditer(log)):
        said = found.groupdict()
        at = datetime.datetime.strptime(said["at"], "%Y-%m-%d %H:%M:%S.%f").timestamp()
        yield {
            "kind": "request",
            "t": at,
            "request_id": said["id"],
            "method": said["method"],
            "path": said["path"],
            "arrived": at - float(said.get("took") or 0),
        }


def attachments(rows: Iterable[Mapping[str, Any]]) -> Iterator[Event]:
    """What Cinder's rows of attachments, in UTC and whole seconds, say of the volumes. One that
    was never made belongs to no server."""
    for row in _without_moves(rows):
        who = {"volume": row["volume_id"], "server": row["instance_uuid"]}
        attached = _seconds(row["attach_time"]) + _WHOLE_SECOND
        yield {"kind": "attach_begin", "t": _seconds(row["created_at"]) + _WHOLE_SECOND, **who}
        yield {"kind": "attached", "t": attached, **who}
        gone = _gone(row)
        if gone is not None:
            at = max(_seconds(gone), attached)
            yield {"kind": "detach_begin", "t": at, **who}
            yield {"kind": "detached", "t": at, **who}


def _without_moves(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows of attachments that were made. When Nova moves a server to another host (a resize, a
    migration), it makes a second attachment of each volume to the same server, and deletes the
    first one, often within the second that Cinder writes down: the server has had the volume all
    the time."""
    found: list[Mapping[str, Any]] = []
    for row in sorted(rows, key=lambda each: each["created_at"]):
        if row["attach_time"] is None:
            continue
        who = (row["volume_id"], row["instance_uuid"])
        for number, before in enumerate(found):
            gone = _gone(before)
            if (before["volume_id"], before["instance_uuid"]) != who:
                continue
            if gone is None or row["created_at"] <= gone:
                ends = {"detach_time": row["detach_time"], "deleted_at": row["deleted_at"]}
                found[number] = {**before, **ends}
                break
        else:
            found.append(row)
    return found


def _gone(row: Mapping[str, Any]) -> datetime.datetime | None:
    gone: datetime.datetime | None = row["detach_time"] or row["deleted_at"]
    return gone


def _seconds(time: datetime.datetime) -> float:
    return time.replace(tzinfo=datetime.UTC).timestamp()


def in_order(events: Iterable[Event]) -> list[Event]:
    """All events by time, numbered anew."""
    ordered = sorted(events, key=lambda event: event["t"])
    return [event | {"seq": number} for number, event in enumerate(ordered, 1)]


def spilled(where: str, text: str, secrets: Mapping[str, str]) -> Iterator[Violation]:
    """9. What looks like a token of Keystone's, and each secret of the cloud, in a text."""
    if _TOKEN.search(text):
        yield Violation(9, f"{where} holds a token")
    for owner, secret in secrets.items():
        if secret in text:
            yield Violation(9, f"{where} holds the password of {owner}")


class Tail:
    """What was written to a file since this was made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begin = path.stat().st_size if path.exists() else 0

    def text(self) -> str:
        """All of it, read anew."""
        if not self.path.exists():
            return ""
        with self.path.open("rb") as file:
            file.seek(self._begin)
            return file.read().decode(errors="replace")


@dataclass
class WatchedGroup:
    """One group, the servers that its members have had, and files that its Mistral writes."""

    database: Database
    project_id: str
    name: str
    files: tuple[Tail, ...] = ()
    servers: set[str] = field(default_factory=set)

    def state(self) -> State:
        """What is written down of it; nothing, as long as it is not defined."""
        found = read_state(self.database, group_id(self.project_id, self.name))
        self.servers |= {row["server_id"] for row in found.members if row["server_id"]}
        return found


class CloudAudit:
    """Watches groups, and says what happened to them that must never be.

    It must be made before the groups, and everybody who has to do with them must be at rest when
    it is asked.
    """

    def __init__(self, where: Settings, tenants: Iterable[Tenant]) -> None:
        self._where = where
        self._tenants = tuple(tenants)
        self._tenants[0].action("failover.status")  # the first action creates the tables
        self._guests = self._tenants[0].guests
        self._since = len(self._guests.audit())
        self._calls = [Tail(where.log / f"{name}.log") for name in _CALLS]
        self._ours = [Tail(where.log / f"{name}.log") for name in _OURS]
        self._store = Database(where.database_url("failover"))
        self._cinder = sa.create_engine(where.database_url("cinder"), poolclass=sa.pool.NullPool)
        self._groups: list[WatchedGroup] = []

    def watch(
        self, tenant: Tenant, name: str, *, url: str | None = None, logs: Iterable[Path] = ()
    ) -> None:
        """Watch a group from now on; ``url`` of the state store, and ``logs``, of a Mistral that is
        not the cloud's."""
        database = Database(url) if url else self._store
        files = tuple(Tail(log) for log in logs)
        project = tenant.cloud.session.get_project_id()
        self._groups.append(WatchedGroup(database, project, name, files))

    def look(self) -> None:
        """See which servers the members have by now."""
        for group in self._groups:
            group.state()

    def settle(self) -> None:
        """Wait until the groups are at rest, or long enough: the audit says who is not."""

        def rests() -> bool:
            return all(_rests(group.state()) for group in self._groups)

        with contextlib.suppress(CloudError):
            until(rests, "the groups to be at rest", REST)

    def violations(self) -> list[Violation]:
        """Every violation since this was made."""
        told = self._guests.audit(since=self._since)
        made = [event for tail in self._calls for event in calls(tail.text())]
        seen = [event for event in told if event["kind"] == "violation"]
        found = [Violation(2, f"the guests saw: {event}") for event in seen]
        told = [event for event in told if event not in seen]
        secrets = {owner: self._where.secret(owner) for owner in SECRETS}
        for group in self._groups:
            state = group.state()
            events = [*self._told_of(group, told), *self._held_of(state), *made]
            found += audit(in_order(events), state)
            found += spilled(f"the state of {group.name}", _written(state), secrets)
        files = [*self._ours, *(file for group in self._groups for file in group.files)]
        for file in files:
            found += spilled(file.path.name, file.text(), secrets)
        return [*found, *self._strangers()]

    def close(self) -> None:
        """Let go of the databases."""
        self._cinder.dispose()
        for group in self._groups:
            group.database.close()
        self._store.close()

    def _told_of(self, group: WatchedGroup, told: Iterable[Event]) -> Iterator[Event]:
        """What the guests tell of a group's servers, since other groups run the same applications;
        and the calls by which commands came, for each comes under a lock."""
        for event in told:
            if event["kind"] == "request" or event.get("server") in group.servers:
                yield event

    def _held_of(self, state: State) -> list[Event]:
        """Who had the volumes of a group."""
        volumes = {
            row["physical_id"]
            for row in state.resources
            if row["type"] == "volume_attachment" and row["physical_id"]
        }
        with self._cinder.connect() as connection:
            rows = connection.execute(_ATTACHMENTS, {"volumes": sorted(volumes)})
            return list(attachments(dict(row._mapping) for row in rows))

    def _strangers(self) -> Iterator[Violation]:
        """9. Nothing of one project is visible to another: each sees its own groups alone."""
        query = sa.select(groups.c.project_id, groups.c.name)
        for tenant in self._tenants:
            project = tenant.cloud.session.get_project_id()
            # Tests beside this one define groups and remove them.
            before = self._store.reading(lambda tx: list(tx.connection.execute(query)))
            shown = set(tenant.action("failover.status")["groups"])
            after = self._store.reading(lambda tx: list(tx.connection.execute(query)))
            own = {row.name for row in (*before, *after) if row.project_id == project}
            if strange := shown - own:
                yield Violation(9, f"{tenant.user} sees {sorted(strange)}")


def _rests(state: State) -> bool:
    current = {row["current_traversal"] for row in state.groups}
    under_way = [
        row for row in state.traversals if row["id"] in current and row["status"] not in AT_REST
    ]
    locked = [row for row in state.resources if row["owner"] is not None]
    return not under_way and not locked


def _written(state: State) -> str:
    return json.dumps(vars(state), default=str)
