# SPDX-License-Identifier: Apache-2.0
"""The audit: did the failover keep the invariants, according to the cloud and the guests?

Numbered as in docs/safety.md. For number 3, the store's compare-and-swaps make sure that no
result is recorded under an old token, and the core's own tests show it; here its trace in the state
is checked, and that no call to the cloud starts under an old token.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import sqlalchemy as sa

from mistral_failover.agent.daemon.journal import Journal, JournalEntry
from mistral_failover.convergence.records import Action, Status, TraversalStatus
from mistral_failover.lab.drill import application, rehearsals
from mistral_failover.lab.drill.agent_files import JOURNAL
from mistral_failover.lab.drill.guest import Volumes
from mistral_failover.model.types import Verb
from mistral_failover.runtime.lease_guard import request_id
from mistral_failover.store.database import Database
from mistral_failover.store.tables import (
    groups,
    journal,
    members,
    nodes,
    operations,
    resources,
    traversals,
)
from mistral_failover.store.tables import rehearsals as recorded_rehearsals
from mistral_failover.store.transaction import SqlTransaction

AT_REST = ("COMPLETE", "FAILED", "BLOCKED")
_TOKEN_LIKE = re.compile(rb"gAAAA[\w-]{20,}")
SHORTEST_SECRET = 6
"""The minimum length of a secret to look for; a shorter one occurs in any text by chance."""
_ALL = 10_000  # entries of an agent's journal


@dataclass(frozen=True)
class Violation:
    """A broken invariant: its number and what was seen."""

    invariant: int
    seen: str

    def __str__(self) -> str:
        return f"invariant {self.invariant}: {self.seen}"


@dataclass(frozen=True)
class Secrets:
    """The secrets that must not be found.

    ``token_hashes``: the SHA-256 of each of Keystone's tokens, whose texts are not kept. ``named``:
    further secrets by name, as ``{"the broker's password": "..."}``.
    """

    token_hashes: frozenset[str] = frozenset()
    named: Mapping[str, str] = field(default_factory=dict)

    def within(self, content: bytes) -> Iterator[str]:
        """Return the names of the secrets in a text, as they are or in the form of a URL."""
        for found in set(_TOKEN_LIKE.findall(content)):
            if hashlib.sha256(found).hexdigest() in self.token_hashes:
                yield "a token"
        for what, secret in self.named.items():
            forms = {secret.encode(), quote(secret, safe="").encode()}
            if len(secret) >= SHORTEST_SECRET and any(form in content for form in forms):
                yield what


def password_of(address: str) -> str:
    """Return the password in a URL; empty if there is none."""
    return unquote(urlsplit(address).password or "")


def contents(files: Iterable[Path]) -> Iterator[tuple[str, bytes]]:
    """Return the content of files by their names; a file that no longer exists is empty."""
    for path in files:
        try:
            yield path.name, path.read_bytes()
        except FileNotFoundError:
            continue


@dataclass(frozen=True)
class State:
    """The state database's tables, as plain rows."""

    groups: Sequence[Mapping[str, Any]]
    members: Sequence[Mapping[str, Any]]
    traversals: Sequence[Mapping[str, Any]]
    resources: Sequence[Mapping[str, Any]]
    nodes: Sequence[Mapping[str, Any]]
    operations: Sequence[Mapping[str, Any]]
    journal: Sequence[Mapping[str, Any]]
    rehearsals: Sequence[Mapping[str, Any]] = ()


def read_state(database: Database, group_id: str | None = None) -> State:
    """Return everything in the state database, or what belongs to one group; for tests, not for the
    product."""

    def rows(tx: SqlTransaction, table: sa.Table) -> list[Mapping[str, Any]]:
        query = sa.select(table)
        if group_id is None:
            pass
        elif table is groups:
            query = query.where(table.c.id == group_id)
        elif "group_id" in table.c:
            query = query.where(table.c.group_id == group_id)
        else:
            walked = sa.select(traversals.c.id).where(traversals.c.group_id == group_id)
            query = query.where(table.c.traversal_id.in_(walked))
        return [dict(row._mapping) for row in tx.connection.execute(query)]

    return database.reading(
        lambda tx: State(
            groups=rows(tx, groups),
            members=rows(tx, members),
            traversals=rows(tx, traversals),
            resources=rows(tx, resources),
            nodes=rows(tx, nodes),
            operations=rows(tx, operations),
            journal=rows(tx, journal),
            rehearsals=rows(tx, recorded_rehearsals),
        )
    )


