# SPDX-License-Identifier: Apache-2.0
"""The host of a standby dies: one look sees that, before a failover needs the standby."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from mistral_failover.model.heartbeats import SILENT
from support.protected_stacks import findings, holders, look, refused, service, stands_on
from testcloud import cloud, readiness
from testcloud.settings import VICTIM, Settings
from testcloud.tenant import ProtectedStack, Tenant, until

pytestmark = pytest.mark.timeout(600)


def test_a_standby_whose_host_is_dead_is_seen_before_a_failover_needs_it(
    protect: Callable[..., ProtectedStack], operator: Tenant, where: Settings
) -> None:
    stack = protect()
    active, standby = holders(stack)
    server = stack.servers()[standby]
    moves(operator, server, VICTIM)
    look(stack)
    assert service(stack) == ("SERVING", [])
    begun = time.monotonic()
    cloud.stop(where, [f"nova-compute-{VICTIM}"], kill=True)
    stack.tenant.guests.fault("server", server, "crash")
    try:
        until(lambda: heard(stack, standby) > SILENT, "its agent to be missed", 120)
        look(stack)
        print(f"seen {time.monotonic() - begun:.1f} s after the host's death")

        status, reasons = service(stack)
        assert status == "DEGRADED"
        why = rf"no member can take over \({standby}: its agent has sent no heartbeat for .*\)"
        assert any(re.search(why, reason) for reason in reasons), reasons
        assert any(
            row["level"] == "error"
            and f"the agent on {standby} has sent no heartbeat" in row["sentence"]
            and "systemctl status failover-agent" in row["remedy"]
            for row in findings(stack, "agents")
        )
        error = refused(stack, "switchover", to=standby)
        assert error["code"] == "NO_ELIGIBLE_MEMBER"
        stands_on(stack, active)
    finally:
        cloud.start(where, [f"nova-compute-{VICTIM}"])
        readiness.wait_for_compute(where, VICTIM, "up")
        stack.tenant.guests.fault("server", server, "revive")

    until(lambda: heard(stack, standby) < SILENT, "its agent to be heard", 60)
    look(stack)
    assert service(stack) == ("SERVING", [])


def moves(operator: Tenant, server: str, host: str) -> None:
    """The server moves to a host while it runs."""
    compute = operator.cloud.compute
    compute.live_migrate_server(server, host=host, block_migration="auto")

    def moved() -> bool:
        found = compute.get_server(server)
        return (found.compute_host, found.status, found.task_state) == (host, "ACTIVE", None)

    until(moved, f"the server to be on {host}", 120)


def heard(stack: ProtectedStack, member: str) -> float:
    """How many seconds ago a member's agent sent a heartbeat."""
    rows = stack.tenant.action("failover.agents", group=stack.name)
    return next(float(row["agent"]["ago"]) for row in rows if row["member"] == member)
