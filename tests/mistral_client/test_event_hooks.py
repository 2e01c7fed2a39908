# SPDX-License-Identifier: Apache-2.0
"""A group's own workflow is told of events: each at least once, under an id that Mistral knows
again, and never at the cost of a failover."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from mistral_lib.actions.context import ActionContext

from cloud.conftest import server
from mistral_failover.actions import groups as group_actions
from mistral_failover.actions import recovery
from mistral_failover.convergence.records import JournalKind, Outcome, Ready
from mistral_failover.mistral import event_hooks
from mistral_failover.mistral.api import Mistral
from mistral_failover.mistral.event_hooks import STALE, event_id
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.group import parse_group
from mistral_failover.model.schemas import EVENTS
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups
from mistral_failover.store import hooks as store
from mistral_failover.store.tables import groups as group_table
from mistral_failover.store.tables import journal
from support.scripted_http import Request as Asked
from support.scripted_http import ScriptedServer

__all__ = ["server"]
HOOK = {"workflow": "house.tell"}


class Told:
    """A Mistral that starts what it does not know, as the real one does."""

    def __init__(self, server: ScriptedServer) -> None:
        self.started: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.refuses = False
        server.reply = self._reply

    def _reply(self, request: Asked) -> tuple[int, dict[str, str], Any]:
        if self.refuses:
            return 404, {}, {"faultstring": "Workflow not found [workflow_name=house.tell]"}
        body = request.body
        self.requests.append(body["id"])
        self.started.setdefault(body["id"], body)
        return 201, {}, {"id": body["id"], "state": "RUNNING"}

    @property
    def events(self) -> list[str]:
        """The events in the order in which they were first told."""
        return [body["input"]["event"]["event"] for body in self.started.values()]


@pytest.fixture
def told(state: Runtime, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> Told:
    """Mistral, which the actions find; what is told, the test says."""
    settings = replace(state.settings, mistral_url=f"{server.url}/v2", http_timeout=30.0)
    monkeypatch.setattr(state, "settings", settings)
    monkeypatch.setattr(event_hooks, "after", lambda request: store.take())
    return Told(server)


@pytest.fixture
def request_of(
    state: Runtime, context_of: Callable[..., ActionContext], project: str
) -> Callable[..., Request]:
    """A request of the project that finds Mistral without a token."""

    def make(of: str | None = None) -> Request:
        return Request(state, context_of(of or project, authenticated=False))

    return make


def tell(request: Request, project: str, group: str = "payments") -> list[dict[str, Any]]:
    identity = groups.group_id(project, group)
    return event_hooks.send(request, identity, time.monotonic() + 60)


def test_each_event_starts_the_workflow_once_with_what_happened(
    told: Told,
    request_of: Callable[..., Request],
    state: Runtime,
    started: Callable[..., Any],
    project: str,
) -> None:
    ready = started(on_event=HOOK)
    operation = state.engine.check(ready, "o").operation
    assert operation is not None
    state.engine.conclude(operation.ticket, Outcome(physical_id="p"))
    identity = groups.group_id(project, "payments")

    rows = tell(request_of(), project)

    assert told.events == ["started", "complete"]
    assert [row["event"] for row in rows] == ["started", "complete"]
    rows_of = sa.select(journal).where(journal.c.group_id == identity)
    written = state.database.reading(lambda tx: tx.connection.execute(rows_of).all())
    (complete,) = [row for row in written if row.kind == "complete"]
    body = told.started[event_id(identity, complete.id, complete.at)]
    assert body["workflow_name"] == "house.tell"
    assert json.loads(json.dumps(body["input"]))["event"] == {
        "id": complete.id,
        "group": "payments",
        "event": "complete",
        "sentence": "Done: db_a is active",
        "incident": None,
        "traversal": ready.traversal_id,
        "roles": {"active": "db_a"},
        "lost": [],
        "at": complete.at,
    }
    assert tell(request_of(), project) == []
    assert len(told.requests) == 2


def test_who_dies_after_telling_tells_again_under_the_same_id(
    told: Told,
    request_of: Callable[..., Request],
    state: Runtime,
    started: Callable[..., Any],
    project: str,
) -> None:
    started(on_event=HOOK)
    tell(request_of(), project)
    identity = groups.group_id(project, "payments")
    back = group_table.update().where(group_table.c.id == identity).values(told=0)
    state.database.atomically(lambda tx: tx.execute(back))

    tell(request_of(), project)

    assert len(told.requests) == 2
    assert len(told.started) == 1


def test_only_the_events_that_were_asked_for_are_told(
    told: Told,
    request_of: Callable[..., Request],
    state: Runtime,
    started: Callable[..., Any],
    project: str,
) -> None:
    ready = started(on_event={**HOOK, "events": ["failed"]})
    operation = state.engine.check(ready, "o").operation
    assert operation is not None
    error = {"code": "BROKEN", "message": "it broke", "remedy": "Repair it."}
    state.engine.conclude(operation.ticket, Outcome(error=error))

    tell(request_of(), project)

    assert told.events == ["failed"]


def test_a_refusal_is_written_down_once_and_told_later(
    told: Told,
    request_of: Callable[..., Request],
    state: Runtime,
    started: Callable[..., Any],
    project: str,
) -> None:
    started(on_event=HOOK)
    told.refuses = True
    for _ in range(2):
        (row,) = tell(request_of(), project)
        assert row["event"] is None
        assert "Workflow not found" in row["sentence"]
    kinds = sa.select(journal.c.sentence).where(
        journal.c.group_id == groups.group_id(project, "payments"),
        journal.c.kind == JournalKind.UNTOLD,
    )
    noted = state.database.reading(lambda tx: tx.connection.execute(kinds).scalars().all())
    assert noted == [row["sentence"]]
    own = state.database.for_project(project)
    waiting = own.reading(lambda tx: store.waiting(tx, quiet=0.0))
    assert waiting == [groups.group_id(project, "payments")]
    # A Mistral that sweeps by itself does not try the same in vain at every look.
    assert not own.reading(lambda tx: store.waiting(tx, quiet=0.0, stuck=False))
    told.refuses = False

    tell(request_of(), project)

    assert told.events == ["started"]


def test_a_sweep_tells_what_was_left_untold_and_only_in_its_project(
    told: Told,
    context_of: Callable[..., ActionContext],
    state: Runtime,
    started: Callable[..., Any],
    project: str,
) -> None:
    reach_the_goal(state, started(on_event=HOOK))

    elsewhere = recovery.Sweep().run(context_of("another", authenticated=False))
    assert (elsewhere["told"], told.events) == ([], [])
    swept = recovery.Sweep().run(context_of(project, authenticated=False))

    assert [row["event"] for row in swept["told"]] == ["started", "complete"]
    assert told.events == ["started", "complete"]


def test_a_sweep_that_finds_work_hands_it_out_before_anybody_is_told(
    told: Told,
    context_of: Callable[..., ActionContext],
    state: Runtime,
    started: Callable[..., Any],
    project: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Mistral answers nothing until the sweep is over."""
    over = threading.Event()
    start = Mistral.start

    def waits(*arguments: Any) -> None:
        assert over.wait(60)
        start(*arguments)

    monkeypatch.setattr(Mistral, "start", waits)
    ready = started(on_event=HOOK)

    swept = recovery.Sweep().run(context_of(project, authenticated=False))

    assert [row["traversal"] for row in swept["chains"]] == [ready.traversal_id]
    assert (swept["told"], told.events) == ([], [])
    over.set()
    deadline = time.monotonic() + 60
    while told.events != ["started"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_group_s_workflow_is_told_of_everything_before_the_group_is_forgotten(
    told: Told,
    context_of: Callable[..., ActionContext],
    define: Callable[..., str],
    state: Runtime,
    project: str,
) -> None:
    define(on_event=HOOK)
    identity = groups.group_id(project, "payments")
    state.database.atomically(lambda tx: tx.journal(identity, "a word", kind="held"))

    answer = group_actions.Undefine("payments").run(context_of(project, authenticated=False))

    assert answer["sentence"] == "payments was deleted"
    assert told.events == ["held"]


def test_a_workflow_that_can_not_be_told_keeps_no_group_from_being_forgotten(
    told: Told,
    context_of: Callable[..., ActionContext],
    define: Callable[..., str],
    state: Runtime,
    project: str,
) -> None:
    told.refuses = True
    define(on_event=HOOK)
    identity = groups.group_id(project, "payments")
    state.database.atomically(lambda tx: tx.journal(identity, "a word", kind="held"))

    answer = group_actions.Undefine("payments").run(context_of(project, authenticated=False))

    assert answer["sentence"] == "payments was deleted"


def reach_the_goal(state: Runtime, ready: Ready) -> None:
    operation = state.engine.check(ready, "o").operation
    assert operation is not None
    state.engine.conclude(operation.ticket, Outcome(physical_id="p"))


def test_no_event_goes_to_the_workflow_of_another_project(
    told: Told, request_of: Callable[..., Request], started: Callable[..., Any], project: str
) -> None:
    started(on_event=HOOK)

    assert tell(request_of("another"), project) == []
    assert told.requests == []


def test_what_happened_before_the_group_had_a_workflow_is_not_told(
    told: Told,
    request_of: Callable[..., Request],
    define: Callable[..., str],
    started: Callable[..., Any],
    remove: Callable[[], None],
    project: str,
) -> None:
    started()
    define(on_event=HOOK)
    tell(request_of(), project)
    assert told.events == []

    remove()
    tell(request_of(), project)

    assert told.events == ["started"]


def test_what_is_older_than_a_day_is_not_told(
    told: Told,
    request_of: Callable[..., Request],
    state: Runtime,
    started: Callable[..., Any],
    project: str,
) -> None:
    started(on_event=HOOK)
    mine = journal.c.group_id == groups.group_id(project, "payments")
    aged = journal.update().where(mine).values(at=journal.c.at - STALE - 1)
    state.database.atomically(lambda tx: tx.execute(aged))

    assert tell(request_of(), project) == []
    assert told.requests == []


def test_only_a_group_with_a_workflow_is_remembered_after_a_commit(
    state: Runtime, started: Callable[..., Any], define: Callable[..., str], project: str
) -> None:
    store.take()
    started()
    assert store.take() == frozenset()

    define("other", on_event=HOOK)
    identity = groups.group_id(project, "other")

    def happen(tx: Any) -> None:
        tx.lock_group(identity, shared=False)
        tx.journal(identity, "a word", kind="pause")
        tx.journal(identity, "held", kind="held")

    state.database.atomically(happen)

    assert store.take() == {identity}
    assert store.take() == frozenset()


def test_what_is_rolled_back_is_not_remembered(
    state: Runtime, define: Callable[..., str], project: str
) -> None:
    define(on_event=HOOK)
    identity = groups.group_id(project, "payments")
    store.take()

    def fail(tx: Any) -> None:
        tx.lock_group(identity, shared=False)
        tx.journal(identity, "held", kind="held")
        raise LookupError

    with pytest.raises(LookupError):
        state.database.atomically(fail)

    assert store.take() == frozenset()


def test_telling_goes_on_in_a_thread_of_its_own(
    told: Told,
    request_of: Callable[..., Request],
    started: Callable[..., Any],
    project: str,
) -> None:
    started(on_event=HOOK)
    teller = event_hooks.EventSender()

    teller.soon(request_of(), ["no such group", groups.group_id(project, "payments")])

    end = time.monotonic() + 60
    while told.events != ["started"]:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_the_events_are_those_that_a_group_file_may_name() -> None:
    assert tuple(store.EVENTS.values()) == EVENTS


def test_a_group_file_may_name_no_workflow_of_the_engine() -> None:
    document = {
        "failover_template_version": "2026-11-21",
        "stack": "s",
        "members": {"servers": ["a"]},
        "resources": {},
    }
    assert parse_group(document).on_event is None
    hook = parse_group({**document, "on_event": HOOK}).on_event
    assert hook is not None
    assert (hook.workflow, hook.events) == ("house.tell", EVENTS)

    with pytest.raises(InvalidDocument, match="private"):
        parse_group({**document, "on_event": {"workflow": "failover._chain"}})
    with pytest.raises(InvalidDocument):
        parse_group({**document, "on_event": {**HOOK, "events": ["never"]}})


def test_a_group_that_is_deleted_and_defined_again_is_told_of_everything_again(
    told: Told,
    request_of: Callable[..., Request],
    state: Runtime,
    started: Callable[..., Any],
    project: str,
) -> None:
    """It has the id that it had; the numbers of its sentences must not come once more."""
    identity = groups.group_id(project, "payments")
    for _ in range(2):
        started(on_event=HOOK)
        tell(request_of(), project)
        request_of().store.atomically(lambda tx: groups.forget(tx, identity))

    assert told.events == ["started", "started"]


def test_the_same_number_of_a_later_time_is_another_event() -> None:
    assert event_id("g", 1, 1000.0) == event_id("g", 1, 1000.0)
    assert event_id("g", 1, 1000.0) != event_id("g", 1, 1000.5)
