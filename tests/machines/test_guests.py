# SPDX-License-Identifier: Apache-2.0
"""A group that has no rung of an operator: its guest panics, loses its disk or its agent; nothing
is wrong, and the service moves as planned; or an operator fences the host."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support import machines
from support.machines import QUIESCE, STOP, Service
from testcloud.machines import ceph, network
from testcloud.tenant import Tenant, until

pytestmark = pytest.mark.machines

RACK = "rack3"
LADDER = ({**QUIESCE, "longest": 15}, STOP)
"""`longest` ends the wait for an agent that answers and stops nothing."""


def test_planned_switchovers_lose_no_row(protected: Callable[..., Service]) -> None:
    """Also one in which the standby's agent is killed: it starts again, as its unit has it, and
    finds in its journal what it did."""
    service = protected(*LADDER)
    service.write()
    with service.fault("planned switchover"):
        machines.move(service)

    service.write()
    with service.fault("agent killed"):
        machines.move_while_the_agent_is_killed(service)


def test_a_panicking_kernel(protected: Callable[..., Service]) -> None:
    """Nova says ACTIVE; it can stop the guest, and that is the proof."""
    service = protected(*LADDER)
    service.write()

    with service.fault("kernel panic"):
        machines.panic(service)

    assert service.proof().rung == "stop"


def test_a_host_without_its_storage(protected: Callable[..., Service]) -> None:
    """The agent answers, and its commands hang in their writes."""
    service = protected(*LADDER)
    service.write()

    with service.fault("storage cut"):
        machines.cut_storage(service)

    assert service.proof().rung == "stop"


def test_an_operator_has_the_storage_refuse_a_host(
    protected: Callable[..., Service], operator: Tenant
) -> None:
    """The host is cut off, and no group has the rung."""
    service = protected(*LADDER)
    service.write(inside=True)
    member, host = service.active, service.home[service.active]
    before = ceph.blocked(service.where)
    network.plug(service.where, host, "management", connected=False)

    planned = operator.action("failover.fence_host", host=host, rung="storage", dry_run=True)
    assert service.blocked(before) == set()
    because = "its rack is cut off"
    done = operator.action("failover.fence_host", host=host, rung="storage", because=because)

    assert done["fenced"]
    assert done["clients"] == planned["clients"]
    assert service.blocked(before) == {member}
    until(lambda: "I/O error" in service.console(member), "the guest to notice it", 60)
    assert service.clients() == set()
