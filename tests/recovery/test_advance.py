# SPDX-License-Identifier: Apache-2.0
"""The driver of a traversal: what a call of failover.advance does, and what it leaves alone, with
several of them at once, in one process and in two."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext
from sqlalchemy.exc import OperationalError

from mistral_failover.actions import base, locks, recovery, reports
from mistral_failover.convergence.records import Outcome, Ready, Record, Step, Ticket
from mistral_failover.mistral import api, user_workflows
from mistral_failover.model.ids import group_id
from mistral_failover.model.stages import Stage
from mistral_failover.recovery import advance
from mistral_failover.resources import modules, worker
from mistral_failover.runtime.budgets import Need
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, stalled_work
from mistral_failover.store.database import Mode
from mistral_failover.store.tables import resources
from support.driving import ready_nodes, work
from support.no_cloud import NoCloud
from support.rows import statements_of
from support.together import together
from support.waiting import until

ACTIVE = {"get_param": "active"}


def volume(name: str) -> dict[str, Any]:
    return {"type": "volume_attachment", "properties": {"volume": name, "server": ACTIVE}}


def application(depends_on: str) -> dict[str, Any]:
    properties = {"member": ACTIVE, "start": "on", "stop": "off"}
    return {"type": "activation", "depends_on": depends_on, "properties": properties}


DATA = {"data": volume("data_volume")}
CHAIN = {
    **DATA,
    "database": application("data"),
    "routing": {
        "type": "stack_parameters",
        "depends_on": "database",
        "properties": {"parameters": {"active": ACTIVE}},
    },
}
TWO = {
    **DATA,
    "database": application("data"),
    "logs": volume("logs"),
    "shipper": application("logs"),
}
LOST = Outcome(error={"code": "LEASE_LOST", "message": "the lease on resource r is lost"})
AWAY = Outcome(
    error={"code": "UNREACHABLE", "message": "Nova does not answer", "transient": True},
    transient=True,
)
DONE = Outcome(physical_id="p1")


class Operations:
    """The operations that workers carry out, in place of the cloud: each is done at once, unless a
    test says what comes of it (``outcomes``, one after the other) or holds it (``held``)."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []
        self.outcomes: dict[str, list[Outcome]] = {}
        self.held: dict[str, threading.Event] = {}
        self.began = threading.Condition()
        self.at_once = 0
        self.most_at_once = 0

    def run(self, _request: Any, _guard: Any, _function: str, operation: Any) -> Outcome:
        name = operation["resource"]["name"]
        with self.began:
            self.all.append(operation)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self.began.notify_all()
        if name in self.held:
            assert self.held[name].wait(60)
        with self.began:
            self.at_once -= 1
        return self.outcomes[name].pop(0) if self.outcomes.get(name) else DONE

    @property
    def names(self) -> list[str]:
        """The resources that were operated on, in order."""
        return [operation["resource"]["name"] for operation in self.all]

    def wait_for(self, name: str) -> None:
        """Wait until the operation on a resource runs."""
        with self.began:
            assert self.began.wait_for(lambda: name in self.names, 60)


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> Iterator[Operations]:
    found = Operations()
    monkeypatch.setattr(worker, "carried_out", found.run)
    yield found
    for event in found.held.values():
        event.set()


@pytest.fixture
def process(state: Runtime) -> Iterator[Callable[..., Runtime]]:
    """Make what another process on the same state store has; ``settings`` of its own."""
    made: list[Runtime] = []

    def make(**settings: Any) -> Runtime:
        made.append(Runtime(replace(state.settings, **settings), eager=False))
        return made[-1]

    yield make
    for each in made:
        each.workers.hand_back(5.0)


def advanced(
    runtime: Runtime,
    context: ActionContext,
    ready: Ready,
    through: Stage = Stage.END,
    *,
    hold: bool = False,
) -> Any:
    """What failover.advance answers in the process of a runtime: a mapping, or a Result."""
    return advance.advance(Request(runtime, context), ready.traversal_id, through, hold=hold)


@pytest.fixture
def advanced_anew(
    context_of: Callable[..., ActionContext], project: str
) -> Callable[..., dict[str, Any]]:
    """What failover.advance answers to a request of its own in the process of a runtime."""
    return lambda runtime, *more, **options: advanced(
        runtime, context_of(project), *more, **options
    )


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one traversal count as many."""
    monkeypatch.setattr(advance, "CROWDED", 0)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a call that has nothing to do end soon."""
    monkeypatch.setattr(advance, "PATIENT", 0.2)


