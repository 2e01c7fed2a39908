# SPDX-License-Identifier: Apache-2.0
"""docs/ansible.md, followed word by word in an empty folder: its playbook, its group file and its
commands, with the real Ansible."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.pages import ROOT, blocks, page
from support.servers import ServerProcess

PAGE = page("ansible")
INSTALLED = ROOT / ".ansible"
"""Where ``make test-ansible`` installs it."""
pytestmark = [
    pytest.mark.ansible,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not (INSTALLED / "bin").is_dir(), reason="see make test-ansible"),
]
_MARK = "-- next block --"


def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    (playbook,) = blocks(PAGE, "yaml")
    (tmp_path / "site.yaml").write_text(playbook, "utf-8")
    shutil.copy(ROOT / "examples" / "group-without-stack.yaml", tmp_path)
    script = f"\necho '{_MARK}'\n".join(blocks(PAGE, "sh"))
    programs = (Path(sys.executable).parent, INSTALLED / "bin", os.environ["PATH"])

    with ServerProcess(tmp_path / "ansible-state", "--emulated"):
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", script],
            cwd=tmp_path,
            env=os.environ
            | {
                "PATH": os.pathsep.join(map(str, programs)),
                "ANSIBLE_COLLECTIONS_PATH": str(INSTALLED),
                "ANSIBLE_HOME": str(tmp_path / "home"),
                "COLUMNS": "200",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=500,
        )

    assert done.returncode == 0, done.stdout
    made, created, failed_over = done.stdout.split(_MARK)
    assert re.search(r"changed=2 .* failed=0", made), made
    assert re.search(r"roles +\| active: db_a", created), created
    assert "Associate entry with db_b: done" in failed_over
    assert re.search(r"changed=0 .* failed=0", failed_over), failed_over
    assert re.search(r"active +active on db_b", failed_over), failed_over


def test_it_was_tried_with_the_versions_that_the_page_names() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")

    for name in ("ansible", "openstacksdk"):
        (version,) = set(re.findall(rf"\b{name}==([\d.]+)", PAGE))
        assert f"'{name}=={version}'" in makefile
    (collection,) = re.findall(r"\((\d+\.\d+\.\d+)\)", PAGE)
    told = INSTALLED / "ansible_collections" / "openstack" / "cloud" / "MANIFEST.json"
    assert f'"version": "{collection}"' in told.read_text("utf-8")
