# SPDX-License-Identifier: Apache-2.0
"""A real Mistral with the pack, in a process of its own, over an emulated cloud; the command line
speaks to its API."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mistral_failover.workflows
import pytest

from mistral_failover.drill import examples
from mistral_failover.embedded.process import MistralProcess
from mistral_failover.emulator.clouds import write_clouds_yaml
from mistral_failover.emulator.server import EmulatedCloud


@dataclass
class Deployment:
    """What a user of the command line has before them."""

    mistral: MistralProcess
    group: str

    def failover(self, *words: str, url: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run ``failover ...``."""
        command = [sys.executable, "-m", "mistral_failover.cli.main", *words]
        where = {"FAILOVER_MISTRAL_URL": url or self.mistral.url}
        return subprocess.run(
            command, env=os.environ | where, capture_output=True, text=True, timeout=60
        )

    def run(self, workflow: str, **inputs: Any) -> dict[str, Any]:
        """Run a shipped workflow to its success."""
        ended = self.mistral.client.run(f"failover.{workflow}", {"group": self.group, **inputs})
        assert ended["state"] == "SUCCESS", ended
        return ended


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The example's group, failed over by hand once: two goals."""
    folder: Path = tmp_path_factory.mktemp("deployment")
    with EmulatedCloud() as cloud:
        clouds = folder / "clouds.yaml"
        write_clouds_yaml(clouds, "emulated", cloud.url)
        options = {
            "database": f"sqlite:///{folder}/failover.sqlite",
            "cloud": "emulated",
            "command_channel": f"emulator+{cloud.url}",
        }
        mistral = MistralProcess(
            folder / "mistral",
            workflows=mistral_failover.workflows.paths(),
            overrides={f"failover.{name}": value for name, value in options.items()},
            env=os.environ | {"OS_CLIENT_CONFIG_FILE": str(clouds)},
        )
        group = "payments"
        cloud.client.create_stack(group, examples.stack(1))
        cloud.client.add_application(
            f"postgresql-{group}", start="pg-start", stop="pg-stop", needs_volume=True, stack=group
        )
        with mistral:
            deployed = Deployment(mistral, group)
            definition = {"definition": examples.group(1, group), "name": group}
            mistral.client.run_action("failover.define", definition)
            deployed.run("activate_first")
            deployed.run("failover", to="db_b", lost=[], because="a test of the standby")
            yield deployed
