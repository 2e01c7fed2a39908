# SPDX-License-Identifier: Apache-2.0
"""A real Mistral with the pack, in a process of its own, over an emulated cloud; the command line
speaks to its API."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from mistral_failover.lab.drill import examples
from mistral_failover.lab.emulator.client import EmulatorClient
from support.commands import failover
from support.deployments import create_example, deployed
from support.mistral_process import MistralProcess

SECRET = b"the secret of this installation, of 40 b"


@dataclass
class Deployment:
    """What a user of the command line has before them."""

    mistral: MistralProcess
    cloud: EmulatorClient
    folder: Path
    group: str

    def failover(
        self, *words: str, url: str | None = None, typed: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run ``failover ...``, within this process. ``typed``: by somebody at a terminal."""
        token = str(self.mistral.token_file)
        where = ("--mistral-url", url or self.mistral.url, "--mistral-token-file", token)
        return failover(*where, *words, typed=typed)

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which ``failover ...`` finds it."""
        return {
            "FAILOVER_MISTRAL_URL": self.mistral.url,
            "FAILOVER_MISTRAL_TOKEN_FILE": str(self.mistral.token_file),
        }

    def shown(self, *words: str) -> Any:
        """What ``failover ... -f json`` says, which must succeed."""
        done = self.failover(*words, "-f", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def file(self, group: str, **more: Any) -> Path:
        """The group file of another group of the example's, with these keys, and its stack."""
        create_example(self.cloud, group)
        path = self.folder / f"{group}.yaml"
        path.write_text(yaml.safe_dump({**examples.group(1, group), **more}), encoding="utf-8")
        return path

    def crash(self, group: str, member: str = "db_a") -> dict[str, Any]:
        """Let a member's server die; the alarm that follows, of Aodh's kind."""
        server = self.cloud.resources(group)[member]["physical_resource_id"]
        self.cloud.fault("server", server, "crash")
        return dict(self.cloud.alarm_body(server))

    def protect(
        self,
        group: str,
        file: str = "postgresql.yaml",
        template: Callable[[dict[str, Any]], dict[str, Any]] = dict,
        **more: Any,
    ) -> None:
        """Bring up another group of an example's, with these keys in its file, and its stack of
        what ``template`` makes of the example's."""
        create_example(self.cloud, group, file, template)
        definition = {**examples.group(1, group, file), **more}
        inputs = {"definition": definition, "name": group}
        self.mistral.client.run_action("failover.define", inputs)
        self.run("activate_first", group=group)

    def hear(self, group: str, identity: str, **more: Any) -> str:
        """Let an alarm about a group arrive; return the incident that it is."""
        body = {"group": group, "id": identity, **more}
        ended = self.mistral.client.run("failover.on_event", {"body": body})
        (admission,) = ended["output"]["admissions"]
        return str(admission["incident"])

    def status(self, group: str) -> dict[str, Any]:
        """Where a group stands."""
        return dict(self.mistral.client.run_action("failover.status", {"group": group}))

    def run(self, workflow: str, **inputs: Any) -> dict[str, Any]:
        """Run a shipped workflow to its success."""
        ended = self.mistral.client.run(f"failover.{workflow}", {"group": self.group, **inputs})
        assert ended["state"] == "SUCCESS", ended
        return ended


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line is long enough that no cell of a table is broken."""
    monkeypatch.setenv("COLUMNS", "400")


@pytest.hookimpl(tryfirst=True)  # before those that were not chosen are taken out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a deployment, unless it is a drill: ``make test-cli``."""
    for item in items:
        here = item.path.parent == Path(__file__).parent
        needs_it = "deployment" in getattr(item, "fixturenames", ())
        if here and needs_it and item.get_closest_marker("drills") is None:
            item.add_marker(pytest.mark.served)


@contextmanager
def deploy(folders: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Deploy the example's group, and fail it over by hand once: two goals."""
    group, folder = "payments", folders.mktemp("deployment")
    secret = folders.mktemp("secret") / "agents.key"
    secret.write_bytes(SECRET)
    secret.chmod(0o600)
    # Groups of several tests fail within a minute: here that is no storm.
    options = {"agent_key_file": str(secret), "storm_groups": "0"}
    with deployed(folder, **options) as (mistral, cloud):
        deployment = Deployment(mistral, cloud, folder, group)
        deployment.protect(group)
        deployment.run("failover", to="db_b", lost=[], because="a test of the standby")
        yield deployment


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The deployment of most files here."""
    with deploy(tmp_path_factory) as deployment:
        yield deployment


@pytest.fixture
def held(deployment: Deployment, request: pytest.FixtureRequest) -> tuple[str, str]:
    """A group with an alarm about db_a that is held, for the group is paused."""
    group = request.node.name.replace("_", "-")[5:40].strip("-")
    deployment.protect(group)
    deployment.shown("pause", group, "--because", "we look")
    return group, deployment.hear(group, f"w-{group}", member="db_a")
