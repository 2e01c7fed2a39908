# SPDX-License-Identifier: Apache-2.0
"""A group that has no rung of an operator: its guest panics, loses its disk or its agent; nothing
is wrong, and the service moves as planned; or an operator fences the host."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support import machines
from support.machines import QUIESCE, STOP, Service
from testcloud.machines import ceph, network
from testcloud.tenant import Tenant, until

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


def test_a_rehearsal_on_a_copy_while_the_database_writes(
    protected: Callable[..., Service], demo: Tenant
) -> None:
    """PostgreSQL recovers on a copy of its volume, as after a loss of power, and its own check
    finds no corrupt page; the writers notice a longer pause between two rows at most."""
    service = protected(*LADDER)
    service.write()
    storage = demo.cloud.block_storage
    before = sorted(each.id for each in storage.volumes())

    with service.fault("rehearsal", turns=(service.active,)):
        told = machines.rehearse(service)

    report = told["report"]
    assert told["status"] == "PASSED"
    assert [(each["command"], each["passed"]) for each in report["checks"]] == [("pg-check", True)]
    assert sorted(each.id for each in storage.volumes()) == before
    assert list(storage.snapshots()) == []
    service.note(
        f"rehearsal: a failover would take {report['to_service']:.1f} s; "
        + ", ".join(f"{step['what']} {step['seconds']:.1f} s" for step in report["steps"])
    )


def test_a_panicking_kernel(protected: Callable[..., Service]) -> None:
    """Nova says ACTIVE; it can stop the guest, and that is the proof."""
    service = protected(*LADDER)
    service.write()

    with service.fault("kernel panic"):
        machines.panic(service)

    assert service.proof().rung == "stop"


def test_a_host_without_its_storage(protected: Callable[..., Service]) -> None:
    """The agent answers, and its commands hang in their writes."""
    service = protected(*LADDER)
    service.write()

    with service.fault("storage cut"):
        machines.cut_storage(service)

    assert service.proof().rung == "stop"


def test_an_operator_has_the_storage_refuse_a_host(
    protected: Callable[..., Service], operator: Tenant
) -> None:
    """The host is cut off, and no group has the rung."""
    service = protected(*LADDER)
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
