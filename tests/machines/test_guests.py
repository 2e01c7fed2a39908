# SPDX-License-Identifier: Apache-2.0
"""What happens to a guest: it hangs, panics, loses its disk or its agent; or nothing is wrong, and
the service moves as planned."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support import machines
from support.machines import QUIESCE, STOP, STORAGE, Service

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


def test_a_guest_that_is_frozen_and_thawed_after_the_failover(
    protect: Callable[..., Service],
) -> None:
    """Thawed, it does not know that time has passed, and writes on: the storage refuses it."""
    service = protect(QUIESCE, STORAGE, STOP)
    service.write(inside=True)

    with service.fault("frozen guest", untold=1):
        machines.freeze_and_thaw(service)

    assert service.proof().rung == "storage"


def test_a_host_without_its_storage(protected: Callable[..., Service]) -> None:
    """The agent answers, and its commands hang in their writes."""
    service = protected(*LADDER)
    service.write()

    with service.fault("storage cut"):
        machines.cut_storage(service)

    assert service.proof().rung == "stop"
