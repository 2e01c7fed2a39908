# SPDX-License-Identifier: Apache-2.0
"""What a sweep does about alarms whose failover could not be started for long, and about nodes
that no worker works on."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import alarms, recovery
from mistral_failover.actions import reports as report_actions
from mistral_failover.convergence.records import Ready, Record
from mistral_failover.model.alarm_fact import AlarmFact
from mistral_failover.model.decisions import Decision
from mistral_failover.recovery import sweep as sweeping
from mistral_failover.runtime.budgets import Need
from mistral_failover.runtime.process import Runtime
from mistral_failover.store import groups
from mistral_failover.store import incidents as incident_store
from mistral_failover.store.tables import incidents, journal, operations, resources, traversals
from support.driving import ready_nodes
from support.together import together
from support.unreadable import unreadable

EVENT = {"message_id": "m1", "traits": [["instance_id", 1, "s-a"]]}
ALARM = {
    "alarm_name": "lost",
    "alarm_id": "a1",
    "previous": "ok",
    "current": "alarm",
    "reason_data": {"type": "event", "event": EVENT},
}


@pytest.fixture
def stuck(state: Runtime, begun: Ready, context: ActionContext) -> Callable[[float], str]:
    """Admit an alarm that can not be started, as no cloud is configured, and let it grow old."""

    def make(age: float) -> str:
        assert alarms.Admit(ALARM).run(context).error["code"] == "CONFIG"
        (incident,) = report_actions.Status("payments").run(context)["incidents"]
        aged = incidents.update().where(incidents.c.id == incident["id"])
        times = ("first_at", "last_at", "decided_at")
        state.database.atomically(
            lambda tx: tx.execute(aged.values(dict.fromkeys(times, tx.now() - age)))
        )
        return str(incident["id"])

    return make


def sweep(context: ActionContext) -> tuple[list[str], dict[str, Any]]:
    """The incidents that a sweep was refused, and how the group's one incident stands then."""
    swept = recovery.Sweep("payments").run(context)
    assert swept["started"] == []
    (incident,) = report_actions.Status("payments").run(context)["incidents"]
    return [row["incident"] for row in swept["refused"]], incident


def test_an_alarm_is_tried_again_as_long_as_it_is_fresh(
    stuck: Callable[[float], str], context: ActionContext
) -> None:
    identity = stuck(sweeping.STALE - 60)

    refused, incident = sweep(context)

    assert refused == [identity]
    assert incident["decision"] == "ADMITTED"


