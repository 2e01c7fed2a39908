# SPDX-License-Identifier: Apache-2.0
"""The shell commands of README and docs/rest-api.md, as they stand there, against a Mistral and an
emulated cloud."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mistral_failover import workflows
from mistral_failover.lab.drill import examples
from mistral_failover.lab.emulator.client import write_clouds_yaml
from mistral_failover.lab.emulator.server import EmulatedCloud
from support.mistral_process import MistralProcess
from support.pages import PAGES, ROOT, blocks, page, section

NEEDED = ("bash", "curl", "jq")

pytestmark = [
    pytest.mark.drills,
    pytest.mark.skipif(
        not all(shutil.which(tool) for tool in NEEDED),
        reason=f"the README's commands need {', '.join(NEEDED)}",
    ),
]


@pytest.fixture
def mistral(tmp_path: Path) -> Iterator[MistralProcess]:
    """A Mistral with the pack, and the example's stack in a cloud behind it."""
    with EmulatedCloud() as cloud:
        cloud.client.create_stack("payments", examples.stack())
        cloud.client.add_application(
            "postgresql", start="pg-start", stop="pg-stop", needs_volume=True, stack="payments"
        )
        options = {
            "failover.database": f"sqlite:///{tmp_path / 'failover.sqlite'}",
            "failover.cloud": "emulated",
            "failover.command_channel": f"emulator+{cloud.url}",
            "failover.poll_ceiling": 0.05,
        }
        with MistralProcess(
            tmp_path / "mistral",
            workflows=workflows.paths(),
            overrides=options,
            env={**os.environ, "OS_CLIENT_CONFIG_FILE": str(clouds_yaml(tmp_path, cloud))},
        ) as process:
            yield process


def clouds_yaml(folder: Path, cloud: EmulatedCloud) -> Path:
    path = folder / "clouds.yaml"
    write_clouds_yaml(path, "emulated", cloud.url)
    return path


@pytest.mark.timeout(300)
def test_the_commands_of_the_readme_do_what_it_says(mistral: MistralProcess) -> None:
    commands = blocks(section(PAGES["README.md"], "Operate it"), "sh")

    token = str(mistral.token_file)
    told = run(
        commands, {"FAILOVER_MISTRAL_URL": mistral.url, "FAILOVER_MISTRAL_TOKEN_FILE": token}
    )

    created, planned, started, stood, home, moved, undone = told
    assert "| status    | COMPLETE" in created
    assert "active: db_a" in created
    assert "failover of payments: active on db_b; db_a lost" in planned
    assert "failover start --plan " in planned
    assert "active: db_b" in started
    assert re.search(r"^lost +db_a$", stood, re.M)
    assert "Done: " in stood
    assert "active: db_a" in home
    assert "moved: active on db_b" in moved
    assert "active: db_a" in undone


def test_the_same_is_done_by_mistral_s_api_alone(mistral: MistralProcess, tmp_path: Path) -> None:
    text = page("rest-api")
    _, plan = blocks(text, "text")

    header = tmp_path / "token"
    header.write_text(f"X-Auth-Token: {mistral.token}\n")

    told = run(blocks(text, "sh"), {"MISTRAL": mistral.url, "TOKEN_FILE": str(header)})[1:]

    define, shown_plan, failover, standing, back, sweep = told
    assert '"group": "payments"' in define
    assert '{"state":"SUCCESS","group":"payments"' in define
    assert shown_plan == plan.strip()
    assert '"status":"COMPLETE"' in failover
    assert '"roles":{"active":"db_b"},"lost":["db_a"]' in failover
    assert standing.splitlines()[0] == (
        '{"status":"COMPLETE","reason":"","roles":{"active":"db_b"},"lost":["db_a"]}'
    )
    assert standing.splitlines()[-1] == "Done: db_b is active"
    assert '"roles":{"active":"db_a"},"lost":[]' in back
    assert sweep == "failover-sweep"


def run(commands: list[str], variables: dict[str, str]) -> list[str]:
    """What each block printed; they share one shell."""
    mark = "-- next block --"
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", f"\necho '{mark}'\n".join(commands)],
        cwd=ROOT,
        env={**os.environ, "PATH": programs, "no_proxy": "127.0.0.1", **variables},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [answer.strip() for answer in done.stdout.split(mark)]
