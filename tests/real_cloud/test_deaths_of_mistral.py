# SPDX-License-Identifier: Apache-2.0
"""Mistral's own processes die in the middle of a failover, and it goes on.

Mistral loses the work of a process that dies; an executor or the sweep goes on with what the state
store says. The failovers begin with a real alarm, fence the active member and move four volumes.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.cloud_audit import Tail
from support.mistral_processes import (
    ENGINE,
    EXECUTORS,
    executor_of,
    freeze_with_an_attachment,
    is_held,
    is_reached,
    ledger,
    pid_of,
    until_all_listen,
    until_attaching,
    wake_with_sigterm,
)
from support.pinned_steps import pinned
from support.protected_stacks import dies, is_repaired, stands_on
from testcloud import cloud
from testcloud.errors import CloudError
from testcloud.settings import Settings
from testcloud.tenant import ProtectedStack, Tenant, until

pytestmark = [pytest.mark.alone, pytest.mark.timeout(1200)]
VOLUMES = 4
LEASE = 30.0
"""Seconds for which the lock of a dead executor lasts."""
SWEEP_EVERY = 10.0
STARTS = {"volume-up": 1, "pg-start": 1, "web-start": 1}
# Beside the database: two are ready at once.
WEB = {
    "web": {
        "type": "activation",
        "depends_on": "files",
        "properties": {
            "member": {"get_param": "active"},
            "start": "web-start",
            "stop": "web-stop",
        },
    }
}


def sweep(tenant: Tenant) -> None:
    """Sweep the project by hand, be it that an engine was killed just now."""
    with contextlib.suppress(CloudError):
        tenant.start("failover.sweep")


def sweep_until(stack: ProtectedStack, look: Callable[[], Any], what: str, limit: float) -> Any:
    """Sweep by hand, again and again, until ``look`` finds something; what."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        sweep(stack.tenant)
        with contextlib.suppress(CloudError):
            return until(look, what, SWEEP_EVERY)
    raise AssertionError((what, stack.status()))


def told(stack: ProtectedStack, after: int = 0) -> list[dict[str, Any]]:
    """The journal's sentences behind the id ``after``; 0: the latest."""
    rows: list[dict[str, Any]] = stack.tenant.action(
        "failover.history", group=stack.name, after=after, limit=1000
    )
    return rows


def said(rows: list[dict[str, Any]], kind: str) -> str:
    """All sentences of one kind."""
    return "\n".join(row["sentence"] for row in rows if row["kind"] == kind)


def the_alarm_ends(stack: ProtectedStack, alarms: set[str], after: int) -> list[str]:
    """Sweep until the alarm's execution has ended; what it says of that, and assert that a caller
    that waits for one that hung sees an error. ``alarms``: the executions from before, ``after``:
    the last sentence from before."""

    def ended() -> list[dict[str, Any]]:
        mine = [stack.tenant.execution(each) for each in alarms_of(stack) - alarms]
        return mine if all(each["state"] in ("SUCCESS", "ERROR") for each in mine) else []

    found = sweep_until(stack, ended, "the alarm's execution to end", 240)
    for execution in found:
        identity = execution["id"]
        if execution["state"] == "ERROR":
            assert "was ended: it did nothing for" in execution["state_info"], execution
            # The sweep records it after Mistral has ended it.
            until(lambda: identity in said(told(stack, after), "ended"), "its end on record", 30)  # noqa: B023
        else:
            assert identity not in said(told(stack, after), "ended")
    return [execution["state"] for execution in found]


def alarms_of(stack: ProtectedStack) -> set[str]:
    """The executions of failover.on_alarm for the group."""
    rows = stack.tenant.executions("failover.on_alarm")
    return {row["id"] for row in rows if row["input"].get("group") == stack.name}


def started_once(stack: ProtectedStack, member: str, since: int) -> None:
    """Assert that each start command ran once on the member, and that no other one ran there."""
    server = stack.servers()[member]
    events = stack.tenant.guests.audit(since=since, kind="command_started")
    ran = Counter(event["command"] for event in events if event["server"] == server)
    assert ran == STARTS


def all_volumes_are_on(stack: ProtectedStack, where: Settings, member: str) -> None:
    """Assert that the application and all volumes are there, and the group at its goal."""
    stands_on(stack, member)
    rows = ledger(where, stack.name).values()
    volumes = {row["physical_id"] for row in rows if row["type"] == "volume_attachment"}
    assert len(volumes) == VOLUMES
    holders = {volume: stack.tenant.holders(volume) for volume in volumes}
    assert holders == {volume: [stack.servers()[member]] for volume in volumes}
    assert stack.status()["status"] == "COMPLETE"


