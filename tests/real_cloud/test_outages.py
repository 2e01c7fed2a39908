# SPDX-License-Identifier: Apache-2.0
"""A service of the cloud is away for a while in the middle of a failover, which then goes on to its
end by itself.

``make test-cloud`` takes each service away for a few seconds, ``make test-outages`` for longer.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from support.mistral_processes import until_all_listen
from support.outages import SERVICES, Watch, take_away, until_reached, until_under_way
from support.protected_stacks import dies, is_repaired, stands_on, until_its_alarms_ended
from testcloud import readiness
from testcloud.settings import Settings
from testcloud.tenant import ProtectedStack, Tenant

pytestmark = [
    pytest.mark.alone,
    pytest.mark.timeout(1200),
    pytest.mark.usefixtures("swept"),
]
SHORT = 5
LONG = [30, 300]
LIMIT = 180.0
"""Seconds after a service's return in which the failover must have ended, however long it was
away. After :data:`SHORT`, see :attr:`support.outages.Service.returns`."""


@pytest.fixture(scope="module")
def made(protect: Callable[..., ProtectedStack]) -> Iterator[ProtectedStack]:
    """A stack with one volume."""
    stack = protect()
    yield stack
    until_its_alarms_ended(stack)


@pytest.fixture
def stack(made: ProtectedStack, operator: Tenant, where: Settings) -> Iterator[ProtectedStack]:
    """The stack, with every member well, in a cloud that is whole."""
    until_all_listen(where)
    yield made
    until_all_listen(where)
    for member in made.status()["lost"]:
        is_repaired(made, operator, member)


@pytest.fixture
def watch(where: Settings, made: ProtectedStack) -> Iterator[Watch]:
    """The group, as the state store shows it."""
    found = Watch(where, made.name)
    yield found
    found.close()


@pytest.fixture(scope="module")
def calm(made: ProtectedStack, operator: Tenant, where: Settings) -> float:
    """Seconds that a failover takes here and now which nothing disturbs: from the death to its end.
    About five on a machine that does nothing else, many times that on a busy one."""
    first, before = made.wait_until_active(), made.status()["traversal"]["id"]
    with closing(Watch(where, made.name)) as watch:
        died = time.time()
        dies(made, operator, first)
        reached = until_reached(watch, before, LIMIT)
    is_repaired(made, operator, first)
    return float(reached["ended_at"]) - died


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        pytest.param(name, seconds, marks=() if seconds == SHORT else pytest.mark.outages)
        for name in SERVICES
        for seconds in (SHORT, *LONG)
    ],
)
def test_a_failover_ends_by_itself_though_a_service_was_away(
    name: str,
    seconds: float,
    stack: ProtectedStack,
    watch: Watch,
    calm: float,
    operator: Tenant,
    where: Settings,
    record_property: Callable[[str, object], None],
) -> None:
    service = SERVICES[name]
    first = stack.wait_until_active()
    since, before = len(stack.tenant.guests.audit()), stack.status()["traversal"]["id"]

    dies(stack, operator, first)
    until_under_way(watch, service.during)
    returned = take_away(where, service, seconds)
    limit = service.returns + calm if seconds == SHORT else LIMIT
    reached = until_reached(watch, before, max(LIMIT, limit))

    after = max(0.0, reached["ended_at"] - returned)
    told = f"{name} was away for {seconds} s; seconds from its return to the failover's end"
    record_property(told, f"{after:.1f}; one that nothing disturbed took {calm:.1f}")
    assert reached["status"] == "COMPLETE", reached["reason"]
    assert after <= limit
    readiness.wait_for_agents(where)
    second = stack.wait_until_active(first)
    stands_on(stack, second)
    server = stack.servers()[second]
    events = stack.tenant.guests.audit(since=since, kind="command_started")
    ran = Counter(event["command"] for event in events if event["server"] == server)
    assert ran == {"volume-up": 1, "pg-start": 1}
