# SPDX-License-Identifier: Apache-2.0
"""A host loses its power: no acknowledged row is lost, and never do two servers acknowledge rows at
once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support import machines
from support.machines import HOST_POWER, QUIESCE, STOP, STORAGE, Service
from testcloud.machines import power
from testcloud.settings import RACKS
from testcloud.tenant import Tenant, until

pytestmark = pytest.mark.machines

RACK = "rack1"
"""A server that is made anew needs a third host."""


def test_power_loss_and_the_role_goes_back_when_the_power_returned(
    protected: Callable[..., Service],
) -> None:
    """The operator's board proves it: IPMI, a real fence agent."""
    service = protected(QUIESCE, HOST_POWER, STOP)
    service.write()
    first = service.active

    with service.fault("power loss"):
        machines.lose_power(service)
    assert service.proof().rung == "host_power"

    service.restore_hosts()
    service.replace_server(first)
    service.write()
    with service.fault("the role goes back"):
        machines.move(service)
    assert service.active == first


@pytest.mark.timeout(1200)  # two stacks, and up to three planned moves before
def test_a_second_loss_while_the_first_is_under_way(
    protect: Callable[..., Service], operator: Tenant, rack: str
) -> None:
    """Two groups, whose standbys are on the only host that stays."""
    first_host, stays, second_host = RACKS[rack]
    with machines.without(operator, second_host):
        first = protect(QUIESCE, HOST_POWER, STOP)
    with machines.without(operator, first_host):
        second = protect(QUIESCE, STORAGE, STOP)
    for service, host in ((first, first_host), (second, second_host)):
        service.make_active(service.member_on(host))
        service.write()

    with first.fault("power loss"), second.fault("power loss of another host meanwhile"):
        power.off(first.where, first_host)
        first.start_failover()
        until(lambda: first.group.status()["status"] == "IN_PROGRESS", "its failover", 30)
        power.off(second.where, second_host)
        assert first.group.status()["status"] == "IN_PROGRESS"
        second.start_failover()
        second.failed_over()
        first.failed_over()

    for service, rung in ((first, "host_power"), (second, "storage")):
        assert service.home[service.active] == stays
        assert service.proof().rung == rung
