# SPDX-License-Identifier: Apache-2.0
"""The images, built and started where a builder of images is: Podman, Docker or Buildah.

``FAILOVER_PYTHON_IMAGE`` names another base, where Docker's registry cannot be reached.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

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


BASE = os.environ.get("FAILOVER_PYTHON_IMAGE", "docker.io/library/python:3.12-slim-bookworm")
MISTRAL = f"""\
FROM {BASE}
RUN useradd --system mistral && python3 -m venv /var/lib/kolla/venv
ENV PATH=/var/lib/kolla/venv/bin:$PATH
RUN pip install --no-cache-dir 'mistral>=23,<24'
USER mistral
"""
"""An image as Kolla's are: Mistral in a virtual environment, and its own user."""


@cache
def image(target: str) -> str:
    """Build an image; returns its name."""
    given = {"PYTHON_IMAGE": BASE}
    if target == "mistral":
        given["MISTRAL_IMAGE"] = mistrals_own_image()
    arguments = [f"--build-arg={name}={value}" for name, value in given.items()]
    return build(ROOT, target, "--target", target, *arguments)


@cache
def mistrals_own_image() -> str:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Containerfile").write_text(MISTRAL)
        return build(Path(folder), "own-mistral")


def build(folder: Path, name: str, *options: str) -> str:
    program = builder()
    if program is None:
        pytest.skip("neither podman, docker nor buildah works here")
    tag = f"localhost/failover-test-{name}"
    file = str(folder / "Containerfile")
    call(program, "build", "--file", file, "--tag", tag, *options, str(folder))
    return tag


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

    assert done.stdout == f"failover-agent {version('mistral-failover-agent')}\n", done.stderr


def test_the_agents_image_has_no_more_than_the_agent_needs() -> None:
    done = run("agent", "python3", "-c", "import mistral_failover.errors, kombu, sqlalchemy")

    assert "No module named 'sqlalchemy'" in done.stderr


def test_the_servers_image_has_a_server_that_lacks_only_a_cloud() -> None:
    where = ("--state-dir", "/var/lib/failover/state")
    done = run("server", "failover", "server", "--check", *where, "-f", "json")

    assert done.returncode == 1, done.stderr
    errors = [row for row in json.loads(done.stdout) if row["kind"] == "error"]
    assert [row["code"] for row in errors] == ["CONFIG"]
    assert "the entry failover of clouds.yaml" in errors[0]["message"]


def test_the_server_runs_as_a_user_without_rights() -> None:
    assert run("server", "id", "-u").stdout.strip() == "997"


def test_mistral_finds_the_actions_and_the_workflows_in_the_layer_on_its_image() -> None:
    script = (
        "from importlib.metadata import entry_points as found;"
        "print(found(group='mistral.actions')['failover.advance'].load().__name__);"
        "print(len(found(group='mistral.preinstalled_workflows')['failover'].load()()) > 10)"
    )
    done = run("mistral", "python3", "-c", script)

    assert done.stdout.split() == ["Advance", "True"], done.stderr
    assert run("mistral", "id", "-un").stdout.strip() == "mistral"