def audit(
    events: Sequence[Mapping[str, Any]],
    state: State,
    *,
    files: Iterable[Path] = (),
    secrets: Secrets | None = None,
) -> list[Violation]:
    """Return every violation. ``events`` is the emulator's audit log; neither ``files`` nor the
    state may contain any of the ``secrets``."""
    return [
        *single_attachment(events),
        *safe_attachment(events),
        *tokens_grow(state),
        *calls_under_lease(events, state),
        *effects_once(events, state),
        *at_rest(events, state),
        *one_traversal_per_incident(state),
        *ended(state),
        *no_old_epoch(events),
        *no_secrets(files, state, secrets or Secrets()),
        *nothing_rehearsed(events, state),
        *rehearsals_end(events),
    ]


def single_attachment(events: Sequence[Mapping[str, Any]]) -> Iterator[Violation]:
    """1. A single-attach volume is attached to at most one server at any instant."""
    for volume, servers, event in _holders(events):
        if len(servers) > 1:
            yield Violation(1, f"volume {volume} on {sorted(servers)} at event {event['seq']}")


def safe_attachment(events: Sequence[Mapping[str, Any]]) -> Iterator[Violation]:
    """2. No attach to a new member while another one may still write: the cloud saw the old
    attachment gone, and nothing ran on its guest with the volume."""
    running: dict[str, set[str]] = defaultdict(set)
    used: dict[str, Sequence[str] | None] = {}
    last_holder: dict[str, str] = {}
    for event in events:
        kind = event["kind"]
        if kind == "application_started":
            running[event["application"]].add(event["server"])
            used[event["application"]] = event.get("volumes")
            if len(running[event["application"]]) > 1:
                where = sorted(running[event["application"]])
                yield Violation(2, f"{event['application']} runs on {where}")
        elif kind in ("application_stopped", "application_ended"):
            running[event["application"]].discard(event["server"])
        elif kind == "attached":
            last_holder[event["volume"]] = event["server"]
        elif kind == "attach_begin":
            old = last_holder.get(event["volume"])
            writing = [
                application
                for application, servers in running.items()
                if old in servers and _writes(used[application], event["volume"])
            ]
            if old not in (None, event["server"]) and writing:
                yield Violation(
                    2,
                    f"volume {event['volume']} goes to {event['server']} while {writing} "
                    f"still runs on {old}",
                )
        elif kind == "violation":
            yield Violation(2, f"the cloud saw: {dict(event)}")


def _writes(volumes: Sequence[str] | None, volume: str) -> bool:
    """Return whether an application writes on a volume; most write on all volumes of their
    guest."""
    return volumes is None or volume in volumes


def tokens_grow(state: State) -> Iterator[Violation]:
    """3. Tokens only grow: no operation has a newer one than its resource."""
    tokens = {row["id"]: row["token"] for row in state.resources}
    for row in state.operations:
        if row["token"] > tokens[row["resource_id"]]:
            yield Violation(3, f"operation {row['key']} has token {row['token']}")


def calls_under_lease(events: Sequence[Mapping[str, Any]], state: State) -> Iterator[Violation]:
    """3. No call that changes the cloud starts after its owner's lease ended: none arrives under a
    token once the lock was broken, or once a call under a newer token of the resource was seen. A
    read may be late, if the process was frozen while one of its threads was sending it."""
    tokens = {
        request_id(row["id"], token): (row["id"], token)
        for row in state.resources
        for token in range(1, row["token"] + 1)
    }
    # (when, 1 for a call and 0 for a stolen lock, resource, token, what; empty for a read)
    happened = [(row["at"], 0, row["resource_id"], 0, "") for row in state.journal if _stolen(row)]
    for event in events:
        if event["kind"] == "request" and event["request_id"] in tokens:
            reads = event["method"] in ("GET", "HEAD")
            what = "" if reads else f"{event['method']} {event['path']}"
            happened.append((event["arrived"], 1, *tokens[event["request_id"]], what))
    newest: Counter[str] = Counter()
    over: Counter[str] = Counter()
    for at, is_call, resource, token, what in sorted(happened):
        if not is_call:
            # What was seen is the broken lock's token or older; the next owner's is newer.
            over[resource] = newest[resource]
        elif token <= over[resource] or token < newest[resource]:
            if what:
                said = f"{what} came at {at:.3f} under token {token} of {resource}, which had ended"
                yield Violation(3, said)
        else:
            newest[resource] = token