def told(context: ActionContext, kind: str | None = None) -> list[str]:
    rows = reports.History("payments", limit=1000).run(context)
    return [row["sentence"] for row in rows if kind in (None, row["kind"])]


def record_of(state: Runtime, ready: Ready) -> Record:
    return state.database.reading(lambda tx: tx.record(ready.node.resource_id))


def no_need(_ready: Ready) -> Need:
    """A node that needs no budget."""
    return Need()


def in_background(function: Callable[[], Any]) -> Callable[[], Any]:
    """Call a function in a thread; returns what waits for its result."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()

    def result() -> Any:
        thread.join(60)
        assert results, "it did not end, or it raised"
        return results[0]

    return result


# -- a traversal is worked off

LOOK = 4
"""The group; the journal's last entry; the traversal and what follows it; its nodes."""


def test_a_traversal_is_worked_off_in_the_order_of_its_graph_and_reported(
    state: Runtime,
    context: ActionContext,
    started: Callable[..., Ready],
    operations: Operations,
) -> None:
    answer = advanced(state, context, started(resources=CHAIN))

    assert operations.names == ["data", "database", "routing"]
    assert (answer["state"], answer["again"]) == ("COMPLETE", False)
    assert answer["outcome"]["status"] == "COMPLETE"
    assert answer["said"][0] == "Attach data to db_a: started"
    assert answer["said"][-1] == "Done: db_a is active"


def test_a_traversal_that_is_forgotten_while_a_call_works_on_it_is_unknown_from_then_on(
    state: Runtime, context: ActionContext, started: Callable[..., Ready], operations: Operations
) -> None:
    """A process that was frozen finds its group deleted, or its rehearsal forgotten."""
    operations.held["database"] = threading.Event()
    ready = started(resources=CHAIN)
    call = recovery.Advance(ready.traversal_id, "end")
    answer = in_background(lambda: call.run(context))
    operations.wait_for("database")

    store = state.database.for_project(Request(state, context).project_id)
    store.atomically(lambda tx: groups.forget(tx, group_id(store.project_id, "payments")))
    operations.held["database"].set()

    assert answer().error["code"] == "UNKNOWN_TRAVERSAL"


def test_a_stage_is_a_milestone_and_later_ones_are_not_waited_for(
    state: Runtime,
    context: ActionContext,
    started: Callable[..., Ready],
    operations: Operations,
) -> None:
    operations.held["database"] = threading.Event()
    ready = started(resources=CHAIN)

    answer = advanced(state, context, ready, Stage.MOVE_VOLUMES)

    assert (answer["state"], answer["again"]) == ("IN_PROGRESS", False)
    assert "outcome" not in answer
    operations.wait_for("database")  # no task of its own was needed for that
    operations.held["database"].set()
    assert advanced(state, context, ready)["state"] == "COMPLETE"
    assert operations.names == ["data", "database", "routing"]


def test_a_stage_that_is_worked_off_is_looked_at_once(
    state: Runtime, context: ActionContext, started: Callable[..., Ready], operations: Operations
) -> None:
    ready = started(resources=CHAIN)
    advanced(state, context, ready)

    with statements_of(state.database) as said:
        again = advanced(state, context, ready, Stage.ACTIVATE, hold=True)

    assert (again["state"], again["said"]) == ("COMPLETE", [])
    assert len(operations.all) == 3
    assert len(said) == LOOK, said


def test_a_stage_after_which_nothing_is_left_returns_the_outcome(
    state: Runtime, context: ActionContext, started: Callable[..., Ready], operations: Operations
) -> None:
    ready = started(resources=CHAIN)

    done = advanced(state, context, ready, Stage.UPDATE_STACK)

    assert (done["state"], done["outcome"]["status"]) == ("COMPLETE", "COMPLETE")
    own_chain = advanced(state, context, ready, Stage.UPDATE_STACK, hold=True)
    assert "outcome" not in own_chain, "its last stage is a task of its own in any case"


