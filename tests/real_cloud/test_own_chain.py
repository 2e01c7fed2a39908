# SPDX-License-Identifier: Apache-2.0
"""A process of Mistral dies while the chain of examples/own_chain is at a task of its own.

Mistral loses the task with its process. The sweep ends what hangs and starts the chain again: the
finished stages pass, the tasks between them run again, and no step has its effect twice.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from support.mistral_processes import ENGINE, client_at, until_all_listen
from support.outages import Watch, until_reached
from support.own_chain import CHAIN, CHECK, TICKETS, ExternalServices
from support.protected_stacks import dies, is_repaired, stands_on, until_its_alarms_ended
from testcloud import cloud
from testcloud.settings import Settings
from testcloud.tenant import ProtectedStack, Tenant

pytestmark = [
    pytest.mark.outages,  # it takes minutes: a sweep has to find what hangs
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("swept"),
]
LIMIT = 300.0
"""Seconds in which the sweep, which runs once a minute, has found that the chain hangs (60 s, see
``hang_after``), and the next one has started it again."""


@pytest.fixture(scope="module")
def house(demo: Tenant) -> Iterator[ExternalServices]:
    """The services that the chain calls, also while the stack is deleted."""
    with ExternalServices() as services:
        demo.upload(services.chain)
        yield services


@pytest.fixture(scope="module")
def made(
    house: ExternalServices, protect: Callable[..., ProtectedStack]
) -> Iterator[ProtectedStack]:
    """A stack whose group names the chain."""
    stack = protect(workflow=CHAIN)
    yield stack
    until_its_alarms_ended(stack)


@pytest.fixture
def stack(
    made: ProtectedStack, house: ExternalServices, operator: Tenant, where: Settings
) -> Iterator[ProtectedStack]:
    """The stack, with no member lost, and Mistral at its full strength."""
    until_all_listen(where)
    house.calls.clear()
    yield made
    house.called = lambda path: None
    for member in made.status()["lost"]:
        is_repaired(made, operator, member)


@pytest.fixture
def watch(where: Settings, made: ProtectedStack) -> Iterator[Watch]:
    """The group, as the state store shows it."""
    found = Watch(where, made.name)
    yield found
    found.close()


@pytest.mark.parametrize("path", [TICKETS, CHECK], ids=["engine-tickets", "executor-check"])
def test_a_failover_continues_though_the_process_behind_its_task_died(
    path: str,
    stack: ProtectedStack,
    house: ExternalServices,
    watch: Watch,
    operator: Tenant,
    where: Settings,
    record_property: Callable[[str, object], None],
) -> None:
    first = stack.wait_until_active()
    since, before = len(stack.tenant.guests.audit()), stack.status()["traversal"]["id"]
    died: list[tuple[str, float]] = []

    def kill(called: str) -> None:
        if called == path and not died:
            victim = ENGINE if path == TICKETS else client_at(where, house.caller)
            died.append((victim, time.time()))
            cloud.stop(where, [victim], kill=True)
            cloud.start(where, [victim])

    house.called = kill
    dies(stack, operator, first)
    reached = until_reached(watch, before, LIMIT)

    ((victim, at),) = died
    told = f"{victim} died at {path}; seconds from then to the failover's end"
    record_property(told, round(reached["ended_at"] - at, 1))
    assert reached["status"] == "COMPLETE", reached["reason"]
    assert {traversal for _, traversal in house.calls} == {reached["id"]}
    assert house.times(TICKETS) >= 1
    assert house.times(CHECK) >= (2 if path == CHECK else 1), (
        "the data was checked before the start"
    )
    second = stack.wait_until_active(first)
    stands_on(stack, second)
    server = stack.servers()[second]
    events = stack.tenant.guests.audit(since=since, kind="command_started")
    ran = Counter(event["command"] for event in events if event["server"] == server)
    assert ran == {"volume-up": 1, "pg-start": 1}
