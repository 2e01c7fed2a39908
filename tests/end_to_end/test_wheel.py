# SPDX-License-Identifier: Apache-2.0
"""What a user installs is the wheel, not this checkout."""

from __future__ import annotations

import configparser
import json
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from deploy import wheels

pytestmark = pytest.mark.drills

ROOT = Path(__file__).parents[2]
UV = [sys.executable, "-m", "uv"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return wheels.build(tmp_path_factory.mktemp("wheels"))


def install(folder: Path, built: tuple[Path, Path], extra: str = "") -> Path:
    """A fresh environment with both wheels; returns its Python."""
    package, agent = built
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    subprocess.run(
        [*UV, "pip", "install", "--quiet", "--python", python, agent, f"{package}{extra}"],
        check=True,
    )
    return python


def declared(group: str) -> list[str]:
    """The names in a group of entry points of the checkout."""
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = parser["options.entry_points"][group].split("\n")
    return sorted(line.partition("=")[0].strip() for line in lines if line)


def test_the_actions_alone_need_no_mistral_and_find_their_workflows_and_types(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    python = install(tmp_path / "venv", built)
    script = """
import importlib.metadata, importlib.util, json
from importlib.resources import files
from mistral_failover.alarms.alarm import sources
from mistral_failover.model.rungs import rung_kinds
from mistral_failover.model.types import installed_types
entry_points = importlib.metadata.entry_points()
for point in entry_points.select(group="mistral.actions"):
    if point.name.startswith("failover."):
        point.load()
(workflows,) = entry_points.select(group="mistral.preinstalled_workflows", name="failover")
print(json.dumps({
    "mistral": importlib.util.find_spec("mistral") is not None,
    "types": sorted(installed_types()),
    "rungs": sorted(rung_kinds()),
    "sources": sorted(sources()),
    "workflows": [path.rpartition("/")[2] for path in workflows.load()()],
    "examples": sorted(path.name for path in files("mistral_failover.examples").iterdir()),
    "on_the_node": sorted(
        path.name
        for folder in ("", "postgresql-on-a-volume")
        for path in files("mistral_failover.agent.examples").joinpath(folder).iterdir()
    ),
}))
"""
    done = subprocess.run(
        [python, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    found = json.loads(done.stdout)
    assert found["mistral"] is False
    types = (ROOT / "actions" / "mistral_failover" / "types").glob("*.yaml")
    assert found["types"] == sorted(path.stem for path in types)
    assert found["rungs"] == declared("mistral_failover.rungs")
    assert found["sources"] == declared("mistral_failover.alarm_sources")
    assert found["workflows"] == sorted(path.name for path in (ROOT / "workflows").glob("*.yaml"))
    on_the_node = {"failover-agent.service", "failover-agent.yaml", "postgresql.sh", "volume.py"}
    assert on_the_node <= set(found["on_the_node"])


def test_a_drill_from_the_installed_wheel_tells_people_in_plain_lines_and_a_table(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    python = install(tmp_path / "venv", built, "[drill]")
    done = subprocess.run(
        [python.with_name("failover"), "drill", "--latency", "zero", "--fault", "app"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "Done: " in done.stdout
    assert "COMPLETE" in done.stdout
    assert "all held" in done.stdout
    assert re.search(r"tasks +\| \d", done.stdout)  # how many: test_drill.py
    assert done.stderr == ""
