# SPDX-License-Identifier: Apache-2.0
"""Going on after real deaths: operations that are workflows, executions that hang, a Mistral that
sweeps by itself. The traversals are of this process, the Mistrals are processes of their own."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from mistral_failover import workflows
from mistral_failover.convergence.definitions import Definitions
from mistral_failover.convergence.engine import Engine
from mistral_failover.model.goal import render_goal
from mistral_failover.runtime.request import DEFAULT_PROJECT
from mistral_failover.store import groups, views
from mistral_failover.store.database import Database
from mistral_failover.store.tables import operations, resources
from support.databases import new_store
from support.mistral_process import MistralProcess
from support.waiting import until

pytestmark = pytest.mark.drills

LEASE = 2.0
HANG_AFTER = 3.0
_numbers = itertools.count(1)
FLOWS = {
    # It waits for somebody who never comes.
    "house.open": "  input: [operation]\n  tasks:\n    it: {action: std.async_noop}\n",
    "house.close": "  input: [operation]\n  tasks:\n    it: {action: std.noop}\n",
    "house.on_lost": """
  input: [group]
  tasks:
    it:
      workflow: failover.sweep
      input:
        group: <% $.group %>
      on-error: tell
    tell: {action: std.noop}
""",
}


def house(workflow: str, timeout: int) -> dict[str, Any]:
    """A type whose operation is a workflow."""
    return {
        "failover_type_version": "2026-11-21",
        "name": "house",
        "description": "its operations are workflows",
        "properties": {"holder": {"type": "string", "required": True}},
        "operations": {
            verb: {"workflow": workflow, "timeout": timeout} for verb in ("create", "update")
        },
    }


class Place:
    """A state store, and Mistrals on it."""

    def __init__(self, folder: Path, files: list[Path]) -> None:
        self.folder = folder
        self._files = files
        self.names: dict[str, str] = {}
        self.database = Database(new_store(folder / "failover.sqlite"))

    def mistral(
        self, name: str = "mistral", sweep_after: float = 0.5, **more: Any
    ) -> MistralProcess:
        """A Mistral that is not started yet."""
        options: dict[str, Any] = {
            "database": self.database.url.render_as_string(hide_password=False),
            "lease": LEASE,
            "lease_margin": 0.2,
            "sweep_interval": 0.2,
            "sweep_after": sweep_after,
            "hang_after": HANG_AFTER,
        }
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if not more.get("sweep"):
            options["mistral_url"] = f"http://127.0.0.1:{port}/v2"
        overrides = {f"failover.{key}": value for key, value in options.items()}
        return MistralProcess(
            self.folder / name, port, workflows=self._files, overrides=overrides, **more
        )

    def begin(self, workflow: str, timeout: int = 600) -> str:
        """A group whose traversal was begun by a process that died right after; its id."""
        name = f"g{next(_numbers)}"
        self.names[groups.group_id(DEFAULT_PROJECT, name)] = name
        document = {
            "failover_template_version": "2026-11-21",
            "stack": name,
            "members": {"servers": ["a", "b"]},
            "resources": {
                "thing": {"type": "house", "properties": {"holder": {"get_param": "active"}}}
            },
        }
        definition = {"document": document, "types": [house(workflow, timeout)]}
        definitions = Definitions()

        def define(tx: Any) -> tuple[str, Any]:
            identity = groups.define(tx, name, definition)
            return identity, definitions.group(tx, tx.lock_group(identity, shared=True))

        identity, group = self.database.for_project(DEFAULT_PROJECT).atomically(define)
        Engine(self.database, lease=LEASE).start(
            identity,
            render_goal(group, {"active": "a"}, []),
            traversal_id=f"t-{name}",
            expected=None,
            cause="a test",
        )
        return identity

    def operation(self, group: str) -> dict[str, Any] | None:
        """The one operation of a group, as the ledger has it."""
        query = sa.select(operations).where(operations.c.group_id == group)
        row = self.database.reading(lambda tx: tx.connection.execute(query).one_or_none())
        return dict(row._mapping) if row else None

    def left(self, group: str) -> float:
        """Seconds that the lock of the group's resource lasts; 0 where it is free."""

        def read(tx: Any) -> float:
            (record,) = tx.records(group)
            return (record.lease_until or tx.now()) - tx.now()

        return self.database.reading(read)

    def ends_now(self, group: str) -> None:
        """As if the time of the lock had passed."""
        over = resources.update().where(resources.c.group_id == group)
        self.database.atomically(lambda tx: tx.execute(over.values(lease_until=tx.clock())))

    def told(self, group: str, kind: str) -> list[str]:
        """What the group's journal says of one kind."""
        return [row["sentence"] for row in self._history(group, kind)]

    def times(self, group: str, kind: str) -> list[float]:
        """When the group's journal says something of one kind; the oldest first."""
        return [row["at"] for row in self._history(group, kind)]

    def _history(self, group: str, kind: str) -> list[views.JournalRow]:
        rows = self.database.reading(lambda tx: views.history(tx, group, limit=1000))
        return [row for row in rows if row["kind"] == kind]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    files = [Path(path) for path in workflows.paths()]
    for name, body in FLOWS.items():
        file = tmp_path / f"{name}.yaml"
        file.write_text(f"version: '2.0'\n{name}:\n{body}")
        files.append(file)
    made = Place(tmp_path, files)
    yield made
    made.database.close()


