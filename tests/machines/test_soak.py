# SPDX-License-Identifier: Apache-2.0
"""One fault after the other, drawn from a seed, on one service: ``make machines-soak``."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

import pytest

from support import machines
from support.machines import HOST_POWER, QUIESCE, STOP, STORAGE, Service

pytestmark = pytest.mark.machines

LOSSES = (
    machines.lose_power,
    machines.partition,
    machines.panic,
    machines.freeze_and_thaw,
    machines.cut_storage,
)
MOVES = (machines.move, machines.move_while_the_agent_is_killed)


def test_soak(protect: Callable[..., Service], request: pytest.FixtureRequest) -> None:
    """After each fault the data is checked, and the lost member gets a new server."""
    minutes = float(request.config.getoption("--soak-minutes", 0))
    if not minutes:
        pytest.skip("a soak has its own target: make machines-soak MINUTES=60")
    seed = int(request.config.getoption("--soak-seed") or time.time())
    drawn = random.Random(seed)
    service = protect({**QUIESCE, "longest": 15}, STORAGE, HOST_POWER, STOP)
    print(f"\nseed {seed}")
    end = time.monotonic() + minutes * 60
    while time.monotonic() < end:
        act = drawn.choice((*LOSSES, *MOVES))
        service.write(inside=act in (machines.partition, machines.freeze_and_thaw))
        lost = service.active
        untold = int(act is machines.freeze_and_thaw)
        with service.fault(act.__name__.replace("_", " "), untold=untold):
            act(service)
        if act in LOSSES:
            service.restore_hosts()
            service.replace_server(lost)
    outages = sorted(service.outages)
    print(
        f"failovers {len(outages)}, rows acknowledged {len(service.ledger.acknowledged)}, lost 0, "
        f"two writers at once 0, outage median {statistics.median(outages):.1f} s, "
        f"p99 {outages[int(len(outages) * 0.99)]:.1f} s"
    )