@pytest.mark.usefixtures("crowded")
def test_among_many_traversals_a_call_goes_on_to_the_end(
    state: Runtime,
    context: ActionContext,
    started: Callable[..., Ready],
    operations: Operations,
) -> None:
    operations.held["database"] = threading.Event()
    ready = started(resources=CHAIN)
    answer = in_background(lambda: advanced(state, context, ready, Stage.FENCE))
    operations.wait_for("database")
    own_chain = advanced(state, context, ready, Stage.MOVE_VOLUMES, hold=True)

    operations.held["database"].set()

    assert own_chain["state"] == "IN_PROGRESS", "each of its stages ends when it is done"
    assert answer()["outcome"]["status"] == "COMPLETE"
    assert operations.names == ["data", "database", "routing"]


@pytest.mark.usefixtures("crowded")
def test_among_many_traversals_a_failure_belongs_to_its_stage(
    state: Runtime,
    context: ActionContext,
    started: Callable[..., Ready],
    operations: Operations,
) -> None:
    error = {"code": "START_FAILED", "message": "it does not start"}
    operations.outcomes["database"] = [Outcome(error=error)]
    ready = started(resources=CHAIN)

    fenced = advanced(state, context, ready, Stage.FENCE)
    started_on = advanced(state, context, ready, Stage.ACTIVATE)

    assert (fenced["state"], "outcome" in fenced) == ("FAILED", False)
    assert isinstance(started_on, Result)
    assert "it does not start" in started_on.error["message"]


def test_another_goal_ends_the_work_on_this_one(
    state: Runtime,
    context: ActionContext,
    project: str,
    started: Callable[..., Ready],
    operations: Operations,
    remove: Callable[[], None],
) -> None:
    operations.held["data"] = threading.Event()
    ready = started(resources=CHAIN)
    answer = in_background(lambda: advanced(state, context, ready, Stage.MOVE_VOLUMES))
    operations.wait_for("data")

    remove()
    operations.held["data"].set()

    assert answer()["state"] == "SUPERSEDED"
    removal = Ready(f"removed-{project}", ready.node)
    assert advanced(state, context, removal)["state"] == "COMPLETE"
    assert Counter(operations.names) == {"data": 2}, "attached, and detached again"


# -- workers, in one process and in two


def test_two_calls_in_one_process_work_each_node_off_once(
    state: Runtime,
    context: ActionContext,
    advanced_anew: Callable[..., dict[str, Any]],
    started: Callable[..., Ready],
    operations: Operations,
) -> None:
    ready = started(resources=CHAIN)

    answers = together(2, lambda _: advanced_anew(state, ready))

    assert [answer["state"] for answer in answers] == ["COMPLETE"] * 2
    assert operations.names == ["data", "database", "routing"]


def test_a_second_trigger_of_a_node_in_the_same_process_adds_nothing(
    process: Callable[..., Runtime],
    state: Runtime,
    started: Callable[..., Ready],
) -> None:
    ready, workers = started(resources=DATA), process().workers
    go_on, runs = threading.Event(), []

    def wait(node: Ready) -> list[Ready]:
        runs.append(node)
        assert go_on.wait(60)
        return []

    assert workers.submit("g", ready, wait, no_need) is True
    assert workers.submit("g", ready, wait, no_need) is False
    ended = workers.ended()
    go_on.set()
    workers.wait("g", ended, 60)

    assert runs == [ready]
    assert workers.busy("g") == 0
    assert workers.submit("g", ready, wait, no_need) is True, "it may be triggered again later"


@pytest.mark.parametrize("others", [1, 3])
def test_calls_in_several_processes_carry_each_operation_out_once(
    process: Callable[..., Runtime],
    advanced_anew: Callable[..., dict[str, Any]],
    started: Callable[..., Ready],
    operations: Operations,
    others: int,
) -> None:
    ready = started(resources={**CHAIN, "logs": volume("logs")})
    processes = [process() for _ in range(others + 1)]

    answers = together(len(processes), lambda which: advanced_anew(processes[which], ready))

    assert {answer["state"] for answer in answers} == {"COMPLETE"}
    assert Counter(operations.names) == dict.fromkeys(["data", "database", "routing", "logs"], 1)


def test_operations_that_do_not_wait_for_each_other_run_side_by_side(
    state: Runtime, context: ActionContext, started: Callable[..., Ready], operations: Operations
) -> None:
    operations.held = {"data": threading.Event(), "logs": threading.Event()}
    ready = started(resources={**DATA, "logs": volume("logs")})
    answer = in_background(lambda: advanced(state, context, ready))

    operations.wait_for("data")
    operations.wait_for("logs")
    for event in operations.held.values():
        event.set()

    assert answer()["state"] == "COMPLETE"
    assert operations.most_at_once == 2