def sweep(mistral: MistralProcess) -> dict[str, Any]:
    """What one sweep says, at once, while what it triggered goes on."""
    started = mistral.client.start("failover.sweep")["id"]

    def swept() -> Any:
        done = [t for t in mistral.client.tasks(started) if t["name"] == "sweep"]
        return done and done[0]["state"] == "SUCCESS" and mistral.client.task(done[0]["id"])

    report: dict[str, Any] = until(swept)["result"]
    assert report["unable"] == []
    return report


def trees(mistral: MistralProcess) -> dict[str, dict[str, Any]]:
    """All executions, by id."""
    return {e["id"]: e for e in mistral.client.executions()}


def test_a_killed_mistral_s_executions_are_ended_and_their_work_goes_on(place: Place) -> None:
    first, second = (place.begin("house.open") for _ in range(2))
    with place.mistral() as mistral:
        time.sleep(0.6)  # so long nothing must have been said of a traversal that is stalled
        mistral.client.start("failover.sweep", {"group": place.names[first]})
        mistral.client.start("house.on_lost", {"group": place.names[second]})
        for group in (first, second):
            until(lambda group=group: place.operation(group))
        # Of each group a sweep, _chains, _chain, converge and house.open; and on_lost.
        until(lambda: len(trees(mistral)) == 11)
        left = trees(mistral)
        assert max(map(place.left, (first, second))) <= LEASE, "renewed by the worker that polls"
        mistral.kill()
    with place.mistral() as mistral:
        assert {trees(mistral)[e]["state"] for e in left} == {"RUNNING"}

        time.sleep(HANG_AFTER + 1)
        found = sweep(mistral)
        for group in (first, second):
            until(lambda group=group: (place.operation(group) or {})["attempts"] == 2)
        ours = [e for e in left if left[e]["workflow_name"] != "house.open"]
        until(lambda: not any(e["state"] == "RUNNING" for e in now(mistral, ours)))
        after = now(mistral, left)
        started = [e for e in trees(mistral).values() if e["workflow_name"] == "house.open"]
    assert len(found["restarted"]) == len(found["chains"]) == 2
    for row in found["restarted"]:
        assert row["sentence"].startswith("thing: continued by a sweep, because the lease of ")
    assert sorted((e["workflow_name"], e["state"]) for e in after) == [
        ("failover._chain", "CANCELLED"),
        ("failover._chain", "CANCELLED"),
        ("failover._chains", "CANCELLED"),
        ("failover._chains", "CANCELLED"),
        ("failover.converge", "CANCELLED"),
        ("failover.converge", "CANCELLED"),
        ("failover.sweep", "ERROR"),
        ("failover.sweep", "ERROR"),
        ("house.on_lost", "SUCCESS"),  # a workflow of somebody else sees the failure
        (
            "house.open",
            "RUNNING",
        ),  # a process that takes the operation up waits for the same execution
        ("house.open", "RUNNING"),
    ]
    assert len(started) == 2
    ended = {row["execution"]: row for row in found["ended"]}
    for execution in after:
        if execution["workflow_name"] == "failover.sweep":
            sentence = ended.pop(execution["id"])["sentence"]
            assert "was ended" in sentence
            assert execution["state_info"] == f"INTERRUPTED: {sentence}"
            assert sentence in place.told(first, "ended") + place.told(second, "ended")
    assert ended == {}


