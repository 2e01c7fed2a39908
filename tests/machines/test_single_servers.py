# SPDX-License-Identifier: Apache-2.0
"""A single server, without a standby, is lost with its host and comes back on another one: no
acknowledged row is lost, and the guest that was left behind does not write."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support import machines
from support.machines import HOST_POWER, QUIESCE, STOP, STORAGE, Alone, Service
from testcloud.machines import ceph, guests
from testcloud.tenant import Tenant

pytestmark = pytest.mark.machines

RACK = "rack1"
EVACUATE = Alone(("evacuate",))
REPLACE = Alone(("replace",))
PET_EVACUATE = Alone(("evacuate",), boots_from_a_volume=True)
PET_REPLACE = Alone(("replace",), boots_from_a_volume=True)
BOTH_DISKS = {**STORAGE, "limit": 90}
"""Each disk costs a few commands of Ceph's."""


def came_back(service: Service, way: str) -> None:
    """It was the only way, and the service serves by it."""
    status = service.group.status()
    assert (status["status"], status["roles"]) == ("COMPLETE", {"active": "db_a"})
    assert [row["found"] for row in status["restarts"]] == [way]


def test_its_data_volume_follows_the_evacuated_server(
    protect: Callable[..., Service], operator: Tenant
) -> None:
    """Nova makes its system anew from the image."""
    service = protect(QUIESCE, HOST_POWER, tenant=operator, alone=EVACUATE)
    service.write()
    host, server = service.home[service.active], service.servers[service.active]

    with service.fault("single server, power loss, evacuate"):
        machines.lose_power(service)
        machines.power_returns(service, operator, host)

    assert service.servers[service.active] == server
    assert service.home[service.active] != host
    came_back(service, "evacuate")


def test_its_data_volume_follows_to_another_server(
    protect: Callable[..., Service], operator: Tenant
) -> None:
    """A tenant's rights are enough. The old server is deleted in Nova while its host is down."""
    service = protect(QUIESCE, HOST_POWER, STOP, alone=REPLACE)
    service.write()
    host, server = service.home[service.active], service.servers[service.active]

    with service.fault("single server, power loss, replace"):
        machines.lose_power(service)
        machines.power_returns(service, operator, host)

    assert service.servers[service.active] != server
    came_back(service, "replace")


def test_its_boot_disk_follows_the_evacuated_server(
    protect: Callable[..., Service], operator: Tenant
) -> None:
    """Ceph refuses both of its disks on the old host, whose power nothing has switched off."""
    service = protect(QUIESCE, BOTH_DISKS, tenant=operator, alone=PET_EVACUATE)
    service.inside(service.active, "echo mine > /root/mark; sync")
    service.write()
    host, server = service.home[service.active], service.servers[service.active]

    with service.fault("boots from a volume, power loss, evacuate"):
        machines.lose_power(service)
        machines.power_returns(service, operator, host)

    assert service.servers[service.active] == server
    assert service.home[service.active] != host
    assert service.inside(service.active, "cat /root/mark").strip() == "mine"
    came_back(service, "evacuate")


def test_its_boot_disk_follows_to_another_server_while_the_old_guest_runs_on(
    protect: Callable[..., Service], operator: Tenant
) -> None:
    """Behind a partition Nova deletes the old server in its database only. Its guest runs on, with
    the same disks and the same address, and Ceph refuses what it writes."""
    service = protect(QUIESCE, BOTH_DISKS, STOP, alone=PET_REPLACE)
    service.inside(service.active, "echo mine > /root/mark; sync")
    service.write(inside=True)
    host, server = service.home[service.active], service.servers[service.active]
    before = ceph.blocked(service.where)

    with service.fault("boots from a volume, partition, replace"):
        machines.partition(service)

    assert service.servers[service.active] != server
    assert server in guests.running(service.where, host)
    assert len(set(ceph.blocked(service.where)) - set(before)) >= 2, "of both disks"
    assert service.inside(service.active, "cat /root/mark").strip() == "mine"
    came_back(service, "replace")
