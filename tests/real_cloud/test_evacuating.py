# SPDX-License-Identifier: Apache-2.0
"""The host of a single server dies: Nova makes the same server again on another host, and it serves
there. The group belongs to an administrator."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from support.protected_stacks import dies
from testcloud import cloud, readiness
from testcloud.settings import VICTIM, Settings
from testcloud.tenant import ProtectedStack, Tenant, until

pytestmark = pytest.mark.timeout(600)
MEMBERS = {"servers": ["db_a"], "replace": "lost", "restart": ["evacuate"]}


@pytest.fixture
def host_is_down(where: Settings) -> Iterator[Callable[[], None]]:
    """Kill the compute service of the host that may die; it comes back at the end."""

    def kill() -> None:
        cloud.stop(where, [f"nova-compute-{VICTIM}"], kill=True)

    yield kill
    cloud.start(where, [f"nova-compute-{VICTIM}"])
    readiness.wait_for_compute(where, VICTIM, "up")


def test_a_single_server_serves_again_on_another_host(
    protect: Callable[..., ProtectedStack],
    operator: Tenant,
    where: Settings,
    host_is_down: Callable[[], None],
) -> None:
    stack = protect(tenant=operator, members=MEMBERS, fence=["confirm"], host=VICTIM)
    server, compute = stack.servers()["db_a"], operator.cloud.compute
    assert compute.get_server(server).compute_host == VICTIM

    host_is_down()
    dies(stack, operator, "db_a")
    until(lambda: stack.status()["status"] == "BLOCKED", "the fence to wait for a person", 120)
    readiness.wait_for_compute(where, VICTIM, "down")
    said = {"group": stack.name, "member": "db_a", "because": "its power is off"}
    done = operator.run("failover.confirm_fenced", **said)
    assert done["state"] == "SUCCESS", done["output"]
    until(lambda: stack.active() == "db_a", "db_a to serve again", 180)

    assert stack.servers()["db_a"] == server
    found = compute.get_server(server)
    assert (found.status, found.task_state) == ("ACTIVE", None)
    assert found.compute_host != VICTIM
    assert operator.holders(stack.volume()) == [server]
    assert stack.applications()["db_a"] == ["files", "postgresql"]
    assert [row["found"] for row in stack.status()["restarts"]] == ["evacuate"]

    cloud.start(where, [f"nova-compute-{VICTIM}"])
    readiness.wait_for_compute(where, VICTIM, "up")
    assert operator.holders(stack.volume()) == [server]
    assert stack.applications()["db_a"] == ["files", "postgresql"]
    assert compute.get_server(server).compute_host == found.compute_host