def last_told(stack: ProtectedStack) -> int:
    """The id of the journal's last sentence."""
    return int(told(stack)[-1]["id"])


def seen(stack: ProtectedStack) -> int:
    """How many events the guests have written down."""
    return len(stack.tenant.guests.audit())


@pytest.fixture(scope="module")
def made(protect: Callable[..., ProtectedStack]) -> ProtectedStack:
    """A stack of four volumes."""
    return protect(volumes=VOLUMES, also=WEB)


@pytest.fixture
def stack(made: ProtectedStack, operator: Tenant, where: Settings) -> Iterator[ProtectedStack]:
    """The stack, with no member lost, and Mistral at its full strength."""
    until_all_listen(where)
    yield made
    for member in made.status()["lost"]:
        is_repaired(made, operator, member)


@pytest.mark.usefixtures("swept")
def test_an_executor_dies_with_an_attachment_in_its_hands_and_the_other_one_takes_it_over(
    stack: ProtectedStack, operator: Tenant, where: Settings
) -> None:
    first = stack.wait_until_active()
    last, since, alarms = last_told(stack), seen(stack), alarms_of(stack)

    dies(stack, operator, first)
    victim, dead = freeze_with_an_attachment(where, stack.name)
    cloud.stop(where, [victim], kill=True)
    begun = ledger(where, stack.name)
    left = {key: row for key, row in begun.items() if is_held(row, dead)}
    assert left, "it was killed with operations in its hands"
    try:
        second = stack.wait_until_active(first, limit=240)
        after = ledger(where, stack.name)
        # While it is dead: what it left, and all that came later, others did.
        later = (after.keys() - begun.keys()) | left.keys()
        pids = {pid_of(after[key]["owner"]) for key in later}
        assert dead not in pids
        assert {executor_of(where, pid) for pid in pids} == set(EXECUTORS) - {victim}
    finally:
        cloud.start(where, [victim])

    assert {after[key]["status"] for key in left} == {"done"}
    rows = told(stack, last)
    for row in left.values():
        broken = f"{row['name']}: broke the lock of {row['owner']}, which is dead"
        assert broken in said(rows, "steal")
    all_volumes_are_on(stack, where, second)
    started_once(stack, second, since)
    the_alarm_ends(stack, alarms, last)


def test_the_engine_dies_with_the_result_of_a_stage_in_its_hands_and_an_executor_ends_it(
    stack: ProtectedStack, operator: Tenant, where: Settings
) -> None:
    first = stack.wait_until_active()
    last, since, alarms = last_told(stack), seen(stack), alarms_of(stack)
    log = Tail(where.log / f"{ENGINE}.log")

    dies(stack, operator, first)
    traversal = until_attaching(where, stack.name)["traversal_id"]
    with pinned(where, traversal, log) as held:
        assert held.steps, "it is in the middle"
        until(held.taken_in, "the engine to have the results in its hands", 120)
        cloud.stop(where, [ENGINE], kill=True)
    try:
        until(lambda: is_reached(where, traversal), "the executor to work it off to the end", 60)
    finally:
        cloud.start(where, [ENGINE])
        until_all_listen(where)

    assert said(told(stack, last), "sweep") == ""
    second = stack.wait_until_active(first)
    all_volumes_are_on(stack, where, second)
    started_once(stack, second, since)
    assert "ERROR" in the_alarm_ends(stack, alarms, last)


def test_an_executor_that_is_stopped_gives_its_work_back_and_the_other_one_goes_on_at_once(
    stack: ProtectedStack, operator: Tenant, where: Settings
) -> None:
    first = stack.wait_until_active()
    last, since = last_told(stack), seen(stack)

    dies(stack, operator, first)
    victim, pid = freeze_with_an_attachment(where, stack.name)
    held = [key for key, row in ledger(where, stack.name).items() if is_held(row, pid)]
    wake_with_sigterm(where, victim, pid)
    try:
        cloud.stop(where, [victim])
        second = stack.wait_until_active(first)
    finally:
        cloud.start(where, [victim])

    rows = told(stack, last)
    (given_back, *_) = [row for row in rows if row["kind"] == "handed_back"]
    later = [row for row in rows if row["id"] > given_back["id"]]
    seconds = next(row["at"] for row in later if row["kind"] == "started") - given_back["at"]
    after = ledger(where, stack.name)
    assert any(pid_of(after[key]["owner"]) != pid for key in held), "the other one took it up"
    print(f"the other executor went on {seconds:.1f} s after the work was given back")
    assert seconds < LEASE / 2
    assert said(rows, "sweep") == ""
    assert said(rows, "steal") == ""
    all_volumes_are_on(stack, where, second)
    started_once(stack, second, since)