def _stolen(row: Mapping[str, Any]) -> bool:
    return bool(row["kind"] == "steal")


def effects_once(events: Sequence[Mapping[str, Any]], state: State) -> Iterator[Violation]:
    """4. No operation takes effect twice. An attach at a server's boot is Heat's; one that Nova
    gives up, like a detach, has no effect. Nor has a command that died with its guest, or that the
    agent killed when it learned of a newer epoch: under the same id it runs again."""
    by_id = {row["id"]: row for row in state.resources}
    wanted: Counter[tuple[str, str | None]] = Counter()
    for row in state.operations:
        resource = by_id[row["resource_id"]]
        if resource["type"] == "volume_attachment":
            kind = "detach_begin" if row["verb"] == Verb.DELETE else "attach_begin"
            wanted[kind, resource["physical_id"]] += 1  # None: it has not ended yet
    seen: Counter[tuple[str, str | None]] = Counter()
    for event in events:
        if event["kind"] in ("attach_begin", "detach_begin") and not event.get("boot"):
            seen[event["kind"], event["volume"]] += 1
        elif event["kind"] in ("attach_failed", "detach_failed"):
            begun = event["kind"].replace("failed", "begin")
            seen[begun, event["volume"]] -= 1
    copies = _copies(events)
    for effect, count in seen.items():
        if effect[1] in copies:  # its records are forgotten, and it is moved once there and back
            wanted[effect] = 1
        if count > wanted[effect] + wanted[effect[0], None]:
            yield Violation(4, f"{effect} happened {count} times for {wanted[effect]} operations")
    commands = Counter(event["id"] for event in events if event["kind"] == "command_started")
    commands.subtract(event["id"] for event in events if event["kind"] == "command_died")
    for command, count in commands.items():
        if count > 1:
            yield Violation(4, f"command {command} ran {count} times")


def at_rest(events: Sequence[Mapping[str, Any]], state: State) -> Iterator[Violation]:
    """5. At rest the cloud matches the goal, and no member has a volume without a record."""
    current = {row["current_traversal"] for row in state.groups}
    by_id = {row["id"]: row for row in state.traversals}
    for row in state.resources:
        if row["owner"] is not None:
            yield Violation(5, f"{row['name']} is still locked by {row['owner']}")
    for row in state.nodes:
        if row["traversal_id"] not in current:
            yield Violation(5, f"a sync point of old traversal {row['traversal_id']} is left")
    servers = {(row["group_id"], row["name"]): row["server_id"] for row in state.members}
    attached = {volume: held for volume, held, _ in _holders(events)}
    disks = {event["volume"] for event in events if event.get("boot")}  # the template's affair
    others = disks | _copies(events)
    moved = {volume: held for volume, held in attached.items() if volume not in others}
    for group in state.groups:
        traversal = by_id.get(group["current_traversal"])
        if traversal is None or traversal["status"] != TraversalStatus.COMPLETE:
            continue
        for row in state.resources:
            if row["group_id"] == group["id"]:
                yield from _as_wanted(row, traversal, attached, servers)
        own = {server: name for (where, name), server in servers.items() if where == group["id"]}
        yield from _orphans(state, moved, own)


def _orphans(
    state: State, attached: Mapping[str, set[str]], own: Mapping[str, str]
) -> Iterator[Violation]:
    """Yield volumes on a group's members although no group at rest put them there. ``own``: the
    members by their servers."""
    known = {
        row["physical_id"]
        for row in state.resources
        if row["type"] == "volume_attachment" and row["action"] != Action.DELETE
    }
    for volume, held in attached.items():
        for server in sorted(held & own.keys()):
            if volume not in known:
                yield Violation(
                    5, f"volume {volume} is on {own[server]}, but no record of it exists"
                )


