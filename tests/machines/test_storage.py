# SPDX-License-Identifier: Apache-2.0
"""A host is cut off, or its guest stands still: the storage refuses what the old server writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support import machines
from support.machines import QUIESCE, STOP, STORAGE, Service
from testcloud.tenant import Tenant

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


def test_a_guest_that_is_frozen_and_thawed_after_the_failover(
    protected: Callable[..., Service],
) -> None:
    """Thawed, it does not know that time has passed, and writes on: the storage refuses it."""
    service = protected(QUIESCE, STORAGE, STOP)
    service.write(inside=True)

    with service.fault("frozen guest", untold=1):
        machines.freeze_and_thaw(service)

    assert service.proof().rung == "storage"
