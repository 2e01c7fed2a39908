# SPDX-License-Identifier: Apache-2.0
"""The real Ansible makes servers, a volume and a port; a group without a stack protects them; after
a failover the playbook runs again, and moves nothing back."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.pages import blocks, page
from support.waiting import patiently

FOLDER = Path(__file__).parents[2] / ".ansible"
"""Where ``make test-ansible`` installs it."""
pytestmark = [
    pytest.mark.ansible,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not (FOLDER / "bin").is_dir(), reason="see make test-ansible"),
]
ACTIVE = {"get_param": "active"}
PORT = """
    - openstack.cloud.port:
        name: "{{ app }}-entry"
        network: "{{ network }}"
"""
PLAYBOOK = blocks(page("ansible"), "yaml")[0].rstrip() + PORT
"""The page's, and a port that moves."""


def played(tmp_path: Path, name: str) -> dict[str, int]:
    """Run the playbook; what its recap counts."""
    playbook = tmp_path / "site.yaml"
    playbook.write_text(PLAYBOOK, "utf-8")
    here = {
        "ANSIBLE_COLLECTIONS_PATH": str(FOLDER),
        "ANSIBLE_HOME": str(tmp_path / "home"),
        "OS_CLOUD": "emulated",
    }
    command = [str(FOLDER / "bin" / "ansible-playbook"), "-i", "localhost,", "-c", "local"]
    values = {"app": name, "image": "tiny", "flavor": "m1.tiny", "network": "net1"}
    values["ansible_python_interpreter"] = str(FOLDER / "bin" / "python")
    for key, value in values.items():
        command += ["-e", f"{key}={value}"]
    done = subprocess.run(
        [*command, str(playbook)],
        env={**os.environ, **here},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    recap = done.stdout.rpartition("PLAY RECAP")[2]
    return {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", recap)}


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
