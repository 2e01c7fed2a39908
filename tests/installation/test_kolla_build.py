# SPDX-License-Identifier: Apache-2.0
"""The override for Kolla, with Kolla's own templates: its kolla-build, from PyPI."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.pages import ROOT

pytestmark = [pytest.mark.package, pytest.mark.timeout(600)]

UV = [sys.executable, "-m", "uv"]
INSTALL = (
    "RUN python3 -m pip --no-cache-dir install --upgrade -c /requirements/upper-constraints.txt"
)


@pytest.fixture(scope="module")
def dockerfiles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The Dockerfiles of all images that have to do with Mistral, by image."""
    folder = tmp_path_factory.mktemp("kolla")
    python = folder / "venv" / "bin" / "python"
    subprocess.run(
        [*UV, "venv", "--quiet", "--python", sys.executable, folder / "venv"], check=True
    )
    install = [*UV, "pip", "install", "--quiet", "--python", python, "kolla", "docker"]
    subprocess.run(install, check=True)
    override = ROOT / "deploy" / "kolla" / "template-overrides.j2"
    subprocess.run(
        [
            *(python.with_name("kolla-build"), "--template-only", "--base", "debian"),
            *("--work-dir", folder / "work", "--template-override", override, "^mistral"),
        ],
        check=True,
        capture_output=True,
    )
    files = Path(folder / "work").rglob("Dockerfile")
    return {path.parent.name: path.read_text("utf-8") for path in files}


def test_the_base_of_mistrals_images_installs_the_package_within_openstacks_constraints(
    dockerfiles: dict[str, str],
) -> None:
    lines = [line for line in dockerfiles["mistral-base"].splitlines() if line]

    assert lines[-1] == f"{INSTALL} 'mistral-failover[mysql]==VERSION'"


def test_each_image_of_mistral_is_built_on_that_base_and_no_other_image_is_changed(
    dockerfiles: dict[str, str],
) -> None:
    for name in ("api", "engine", "event-engine", "executor"):
        assert "mistral-base:" in dockerfiles[f"mistral-{name}"].splitlines()[0]
    changed = [name for name, text in dockerfiles.items() if "mistral-failover" in text]
    assert changed == ["mistral-base"]