def _as_wanted(
    row: Mapping[str, Any],
    traversal: Mapping[str, Any],
    attached: Mapping[str, set[str]],
    servers: Mapping[tuple[str, str], str],
) -> Iterator[Violation]:
    if row["action"] == Action.DELETE and row["status"] == Status.COMPLETE:
        return
    if row["status"] != Status.COMPLETE or row["goal_version"] != traversal["goal_version"]:
        yield Violation(5, f"{row['name']} is {row['action']}_{row['status']} at another goal")
    if row["type"] == "volume_attachment":
        server = servers[row["group_id"], row["member"]]
        if attached.get(row["physical_id"]) != {server}:
            held = attached.get(row["physical_id"])
            yield Violation(5, f"{row['name']} is held by {held}, not by {row['member']}")


def one_traversal_per_incident(state: State) -> Iterator[Violation]:
    """6. One incident, at most one traversal (what follows from one, follows it)."""
    started = Counter(
        (row["group_id"], row["incident_id"], row["cause"]) for row in state.traversals
    )
    for (_, incident, cause), count in started.items():
        if incident is not None and count > 1:
            yield Violation(6, f"incident {incident} started {count} traversals: {cause}")


def ended(state: State) -> Iterator[Violation]:
    """7. Every group is COMPLETE, FAILED or BLOCKED, with the reason in words."""
    by_id = {row["id"]: row for row in state.traversals}
    for group in state.groups:
        traversal = by_id.get(group["current_traversal"])
        if traversal is None:
            continue
        if traversal["status"] not in AT_REST:
            yield Violation(7, f"{group['name']} is {traversal['status']}")
        elif traversal["status"] != TraversalStatus.COMPLETE and not traversal["reason"]:
            yield Violation(7, f"{group['name']} is {traversal['status']} without a reason")


def no_old_epoch(events: Sequence[Mapping[str, Any]]) -> Iterator[Violation]:
    """8. No command of an older epoch runs: none starts on a server after a notice of a newer epoch
    was left for its agent, or after a command of a newer one. And in a guest that was deposed, only
    a command of its new epoch starts anything."""
    newest: Counter[str] = Counter()
    deposed: Counter[str] = Counter()
    running: dict[str, tuple[str, int]] = {}
    for event in events:
        kind, server = event["kind"], str(event.get("server"))
        if kind == "notice":
            newest[server] = max(newest[server], event["epoch"])
        elif kind == "deposed":
            deposed[server] = event["epoch"]
        elif kind == "command_started":
            if event["epoch"] < newest[server]:
                yield Violation(8, f"{event['command']} ran in epoch {event['epoch']}")
            newest[server] = max(newest[server], event["epoch"])
            running[event["id"]] = (server, event["epoch"])
        elif kind == "application_started" and server in deposed:
            if not any(on == server and epoch >= deposed[server] for on, epoch in running.values()):
                said = f"{event['application']} started on {server}, deposed by {deposed[server]}"
                yield Violation(8, said)
        elif kind == "command_finished":
            running.pop(event["id"], None)


def no_secrets(files: Iterable[Path], state: State, secrets: Secrets) -> Iterator[Violation]:
    """9. No secret in state, logs or pages."""
    for where, content in (*contents(files), ("the state store", repr(state).encode())):
        for what in secrets.within(content):
            yield Violation(9, f"{where} holds {what}")


def nothing_rehearsed(events: Sequence[Mapping[str, Any]], state: State) -> Iterator[Violation]:
    """10. After a rehearsal the project has not one volume, snapshot or attachment more."""
    if any(row["cleaned_at"] is None for row in state.rehearsals):
        return
    held = {volume: servers for volume, servers, _ in _holders(events)}
    left: set[str] = set()
    for event in events:
        kind, name = event["kind"], event.get("name")
        if kind == "transition_started" and (name == "snapshot_create" or "snapshot" in event):
            left.add(f"volume {event['volume']}" if name == "volume_create" else _named(event))
        elif kind == "transition_finished" and name == "snapshot_delete":
            left.discard(_named(event))
        elif kind == "transition_finished" and name == "volume_delete":
            left.discard(f"volume {event['volume']}")
    for volume in sorted(_copies(events)):
        if held.get(volume):
            yield Violation(10, f"copy {volume} is on {sorted(held[volume])}")
    for what in sorted(left):
        yield Violation(10, f"{what} is left of a rehearsal")


def _named(event: Mapping[str, Any]) -> str:
    return f"snapshot {event['snapshot']}"


