# SPDX-License-Identifier: Apache-2.0
"""What a dead process left lying is found by the sweep and carried to its end."""

from __future__ import annotations

import time
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import orders
from mistral_failover.convergence.engine import Engine
from mistral_failover.convergence.records import Outcome, Step
from mistral_failover.runtime.request import DEFAULT_PROJECT
from mistral_failover.store import groups, views
from mistral_failover.store.tables import resources

pytestmark = pytest.mark.faults


def begin(group: Any, **facts: Any) -> dict[str, Any]:
    """Begin, as a process that died right after."""
    context = ActionContext(SecurityContext(), ExecutionContext())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group.state, "eager", False)
        answer = orders.Begin(group.name, **facts).run(context)
    assert isinstance(answer, dict), answer
    return answer


def take(group: Any, begun: dict[str, Any], lease: float) -> Step:
    """Take a node, as a process that dies before it carries the operation out."""
    engine = Engine(group.state.database, lease=lease)
    (ready,) = group.ready(begun)
    step = engine.check(ready, "a process that died")
    assert step.operation is not None
    return step


def test_a_traversal_without_a_worker_is_continued_by_the_sweep(group: Any) -> None:
    begun = begin(group, lost=[])

    run = group.run("sweep", group=group.name).assert_succeeded()

    assert restarted(run) == [begun["traversal"]]
    assert group.status()["status"] == "COMPLETE"
    assert group.holders() == ["db_a"]


def test_an_operation_of_a_dead_process_is_taken_up_once_its_lease_is_over(group: Any) -> None:
    begun = begin(group, lost=[])
    take(group, begun, lease=60.0)
    early = group.run("sweep", group=group.name).assert_succeeded()
    assert early.output["swept"]["restarted"] == []
    ends_now(group)

    run = group.run("sweep", group=group.name).assert_succeeded()

    assert restarted(run) == [begun["traversal"]]
    assert group.status()["status"] == "COMPLETE"
    assert group.holders() == ["db_a"]
    assert "broke the lock of a process that died, which is dead" in " ".join(told(group))


def test_the_late_result_of_the_dead_process_changes_nothing(group: Any) -> None:
    begun = begin(group, lost=[])
    step = take(group, begun, lease=0.05)
    assert step.operation is not None
    wait_for_the_end_of(group, step)
    group.run("sweep", group=group.name).assert_succeeded()

    late = Outcome(error={"code": "LATE", "message": "too late"})
    answer = group.state.engine.conclude(step.operation.ticket, late)

    assert "ignored" in answer.sentence
    assert group.status()["status"] == "COMPLETE"


def test_two_sweeps_at_once_carry_everything_out_once(group: Any) -> None:
    begin(group, lost=[])

    first = group.workflows.start("failover.sweep", {"group": group.name})
    second = group.workflows.start("failover.sweep", {"group": group.name})
    group.workflows.wait(first, timeout=20).assert_succeeded()
    group.workflows.wait(second, timeout=20).assert_succeeded()

    if group.status()["status"] != "COMPLETE":  # both bailed out of a race: the next one goes on
        group.run("sweep", group=group.name)
    assert group.status()["status"] == "COMPLETE"
    starts = [e for e in commands(group) if e["command"] == "start"]
    assert len(starts) == 1


def test_a_sweep_finds_nothing_where_everything_is_at_rest(group: Any) -> None:
    group.activate()

    run = group.run("sweep", group=group.name).assert_succeeded()

    run.assert_tasks("sweep")
    swept = run.output["swept"]
    assert not any(swept.values()), swept


def test_each_start_by_hand_outside_of_an_execution_is_an_occasion_of_its_own(group: Any) -> None:
    group.activate()

    one = begin(group, to="db_b", lost=[])
    other = begin(group, to="db_a", lost=[])

    assert one["traversal"] != other["traversal"]
    assert other["roles"] == {"active": "db_a"}


def restarted(run: Any) -> list[str]:
    """The traversals that a sweep took up."""
    return [row["traversal"] for row in run.output["swept"]["restarted"]]


def wait_for_the_end_of(group: Any, step: Step) -> None:
    """Until the lease of the operation's lock is over, by the database's clock."""
    assert step.operation is not None
    resource = step.operation.record.id

    def left(tx: Any) -> float:
        record = tx.record(resource)
        return float(record.lease_until - tx.now())

    while (seconds := group.state.database.reading(left)) >= 0:
        time.sleep(seconds + 0.001)


def ends_now(group: Any) -> None:
    """As if the time of the group's locks had passed."""
    over = resources.update().where(
        resources.c.lease_until.is_not(None),
        resources.c.group_id == groups.group_id(DEFAULT_PROJECT, group.name),
    )
    store = group.state.database
    store.atomically(lambda tx: tx.execute(over.values(lease_until=tx.clock() - 1.0)))


def told(group: Any) -> list[str]:
    """The group's journal."""
    identity = groups.group_id(DEFAULT_PROJECT, group.name)
    rows = group.state.database.reading(lambda tx: views.history(tx, identity, limit=1000))
    return [row["sentence"] for row in rows]


def commands(group: Any) -> list[dict[str, Any]]:
    """The commands that were started on the group's members."""
    servers = {group.server(member) for member in ("db_a", "db_b")}
    return [e for e in group.cloud.audit(kind="command_started") if e["server"] in servers]
