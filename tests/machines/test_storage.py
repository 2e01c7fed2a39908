# SPDX-License-Identifier: Apache-2.0
"""A host is cut off, or its guest hangs: the storage refuses what the old server writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from support import machines
from support.machines import QUIESCE, STOP, STORAGE, Service
from testcloud.machines import ceph, network
from testcloud.tenant import Tenant, until

pytestmark = pytest.mark.machines

RACK = "rack2"


def test_partition_while_the_guest_writes_on(
    protected: Callable[..., Service], operator: Tenant
) -> None:
    """The storage refuses its writes. What it acknowledged until then is there. The block is lifted
    only after the host was off."""
    service = protected(QUIESCE, STORAGE, STOP)
    service.write(inside=True)
    host = service.home[service.active]

    with service.fault("partition"):
        machines.partition(service)

    assert service.proof().rung == "storage"
    machines.lift(service.where, operator, host)


def test_a_guest_that_hangs_behind_a_partition_and_runs_on_after_the_failover(
    protected: Callable[..., Service],
) -> None:
    """No power switch has ended it. It may tell one row that was acknowledged when it stopped; what
    it writes then is refused."""
    service = protected(QUIESCE, STORAGE, STOP)
    service.write(inside=True)

    with service.fault("hung guest behind a partition", untold=1):
        machines.hang_behind_a_partition(service)

    assert service.proof().rung == "storage"


def test_a_guest_that_hangs_until_an_operator_fences_its_host(
    protected: Callable[..., Service], operator: Tenant
) -> None:
    """The proof is there at once; the volume is not released before."""
    service = protected(QUIESCE, STORAGE, STOP)
    service.write(inside=True)

    with service.fault("hung guest", untold=1):
        machines.hang_until_the_host_is_fenced(service, operator)

    assert service.proof().rung == "storage"


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


def test_an_operator_has_the_storage_refuse_a_host(
    protect: Callable[..., Service], operator: Tenant
) -> None:
    """The host is cut off, and no group has the rung."""
    service = protect(QUIESCE, STOP)
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
