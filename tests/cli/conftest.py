# SPDX-License-Identifier: Apache-2.0
"""A real Mistral with the pack, in a process of its own, over an emulated cloud; the command line
speaks to its API."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from mistral_failover.drill import examples
from mistral_failover.embedded.process import MistralProcess
from support.deployments import create_example, deployed


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
    group = "payments"
    with deployed(tmp_path_factory.mktemp("deployment")) as (mistral, cloud):
        create_example(cloud, group)
        deployment = Deployment(mistral, group)
        definition = {"definition": examples.group(1, group), "name": group}
        mistral.client.run_action("failover.define", definition)
        deployment.run("activate_first")
        deployment.run("failover", to="db_b", lost=[], because="a test of the standby")
        yield deployment
