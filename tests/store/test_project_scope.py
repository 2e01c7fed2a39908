# SPDX-License-Identifier: Apache-2.0
"""In a transaction of one project no function of the store, and no statement, finds or changes what
belongs to another one, although its caller names the other one's ids."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from mistral_failover import store
from mistral_failover.convergence.records import (
    GroupState,
    JournalKind,
    Lock,
    Node,
    NodeStatus,
    Outcome,
    Ready,
    Record,
    Ticket,
    Traversal,
    TraversalStatus,
)
from mistral_failover.model.alarm_fact import AlarmFact
from mistral_failover.model.availability import Change
from mistral_failover.model.decisions import Decision
from mistral_failover.model.goal import Goal
from mistral_failover.model.ids import group_id
from mistral_failover.model.observation import Observation, ObservationMemory, Service
from mistral_failover.model.order import Order
from mistral_failover.model.rehearsals import RehearsalOutcome
from mistral_failover.model.types import Verb
from mistral_failover.store import schema, tables
from mistral_failover.store.database import Database
from mistral_failover.store.host_fences import BlockedClient, Claim
from mistral_failover.store.incidents import Incident
from mistral_failover.store.plans import StoredPlan
from mistral_failover.store.project_scope import OF_NO_PROJECT, OutOfProject
from mistral_failover.store.stalled_work import StoppedStep
from mistral_failover.store.transaction import ProjectTransaction, SqlTransaction
from support.databases import Clock, empty, fresh_url
from support.samples import no_nodes
from support.two_projects import GOAL, GROUP, NOW, fill, ids

THEIRS = group_id("theirs", GROUP)
NODE = Node("update", "theirs-resource")
LOCK = Lock("theirs-resource", "theirs-owner", 1, 30.0)
RECORD = Record(
    "theirs-resource", THEIRS, "data", "volume_attachment", owner="theirs-owner", token=1
)
ALL = sa.true()
NAMED: dict[str, Any] = {
    **ids("theirs"),
    "again": NOW,
    "at": 0.0,
    "attachment": "volume_attachment",
    "because": "they say so",
    "version": "v",
    "definition_version": "v",
    "in_force": "v",
    "before": None,
    "begin": 0.0,
    "blocked": True,
    "asked": "POST /x",
    "by": "mine-traversal",
    "which_operations": ALL,
    "changes": {"reason": "changed"},
    "client": "a client",
    "data": {"name": "data", "id": "x", "attributes": {}},
    "decision": Decision.DISMISSED,
    "document": {},
    "duplicate_of": None,
    "event_id": 99,
    "expected": "theirs-traversal",
    "fact": AlarmFact("changed"),
    "failed": None,
    "first": {"id": "theirs-traversal", "group_id": THEIRS, "incident_id": None},
    "goal": Goal({**GOAL, "lost": ["a"]}),
    "goal_version": "theirs-goal",
    "group_ids": [THEIRS],
    "held": Claim("cmp1", 1),
    "locked": True,
    "volume_id": "x",
    "lifted": BlockedClient("a client", "x", 0.0, 1),
    "holder": "a worker",
    "identity": THEIRS,
    "refusal": "why",
    "incident": Incident("new", "theirs", THEIRS, "aodh", AlarmFact(), {}, Decision.HELD, "new"),
    "intent": {},
    "key": "theirs-resource-started",
    "known": [(THEIRS, 1.0)],
    "kinds": ("pause", "maintenance"),
    "lease": 30.0,
    "level": False,
    "lifetime": 10.0,
    "planned": {"roles": {"active": "a"}, "servers": {}},
    "roles": {"active": "a"},
    "cause": "changed",
    "report": None,
    "row": {"id": "theirs-rehearsal", "group_id": THEIRS},
    "lock": LOCK,
    "member": "a",
    "memory": ObservationMemory(),
    "names": ["a"],
    "new": ("DISMISSED", ""),
    "next_try": NOW,
    "node": NODE,
    "once": False,
    "observation": Observation(Service.DOWN),
    "outcome": Outcome(physical_id="x"),
    "order": Order("remove"),
    "own_since": None,
    "owner": "theirs-owner",
    "asked_for": False,
    "physical_id": None,
    "plan": StoredPlan("theirs-plan", "theirs", THEIRS, Order("remove"), "f", {}, "theirs-goal"),
    "prefix": "theirs",
    "proof": "a proof",
    "reason": "changed",
    "record": RECORD,
    "records": [Record("new", THEIRS, "new", "shared")],
    "said": 0,
    "seconds": 10.0,
    "seen": [("a", "another server", 5.0)],
    "sentence": "changed",
    "series": "s",
    "service": "SERVING",
    "shared": False,
    "stack_id": "x",
    "status": TraversalStatus.FAILED,
    "stopped": StoppedStep(
        Ready("theirs-traversal", NODE),
        *(THEIRS, "theirs", "resource", NodeStatus.FAILED, 0.0, None, True),
        operation="theirs-resource-started",
    ),
    "through": None,
    "ticket": Ticket("new-key", Verb.CREATE, "theirs-traversal", NODE, LOCK, "theirs-goal"),
    "token": 1,
    "traversal": Traversal("new", THEIRS, "theirs-goal", TraversalStatus.IN_PROGRESS),
    "traversal_ids": ["theirs-traversal"],
    "type_name": "volume_attachment",
    "waiting_for": "Nova",
    "which_traversals": ALL,
    "what": "Nova",
    "where": ALL,
}
"""What a caller names, by parameter: the ids of the other project."""
OF_FUNCTION: dict[str, dict[str, Any]] = {
    "details.broken_by_hand": {"resource_id": "theirs-resource"},
    "host_fences.record_nova_report": {"seen": "10:00"},
    "groups.raise_to": {"epochs": {"a": 9}},
    "details.matches": {"said": "theirs-traversal"},
    "counters.count_time": {"owner": "mine", "name": "seconds", "labels": ()},
    "rehearsals.begin": {
        "group": GroupState(THEIRS, "theirs", GROUP, "v", None, None, "v", None),
        "name": "a rehearsal",
    },
    "rehearsals.end": {"outcome": RehearsalOutcome.FAILED},
    "counters.lately": {"name": "sweeps", "since": 0.0},
    "suspensions.suspend": {"kind": "pause", "said": {"by": "me", "because": "", "since": 0.0}},
    "groups.record_stack": {"name": "s"},
    "service_changes.record": {"changes": (Change(0.5, Service.DOWN),)},
    "tx.acquire": {"owner": "me"},
    "tx.insert_sync_points": {"plan": no_nodes()},
    "tx.journal": {"kind": JournalKind.HELD, "token": None, "owner": None},
    "tx.open_traversal": {"plan": no_nodes()},
    "tx.records_of": {"kind": "volume_attachment"},
    "tx.swap_traversal": {"new": "mine-traversal"},
    "tx.goal": {"version": "theirs-goal"},
    "views.deferred": {"waiting": False},
    "views.count_journal_entries": {"kind": JournalKind.HELD},
}
TOOLS = {"change", "changed", "count", "execute", "insert", "number", "rows"}
"""Methods that take a statement, which are tried with statements below; numbers belong to no
project."""


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every public function of the store that takes a transaction, and every primitive of one."""
    for info in pkgutil.iter_modules(store.__path__, "mistral_failover.store."):
        if info.ispkg:
            continue
        module = importlib.import_module(info.name)
        for name, function in inspect.getmembers(module, inspect.isfunction):
            of_here = function.__module__ == info.name and not name.startswith("_")
            if of_here and "tx" in inspect.signature(function).parameters:
                yield f"{info.name.rpartition('.')[2]}.{name}", function
    for name, function in inspect.getmembers(SqlTransaction, inspect.isfunction):
        if not name.startswith("_") and name not in TOOLS:
            yield f"tx.{name}", function


