# SPDX-License-Identifier: Apache-2.0
"""Environments with a release of Mistral and the package, made by uv."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bench.services import AllInOne, SeparateProcesses, check_installed
from mistral_failover.mistral.releases import Release
from support.pages import ROOT
from testcloud.errors import CloudError

PINS = ROOT / "tests" / "installation" / "releases"
DRILL = ("h11", "starlette>=0.49.1", "uvicorn>=0.30")
"""What the drill needs besides, of which no release has constraints that matter."""
UV = (sys.executable, "-m", "uv")


def pins(release: Release) -> dict[str, str]:
    """The upper constraints of a release, by the name of the package."""
    lines = (PINS / f"{release.openstack}.txt").read_text("utf-8").splitlines()
    found = [line for line in lines if not line.startswith("#")]
    return {canonicalize_name(Requirement(line).name): line for line in found}


@dataclass(frozen=True)
class Site:
    """An environment with a Mistral and the package."""

    release: Release
    folder: Path

    @property
    def programs(self) -> Path:
        """The folder of its programs."""
        return self.folder / "bin"

    def failover(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the command line there."""
        command = [str(self.programs / "failover"), *words]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=300)

    def pip(self, *words: str | Path) -> None:
        """Run uv's pip there."""
        verb, *rest = words
        python = self.programs / "python"
        subprocess.run([*UV, "pip", verb, "--quiet", "--python", python, *rest], check=True)


def made(
    name: str,
    release: Release,
    python: str | Path,
    built: tuple[Path, Path],
    pinned: Mapping[str, str],
) -> Site:
    """Make the environment ``name`` anew.

    :param built: the wheels of the package and of the agent.
    :param pinned: lines of a file of constraints, by the name of the package.
    """
    package, agent = built
    # On the disk of uv's cache, whose files it links.
    folder = ROOT / "build" / "releases" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    constraints = folder.with_name(f"{name}.txt")
    constraints.write_text("\n".join(pinned.values()), "utf-8")
    subprocess.run([*UV, "venv", "--quiet", "--clear", "--python", python, folder], check=True)
    wanted: list[str | Path] = [
        f"mistral=={release.mistral}",
        f"mistral-failover[mysql] @ {package.as_uri()}",
        agent,
        *DRILL,
    ]
    if "setuptools" in pinned:
        wanted.append("setuptools")
    site = Site(release, folder)
    site.pip("install", "--constraints", constraints, *wanted)
    return site


@contextmanager
def mistral_of(site: Site, folder: Path) -> Iterator[SeparateProcesses]:
    """Run the Mistral of an environment beside an emulated cloud; the test is skipped if its
    database and its broker are not installed."""
    try:
        check_installed()
    except CloudError as missing:
        pytest.skip(str(missing))
    services = AllInOne(folder / "services", 1, site.programs)
    with SeparateProcesses(folder, services=services, more={}, idle_exit=900.0) as running:
        yield running
