# SPDX-License-Identifier: Apache-2.0
"""What a drill recorded, as a behaviour to be found in the specification: the journal of its state
store, and what its cloud attached and detached."""

from __future__ import annotations

import json
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
_GIVEN_UP = ("given_up", "handed_back", "waiting")


@dataclass(frozen=True)
class Recorded:
    """``records``: values of TLA+, in order. ``kinds`` counts them. ``retried``: resources of
    which the journal leaves tries out."""

    records: tuple[str, ...]
    kinds: Counter[str]
    goals: tuple[tlc.Goal, ...]
    members: str
    volumes: int
    retried: frozenset[str]


def read(folder: Path) -> Recorded:
    """Read the state directory of a drill whose group has the members db_a, db_b, ..."""
    url = f"file:{folder / 'failover.sqlite'}?mode=ro"
    with closing(sqlite3.connect(url, uri=True)) as store:
        return _Reader(store, folder / "cloud" / "audit.jsonl").read()


def _letter(member: str | None) -> str:
    return (member or "").removeprefix("db_")


class _Reader:
    def __init__(self, store: sqlite3.Connection, audit: Path) -> None:
        self._store, self._audit = store, audit
        query = "select id, name, member, type, physical_id from failover_resources"
        rows = store.execute(query).fetchall()
        names = sorted({row[1] for row in rows if row[3] == "volume_attachment"})
        self.volumes = {name: f"v{number}" for number, name in enumerate(names, 1)}
        self._resources = {row[0]: row[1:4] for row in rows}
        self._ids = {row[4]: self.volumes[row[1]] for row in rows if row[1] in self.volumes}

    def read(self) -> Recorded:
        servers = dict(self._store.execute("select server_id, name from failover_members"))
        found: list[tuple[float, int, str, str]] = []
        goals: list[tlc.Goal] = []
        retried: set[str] = set()
        query = "select id, kind, traversal_id, resource_id, at from failover_journal order by id"
        latest = 0.0
        for number, kind, traversal, resource, at in self._store.execute(query):
            latest = max(latest, at)  # in the order of the journal, whatever the clock says
            if kind == "traversal":
                goal, follows = self._goal(traversal)
                goals += [] if follows else [goal]
                text = f'act |-> "{goal.active}", lost |-> {tlc.letters(goal.lost)}'
                kind = "follows" if follows else kind
                found.append((latest, number, kind, "" if follows else text))
            elif resource is not None and kind in (
                "started",
                "done",
                "failed",
                "steal",
                *_GIVEN_UP,
            ):
                text = self._named(resource)
                if kind == "waiting":
                    retried.add(f"[{text}]")
                found.append((latest, number, "given_up" if kind in _GIVEN_UP else kind, text))
        found += self._cloud(servers, found[0][0])
        found.sort(key=lambda each: each[:2])
        return Recorded(
            records=tuple(
                f'[e |-> "{kind}"{", " if text else ""}{text}]' for _, _, kind, text in found
            ),
            kinds=Counter(kind for _, _, kind, _ in found),
            goals=tuple(goals),
            members="".join(sorted(_letter(name) for name in servers.values())),
            volumes=len(self.volumes),
            retried=frozenset(retried),
        )

    def _goal(self, traversal: str) -> tuple[tlc.Goal, bool]:
        query = """select g.document, t.follows from failover_traversals t join failover_goals g
            on g.version = t.goal_version and g.group_id = t.group_id where t.id = ?"""
        document, follows = self._store.execute(query, (traversal,)).fetchone()
        goal = json.loads(document)
        lost = "".join(_letter(member) for member in goal["lost"])
        return tlc.Goal(_letter(goal["roles"]["active"]), lost), follows is not None

    def _named(self, resource: str) -> str:
        name, member, kind = self._resources[resource]
        which = {
            "volume_attachment": self.volumes.get(name, ""),
            "fence": _letter(name.split(":")[-1]),
        }
        also = f'x |-> "{which.get(kind, "")}", m |-> "{_letter(member)}"'
        return f'k |-> "{_KINDS[kind]}", {also}'

    def _cloud(self, servers: dict[str, str], since: float) -> list[tuple[float, int, str, str]]:
        found: list[tuple[float, int, str, str]] = []
        held: dict[str, set[str]] = {volume: set() for volume in self.volumes.values()}
        for line in self._audit.read_text().splitlines():
            event = json.loads(line)
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


def model_of(recorded: Recorded) -> tlc.Model:
    """Return the model in which a run is looked for: with as many faults as it recorded."""
    died = recorded.kinds["steal"]
    away = recorded.kinds["given_up"] + 3 * len(recorded.retried)
    budget = {"crash": died, "drop": died, "away": away, "fail": recorded.kinds["failed"]}
    return tlc.Model(
        recorded.goals,
        budget,
        members=recorded.members,
        volumes=recorded.volumes,
        first="",
        workers=2,
        invariants=("DoesNotFit",),
    )


def fits(recorded: Recorded, folder: Path, records: Sequence[str] | None = None) -> bool:
    """Return whether a run is a behaviour of the specification; ``records``: others than its own.
    ``folder``: an empty one."""
    model = model_of(recorded)
    text = [
        "---- MODULE Run ----",
        "EXTENDS Trace",
        tlc.definitions(model),
        f"M_Records == {tlc.sequence(recorded.records if records is None else records)}",
        f"M_Retried == {{{', '.join(sorted(recorded.retried))}}}",
        "====",
    ]
    (folder / "Run.tla").write_text("\n".join(text) + "\n")
    configuration = tlc.configuration(model, "TraceSpec").replace(
        "INVARIANTS", "  Records <- M_Records\n  Retried <- M_Retried\nINVARIANTS"
    )
    (folder / "Run.cfg").write_text(configuration)
    return tlc.run(folder, "Run", limit=tlc.HANGS).violated is not None
