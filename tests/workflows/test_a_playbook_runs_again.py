# SPDX-License-Identifier: Apache-2.0
"""The real Ansible makes servers, a volume and a port; a group without a stack protects them; after
a failover the playbook runs again, and moves nothing back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import playbooks
from support.waiting import patiently

pytestmark = [pytest.mark.ansible, pytest.mark.timeout(600), playbooks.INSTALLED]
ACTIVE = {"get_param": "active"}


def played(folder: Path, name: str) -> dict[str, int]:
    """Run the playbook; what its recap counts."""
    return playbooks.played(
        folder,
        environment={"OS_CLOUD": "emulated"},
        app=name,
        image="tiny",
        flavor="m1.tiny",
        network="net1",
    )


def test_a_playbook_that_runs_again_moves_nothing_back(
    loose: Callable[..., Any], tmp_path: Path
) -> None:
    group = loose(())
    group.members = ("db_a", "db_b")
    del group.ids["data"]
    group.api.block_storage.delete_volume(group.api.block_storage.find_volume(f"{group.name}-data"))
    assert played(tmp_path, group.name)["changed"] == 3
    for member in group.members:
        name = f"{group.name}-{member.replace('_', '-')}"
        group.ids[member] = group.api.compute.find_server(name).id
    group.ids["data"] = group.api.block_storage.find_volume(f"{group.name}-data").id
    port = group.api.network.find_port(f"{group.name}-entry").id
    file = group.file()
    file["members"] = {
        "servers": {each: {"tag": f"role={each.replace('_', '-')}"} for each in group.members}
    }
    file["resources"]["entry"] = {
        "type": "port",
        "properties": {"port": {"name": f"{group.name}-entry"}, "server": ACTIVE},
    }
    answer = group.define(file)
    assert "created" in answer, answer
    assert group.activate()["status"] == "COMPLETE", group.told()
    assert played(tmp_path, group.name)["changed"] == 0
    assert group.holders() == ["db_a"]

    patiently(group, "on_alarm", **group.fails()).assert_succeeded()
    assert played(tmp_path, group.name)["changed"] == 0

    assert (group.runs_on(), group.holders()) == (["db_b"], ["db_b"])
    assert group.api.network.get_port(port).device_id == group.server("db_b")
    assert group.observed()["status"] == "DEGRADED", "the lost member is to be recovered"