FUNCTIONS = dict(functions())


@pytest.fixture
def database(kind: str) -> Database:
    database = Database(fresh_url(kind, "scope"), clock=Clock())
    schema.upgrade(database)
    empty(database)
    with database.engine.begin() as connection:
        fill(connection, "mine")
    return database


class _Undo(Exception):
    """Whatever a function wrote is taken back."""


def call(tx: ProjectTransaction, name: str) -> Any:
    """Call a function with the ids of the project ``theirs``."""
    known = {**NAMED, **OF_FUNCTION.get(name, {})}
    function = FUNCTIONS[name]
    positional: list[ProjectTransaction] = []
    keywords: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in ("tx", "self"):
            positional.append(tx)
        elif parameter.kind is parameter.VAR_KEYWORD:
            keywords |= known[parameter.name]
        else:
            keywords[parameter.name] = known[parameter.name]
    return function(*positional, **keywords)


def answer(database: Database, name: str, project: str = "mine") -> str:
    """What a function answers to a project; whatever it does is taken back."""
    found = []

    def ask(tx: ProjectTransaction) -> None:
        try:
            said = call(tx, name)
            said = list(said) if isinstance(said, Iterator) else said
            # A database may answer in any order.
            found.append(repr(sorted(said.items(), key=repr) if isinstance(said, dict) else said))
        except (sa.exc.NoResultFound, OutOfProject, AssertionError) as error:
            found.append(type(error).__name__)
        raise _Undo

    with pytest.raises(_Undo):
        database.for_project(project).atomically(ask)
    return found[0]


