# SPDX-License-Identifier: Apache-2.0
"""The wheel in an environment of each release of Mistral, at that release's upper constraints
(releases/), and of the oldest one at our own lower bounds: its actions and workflows, and a
failover with that Mistral, as ``mistral-server --server all`` runs it."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bench.services import SeparateProcesses
from deploy import wheels
from mistral_failover.lab.drill.run import GROUP, DrillRun
from mistral_failover.mistral.releases import RELEASES
from support import guests
from support.pages import ROOT
from support.release_sites import Site, made, mistral_of, pins

LOWEST = "lowest"
CASES = {each.openstack: each for each in RELEASES} | {LOWEST: RELEASES[0]}

pytestmark = pytest.mark.timeout(1200)


def requirements() -> list[Requirement]:
    """What the package needs in the environment of a Mistral."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    texts = (parser["options"]["install_requires"], parser["options.extras_require"]["mysql"])
    needed = [Requirement(line) for text in texts for line in text.split("\n") if line.strip()]
    return [each for each in needed if each.name != "mistral-failover-agent"]


def lower_bounds() -> dict[str, str]:
    """The oldest versions that setup.cfg allows, pinned."""
    found = {}
    for each in requirements():
        (least,) = [s.version for s in each.specifier if s.operator == ">="]
        found[canonicalize_name(each.name)] = f"{each.name}=={least}"
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return wheels.build(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module", params=CASES)
def site(request: pytest.FixtureRequest, built: tuple[Path, Path]) -> Site:
    """The environment of a release, made by uv."""
    release = CASES[request.param]
    python = guests.interpreters().get(release.python)
    if python is None:
        pytest.skip(f"needs Python {release.python}")
    pinned = pins(release)
    if request.param == LOWEST:
        # An old version may need an older one of what only it needs.
        pinned = {k: v.replace("==", "<=") for k, v in pinned.items()} | lower_bounds()
    return made(request.param, release, python, built, pinned)


@pytest.fixture(scope="module")
def scene(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeparateProcesses]:
    """That Mistral, which runs beside an emulated cloud."""
    with mistral_of(site, tmp_path_factory.mktemp("scene")) as running:
        yield running


@pytest.mark.releases
def test_its_mistral_knows_the_actions_of_the_workflows(site: Site) -> None:
    files = [str(each) for each in sorted((ROOT / "workflows").glob("*.yaml"))]

    done = site.failover("workflows", "validate", "--strict", *files)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(files)} files: 0 errors, 0 warnings" in done.stdout


@pytest.mark.releases
def test_its_mistral_fails_a_group_over(site: Site, scene: SeparateProcesses) -> None:
    told: list[str] = []
    play = DrillRun(scene, tell=lambda _at, _kind, sentence: told.append(sentence))

    outcome = play.run()

    log = scene.services.log / "all-1.log"
    assert outcome.violations == [], "\n".join(told)
    assert outcome.active == "db_b", "\n".join(told)
    at = ("--mistral-url", scene.services.url)
    shown = site.failover("status", GROUP, *at)
    assert shown.returncode == 0, shown.stderr
    assert "it serves on db_b" in shown.stdout
    assert site.failover("status", *at).returncode == 0
    assert site.failover("workflows", "diff", *at).returncode == 0
    doctor = site.failover("doctor", *at).stdout
    assert f"Mistral {site.release.mistral} of OpenStack {site.release.openstack}" in doctor
    assert "Defect" not in log.read_text("utf-8", errors="replace")


@pytest.mark.releases
def test_its_mistral_runs_within_the_drill_or_the_drill_says_which_does(site: Site) -> None:
    done = site.failover("drill", "--latency", "zero")

    if site.release.embedded:
        assert done.returncode == 0, done.stdout + done.stderr
        assert "all held" in done.stdout
    else:
        assert done.returncode == 1
        assert done.stderr.startswith(
            f"Mistral {site.release.mistral} is installed here, and failover server and failover "
            "drill run only Mistral 23. Install them into an environment of their own"
        )


@pytest.mark.parametrize("name", [each.openstack for each in RELEASES])
def test_the_upper_constraints_of_a_release_are_within_our_bounds(name: str) -> None:
    pinned = pins(CASES[name])
    outside = []
    for each in requirements():
        line = pinned.get(canonicalize_name(each.name))
        if line is not None and not each.specifier.contains(re.split("==", line)[1]):
            outside.append(f"{line}, but setup.cfg has {each}")

    assert outside == []
