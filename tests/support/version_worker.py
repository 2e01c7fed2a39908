# SPDX-License-Identifier: Apache-2.0
"""One worker on a state store: ``python version_worker.py URL OWNER LOG``.

Run with the sources of this version or of an earlier one, so it uses little of them. It upgrades
the store to what its sources know. For each line on stdin it answers with one on stdout:

- ``start MEMBER``: define the group, and start a traversal with this member active;
- ``work``: work off the traversal's nodes, beside other workers, until it has ended.

What it carries out it writes to the log: traversal, verb, resource and owner.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from mistral_failover.convergence.engine import Engine
from mistral_failover.convergence.records import Operation, Outcome, Ready, TraversalStatus
from mistral_failover.model.canonical import version_of
from mistral_failover.model.goal import render_goal
from mistral_failover.model.group import parse_group
from mistral_failover.model.ids import group_id
from mistral_failover.store import groups, schema, tables
from mistral_failover.store.database import Database
from support.world import TYPES, outcome_of

PROJECT, GROUP, COUNT = "project-1", "g", 12
IDENTITY = group_id(PROJECT, GROUP)
DOCUMENT = {
    "failover_template_version": "2026-11-21",
    "stack": "s",
    "members": {"servers": ["a", "b"]},
    "resources": {
        f"r{number}": {
            "type": "shared",
            "properties": {"key": 1, "value": {"get_param": "active"}},
            **({"depends_on": f"r{number - 4}"} if number >= 4 else {}),
        }
        for number in range(COUNT)
    },
}


def main(url: str, owner: str, log: str) -> None:
    """Serve until stdin ends."""
    database = Database(url)
    schema.upgrade(database)
    engine = Engine(database, lease=30.0)
    print("ready", flush=True)
    for line in sys.stdin:
        match line.split():
            case ["start", member]:
                start(database, engine, member)
            case ["work"]:
                work(database, engine, owner, Path(log))
        print("done", flush=True)


def start(database: Database, engine: Engine, member: str) -> None:
    """Define the group if it is new, and start a traversal."""
    definition = {"document": DOCUMENT, "types": TYPES}
    group = parse_group(DOCUMENT, name=GROUP, types=TYPES)
    row = {"id": IDENTITY, "project_id": PROJECT, "name": GROUP, "definition": definition}
    made = {"definition_version": version_of(definition), "created_at": 0.0}
    if current(database) is None:
        database.atomically(lambda tx: tx.insert(tables.groups, **row, **made))
    engine.start(
        IDENTITY,
        render_goal(group, {"active": member}, []),
        traversal_id=f"traversal-{member}",
        expected=current(database),
        cause="a test",
    )


def current(database: Database) -> str | None:
    """The id of the group's current traversal."""
    found = database.reading(lambda tx: groups.get(tx, IDENTITY))
    return found.current_traversal if found else None


def status(database: Database, traversal_id: str) -> TraversalStatus:
    """The status of a traversal."""
    traversal = database.reading(lambda tx: tx.traversal(traversal_id))
    assert traversal is not None
    return traversal.status


def work(database: Database, engine: Engine, owner: str, log: Path) -> None:
    """Work until the traversal has ended, by whomever."""
    traversal = current(database)
    assert traversal is not None
    while status(database, traversal) == TraversalStatus.IN_PROGRESS:
        for row in database.reading(lambda tx: list(tx.progress(traversal))):
            if row.status != "WAITING" or row.remaining:
                continue
            step = engine.check(Ready(traversal, row.node), owner)
            if step.operation is not None:
                outcome = carry_out(step.operation, traversal, owner, log)
                engine.conclude(step.operation.ticket, outcome)
        time.sleep(0.005)


def carry_out(operation: Operation, traversal: str, owner: str, log: Path) -> Outcome:
    """Write down that it was carried out; it takes a moment, so that others come meanwhile."""
    with log.open("a") as lines:
        lines.write(f"{traversal} {operation.ticket.verb} {operation.record.name} {owner}\n")
    time.sleep(0.02)
    return outcome_of(operation)


if __name__ == "__main__":
    main(*sys.argv[1:])