def _copies(events: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the volumes that were made from snapshots."""
    return frozenset(
        event["volume"]
        for event in events
        if event["kind"] == "transition_started"
        and event.get("name") == "volume_create"
        and "snapshot" in event
    )


def _holders(
    events: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[str, set[str], Mapping[str, Any]]]:
    """Yield after each change: a volume, the servers that it is attached to, the event."""
    held: dict[str, set[str]] = defaultdict(set)
    for event in events:
        if event["kind"] == "attached":
            held[event["volume"]].add(event["server"])
        elif event["kind"] == "detached":
            held[event["volume"]].discard(event["server"])
        else:
            continue
        yield event["volume"], set(held[event["volume"]]), event


def guest_violations(
    disks: Sequence[Path], volumes: Volumes, torn: Iterable[str]
) -> Iterator[Violation]:
    """Return every violation. ``disks``: the guests' folders; ``torn``: the processes that used a
    volume when it was detached."""
    for told in torn:
        yield Violation(2, told)
    for volume in sorted(path.name for path in volumes.folder.glob("*")):
        journal = volumes.content(volume) / application.JOURNAL
        yield from two_writers(f"volume {volume}", [journal])
    own = [disk / "own" / application.JOURNAL for disk in disks]
    yield from two_writers("the disk of its guest", own)
    for disk in disks:
        yield from twice(disk)
        yield from old_epochs(disk)
        yield from rehearsed_still(disk)


def rehearsals_end(events: Sequence[Mapping[str, Any]]) -> Iterator[Violation]:
    """10. Once its rehearsals have ended, nothing of them runs on a guest, by the cloud's log."""
    running: dict[tuple[str, str], int] = {}
    for event in events:
        kind = event["kind"]
        if kind == "rehearsed_started":
            running[event["application"], event["server"]] = event["seq"]
        elif kind in ("rehearsed_stopped", "rehearsed_ended"):
            running.pop((event["application"], event["server"]), None)
    for (name, server), number in running.items():
        yield Violation(10, f"{name} is still rehearsed on {server}, since event {number}")


def rehearsed_still(disk: Path) -> Iterator[Violation]:
    """10. Once its rehearsals have ended, no process of them runs on a guest."""
    left = [process.pid for process in rehearsals.processes(disk / rehearsals.FOLDER)]
    if left:
        numbers = ", ".join(map(str, left))
        yield Violation(10, f"process {numbers} of a rehearsal still runs on {disk.name}")


def two_writers(where: str, journals: Sequence[Path]) -> Iterator[Violation]:
    """2. A process that wrote never writes again after another one has written, not even in its own
    journal."""
    lines = [line.split(" ") for journal in journals for line in _lines(journal)]
    over: set[str] = set()
    last = ""
    for server, process, *_ in sorted(lines, key=lambda line: float(line[3])):
        writer = f"{server}, process {process}"
        if writer == last:
            continue
        if writer in over:
            yield Violation(2, f"{writer}, wrote on {where} although {last} already did")
        over.add(last)
        last = writer


def twice(disk: Path) -> Iterator[Violation]:
    """4. No command ran twice."""
    # What the agent does by itself when it is deposed has no id, or one of its own.
    known = {row.id for row in _journal(disk)}
    ran = Counter(tuple(line.split(" ", 1)) for line in _lines(disk / application.RAN))
    for (verb, command), count in ran.items():
        if command in known and count > 1:
            yield Violation(4, f"command {command}, {verb}, ran {count} times on {disk.name}")


def old_epochs(disk: Path) -> Iterator[Violation]:
    """8. No command of an older epoch began once the agent knew a newer one."""
    if not (disk / JOURNAL).is_dir():
        return
    rows = _journal(disk)
    with Journal(disk / JOURNAL, hold=False) as journal:
        latest = journal.epoch(0)
        learnt = {
            epoch: deposition.learnt_at
            for epoch in range(latest + 1)
            if (deposition := journal.deposition(epoch)) is not None
        }
    for row in rows:
        ran = row.state not in ("refused", "received")
        newer = [at for epoch, at in learnt.items() if epoch > row.epoch]
        if ran and row.started_at is not None and any(row.started_at > at for at in newer):
            yield Violation(8, f"{row.name} of epoch {row.epoch} began in {latest} on {disk.name}")


def _journal(disk: Path) -> list[JournalEntry]:
    if not (disk / JOURNAL).is_dir():
        return []
    with Journal(disk / JOURNAL, hold=False) as journal:
        return journal.latest(_ALL)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return []
