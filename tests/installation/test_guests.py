# SPDX-License-Identifier: Apache-2.0
"""The agent on each Python of guests that is installed here: its own tests, and a command that an
executor sends. ``make drills`` tries the oldest and the newest, ``make test-guests`` all."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deploy import agent_zipapp, wheels
from support import guests
from support.agents import Node, killed_at_the_end
from support.pages import ROOT

PYTHONS = guests.interpreters()
ENDS = {*list(PYTHONS)[:1], *list(PYTHONS)[-1:]}
TESTS = ("test_wire", "daemon/test_journal", "daemon/test_dispatcher", "daemon/test_worker")
MORE_TESTS = (
    *("daemon/test_config", "daemon/test_fuzz_messages", "daemon/test_runner"),
    "../security/test_patterns_of_arguments",
)

pytestmark = pytest.mark.timeout(600)

each_python = pytest.mark.parametrize(
    "version",
    [
        pytest.param(each, marks=[pytest.mark.guests, *([pytest.mark.drills] * (each in ENDS))])
        for each in PYTHONS
    ],
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheels.build_agent(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def zipapp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return agent_zipapp.build(tmp_path_factory.mktemp("zipapp"), 1_790_000_000)


def carries_out_a_command(folder: Path, *program: str | Path) -> None:
    """Start an agent, and send it a command as an executor does."""
    node = Node(folder / "node", f"filesystem://{folder}/broker")
    node.write()
    with (folder / "log").open("wb") as log:
        agent = subprocess.Popen(
            [*program, "run", "--config", node.file], stdout=log, stderr=log, cwd=folder
        )
    with killed_at_the_end(agent):
        assert node.run("checked", limit=120.0).exit_code == 0, (folder / "log").read_text()
        agent.terminate()
        assert agent.wait(120) == 0, (folder / "log").read_text()
    assert node.count() == 1
    assert "Traceback" not in (folder / "log").read_text()


@pytest.mark.guests
def test_the_oldest_python_that_is_supported_is_tried() -> None:
    assert PYTHONS
    assert min(PYTHONS, key=lambda each: int(each.split(".")[1])) == "3.9"


@each_python
def test_its_wheel_carries_out_a_command(version: str, wheel: Path, tmp_path: Path) -> None:
    python = guests.environment(tmp_path / "venv", PYTHONS[version], wheel)

    carries_out_a_command(tmp_path, python.with_name("failover-agent"))


@each_python
def test_its_zipapp_carries_out_a_command(version: str, zipapp: Path, tmp_path: Path) -> None:
    carries_out_a_command(tmp_path, PYTHONS[version], "-I", zipapp)


@each_python
def test_its_own_tests_pass_where_nothing_else_is_installed(
    version: str, wheel: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    every = "guests" in request.config.option.markexpr
    python = guests.environment(tmp_path / "venv", PYTHONS[version], wheel, *guests.TOOLS)
    tests = [str(ROOT / "tests" / "agent" / f"{each}.py") for each in TESTS + MORE_TESTS * every]
    alone = ["-c", "/dev/null", "--noconftest", "-p", "no:cacheprovider"]
    alone += ["-p", "support.in_a_guest", "-k", "not re2"]  # it is not installed

    done = subprocess.run(
        [python, "-m", "pytest", "-q", "--import-mode=importlib", *alone, *tests],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "tests"), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.guests
def test_a_python_that_is_too_old_is_told(zipapp: Path, tmp_path: Path) -> None:
    found = sorted(Path.home().glob(".pyenv/versions/3.[678].*/bin/python"))
    if not found:
        pytest.skip("no older Python is installed")
    done = subprocess.run([found[0], zipapp, "--version"], capture_output=True, text=True)

    assert done.returncode == 1
    assert done.stderr.startswith("failover-agent needs Python 3.9 or newer")
