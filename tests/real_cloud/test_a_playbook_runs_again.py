# SPDX-License-Identifier: Apache-2.0
"""A playbook of the real Ansible makes servers, a volume and a port in a real Nova, Cinder and
Neutron; a group without a stack protects them; after a failover the playbook runs again, and moves
nothing back. `tests/workflows/test_a_playbook_runs_again.py` is the same without a cloud."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import playbooks
from support.cloud_audit import CloudAudit
from testcloud.settings import Settings
from testcloud.tenant import Tenant

pytestmark = [pytest.mark.ansible, pytest.mark.timeout(600), playbooks.INSTALLED]
ACTIVE = {"get_param": "active"}
PLAYBOOK = playbooks.PLAYBOOK.replace("size: 100", "size: 1")


@pytest.fixture
def name(demo: Tenant, audited: CloudAudit) -> Iterator[str]:
    """The name of the group, and of all that the playbook makes; removed at the end."""
    name = f"played-{os.getpid()}"
    audited.watch(demo, name)
    yield name
    if name in demo.action("failover.status")["groups"]:
        demo.run("failover.remove", group=name)
    cloud = demo.cloud
    cloud.delete_port(f"{name}-entry")
    for member in ("a", "b"):
        cloud.delete_server(f"{name}-db-{member}", wait=True)
    cloud.delete_volume(f"{name}-data", wait=True)


def played(where: Settings, folder: Path, name: str) -> int:
    """Run the playbook; how many tasks changed something."""
    return playbooks.played(
        folder,
        playbook=PLAYBOOK,
        environment={
            "OS_CLOUD": "testcloud-demo",
            "OS_CLIENT_CONFIG_FILE": str(where.clouds_yaml),
        },
        app=name,
        image="tiny",
        flavor="m1.tiny",
        network="net1",
    )["changed"]


def group_file(name: str) -> dict[str, Any]:
    """A group file that names what the playbook made."""
    return {
        "failover_template_version": "2026-11-21",
        "members": {"servers": {f"db_{each}": {"tag": f"role=db-{each}"} for each in "ab"}},
        "limits": {"cooldown": 0, "per_hour": 1000},
        "resources": {
            "data": {
                "type": "volume_attachment",
                "properties": {"volume": {"name": f"{name}-data"}, "server": ACTIVE},
            },
            "entry": {
                "type": "port",
                "properties": {"port": {"name": f"{name}-entry"}, "server": ACTIVE},
            },
            "database": {
                "type": "activation",
                "depends_on": ["data"],
                "properties": {"member": ACTIVE, "start": f"start-{name}", "stop": f"stop-{name}"},
            },
        },
    }


def test_a_playbook_that_runs_again_moves_nothing_back(
    where: Settings, demo: Tenant, name: str, tmp_path: Path
) -> None:
    assert played(where, tmp_path, name) == 3
    cloud = demo.cloud
    servers = {f"db_{each}": cloud.get_server(f"{name}-db-{each}").id for each in "ab"}
    volume, port = cloud.get_volume(f"{name}-data").id, cloud.get_port(f"{name}-entry").id
    demo.guests.add_application(name, start=f"start-{name}", stop=f"stop-{name}", needs_volume=True)
    demo.action("failover.define", definition=group_file(name), name=name)
    done = demo.run("failover.activate_first", group=name)
    assert done["state"] == "SUCCESS", done["output"]
    assert demo.holders(volume) == [servers["db_a"]]
    assert played(where, tmp_path, name) == 0

    demo.guests.fault("server", servers["db_a"], "crash")
    done = demo.run("failover.failover", group=name, lost=["db_a"], because="it crashed")
    assert done["state"] == "SUCCESS", done["output"]
    assert played(where, tmp_path, name) == 0

    assert demo.holders(volume) == [servers["db_b"]]
    assert cloud.network.get_port(port).device_id == servers["db_b"]
    assert demo.guests.guests()[servers["db_b"]]["applications"] == [name]
