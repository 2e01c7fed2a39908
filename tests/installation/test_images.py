# SPDX-License-Identifier: Apache-2.0
"""The images, built and started where a builder of images is: Podman, Docker or Buildah.

``FAILOVER_PYTHON_IMAGE`` names another base, where Docker's registry cannot be reached.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from importlib.metadata import version

import pytest

from support.pages import ROOT

pytestmark = [pytest.mark.package, pytest.mark.timeout(1200)]


@cache
def builder() -> str | None:
    """The first program that can build images here."""
    for program, ask in (("podman", "info"), ("docker", "info"), ("buildah", "images")):
        if shutil.which(program):
            done = subprocess.run([program, ask], capture_output=True, check=False)
            if done.returncode == 0:
                return program
    return None


def call(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=check)


@cache
def image(target: str) -> str:
    """Build an image; returns its name."""
    program = builder()
    if program is None:
        pytest.skip("neither podman, docker nor buildah works here")
    name = f"localhost/failover-test-{target}"
    base = os.environ.get("FAILOVER_PYTHON_IMAGE")
    given = ("--build-arg", f"PYTHON_IMAGE={base}") if base else ()
    # Docker looks for another name unless it is told.
    call(
        program, "build", *given, "--file", "Containerfile", "--target", target, "--tag", name, "."
    )
    return name


def run(target: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a new container, as the image's user."""
    name, program = image(target), builder()
    assert program is not None
    if program != "buildah":
        words = ("--rm", "--entrypoint", command[0], name, *command[1:])
        return call(program, "run", *words, check=False)
    container = call("buildah", "from", name).stdout.strip()
    try:
        return call("buildah", "run", container, "--", *command, check=False)
    finally:
        call("buildah", "rm", container)


def test_the_agents_image_has_the_agent() -> None:
    done = run("agent", "failover-agent", "--version")

    assert done.stdout == f"failover-agent {version('mistral-failover')}\n", done.stderr


def test_the_agents_image_has_no_more_than_the_agent_needs() -> None:
    done = run("agent", "python3", "-c", "import mistral_failover, kombu, yaml, sqlalchemy")

    assert "No module named 'sqlalchemy'" in done.stderr


def test_the_servers_image_has_a_server_that_lacks_only_a_cloud() -> None:
    where = ("--state-dir", "/var/lib/failover/state")
    done = run("server", "failover", "server", "--check", *where, "-f", "json")

    assert done.returncode == 1
    assert {row["code"] for row in json.loads(done.stdout) if row["kind"] == "error"} == {
        "NO_CLOUD"
    }


def test_the_server_runs_as_a_user_without_rights() -> None:
    assert run("server", "id", "-u").stdout.strip() == "997"
