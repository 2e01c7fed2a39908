# SPDX-License-Identifier: Apache-2.0
"""The example of a single server that boots from a volume: after its loss another server boots
from the same volume, with the same port, and serves."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import yaml

from support.cloud_audit import CloudAudit
from testcloud.settings import ROOT
from testcloud.tenant import Tenant

pytestmark = pytest.mark.timeout(600)
STACK = ROOT / "examples" / "boots-from-a-volume-stack.yaml"
GROUP = ROOT / "examples" / "boots-from-a-volume.yaml"


@pytest.fixture
def name(demo: Tenant, audited: CloudAudit) -> Iterator[str]:
    """The example, active; its member comes back only by another server."""
    name = f"pet-{os.getpid()}"
    audited.watch(demo, name)
    group = yaml.safe_load(GROUP.read_text("utf-8"))
    version = str(group["failover_template_version"])  # YAML takes it for a date
    group |= {"failover_template_version": version, "stack": name}
    group["limits"] = {"cooldown": 0, "per_hour": 1000}
    group["members"] |= {"restart": ["replace"]}
    demo.create_stack(name, STACK.read_text("utf-8"))
    demo.action("failover.define", definition=group, name=name)
    done = demo.run("failover.activate_first", group=name)
    assert done["state"] == "SUCCESS", done["output"]
    yield name
    demo.run("failover.remove", group=name)
    demo.delete_stack(name)


def parts(demo: Tenant, name: str) -> dict[str, str]:
    """The id of each resource of the stack."""
    found = demo.cloud.orchestration.resources(demo.stack(name).id)
    return {row.name: str(row.physical_resource_id) for row in found}


def address(demo: Tenant, server: str) -> list[str]:
    """The addresses that Nova shows of a server."""
    return [
        row["addr"]
        for rows in demo.cloud.compute.get_server(server).addresses.values()
        for row in rows
    ]


def test_the_next_server_has_the_boot_disk_and_the_address_of_the_lost_one(
    demo: Tenant, name: str
) -> None:
    before = parts(demo, name)
    lost, at = before["db"], address(demo, before["db"])
    assert demo.holders(before["system"]) == [lost]
    demo.guests.fault("server", lost, "crash")

    done = demo.run("failover.failover", 240, group=name, lost=["db"], because="it crashed")

    assert done["state"] == "SUCCESS", done["output"]
    after = parts(demo, name)
    now = after["db"]
    assert now != lost
    assert (after["system"], after["front"]) == (before["system"], before["front"])
    assert demo.holders(after["system"]) == [now]
    assert demo.holders(after["data_volume"]) == [now]
    assert address(demo, now) == at
    assert demo.guests.guests()[now]["applications"]
    assert lost not in {server.id for server in demo.cloud.compute.servers()}
    status = demo.action("failover.status", group=name)
    assert (status["status"], status["roles"]) == ("COMPLETE", {"active": "db"})
    assert [row["found"] for row in status["restarts"]] == ["replace"]
