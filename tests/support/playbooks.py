# SPDX-License-Identifier: Apache-2.0
"""The playbook of docs/ansible.md, played by the real Ansible."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.pages import blocks, page

FOLDER = Path(__file__).parents[2] / ".ansible"
"""Where ``make test-ansible`` installs it."""
INSTALLED = pytest.mark.skipif(
    not (FOLDER / "bin").is_dir(), reason="Ansible is not there: see make test-ansible"
)
PORT = """
    - openstack.cloud.port:
        name: "{{ app }}-entry"
        network: "{{ network }}"
"""
PLAYBOOK = blocks(page("ansible"), "yaml")[0].rstrip() + PORT
"""The page's, and a port that moves."""


def played(
    folder: Path, *, playbook: str = PLAYBOOK, environment: Mapping[str, str], **values: str
) -> dict[str, int]:
    """Run a playbook with these values of its variables; what its recap counts."""
    file = folder / "site.yaml"
    file.write_text(playbook, "utf-8")
    here = {
        "ANSIBLE_COLLECTIONS_PATH": str(FOLDER),
        "ANSIBLE_HOME": str(folder / "home"),
        **environment,
    }
    command = [str(FOLDER / "bin" / "ansible-playbook"), "-i", "localhost,", "-c", "local"]
    values["ansible_python_interpreter"] = str(FOLDER / "bin" / "python")
    for key, value in values.items():
        command += ["-e", f"{key}={value}"]
    done = subprocess.run(
        [*command, str(file)],
        env={**os.environ, **here},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    recap = done.stdout.rpartition("PLAY RECAP")[2]
    return {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", recap)}
