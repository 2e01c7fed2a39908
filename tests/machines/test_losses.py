# SPDX-License-Identifier: Apache-2.0
"""A host is lost: no acknowledged row is, and never do two servers acknowledge rows at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.machines import HOST_POWER, QUIESCE, STOP, STORAGE, Service
from testcloud.machines import network, power
from testcloud.settings import Settings
from testcloud.tenant import until

pytestmark = pytest.mark.machines


def test_power_loss(protect: Callable[..., Service], where: Settings) -> None:
    """The operator's board proves it: IPMI, a real fence agent."""
    service = protect(QUIESCE, HOST_POWER, STOP)
    service.write()

    with service.fault("power loss"):
        power.off(where, service.home[service.active])
        service.fail_over()

    assert service.proof().rung == "host_power"


def test_partition_while_the_guest_writes_on(
    protect: Callable[..., Service], where: Settings
) -> None:
    """The storage refuses its writes. What it acknowledged until then is there."""
    service = protect(QUIESCE, STORAGE, STOP)
    service.write(inside=True)
    old, host = service.active, service.home[service.active]

    with service.fault("partition"):
        network.plug(where, host, "management", connected=False)
        written = service.written_inside(old)
        until(lambda: service.written_inside(old) > written + 20, "the guest to write on", 60)
        service.fail_over()
        until(lambda: "I/O error" in service.console(old), "the old guest to notice it", 60)

    assert service.proof().rung == "storage"
