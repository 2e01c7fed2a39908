# SPDX-License-Identifier: Apache-2.0
"""A host is lost: no acknowledged row is, and never do two servers acknowledge rows at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support import machines
from support.machines import HOST_POWER, QUIESCE, STOP, STORAGE, Service, lose_power, partition
from testcloud.tenant import Tenant

pytestmark = pytest.mark.machines


def test_power_loss(protect: Callable[..., Service]) -> None:
    """The operator's board proves it: IPMI, a real fence agent."""
    service = protect(QUIESCE, HOST_POWER, STOP)
    service.write()

    with service.fault("power loss"):
        lose_power(service)

    assert service.proof().rung == "host_power"


def test_partition_while_the_guest_writes_on(
    protect: Callable[..., Service], operator: Tenant
) -> None:
    """The storage refuses its writes. What it acknowledged until then is there. The block is lifted
    only after the host was off."""
    service = protect(QUIESCE, STORAGE, STOP)
    service.write(inside=True)
    host = service.home[service.active]

    with service.fault("partition"):
        partition(service)

    assert service.proof().rung == "storage"
    machines.lift(service.where, operator, host)