def test_many_alarms_are_left_to_those_who_start_them_batch_by_batch(
    stuck: Callable[[float], str],
    state: Runtime,
    context: ActionContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    identity = stuck(60.0)
    monkeypatch.setattr(sweeping.alarm_failovers, "BATCH", 0)
    monkeypatch.setattr(state, "settings", replace(state.settings, sweep_after=30.0))
    assert sweep(context)[0] == [], "a traversal has just started"

    earlier = traversals.update().values(started_at=traversals.c.started_at - 31)
    state.database.atomically(lambda tx: tx.execute(earlier))

    assert sweep(context)[0] == [identity]


def test_an_old_order_that_did_not_start_changes_nothing_about_that(
    stuck: Callable[[float], str],
    state: Runtime,
    begun: Ready,
    project: str,
    context: ActionContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stuck(60.0)
    monkeypatch.setattr(sweeping.alarm_failovers, "BATCH", 0)
    monkeypatch.setattr(state, "settings", replace(state.settings, sweep_after=30.0))
    group_id, order = groups.group_id(project, "payments"), str(uuid.uuid4())
    fact = AlarmFact("payments")

    def died(tx: Any) -> None:
        incident_store.add(
            tx,
            incident_store.Incident(
                order, project, group_id, "operator", fact, {}, Decision.ADMITTED, "by hand"
            ),
        )
        old = incidents.update().where(incidents.c.id == order)
        tx.execute(old.values(number=0, decided_at=tx.now() - 2 * sweeping.BUSY))

    state.database.atomically(died)

    assert recovery.Sweep("payments").run(context)["refused"] == []


def test_many_alarms_are_not_left_for_long(
    stuck: Callable[[float], str], context: ActionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = stuck(sweeping.BUSY + 1)
    monkeypatch.setattr(sweeping.alarm_failovers, "BATCH", 0)

    assert sweep(context)[0] == [identity]


def test_an_alarm_that_could_not_be_started_for_long_waits_for_a_person(
    stuck: Callable[[float], str], context: ActionContext
) -> None:
    stuck(sweeping.STALE + 1)

    refused, incident = sweep(context)

    assert refused == []
    assert incident["decision"] == "HELD"
    assert "it could not be started for 10 minutes: " in incident["sentence"], "and why"
    kinds = [row["kind"] for row in report_actions.History("payments").run(context)]
    assert kinds.count("held") == 1
    assert sweep(context) == ([], incident), "once"


@pytest.fixture
def replacing(state: Runtime, begun: Ready) -> Callable[..., None]:
    """db_b is being replaced, by somebody who lives; or it was, until ``ended`` seconds ago."""

    def make(*, ended: float | None = None) -> None:
        def write(tx: Any) -> None:
            record_id = str(uuid.uuid4())
            now, group_id = tx.now(), tx.traversal(begun.traversal_id).group_id
            tx.insert_records(
                (
                    Record(
                        record_id,
                        group_id,
                        "replace:db_b",
                        "group_member",
                        action="CREATE",
                        status="IN_PROGRESS" if ended is None else "COMPLETE",
                        properties={"member": "db_b", "server_id": "s-b"},
                        owner="somebody" if ended is None else None,
                        lease_until=now + 60 if ended is None else None,
                    ),
                ),
                now,
            )
            tx.insert(
                operations,
                key=record_id,
                group_id=group_id,
                resource_id=record_id,
                traversal_id="t",
                verb="create",
                goal_version="",
                status="started" if ended is None else "done",
                attempts=1,
                owner="somebody",
                token=1,
                intent={},
                started_at=now - 900,
                ended_at=None if ended is None else now - ended,
            )

        state.database.atomically(write)

    return make


def test_an_alarm_waits_for_the_end_of_a_replacement_however_long_that_takes(
    stuck: Callable[[float], str], replacing: Callable[..., None], context: ActionContext
) -> None:
    identity = stuck(sweeping.STALE + 300)
    replacing()

    refused, incident = sweep(context)

    assert refused == [identity]
    assert incident["decision"] == "ADMITTED"


@pytest.mark.parametrize(
    ("ago", "decision"), [(sweeping.STALE - 60, "ADMITTED"), (sweeping.STALE + 1, "HELD")]
)
def test_an_alarm_is_fresh_for_as_long_after_a_replacement_as_after_it_came(
    stuck: Callable[[float], str],
    replacing: Callable[..., None],
    context: ActionContext,
    ago: float,
    decision: str,
) -> None:
    stuck(sweeping.STALE + 300)
    replacing(ended=ago)

    assert sweep(context)[1]["decision"] == decision


def test_what_a_person_admitted_a_moment_ago_is_not_taken_back(
    stuck: Callable[[float], str], state: Runtime, context: ActionContext
) -> None:
    identity = stuck(sweeping.STALE + 1)
    just_now = incidents.update().where(incidents.c.id == identity)
    state.database.atomically(lambda tx: tx.execute(just_now.values(decided_at=tx.now())))

    refused, incident = sweep(context)

    assert refused == [identity]
    assert incident["decision"] == "ADMITTED"


def test_what_is_held_again_and_again_has_no_longer_sentence_each_time(
    stuck: Callable[[float], str], state: Runtime, context: ActionContext
) -> None:
    identity = stuck(sweeping.STALE + 1)
    _, first = sweep(context)
    again = incidents.update().where(incidents.c.id == identity)
    old = dict.fromkeys(("last_at", "decided_at"), incidents.c.decided_at - sweeping.STALE - 1)

    state.database.atomically(
        lambda tx: tx.execute(again.values(decision=Decision.ADMITTED, **old))
    )
    _, second = sweep(context)

    assert second["decision"] == "HELD"
    assert second["sentence"] == first["sentence"]


def test_it_is_admitted_when_it_is_said_again(
    stuck: Callable[[float], str], context: ActionContext
) -> None:
    identity = stuck(sweeping.STALE + 1)
    sweep(context)

    assert alarms.Admit(ALARM).run(context).error["code"] == "CONFIG"

    refused, incident = sweep(context)
    assert refused == [identity]
    assert incident["decision"] == "ADMITTED"


def test_an_alarm_whose_group_was_taken_out_of_service_waits_for_a_person_at_once(
    stuck: Callable[[float], str], remove: Callable[[], None], context: ActionContext
) -> None:
    stuck(1)
    remove()

    refused, incident = sweep(context)

    assert (refused, incident["decision"]) == ([], "HELD")
    assert incident["sentence"].endswith("payments has been taken out of service")


# -- traversals without a worker


@pytest.fixture
def patient(state: Runtime, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """A traversal has no worker if nothing was recorded in it for a minute."""
    monkeypatch.setattr(state, "settings", replace(state.settings, sweep_after=60.0))
    return state


def age(state: Runtime, project: str, seconds: float) -> None:
    """Let what the journal says have been said earlier."""
    mine = journal.c.group_id == groups.group_id(project, "payments")
    earlier = journal.update().where(mine).values(at=journal.c.at - seconds)
    state.database.atomically(lambda tx: tx.execute(earlier))


def told(context: ActionContext, kind: str) -> list[str]:
    rows = report_actions.History("payments").run(context)
    return [row["sentence"] for row in rows if row["kind"] == kind]


def test_a_traversal_is_left_alone_until_it_was_quiet_for_long(
    patient: Runtime, begun: Ready, context: ActionContext, project: str
) -> None:
    found = recovery.Sweep().run(context)
    assert (found["restarted"], found["chains"]) == ([], [])

    age(patient, project, 61.0)

    found = recovery.Sweep().run(context)
    chain = {"traversal": begun.traversal_id, "workflow": "failover.converge"}
    sentence = "thing: continued by a sweep, because no worker carries it out"
    assert found["restarted"] == [{**chain, "group": "payments", "sentence": sentence}]
    assert found["chains"] == [chain]
    assert told(context, "sweep") == [sentence]


def test_the_chain_that_the_group_file_names_is_started(
    state: Runtime, started: Callable[..., Ready], context: ActionContext
) -> None:
    ready = started(workflow="house.chain")

    found = recovery.Sweep().run(context)

    assert found["chains"] == [{"traversal": ready.traversal_id, "workflow": "house.chain"}]


def test_held_alarms_are_judged_though_a_group_can_not_be_read_any_more(
    state: Runtime,
    started: Callable[..., Ready],
    stuck: Callable[[float], str],
    context: ActionContext,
    project: str,
) -> None:
    stuck(700.0)
    assert len(recovery.Sweep().run(context)["held"]) == 1
    started("accounts")

    with unreadable(state.database, project, "accounts"):
        found = recovery.Sweep().run(context)

    assert [each for each in found["unable"] if each.startswith("held alarms")] == []


def test_a_group_whose_file_can_not_be_read_any_more_does_not_keep_a_sweep_from_the_others(
    state: Runtime, started: Callable[..., Ready], context: ActionContext, project: str
) -> None:
    started("accounts")
    ready = started()

    with unreadable(state.database, project, "accounts"):
        found = recovery.Sweep().run(context)

    assert found["chains"] == [{"traversal": ready.traversal_id, "workflow": "failover.converge"}]
    (sentence,) = (each for each in found["unable"] if "accounts" in each)
    assert sentence.startswith("accounts: fence")


def defective(*_args: Any, **_more: Any) -> Any:
    raise TypeError("unsupported operand")


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ((sweeping, "retry_held"), "held alarms"),
        ((sweeping, "_incidents"), "admitted alarms"),
        ((sweeping, "retry_stopped"), "stopped steps"),
        ((sweeping, "mistral_of"), "The request to Mistral failed"),
        ((sweeping, "_reopened"), "confirmed fences"),
        ((sweeping, "chain_of"), "payments"),
    ],
    ids=lambda each: each if isinstance(each, str) else None,
)
def test_a_defect_in_one_part_of_a_sweep_does_not_stop_the_others(
    started: Callable[..., Ready],
    context: ActionContext,
    monkeypatch: pytest.MonkeyPatch,
    part: tuple[Any, str],
    said: str,
) -> None:
    ready = [started(), started("accounts")]
    monkeypatch.setattr(*part, defective)

    swept = recovery.Sweep().run(context)

    taken = {row["traversal"] for row in swept["restarted"]}
    if part[1] != "chain_of":
        assert taken == {each.traversal_id for each in ready}
    assert any(each.startswith(said) for each in swept["unable"]), swept["unable"]


def test_starts_that_take_long_leave_time_for_blocked_volumes(
    begun: Ready, context: ActionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = []
    monkeypatch.setattr(sweeping, "LASTS", 5.0)

    def slow(*_: Any) -> Any:
        time.sleep(0.2)
        return {"started": [], "held": [], "refused": []}

    monkeypatch.setattr(sweeping, "_incidents", slow)
    monkeypatch.setattr(
        sweeping, "retry_stopped", lambda _request, _group, end: ends.append(end) or []
    )
    before = time.monotonic()

    recovery.Sweep().run(context)

    assert ends[0] >= before + 0.2 + sweeping.LASTS - 0.05


def test_many_ready_nodes_of_a_traversal_are_one_chain(
    state: Runtime, context: ActionContext, project: str, serve: Callable[..., str]
) -> None:
    thing = {"type": "house", "properties": {"holder": {"get_param": "active"}}}
    serve("payments", resources={"one": thing, "two": thing})

    found = recovery.Sweep().run(context)

    assert len(ready_nodes(state, found["chains"][0]["traversal"])) == 2
    assert len(found["chains"]) == len(found["restarted"]) == 1


def test_starts_that_take_long_are_left_to_the_next_sweep(
    stuck: Callable[[float], str], context: ActionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck(60.0)
    monkeypatch.setattr(sweeping, "LASTS", -1.0)

    found = recovery.Sweep("payments").run(context)

    assert found["refused"] == []
    assert any("next sweep" in each for each in found["unable"])


@pytest.fixture
def queued(state: Runtime, begun: Ready, project: str) -> Iterator[None]:
    """The node waits for its turn in this process, which has no free thread."""
    group_id, turn = groups.group_id(project, "payments"), threading.Event()

    def work(_: Ready) -> Iterable[Ready]:
        turn.wait()
        return ()

    state.workers.submit(group_id, begun, work, lambda _: Need())
    yield
    turn.set()
    state.workers.settle(group_id, 10.0)


def test_a_traversal_that_waits_for_its_turn_in_this_process_is_left_alone(
    state: Runtime, queued: None, context: ActionContext
) -> None:
    assert recovery.Sweep().run(context)["restarted"] == []


def test_an_operator_who_names_its_group_gets_another_chain(
    state: Runtime, queued: None, context: ActionContext
) -> None:
    assert len(recovery.Sweep("payments").run(context)["restarted"]) == 1


def test_of_many_sweeps_at_once_one_takes_a_traversal_up(
    patient: Runtime, begun: Ready, context: ActionContext, project: str
) -> None:
    age(patient, project, 61.0)

    reports = together(6, lambda _: recovery.Sweep().run(context))

    assert sum(len(report["chains"]) for report in reports) == 1
    assert len(told(context, "sweep")) == 1


def test_an_operator_need_not_wait_for_the_sweep_that_took_it_up_and_died(
    patient: Runtime, begun: Ready, context: ActionContext, project: str
) -> None:
    age(patient, project, 61.0)
    assert len(recovery.Sweep().run(context)["restarted"]) == 1

    assert recovery.Sweep().run(context)["restarted"] == []
    assert len(recovery.Sweep("payments").run(context)["restarted"]) == 1


def test_a_dead_owner_is_named(
    state: Runtime, begun: Ready, context: ActionContext, project: str
) -> None:
    state.engine.check(begun, "e/a@h:1")
    over = resources.update().where(resources.c.id == begun.node.resource_id)
    state.database.atomically(lambda tx: tx.execute(over.values(lease_until=tx.clock() - 1)))

    (row,) = recovery.Sweep("payments").run(context)["restarted"]

    expected = "thing: continued by a sweep, because the lease of e/a@h:1 expired"
    assert row["sentence"] == expected


def test_a_mistral_that_can_not_be_asked_does_not_keep_a_sweep_from_the_rest(
    state: Runtime, begun: Ready, context_of: Callable[..., ActionContext], project: str
) -> None:
    report = recovery.Sweep().run(context_of(project))

    (sentence,) = report["unable"]
    assert sentence.startswith("The request to Mistral failed: ")
    assert len(report["restarted"]) == 1
