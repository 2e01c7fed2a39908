# SPDX-License-Identifier: Apache-2.0
"""``openstack failover ...``: the real openstack client, with a clouds.yaml, against the emulated
cloud's Keystone, whose catalog names a real Mistral."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from mistral_failover.cli import connection, osc, workflows
from mistral_failover.cli.workflows import Registry
from mistral_failover.lab.drill import examples
from mistral_failover.lab.emulator.client import write_clouds_yaml
from mistral_failover.lab.emulator.server import EmulatedCloud
from support.deployments import create_example

pytestmark = pytest.mark.drills

OPENSTACK = Path(sys.executable).parent / "openstack"


def openstack(deployment: Any, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``openstack ...`` as the emulated cloud's demo user."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
    env["OS_CLIENT_CONFIG_FILE"] = str(deployment.folder / "clouds.yaml")
    return subprocess.run(
        [str(OPENSTACK), "--os-cloud", "emulated", *words],
        env=env,
        capture_output=True,
        text=True,
        timeout=90,
    )


@pytest.fixture(scope="session")
def bazaar(deployment: Any) -> str:
    """A group that the client created in its own project, with the rights of its own token."""
    group = "bazaar"
    create_example(deployment.cloud, group)
    file = deployment.folder / "bazaar.yaml"
    file.write_text(yaml.safe_dump(examples.group(1, group)), encoding="utf-8")
    done = openstack(deployment, "failover", "group", "create", str(file), "-f", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "COMPLETE"
    return group


def test_a_group_s_status_is_asked_with_the_client_s_own_options(
    deployment: Any, bazaar: str
) -> None:
    done = openstack(deployment, "failover", "status", bazaar, "-f", "json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["roles"] == {"active": "db_a"}
    assert bazaar not in deployment.shown("status")["groups"], "to another project"


def test_the_program_speaks_to_the_same_mistral_by_clouds_yaml(
    deployment: Any, bazaar: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from support.commands import failover

    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(deployment.folder / "clouds.yaml"))
    monkeypatch.delenv("FAILOVER_MISTRAL_URL", raising=False)

    done = failover("--os-cloud", "emulated", "group", "list", "-f", "json")
    nowhere = failover("--os-cloud", "unknown", "group", "list")

    assert done.returncode == 0, done.stderr
    assert bazaar in [row["name"] for row in json.loads(done.stdout)]
    assert (nowhere.returncode, "[NO_CLOUD]" in nowhere.stderr) == (1, True)


def test_what_a_workflow_launches_is_in_its_own_namespace(
    deployment: Any,
) -> None:
    from openstack.config import OpenStackConfig

    file = deployment.folder / "clouds.yaml"
    region = OpenStackConfig(config_files=[str(file)], load_envvars=False).get_one(cloud="emulated")
    client = connection.in_the_cloud(region)
    own = Registry(client, "own")
    for name, text in workflows.read_definitions([]).items():
        own.install(name, text, None)
    create_example(deployment.cloud, "market")
    inputs = {"name": "market", "definition": examples.group(1, "market")}

    ended = client.run("failover.protect", inputs, namespace="own")

    # What becomes of it is another matter: this Mistral has no Keystone in front of it.
    launched = client.wait(ended["output"]["execution"])
    assert launched["workflow_name"] == "failover.activate_first"
    assert launched["workflow_namespace"] == "own"


def test_an_error_has_its_code_and_its_exit_code(deployment: Any) -> None:
    done = openstack(deployment, "failover", "status", "unknown")

    assert done.returncode == 1
    assert "[UNKNOWN_GROUP]" in done.stderr


def test_a_cloud_without_mistral_is_answered_with_what_this_client_has(tmp_path: Path) -> None:
    with EmulatedCloud() as cloud:
        write_clouds_yaml(tmp_path / "clouds.yaml", "emulated", cloud.url)
        done = openstack(SimpleNamespace(folder=tmp_path), "failover", "status")

    assert done.returncode == 1
    assert "[NO_CLOUD]" in done.stderr
    assert "--mistral-url" not in done.stderr
    assert "a cloud whose catalog has Mistral" in done.stderr


def test_a_wrong_command_line_has_its_exit_code_too(deployment: Any) -> None:
    done = openstack(deployment, "failover", "plan", "bazaar", "--fact", "db_a dwn")

    assert (done.returncode, "[USAGE]" in done.stderr) == (2, True), done.stderr


def test_the_plugin_has_the_version_that_its_commands_are_declared_for() -> None:
    assert osc.DEFAULT_API_VERSION in osc.API_VERSIONS
    assert f"openstack.{osc.API_NAME}.v{osc.DEFAULT_API_VERSION}" in entry_points().groups