def now(mistral: MistralProcess, ids: Iterable[str]) -> list[dict[str, Any]]:
    """These executions as they are now."""
    return [mistral.client.execution(identity) for identity in ids]


def test_a_mistral_that_is_killed_and_started_again_goes_on_by_itself(place: Place) -> None:
    group = place.begin("house.open")
    with place.mistral(sweep=True) as mistral:
        until(lambda: place.operation(group))
        mistral.kill()
    with place.mistral(sweep=True) as mistral:
        until(lambda: (place.operation(group) or {})["attempts"] == 2)
        states = [e["state"] for e in mistral.client.executions()]
    assert "CANCELLED" in states


def test_two_mistrals_on_one_store_do_everything_once_and_rest_where_all_is_well(
    place: Place,
) -> None:
    after = 2.0
    with (
        place.mistral("one", after, sweep=True) as one,
        place.mistral("two", after, sweep=True) as two,
    ):

        def executions() -> list[dict[str, Any]]:
            return [e for server in (one, two) for e in server.client.executions()]

        time.sleep(1.0)
        assert executions() == []

        slow = place.begin("house.open")
        quick = [place.begin("house.close") for _ in range(3)]

        for group in quick:
            until(lambda group=group: (place.operation(group) or {}).get("ended_at"))
        until(lambda: place.operation(slow))
        until(lambda: sum(e["state"] == "RUNNING" for e in executions()) == 5)  # those of slow

        def no_sweep() -> bool:
            """None began while each looked several times (the last of the quick ones may have
            been on its way when the first look was taken)."""
            before = len(executions())
            time.sleep(1.5 * after)
            return len(executions()) == before

        until(no_sweep)
        # What the one carries out is unknown to the other, and left alone all the same; as the one
        # stops it hands its work back, and the other one goes on with it.
        assert (place.operation(slow) or {})["attempts"] == 1
    done = [place.operation(group) or {} for group in quick]
    assert [(row["status"], row["attempts"]) for row in done] == [("done", 1)] * 3
    # A chain that does not begin in time, on a busy machine, is started once more; never sooner.
    for group in quick:
        taken_up = place.times(group, "sweep")
        assert taken_up
        assert all(again - before >= after for before, again in itertools.pairwise(taken_up))


def test_an_operation_s_workflow_that_takes_too_long_is_stopped(place: Place) -> None:
    group = place.begin("house.open", timeout=1)
    with place.mistral() as mistral:
        time.sleep(0.6)
        sweep(mistral)
        until(lambda: (place.operation(group) or {}).get("ended_at"))
        states = {e["workflow_name"]: e["state"] for e in mistral.client.executions()}
    assert states["house.open"] == "CANCELLED"
    (said,) = place.told(group, "failed")
    assert "did not end within 1 s, and was stopped" in said
    assert "[TIMEOUT]" in said
    operation = place.operation(group)
    assert operation is not None
    assert operation["status"] == "unknown"


def test_a_cron_trigger_sweeps_where_no_background_sweep_does(place: Place) -> None:
    group = place.begin("house.close")
    with place.mistral() as mistral:
        mistral.client.request(
            "POST",
            "cron_triggers",
            json={
                "name": "failover-sweep",
                "workflow_name": "failover.sweep",
                "pattern": "* * * * *",
            },
        )
        # Not to wait for the next full minute.
        engine = sa.create_engine(f"sqlite:///{mistral.state_dir / 'mistral.sqlite'}")
        with engine.begin() as connection:
            now = sa.text(
                "UPDATE cron_triggers_v2 SET next_execution_time = "
                "strftime('%Y-%m-%d %H:%M:%S.000000', 'now')"
            )
            connection.execute(now)
        engine.dispose()
        until(lambda: (place.operation(group) or {}).get("status") == "done")