def test_a_full_pool_delays_work_and_breaks_nothing(
    process: Callable[..., Runtime],
    context: ActionContext,
    started: Callable[..., Ready],
    operations: Operations,
) -> None:
    names = [f"volume{number}" for number in range(4)]
    ready = started(resources={name: volume(name) for name in names})

    answer = advanced(process(parallel_operations=1), context, ready)

    assert answer["state"] == "COMPLETE"
    assert sorted(operations.names) == names
    assert operations.most_at_once == 1


# -- the budgets of services


def held_volumes(operations: Operations, *names: str) -> dict[str, Any]:
    """Volumes whose operations the test holds."""
    operations.held |= {name: threading.Event() for name in names}
    return {name: volume(name) for name in names}


def lock_owners(state: Runtime, ready: Ready) -> Counter[bool]:
    """How many nodes of a traversal have a lock, and how many have none."""
    rows = state.database.reading(lambda tx: tx.progress(ready.traversal_id))
    return Counter(row.owner is not None for row in rows if row.status == "WAITING")


@pytest.mark.parametrize("service", ["nova", "cinder"])
def test_what_finds_no_budget_starts_when_another_operation_ends(
    state: Runtime,
    process: Callable[..., Runtime],
    context: ActionContext,
    started: Callable[..., Ready],
    operations: Operations,
    service: str,
) -> None:
    names = [f"volume{number}" for number in range(4)]
    properties = {"member": ACTIVE, "start": "on", "stop": "off"}
    application = {"database": {"type": "activation", "properties": properties}}
    ready = started(resources={**held_volumes(operations, *names), **application})
    limited = process(**{f"{service}_operations": 2})
    answer = in_background(lambda: advanced(limited, context, ready))

    operations.wait_for("database")  # which needs no budget
    with operations.began:
        assert operations.began.wait_for(lambda: len(operations.all) == 3, 60)
    time.sleep(0.2)
    assert len(operations.all) == 3
    assert lock_owners(state, ready) == {True: 2, False: 2}, "what waits holds no lock"
    for event in operations.held.values():
        event.set()

    assert answer()["state"] == "COMPLETE"
    assert Counter(operations.names) == dict.fromkeys([*names, "database"], 1)
    assert operations.most_at_once <= 3


def test_a_group_of_higher_priority_gets_the_next_free_budget(
    process: Callable[..., Runtime],
    context: ActionContext,
    advanced_anew: Callable[..., dict[str, Any]],
    project: str,
    serve: Callable[..., str],
    operations: Operations,
    state: Runtime,
) -> None:
    serve("low", resources=held_volumes(operations, "first", "last"), priority=1)
    serve("high", resources=held_volumes(operations, "next"), priority=2)
    limited = process(nova_operations=1)

    def follow(name: str) -> Callable[[], Any]:
        identity = groups.group_id(project, name)
        found = state.database.reading(lambda tx: groups.get(tx, identity))
        traversal = str(found.current_traversal if found else None)
        ready = Ready(traversal, ready_nodes(state, traversal)[0])
        return in_background(lambda: advanced_anew(limited, ready))

    low = follow("low")
    with operations.began:
        assert operations.began.wait_for(lambda: len(operations.all) == 1, 60)
    identity = groups.group_id(project, "high")
    high = follow("high")
    deadline = time.monotonic() + 60
    while not limited.workers.busy(identity) and time.monotonic() < deadline:
        time.sleep(0.01)
    for event in operations.held.values():
        event.set()

    assert (low()["state"], high()["state"]) == ("COMPLETE", "COMPLETE")
    assert operations.names[1] == "next"


def test_a_process_that_stops_drops_what_waits_for_a_budget(
    process: Callable[..., Runtime],
    context: ActionContext,
    advanced_anew: Callable[..., dict[str, Any]],
    started: Callable[..., Ready],
    operations: Operations,
) -> None:
    ready = started(resources=held_volumes(operations, "one", "two"))
    stopping = process(nova_operations=1)
    answer = in_background(lambda: advanced(stopping, context, ready))
    with operations.began:
        assert operations.began.wait_for(lambda: operations.all, 60)
    stopped = in_background(lambda: stopping.workers.hand_back(60.0))
    deadline = time.monotonic() + 60
    while not stopping.workers.stopping and time.monotonic() < deadline:
        time.sleep(0.01)

    for event in operations.held.values():
        event.set()

    assert stopped() is True
    assert answer()["again"] is True
    assert len(operations.all) == 1
    assert advanced_anew(process(), ready)["state"] == "COMPLETE"


