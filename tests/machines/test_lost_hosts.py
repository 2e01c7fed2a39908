# SPDX-License-Identifier: Apache-2.0
"""A host is lost, by its power or its network: no acknowledged row is lost with it, and never do
two servers acknowledge rows at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from support import machines
from support.machines import HOST_POWER, QUIESCE, STOP, STORAGE, Service
from testcloud.machines import ceph, power
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


@pytest.mark.timeout(1200)  # two stacks, and a planned move before
def test_a_second_loss_while_the_first_is_under_way(
    protected: Callable[..., Service],
    protect: Callable[..., Service],
    operator: Tenant,
    rack: str,
) -> None:
    """Two groups, whose standbys are on the only host that stays."""
    first = protected(QUIESCE, HOST_POWER, STOP)
    first_host, stays = first.home[first.active], first.home[first.standby()]
    (second_host,) = set(RACKS[rack]) - {first_host, stays}
    with machines.without(operator, first_host):
        second = protect(QUIESCE, STORAGE, STOP)
    second.make_active(second.member_on(second_host))
    for service in (first, second):
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


@pytest.fixture
def shared(operator: Tenant) -> Iterator[str]:
    """A type of volumes that several servers may have at the same time."""
    volumes = operator.cloud.block_storage
    made = volumes.create_type(name="shared", extra_specs={"multiattach": "<is> True"})
    yield made.name
    volumes.delete_type(made)


def test_the_storage_refuses_the_lost_member_alone(
    shared: str, protect: Callable[..., Service]
) -> None:
    """The clients of a shared volume are told apart by the addresses of their hosts."""
    service = protect(QUIESCE, STORAGE, STOP, volume_type=shared)
    service.share_volume()
    service.write(inside=True)
    lost, other = service.active, service.standby()
    before = ceph.blocked(service.where)

    with service.fault("partition, the volume shared"):
        machines.partition(service)

    assert service.proof().rung == "storage"
    assert service.blocked(before) == {lost}
    assert service.clients() == {other}
