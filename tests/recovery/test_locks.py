# SPDX-License-Identifier: Apache-2.0
"""Locks: who holds them, and what becomes of one that a person breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import locks
from mistral_failover.cloud.transport import LeaseLost
from mistral_failover.convergence.records import Lock, Ready
from mistral_failover.runtime.lease_guard import LeaseGuard
from mistral_failover.runtime.process import Runtime
from mistral_failover.store import views
from mistral_failover.store.leases import LeaseKeeper
from mistral_failover.store.tables import journal, resources
from support.driving import conclude, handed_out, ready_nodes
from support.rows import rows


@pytest.fixture
def operation(state: Runtime, begun: Ready, context: ActionContext) -> dict[str, Any]:
    """The operation of ``begun``, handed out: its lock is held."""
    return handed_out(state, context, begun)


@pytest.fixture
def die(state: Runtime, begun: Ready) -> Callable[[], None]:
    """Let the lease of the lock be over."""

    def end() -> None:
        state.database.atomically(
            lambda tx: tx.execute(
                resources.update()
                .where(resources.c.id == begun.node.resource_id)
                .values(lease_until=tx.clock() - 5)
            )
        )

    return end


def listed(context: ActionContext, group: str | None = None) -> list[dict[str, Any]]:
    rows = locks.Locks(group).run(context)
    assert not isinstance(rows, Result), rows.error
    return list(rows)


def broken(context: ActionContext, resource: str, owner: str, **more: Any) -> Any:
    answer = locks.BreakLock(resource, owner, **more).run(context)
    return answer.error if isinstance(answer, Result) else answer


def test_a_live_lock_is_listed_with_its_owner_and_operation(
    operation: dict[str, Any], begun: Ready, context: ActionContext
) -> None:
    (row,) = listed(context, "payments")

    ticket = operation["ticket"]
    assert (row["owner"], row["token"]) == (ticket["lock"]["owner"], ticket["lock"]["token"])
    assert (row["operation"], row["traversal"]) == (ticket["key"], begun.traversal_id)
    assert (row["resource"], row["group"], row["alive"]) == ("thing", "payments", True)
    assert row["why"].startswith("its lease lasts ")
    assert row["execution"]["id"] == row["owner"].partition("/")[0]
    assert row["since"] is not None
    assert [each["id"] for each in listed(context)] == [row["id"]]


def test_a_dead_owner_s_lock_is_broken_and_its_node_is_ready(
    state: Runtime,
    operation: dict[str, Any],
    die: Callable[[], None],
    begun: Ready,
    context: ActionContext,
    context_of: Callable[..., ActionContext],
    project: str,
) -> None:
    die()
    (row,) = listed(context)
    assert row["alive"] is False

    answer = broken(context, row["id"][:8], row["owner"], because="its host burned")

    assert answer["broken"] is True
    assert (answer["traversal"], answer["workflow"]) == (begun.traversal_id, "failover.converge")
    assert ready_nodes(state, begun.traversal_id) == [begun]
    record = state.database.reading(lambda tx: tx.record(begun.node.resource_id))
    assert record is not None
    assert (record.owner, record.token, record.status) == (None, row["token"] + 1, "FAILED")
    assert "its host burned" in record.reason
    group_id = record.group_id
    told = state.database.reading(lambda tx: views.history(tx, group_id))[-1]
    assert told["kind"] == "broken"
    assert "an unknown user" in told["sentence"]
    again = broken(context, row["id"], row["owner"])
    assert (again["broken"], again["workflow"]) == (False, "failover.converge")
    taken = handed_out(state, context_of(project), begun)
    assert taken["unknown"] is True
    late = broken(context, row["id"], row["owner"])
    assert late["broken"] is False
    assert "has worked on it" in late["sentence"]
    written = rows(state.database, journal, "id")[told["id"]]
    assert (written["owner"], written["token"]) == (row["owner"], row["token"])
    assert broken(context, row["id"], row["owner"][:-1])["code"] == "LOCK_MOVED"
    assert len(listed(context)) == 1


def test_a_live_owner_s_lock_takes_force_and_force_a_reason(
    operation: dict[str, Any], begun: Ready, context: ActionContext
) -> None:
    owner, resource = operation["ticket"]["lock"]["owner"], begun.node.resource_id

    assert broken(context, resource, owner)["code"] == "LOCK_ALIVE"
    assert broken(context, resource, owner, force=True)["code"] == "BAD_INPUT"
    assert broken(context, resource, "somebody else")["code"] == "LOCK_MOVED"
    assert broken(context, resource, owner, token=99)["code"] == "LOCK_MOVED"
    assert len(listed(context)) == 1


def test_an_owner_that_lost_its_lock_makes_no_call_and_concludes_nothing(
    state: Runtime, operation: dict[str, Any], begun: Ready, context: ActionContext
) -> None:
    ticket = operation["ticket"]
    lock = Lock(**{**ticket["lock"], "resource_id": begun.node.resource_id})
    with LeaseKeeper(state.database).hold(lock) as lease:
        guard = LeaseGuard(lease, margin=2.0)
        guard.permit("POST")

        answer = broken(context, begun.node.resource_id, lock.owner, force=True, because="frozen")

        assert answer["broken"] is True
        with pytest.raises(LeaseLost):
            guard.permit("POST")
    assert "ignored" in conclude(state, operation).sentence
    with state.database.engine.connect() as connection:
        query = sa.select(resources.c.physical_id).where(resources.c.id == begun.node.resource_id)
        assert connection.execute(query).scalar_one() is None