def content(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of a project, by table."""
    with database.engine.connect() as connection:
        return {
            table.name: sorted(
                (tuple(row) for row in connection.execute(sa.select(table))), key=repr
            )
            for table in tables.metadata.sorted_tables
            if table not in OF_NO_PROJECT
        }


def test_what_a_function_answers_does_not_depend_on_another_project(database: Database) -> None:
    alone = {name: answer(database, name) for name in FUNCTIONS}

    with database.engine.begin() as connection:
        fill(connection, "theirs")

    assert {name: answer(database, name) for name in FUNCTIONS} == alone


UNSEEN = {
    "groups.define": "it answers with an id that follows from its arguments",
    "groups.servers_of_others": "the rows have one group, and it asks for the others",
    "plans.ways_lasted": "it is for members that came back",
    "incidents.ends_of_series": "it is for reports that an alarm has ended",
    "retention.purge_journal": "entries of the current traversal stay",
    "retention.purge_plans": "a plan stays for a day after it has expired",
    "stalled_work.chain_waits": "it is for groups in which nothing is ready",
    "stalled_work.stopped": "it is for groups whose traversal has failed or is blocked",
}
"""Functions that read the transaction's project, but to whose answer the rows make no difference,
and why."""


def test_the_rows_are_such_that_their_own_project_sees_them(database: Database) -> None:
    named = re.compile(r"tx\.project_id|_here\(tx")  # stalled_work names it in one place
    reading = [name for name, each in FUNCTIONS.items() if named.search(inspect.getsource(each))]
    nothing = {name: answer(database, name, "theirs") for name in reading}

    with database.engine.begin() as connection:
        fill(connection, "theirs")

    unseen = {name for name in reading if answer(database, name, "theirs") == nothing[name]}
    assert unseen == UNSEEN.keys()


def test_no_function_changes_a_row_of_another_project(database: Database) -> None:
    mine = content(database)
    with database.engine.begin() as connection:
        fill(connection, "theirs")
    theirs = {
        table: [row for row in rows if row not in mine[table]]
        for table, rows in content(database).items()
    }
    for name in FUNCTIONS:

        def change(tx: ProjectTransaction, name: str = name) -> None:
            said = call(tx, name)
            if isinstance(said, Iterator):
                list(said)

        with suppress(sa.exc.NoResultFound, OutOfProject, AssertionError):
            database.for_project("mine").atomically(change)

        after = content(database)
        gone = [row for table, rows in theirs.items() for row in rows if row not in after[table]]
        new = [
            row
            for table, rows in after.items()
            for row in rows
            if row not in theirs[table] and (THEIRS in row or "theirs" in row)
        ]
        assert (gone, new) == ([], []), name


OWNED = [table for table in tables.metadata.sorted_tables if table not in OF_NO_PROJECT]


@pytest.mark.parametrize("table", OWNED, ids=str)
def test_a_statement_without_any_condition_reaches_the_own_rows_alone(
    database: Database, table: sa.Table
) -> None:
    mine = content(database)[table.name]
    with database.engine.begin() as connection:
        fill(connection, "theirs")
    both = content(database)[table.name]
    own = database.for_project("mine")

    found = own.reading(lambda tx: [tuple(row) for row in tx.connection.execute(sa.select(table))])
    aliased = table.alias()
    other = own.reading(
        lambda tx: [tuple(row.values()) for row in tx.rows(dict, sa.select(aliased))]
    )
    assert sorted(found, key=repr) == sorted(other, key=repr) == mine

    key = next(iter(table.primary_key))
    own.atomically(lambda tx: tx.execute(table.update().values({key.name: key})))
    changed = own.atomically(lambda tx: tx.execute(table.delete()))

    assert changed == len(mine)
    assert content(database)[table.name] == [row for row in both if row not in mine]


def test_a_join_shows_no_row_of_another_project_on_either_side(database: Database) -> None:
    with database.engine.begin() as connection:
        fill(connection, "theirs")
    here, there = tables.groups.alias(), tables.traversals.alias()
    for outer in (True, False):
        query = sa.select(here.c.project_id, there.c.id).join(there, sa.true(), isouter=outer)

        found = database.for_project("mine").reading(
            lambda tx: tx.connection.execute(query).all()  # noqa: B023 - run at once
        )

        assert [tuple(row) for row in found] == [("mine", "mine-traversal")]


def test_what_cannot_be_narrowed_is_refused(database: Database) -> None:
    groups = tables.groups
    everything = sa.select(groups.c.id, groups.c.project_id)
    refused: list[sa.Executable] = [
        sa.text("SELECT id FROM failover_groups"),
        sa.select(everything.subquery()),
        sa.select(everything.where(groups.c.project_id == "theirs").subquery()),
        sa.select(sa.select(sa.func.max(groups.c.id)).scalar_subquery()),
        sa.union(everything, everything),
        sa.select(sa.column("id")).select_from(sa.table("failover_groups")),
    ]
    for statement in refused:
        with pytest.raises(OutOfProject):
            database.for_project("mine").reading(
                lambda tx: tx.connection.execute(statement)  # noqa: B023 - run at once
            )
    allowed = sa.select(everything.where(groups.c.project_id == "mine").subquery())
    found = database.for_project("mine").reading(lambda tx: tx.connection.execute(allowed).all())
    assert [row.project_id for row in found] == ["mine"]


def test_no_row_is_written_for_another_project(database: Database) -> None:
    with database.engine.begin() as connection:
        fill(connection, "theirs")
    own = database.for_project("mine")
    before = content(database)

    for write in (
        lambda tx: tx.journal(THEIRS, "a word", kind=JournalKind.HELD),
        lambda tx: tx.insert_records((Record("new", THEIRS, "n", "shared"),), 1.0),
        lambda tx: tx.insert(
            tables.edges, traversal_id="theirs-traversal", node="a", predecessor="b"
        ),
        lambda tx: tx.insert(
            tables.deliveries, project_id="theirs", digest="d", execution="e", at=1.0
        ),
    ):
        with pytest.raises(OutOfProject):
            own.atomically(write)

    assert content(database) == before


WHOLE = {
    "doctor/fences.py": "the fences of hosts serve many projects",
    "doctor/store.py": "it reads the schema's revision",
    "orders/fence_host.py": "the fences of hosts serve many projects",
    "orders/unfence_host.py": "the fences of hosts serve many projects",
    "recovery/lift_fences.py": "the fences of hosts serve many projects",
    "recovery/retention.py": "it remembers by database when it looked last",
    "metrics/numbers.py": "a server of an operator may show the metrics of all projects",
    "resources/fence/host_power.py": "the fences of hosts serve many projects",
    "resources/fence/storage.py": "a block outlives the group that needed it",
    "resources/worker.py": "it reads the clock",
    "server/service.py": "whether it can be written",
}
"""The modules that may use the state store of every project, and why."""


def test_only_named_modules_use_the_state_store_of_every_project() -> None:
    """The process itself, with its engine and leases, is handed what it works on."""
    package = Path(store.__file__).parents[1]
    found = {
        str(path.relative_to(package))
        for folder in package.iterdir()
        if folder.name not in ("lab", "store")
        for path in (folder.rglob("*.py") if folder.is_dir() else ())
        if re.search(r"(runtime|state)\.database\b(?!\.for_project)", path.read_text())
    }
    assert found == WHOLE.keys()
