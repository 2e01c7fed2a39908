# SPDX-License-Identifier: Apache-2.0
"""What a drill or a simulated play recorded, as a behaviour to be found in the specification: the
journal of its state store, and what its cloud attached and detached."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from spec import tlc

_KINDS = {
    "volume_attachment": "att",
    "activation": "app",
    "stack_parameters": "par",
    "fence": "fence",
}
_FOUND = "drift observed"
_GIVEN_UP = ("given_up", "handed_back", "waiting")
_LATE = 4  # ticks: more than a lease, so that a request may outlive the lock of its dead sender


@dataclass(frozen=True)
class Recorded:
    """``records``: values of TLA+, in order. ``kinds`` counts them. ``first``: the member on which
    the group rests at the beginning; empty if there was none. ``retried``: resources of which the
    journal leaves tries out."""

    records: tuple[str, ...]
    kinds: Counter[str]
    goals: tuple[tlc.Goal, ...]
    members: str
    volumes: int
    first: str
    retried: frozenset[str]


def read(folder: Path) -> Recorded:
    """Read the state directory of a drill, or of a play, about the group that had a traversal
    first; its members are db_a, db_b, ... A play begins with a group at rest, when its file
    ``since`` says. Raises LeftOut."""
    url = f"file:{folder / 'failover.sqlite'}?mode=ro"
    begun = folder / "since"
    since = float(begun.read_text()) if begun.exists() else 0.0
    with closing(sqlite3.connect(url, uri=True)) as store:
        return _Reader(store, folder / "cloud" / "audit.jsonl").read(since)


def _letter(member: str | None) -> str:
    return (member or "").removeprefix("db_")


class LeftOut(Exception):
    """A run does what the specification leaves out; says what."""


class _Reader:
    def __init__(self, store: sqlite3.Connection, audit: Path) -> None:
        self._store, self._audit = store, audit
        query = "select group_id from failover_journal where kind = 'traversal' order by id limit 1"
        self._group = store.execute(query).fetchone()
        query = "select id, name, member, type, physical_id from failover_resources"
        rows = store.execute(f"{query} where group_id = ?", self._group).fetchall()
        names = sorted({row[1] for row in rows if row[3] == "volume_attachment"})
        self.volumes = {name: f"v{number}" for number, name in enumerate(names, 1)}
        self._resources = {row[0]: row[1:4] for row in rows}
        self._ids = {row[4]: self.volumes[row[1]] for row in rows if row[1] in self.volumes}

    def read(self, since: float) -> Recorded:
        servers = dict(
            self._store.execute(
                "select server_id, name from failover_members where group_id = ?", self._group
            )
        )
        found: list[tuple[float, int, str, str]] = []
        goals: list[tlc.Goal] = []
        retried: set[str] = set()
        begun: set[str] = set()
        query = "select id, kind, traversal_id, resource_id, at from failover_journal"
        query += " where group_id = ? order by id"
        latest, first = 0.0, ""
        for number, kind, traversal, resource, at in self._store.execute(query, self._group):
            latest = max(latest, at)  # in the order of the journal, whatever the clock says
            if at < since:
                if kind == "traversal":
                    first = self._goal(traversal)[0].active
                continue
            if kind == "traversal":
                goal, kind = self._goal(traversal)
                text = ""
                if kind == "traversal":
                    goals.append(goal)
                    text = f'act |-> "{goal.active}", lost |-> {tlc.letters(goal.lost)}'
                found.append((latest, number, kind, text))
            elif resource is not None and kind in (
                "started",
                "done",
                "failed",
                "steal",
                *_GIVEN_UP,
            ):
                if kind == "waiting" and resource not in begun:
                    continue  # it waits for an earlier request before it begins: no step
                (begun.add if kind == "started" else begun.discard)(resource)
                text = self._named(resource)
                if kind == "waiting":
                    retried.add(f"[{text}]")
                found.append((latest, number, "given_up" if kind in _GIVEN_UP else kind, text))
        # In a play people delete servers; in a drill only the failover does, after its fence.
        found += self._cloud(servers, since or found[0][0], people=since > 0.0)
        found.sort(key=lambda each: each[:2])
        return Recorded(
            records=tuple(
                f'[e |-> "{kind}"{", " if text else ""}{text}]' for _, _, kind, text in found
            ),
            kinds=Counter(kind for _, _, kind, _ in found),
            goals=tuple(goals),
            members="".join(sorted(_letter(name) for name in servers.values())),
            volumes=len(self.volumes),
            first=first,
            retried=frozenset(retried),
        )

    def _goal(self, traversal: str) -> tuple[tlc.Goal, str]:
        """Return the goal of a traversal, and how it came: as a new one, as the same after a look
        that found something else, or as the same in the middle."""
        query = """select g.document, f.goal_version = t.goal_version, t.cause
            from failover_traversals t join failover_goals g
            on g.version = t.goal_version and g.group_id = t.group_id
            left join failover_traversals f on f.id = t.follows where t.id = ?"""
        document, same, cause = self._store.execute(query, (traversal,)).fetchone()
        goal = json.loads(document)
        if "active" not in goal["roles"]:
            raise LeftOut("a goal has no active member")
        lost = "".join(_letter(member) for member in goal["lost"])
        kind = "repair" if cause.startswith(_FOUND) else "traversal"
        kind = "follows" if same else kind
        return tlc.Goal(_letter(goal["roles"]["active"]), lost), kind

    def _named(self, resource: str) -> str:
        name, member, kind = self._resources[resource]
        which = {
            "volume_attachment": self.volumes.get(name, ""),
            "fence": _letter(name.split(":")[-1]),
        }
        also = f'x |-> "{which.get(kind, "")}", m |-> "{_letter(member)}"'
        return f'k |-> "{_KINDS[kind]}", {also}'

    def _cloud(
        self, servers: dict[str, str], since: float, *, people: bool
    ) -> list[tuple[float, int, str, str]]:
        found: list[tuple[float, int, str, str]] = []
        held: dict[str, set[str]] = {volume: set() for volume in self.volumes.values()}
        for line in self._audit.read_text().splitlines():
            event = json.loads(line)
            if people and event["kind"] == "server_deleted":
                raise LeftOut(f"server {event['server']} was deleted")
            volume = self._ids.get(event.get("volume"))
            if event["kind"] not in ("attached", "detached") or volume is None:
                continue
            server = _letter(servers.get(event["server"]))
            (held[volume].add if event["kind"] == "attached" else held[volume].discard)(server)
            if event["t"] >= since:
                texts = [
                    f"{each} |-> {tlc.letters(''.join(sorted(on)))}" for each, on in held.items()
                ]
                found.append((event["t"], 1 << 40, "cloud", f"att |-> [{', '.join(texts)}]"))
        return found


def _budget(recorded: Recorded) -> str:
    """Return as many faults as a run recorded."""
    died = recorded.kinds["steal"]
    away = recorded.kinds["given_up"] + 3 * len(recorded.retried)
    failed, drifted = recorded.kinds["failed"], recorded.kinds["repair"]
    faults = {"crash": died, "slow": died, "drop": died, "away": away}
    return tlc.budget(faults | {"fail": failed, "drift": drifted})


def unfit(runs: Sequence[Recorded], folder: Path) -> dict[int, int]:
    """Return which runs are no behaviour of the specification, by their places, and how many of
    the records of each are the beginning of one. ``folder``: an empty one. The runs have the same
    members and volumes, and begin alike. Only what a process that died had sent comes late."""
    found: dict[int, int] = {}
    for late in (0, _LATE):
        places = [n for n, run in enumerate(runs) if bool(run.kinds["steal"]) == bool(late)]
        if places:
            told = _unfit([runs[n] for n in places], late, folder)
            found |= {places[n]: count for n, count in told.items()}
    return found


def _unfit(runs: Sequence[Recorded], late: int, folder: Path) -> dict[int, int]:
    model = tlc.Model(
        [goal for run in runs for goal in run.goals],
        members=runs[0].members,
        volumes=runs[0].volumes,
        first=runs[0].first,
        late=late,
        invariants=(),
    )
    goals, texts = 1, []
    for run in runs:
        texts.append(
            f"[records |-> {tlc.sequence(run.records)}, goal |-> {goals}, "
            f"budget |-> {_budget(run)}, retried |-> {{{', '.join(sorted(run.retried))}}}]"
        )
        goals += len(run.goals)
    text = [
        "---- MODULE Run ----",
        "EXTENDS Trace",
        tlc.definitions(model),
        f"M_Runs == {tlc.sequence(texts)}",
        "====",
    ]
    (folder / "Run.tla").write_text("\n".join(text) + "\n")
    configuration = tlc.configuration(model, "TraceSpec")
    (folder / "Run.cfg").write_text(f"{configuration}CONSTANT Runs <- M_Runs\nCONSTRAINT Sought\n")
    said = tlc.run(folder, "Run", limit=tlc.HANGS).said
    found: dict[int, int] = {}
    for place, told, fits in re.findall(r"<<(\d+), (\d+), (TRUE|FALSE)>>", said):
        found[int(place) - 1] = -1 if fits == "TRUE" else int(told)
    return {place: told for place, told in found.items() if told >= 0}
