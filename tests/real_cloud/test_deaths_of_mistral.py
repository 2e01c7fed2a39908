# SPDX-License-Identifier: Apache-2.0
"""Mistral's own processes die in the middle of a failover, and it goes on.

Mistral loses the work of a process that dies; the sweep finds it in the state store.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from mistral_failover.store.tables import groups, operations
from testcloud import cloud
from testcloud.errors import CloudError
from testcloud.processes import Processes
from testcloud.settings import Settings
from testcloud.tenant import Protected, Tenant, until

pytestmark = pytest.mark.timeout(1200)
EXECUTORS = ("mistral-executor-1", "mistral-executor-2")
SWEEP_EVERY = 10.0


def owners(where: Settings, group: str) -> dict[str, str]:
    """Who carried out the operations of a group, by the ledger: the owner of each key."""
    engine = sa.create_engine(where.database_url("failover"))
    query = (
        sa.select(operations.c.key, operations.c.owner)
        .join(groups, groups.c.id == operations.c.group_id)
        .where(groups.c.name == group)
    )
    with engine.connect() as connection:
        return dict(connection.execute(query).tuples().all())


def pid_of(owner: str) -> int:
    """The process in an owner's words: execution/action@host:pid."""
    return int(owner.rpartition(":")[2])


def executor_of(where: Settings, pid: int) -> str:
    """The executor that a worker's process belongs to."""
    for name in EXECUTORS:
        found = Processes(where).find(name)
        if found is not None and pid in found.members():
            return name
    raise AssertionError(f"no executor has process {pid}")


def until_leaving(stack: Protected) -> dict[str, Any]:
    """Wait until something is being removed from who was active: quiesced or detached."""

    def look() -> dict[str, Any] | None:
        rows = stack.status()["under_way"]
        return next((row for row in rows if row["verb"] == "delete"), None)

    found: dict[str, Any] = until(look, "something to be removed", 60)
    return found


def sweep_until_moved(stack: Protected, first: str) -> str:
    """Sweep by hand until somebody else is active."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        try:
            return stack.wait_until_active(first, limit=SWEEP_EVERY)
        except CloudError as error:
            if error.code not in ("TOO_LATE", "MISTRAL"):  # its engine was killed just now
                raise
        with contextlib.suppress(CloudError):
            stack.tenant.start("failover.sweep", group=stack.name)
    raise AssertionError(stack.status())


@pytest.fixture
def swept(demo: Tenant) -> Iterator[None]:
    """The sweep as production runs it: a cron trigger of Mistral's, under a trust that it makes."""
    name = f"sweep-{uuid.uuid4().hex[:6]}"
    trigger = {"name": name, "workflow_name": "failover.sweep", "pattern": "* * * * *"}
    demo.mistral("POST", "cron_triggers", trigger)
    yield
    demo.mistral("DELETE", f"cron_triggers/{name}")


def move(stack: Protected, first: str) -> str:
    """Start a planned move away from the member; the execution's id."""
    to = next(member for member in stack.servers() if member != first)
    return stack.tenant.start("failover.failover", group=stack.name, to=to, lost=[])


@pytest.mark.usefixtures("swept")
def test_an_executor_dies_with_an_operation_in_its_hands(
    protect: Callable[..., Protected], where: Settings
) -> None:
    stack = protect()
    first = stack.active()
    assert first is not None
    move(stack, first)
    under_way = until_leaving(stack)

    dead = pid_of(under_way["owner"])
    victim = executor_of(where, dead)
    cloud.stop(where, [victim], kill=True)
    begun = owners(where, stack.name)
    try:
        second = stack.wait_until_active(first, limit=240)
    finally:
        cloud.start(where, [victim])

    assert stack.tenant.holders(stack.volume()) == [stack.servers()[second]]
    after = owners(where, stack.name)
    others = {pid_of(after[key]) for key in after.keys() - begun.keys()}
    assert others, "it was killed in the middle"
    assert dead not in others


def test_the_engine_dies_in_the_middle(protect: Callable[..., Protected], where: Settings) -> None:
    stack = protect()
    first = stack.active()
    assert first is not None
    move(stack, first)
    until_leaving(stack)

    cloud.stop(where, ["mistral-engine"], kill=True)
    cloud.start(where, ["mistral-engine"])

    second = sweep_until_moved(stack, first)
    assert stack.tenant.holders(stack.volume()) == [stack.servers()[second]]


def test_two_executors_share_the_work_of_one_failover(
    protect: Callable[..., Protected], where: Settings
) -> None:
    stack = protect(volumes=4)
    first = stack.active()
    assert first is not None
    before = owners(where, stack.name)

    move(stack, first)
    stack.wait_until_active(first)

    after = owners(where, stack.name)
    pids = {pid_of(after[key]) for key in after.keys() - before.keys()}
    assert {executor_of(where, pid) for pid in pids} == set(EXECUTORS)
