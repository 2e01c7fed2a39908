# SPDX-License-Identifier: Apache-2.0
"""What else happens to a guest: it hangs, panics, loses its disk or its agent; or nothing is wrong,
and the service moves as planned."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support import machines
from support.machines import HOST_POWER, QUIESCE, STOP, STORAGE, Service
from testcloud.tenant import Tenant

pytestmark = pytest.mark.machines


def test_a_planned_switchover_loses_no_row(protect: Callable[..., Service]) -> None:
    service = protect(QUIESCE, STOP)
    service.write()

    with service.fault("planned switchover"):
        machines.move(service)


def test_a_panicking_kernel(protect: Callable[..., Service]) -> None:
    """Nova says ACTIVE; it can stop the guest, and that is the proof."""
    service = protect(QUIESCE, STOP)
    service.write()

    with service.fault("kernel panic"):
        machines.panic(service)

    assert service.proof().rung == "stop"


def test_a_guest_that_is_frozen_and_thawed_after_the_failover(
    protect: Callable[..., Service],
) -> None:
    """Thawed, it does not know that time has passed, and writes on: the storage refuses it."""
    service = protect(QUIESCE, STORAGE, STOP)
    service.write(inside=True)

    with service.fault("frozen guest", untold=1):
        machines.freeze_and_thaw(service)

    assert service.proof().rung == "storage"


def test_a_guest_that_hangs_behind_a_partition_and_runs_on_after_the_failover(
    protect: Callable[..., Service],
) -> None:
    """No power switch has ended it. It may tell one row that was acknowledged when it stopped; what
    it writes then is refused."""
    service = protect(QUIESCE, STORAGE, STOP)
    service.write(inside=True)

    with service.fault("hung guest behind a partition", untold=1):
        machines.hang_behind_a_partition(service)

    assert service.proof().rung == "storage"


def test_a_guest_that_hangs_until_an_operator_fences_its_host(
    protect: Callable[..., Service], operator: Tenant
) -> None:
    """The proof is there at once; the volume is not released before."""
    service = protect(QUIESCE, STORAGE, STOP)
    service.write(inside=True)

    with service.fault("hung guest", untold=1):
        machines.hang_until_the_host_is_fenced(service, operator)

    assert service.proof().rung == "storage"


def test_a_host_without_its_storage(protect: Callable[..., Service]) -> None:
    """The agent answers, and its commands hang in their writes: `longest` ends the wait."""
    service = protect({**QUIESCE, "longest": 15}, STOP)
    service.write()

    with service.fault("storage cut"):
        machines.cut_storage(service)

    assert service.proof().rung == "stop"


def test_an_agent_that_is_killed_on_the_standby(protect: Callable[..., Service]) -> None:
    """It starts again, as its unit has it, and finds in its journal what it did."""
    service = protect(QUIESCE, STOP)
    service.write()

    with service.fault("agent killed"):
        machines.move_while_the_agent_is_killed(service)


def test_the_role_goes_back_after_the_power_returned(protect: Callable[..., Service]) -> None:
    service = protect(QUIESCE, HOST_POWER, STOP)
    service.write()
    first, second = service.active, service.standby()

    with service.fault("power loss and return", turns=[first, second, first]):
        machines.lose_power(service)
        service.restore_hosts()
        service.replace_server(first)
        machines.move(service)