def test_what_waits_starts_by_itself_when_the_service_wants_to_be_asked_again(
    process: Callable[..., Runtime], begun: Ready
) -> None:
    workers, ran = process().workers, threading.Event()
    need = Need("p", ("Nova",))

    def run(_node: Ready) -> list[Ready]:
        ran.set()
        return []

    workers.submit("g", begun, run, lambda _: need)  # so that the budget exists
    assert ran.wait(60)
    workers.settle("g", 60)
    ran.clear()

    workers.overloaded("p", "Nova", 2.0)
    workers.submit("g", begun, run, lambda _: need)

    assert not ran.wait(0.1)
    assert workers.busy("g") == 1
    assert ran.wait(60)


# -- locks and leases


def test_an_outcome_survives_a_database_that_is_away_for_a_moment(
    state: Runtime,
    context: ActionContext,
    started: Callable[..., Ready],
    operations: Operations,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    conclude, refused = state.engine.conclude, []

    def away(ticket: Ticket, outcome: Outcome) -> Step:
        if len(refused) < 2:
            refused.append(ticket)
            raise sa.exc.OperationalError("UPDATE", {}, Exception("the server has gone away"))
        return conclude(ticket, outcome)

    monkeypatch.setattr(state.engine, "conclude", away)

    answer = advanced(state, context, started(resources=DATA))

    assert len(refused) == 2
    assert answer["state"] == "COMPLETE"
    assert operations.names == ["data"], "and it is not repeated"


def test_an_operation_that_lost_its_lease_is_given_up_and_taken_up_again(
    state: Runtime, context: ActionContext, started: Callable[..., Ready], operations: Operations
) -> None:
    operations.outcomes["data"] = [LOST]
    ready = started(resources=DATA)

    answer = advanced(state, context, ready)

    given_up = "Attach data to db_a: abandoned, its lease was lost during the operation"
    assert given_up in answer["said"]
    first, again = operations.all
    assert again["key"] == first["key"]
    assert (first["unknown"], again["unknown"]) == (False, True)
    assert again["ticket"]["lock"]["token"] > first["ticket"]["lock"]["token"]
    record = record_of(state, ready)
    assert (record.status, record.owner, record.generation) == ("COMPLETE", None, 1)


def test_a_worker_that_lost_its_lock_to_another_gives_up_nothing(
    state: Runtime,
    context: ActionContext,
    started: Callable[..., Ready],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ready = started(resources=DATA)

    def robbed(_request: Any, _guard: Any, _function: str, operation: Any) -> Outcome:
        lock = operation["ticket"]["lock"]
        forced = locks.BreakLock(
            lock["resource_id"], lock["owner"], force=True, because="it is frozen"
        ).run(context)
        assert forced["broken"], forced
        assert state.engine.check(ready, "another worker").operation is not None
        return LOST

    monkeypatch.setattr(worker, "carried_out", robbed)

    became_ready = work(state, context, ready)

    assert became_ready == []
    record = record_of(state, ready)
    assert (record.owner, record.status) == ("another worker", "IN_PROGRESS")
    assert told(context, "given_up") == []


def test_a_dead_worker_s_operation_is_taken_up_once_its_lease_is_over(
    state: Runtime, context: ActionContext, started: Callable[..., Ready], operations: Operations
) -> None:
    ready = started(resources=DATA)
    died = state.engine.check(ready, "a dead worker").operation
    assert died is not None
    soon = resources.update().where(resources.c.id == ready.node.resource_id)
    state.database.atomically(lambda tx: tx.execute(soon.values(lease_until=tx.clock() + 0.5)))

    answer = advanced(state, context, ready)

    assert answer["state"] == "COMPLETE"
    (operation,) = operations.all
    assert (operation["key"], operation["unknown"]) == (died.ticket.key, True)


# -- what failed, and what waits


@pytest.mark.parametrize(("blocked", "state_of_it"), [(False, "FAILED"), (True, "BLOCKED")])
def test_a_stage_that_failed_says_so_and_finish_works_off_what_does_not_depend_on_it(
    state: Runtime,
    context: ActionContext,
    started: Callable[..., Ready],
    operations: Operations,
    blocked: bool,
    state_of_it: str,
) -> None:
    error = {"code": "VOLUME_ERROR", "message": "data can not be attached"}
    operations.outcomes["data"] = [Outcome(error=error, blocked=blocked)]
    ready = started(workflow="house.chain", resources=TWO)

    failed = advanced(state, context, ready, Stage.MOVE_VOLUMES, hold=True)

    assert isinstance(failed, Result)
    assert (failed.error["code"], failed.error["state"]) == (state_of_it, state_of_it)
    assert "data can not be attached" in failed.error["message"]
    assert failed.error["traversal"] == ready.traversal_id
    assert sorted(operations.names) == ["data", "logs"]

    finished = advanced(state, context, ready)

    assert isinstance(finished, Result)
    assert finished.error["code"] == state_of_it
    assert finished.error["report"]["status"] == state_of_it
    assert operations.names[2:] == ["shipper"]


def test_what_passes_by_itself_is_waited_out_and_tried_again_under_the_same_key(
    state: Runtime, context: ActionContext, started: Callable[..., Ready], operations: Operations
) -> None:
    operations.outcomes["data"] = [AWAY]

    answer = advanced(state, context, started(resources=DATA))

    assert answer["state"] == "COMPLETE"
    first, again = operations.all
    assert (again["key"], again["unknown"]) == (first["key"], True)
    assert len(told(context, "waiting")) == 1


@pytest.mark.usefixtures("impatient")
def test_a_call_whose_process_has_nothing_to_do_gives_its_thread_back(
    state: Runtime,
    context: ActionContext,
    started: Callable[..., Ready],
    operations: Operations,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operations.outcomes["data"] = [AWAY]
    ready = started(resources=DATA)

    answer = advanced(state, context, ready)

    assert answer == {
        "traversal": ready.traversal_id,
        "state": "IN_PROGRESS",
        "said": [],
        "again": True,
        "outcome": None,
    }
    monkeypatch.undo()
    monkeypatch.setattr(worker, "carried_out", operations.run)
    assert advanced(state, context, ready)["state"] == "COMPLETE"


@pytest.mark.usefixtures("operations")
def test_one_whose_state_store_is_away_keeps_it_for_mistral_could_not_be_told_either(
    state: Runtime,
    context: ActionContext,
    started: Callable[..., Ready],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ready = started(resources=DATA)
    monkeypatch.setattr(advance, "POLL_LONGEST", 0.05)
    run, refused = state.database.run, iter(range(10))

    def away(function: Any, mode: Mode, transaction: Any) -> Any:
        if mode is Mode.READING and next(refused, None) is not None:
            raise OperationalError("SELECT", {}, sqlite3.OperationalError("locked"), True)
        return run(function, mode, transaction)

    monkeypatch.setattr(state.database, "run", away)

    answer = advanced(state, context, ready)

    assert (answer["state"], answer["again"], next(refused, None)) == ("COMPLETE", False, None)


@pytest.mark.usefixtures("impatient")
def test_so_does_one_that_waits_for_a_worker_of_another_process(
    state: Runtime,
    context: ActionContext,
    started: Callable[..., Ready],
    operations: Operations,
) -> None:
    ready = started(resources=DATA)
    assert state.engine.check(ready, "another process").operation is not None

    assert advanced(state, context, ready)["again"] is True
    assert operations.all == []
    assert record_of(state, ready).owner == "another process"


@pytest.mark.usefixtures("impatient")
def test_one_that_waits_for_its_own_worker_does_not(
    state: Runtime,
    context: ActionContext,
    started: Callable[..., Ready],
    operations: Operations,
) -> None:
    operations.held["data"] = threading.Event()
    ready = started(resources=DATA)
    answer = in_background(lambda: advanced(state, context, ready))
    operations.wait_for("data")

    time.sleep(0.5)
    operations.held["data"].set()

    assert answer()["state"] == "COMPLETE"


def test_a_node_that_can_not_be_looked_at_is_tried_again_after_a_rest(
    state: Runtime,
    context: ActionContext,
    started: Callable[..., Ready],
    operations: Operations,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check, broken = state.engine.check, threading.Event()
    looks: list[Ready] = []
    broken.set()

    def look(ready: Ready, owner: str) -> Step:
        looks.append(ready)
        if broken.is_set():
            raise OperationalError("SELECT 1", {}, Exception(2013, "lost connection"))
        return check(ready, owner)

    monkeypatch.setattr(state.engine, "check", look)
    ready = started(resources=DATA)
    answer = in_background(lambda: advanced(state, context, ready))

    until(lambda: looks)
    time.sleep(0.3)
    tried = len(looks)
    broken.clear()

    assert answer()["state"] == "COMPLETE"
    assert tried < 10, "not as fast as the processor can"


# -- stages that wait for their own task


def test_with_hold_later_stages_wait_for_their_own_task(
    state: Runtime, context: ActionContext, started: Callable[..., Ready], operations: Operations
) -> None:
    ready = started(workflow="house.chain", resources=CHAIN)

    for stage, names in (
        (Stage.FENCE, []),
        (Stage.QUIESCE, []),
        (Stage.MOVE_VOLUMES, ["data"]),
        (Stage.ACTIVATE, ["data", "database"]),
    ):
        answer = advanced(state, context, ready, stage, hold=True)
        assert (answer["state"], operations.names) == ("IN_PROGRESS", names)

    assert advanced(state, context, ready)["state"] == "COMPLETE"
    assert operations.names[2:] == ["routing"]


def test_a_conclusion_in_another_process_does_not_pass_the_gate_either(
    state: Runtime,
    process: Callable[..., Runtime],
    context: ActionContext,
    context_of: Callable[..., ActionContext],
    project: str,
    started: Callable[..., Ready],
    operations: Operations,
    advanced_anew: Callable[..., dict[str, Any]],
) -> None:
    operations.held["data"] = threading.Event()
    ready, other = started(workflow="house.chain", resources=CHAIN), process()
    elsewhere = in_background(lambda: advanced_anew(other, ready, Stage.MOVE_VOLUMES, hold=True))
    operations.wait_for("data")
    here = in_background(lambda: advanced(state, context, ready, Stage.MOVE_VOLUMES, hold=True))
    operations.held["data"].set()

    assert [answer()["state"] for answer in (here, elsewhere)] == ["IN_PROGRESS"] * 2

    (next_one,) = ready_nodes(other, ready.traversal_id)
    assert work(other, context_of(project), next_one) == []
    assert operations.names == ["data"]
    assert record_of(state, next_one).owner is None


def test_a_stage_that_was_opened_is_not_closed_by_a_late_call_for_an_earlier_one(
    state: Runtime, context: ActionContext, started: Callable[..., Ready], operations: Operations
) -> None:
    ready = started(workflow="house.chain", resources=CHAIN)
    advanced(state, context, ready, Stage.ACTIVATE, hold=True)

    answer = advanced(state, context, ready, Stage.FENCE, hold=True)

    assert answer["state"] == "IN_PROGRESS"
    traversal = state.engine.current(ready.traversal_id)
    assert traversal.through is not None
    assert operations.names == ["data", "database"]


# -- a process that stops


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let the application's start ask the cloud again and again until its guard refuses; set when
    it began, and cleared to let the next start end at once."""
    began = threading.Event()
    ends = threading.Event()

    def perform(tools: Any, operation: dict[str, Any]) -> dict[str, Any]:
        if began.is_set():
            ends.set()
        while not ends.is_set():
            tools.cloud.guard.permit("GET")
            began.set()
            time.sleep(0.01)
        return {"physical_id": "p1"}

    monkeypatch.setattr(modules, "operation", lambda _type, _function: perform)
    monkeypatch.setattr(Request, "cloud", lambda self, guard: NoCloud(guard))
    monkeypatch.setattr(Request, "channel", lambda self, cloud, guard: None)
    return began


def test_work_that_a_stopping_process_gives_back_goes_on_at_once_in_another(
    state: Runtime,
    process: Callable[..., Runtime],
    context: ActionContext,
    advanced_anew: Callable[..., dict[str, Any]],
    project: str,
    started: Callable[..., Ready],
    endless: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopping = process()
    monkeypatch.setattr(base, "runtime", lambda: stopping)
    properties = {"member": ACTIVE, "start": "on", "stop": "off"}
    ready = started(resources={"database": {"type": "activation", "properties": properties}})
    answer = in_background(lambda: advanced(stopping, context, ready))
    assert endless.wait(60)

    assert stopping.workers.hand_back(30.0) is True

    assert answer()["again"] is True
    record = record_of(state, ready)
    assert (record.owner, record.status) == (None, "FAILED")
    assert told(context, "handed_back") == [
        "Start database on db_a: released, its process is stopping"
    ]
    group_id = groups.group_id(project, "payments")
    (found,) = state.database.for_project(project).reading(
        lambda tx: stalled_work.stalled(tx, group_id, 3600.0)
    )
    assert (found.traversal_id, found.dead) == (ready.traversal_id, None)

    monkeypatch.setattr(base, "runtime", lambda: state)
    before = time.monotonic()
    assert advanced_anew(state, ready)["state"] == "COMPLETE"
    assert time.monotonic() - before < state.settings.lease / 3, "no lease was waited for"
    assert told(context, "done") == ["Start database on db_a: done"]


def test_a_process_that_stopped_takes_no_work_until_it_starts_again(
    process: Callable[..., Runtime],
    context: ActionContext,
    started: Callable[..., Ready],
    operations: Operations,
) -> None:
    stopped = process()
    ready = started(resources=DATA)
    assert stopped.workers.hand_back(1.0) is False, "there was nothing to give back"

    assert advanced(stopped, context, ready)["again"] is True
    assert operations.all == []

    stopped.workers.reopen()
    assert advanced(stopped, context, ready)["state"] == "COMPLETE"


# -- workflows of the user


def leases(state: Runtime, ready: Ready) -> list[float]:
    """When the leases of a traversal's nodes end."""
    rows = state.database.reading(lambda tx: tx.progress(ready.traversal_id))
    return [row.lease_until or 0.0 for row in rows]


class UserWorkflows:
    """Stands for Mistral: executions of users' workflows, which run until a test ends them."""

    def __init__(self) -> None:
        self.started: Counter[str] = Counter()
        self.names: dict[str, str] = {}
        self.over = False
        self.all_run = threading.Condition()

    def outcome(self, execution: str) -> Any:
        if execution not in self.names:
            return None
        state = "SUCCESS" if self.over else "RUNNING"
        return api.Outcome(self.names[execution], state, {"physical_id": execution}, "")

    def start(self, execution: str, workflow: str, *_more: Any) -> None:
        with self.all_run:
            self.started[execution] += 1
            self.names[execution] = workflow
            self.all_run.notify_all()

    def namespace_of(self, _execution: str) -> str:
        return ""

    def wait_for(self, number: int) -> None:
        """Wait until so many run."""
        with self.all_run:
            assert self.all_run.wait_for(lambda: len(self.names) == number, 60)


def test_a_project_whose_workflows_run_for_long_leaves_threads_and_executors_to_others(
    state: Runtime,
    process: Callable[..., Runtime],
    context: ActionContext,
    context_of: Callable[..., ActionContext],
    started: Callable[..., Ready],
    operations: Operations,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(advance, "IN_TURN", 0.1)
    workflows = UserWorkflows()
    monkeypatch.setattr(user_workflows, "mistral_of", lambda *_: workflows)
    thing = {"type": "house", "properties": {"holder": ACTIVE}}
    long = started(resources={f"thing{number}": thing for number in range(5)})
    other = context_of("another project")
    short = started(by=other, resources=CHAIN)
    limited = process(parallel_operations=2, poll_first=0.01, lease=3.0, lease_margin=0.5)

    answer = advanced(limited, context, long)
    workflows.wait_for(5)
    assert answer["again"] is True, "a call gives its executor's thread back meanwhile"
    assert advanced(limited, other, short)["state"] == "COMPLETE"
    assert lock_owners(state, long) == {True: 5}, "what waits keeps its lock"
    begun = leases(state, long)
    until(lambda: min(leases(state, long)) > max(begun), "the leases were not renewed")

    assert limited.workers.hand_back(60)
    assert lock_owners(state, long) == {False: 5}, "another process need not wait for a lease"
    workflows.over = True
    assert advanced(process(poll_first=0.01), context, long)["state"] == "COMPLETE"
    assert set(workflows.started.values()) == {1}
    assert operations.names == ["data", "database", "routing"]
