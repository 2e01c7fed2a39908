# SPDX-License-Identifier: Apache-2.0
"""The RPM of the agent, installed by rpm in a root of its own. It is a Debian's, whose Python is
that of RHEL 9, so what the package requires is read and not resolved."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy import agent_rpm
from support.agents import Node, shell
from support.roots import Root
from support.waiting import until
from testbroker.broker import PrivateBroker

pytestmark = [pytest.mark.package, pytest.mark.timeout(600)]

EPOCH = 1_790_000_000


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return agent_rpm.build(tmp_path_factory.mktemp("rpm"), EPOCH)


@pytest.fixture(scope="module")
def root(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Root]:
    folder = tmp_path_factory.mktemp("rpm-root") / "root"
    made = Root.of(folder, "bullseye")
    rpm(made, "--install", package)
    yield made
    shutil.rmtree(folder, ignore_errors=True)


def rpm(root: Root, *words: str | Path) -> str:
    """Run rpm on a root."""
    command = ["rpm", "--root", root.folder, "--nodeps", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def query(package: Path, *words: str) -> str:
    return subprocess.run(
        ["rpm", "--query", "--package", package, *words], capture_output=True, text=True, check=True
    ).stdout


def test_the_same_sources_give_the_same_bytes(package: Path, tmp_path: Path) -> None:
    time.sleep(1.1)  # files get other times
    again = agent_rpm.build(tmp_path, EPOCH)

    assert (
        hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(package.read_bytes()).digest()
    )


def test_it_fits_every_architecture_and_requires_a_python_that_is_new_enough(
    package: Path,
) -> None:
    assert query(package, "--queryformat", "%{ARCH}") == "noarch"
    assert "python3 >= 3.9" in query(package, "--requires")


def test_the_settings_in_etc_survive_an_upgrade_and_the_agents_own_file_is_not_there(
    package: Path,
) -> None:
    listed = query(package, "--list").splitlines()

    assert [each for each in listed if each.startswith("/etc")] == ["/etc/failover-metadata.nft"]
    assert query(package, "--configfiles").split() == ["/etc/failover-metadata.nft"]


def test_the_installed_agent_carries_out_a_command(
    root: Root, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with PrivateBroker(tmp_path_factory.mktemp("broker")) as broker:
        node = Node(tmp_path, broker.url, journal="/var/lib/failover-agent")
        node.commands = {"increment": {"argv": shell("echo x >> /srv/counter")}}
        shutil.copy(node.write(), root.folder / "etc" / "failover-agent.yaml")
        with root.running("failover-agent", "run"):
            until(lambda: root.has("var/lib/failover-agent"), 60)
            assert node.run("increment", limit=60.0).exit_code == 0

    assert (root.folder / "srv" / "counter").read_text() == "x\n"


def test_no_installed_file_differs_from_the_package(root: Root) -> None:
    root.run("failover-agent", "--version")

    assert rpm(root, "--verify", "failover-agent") == ""


def test_without_a_python_that_is_new_enough_it_says_which_to_install(root: Root) -> None:
    aside = root.folder / "usr/bin/aside"
    pythons = list((root.folder / "usr/bin").glob("python3*"))
    aside.mkdir()
    try:
        for each in pythons:
            each.rename(aside / each.name)
        done = root.run("failover-agent", "--version")
    finally:
        for each in pythons:
            (aside / each.name).rename(each)
        aside.rmdir()

    assert done.returncode == 1
    assert "Python 3.9 or newer" in done.stderr


@pytest.fixture
def erased(root: Root, package: Path) -> Iterator[Root]:
    root.run("failover-agent", "--version")  # Python compiles its modules
    (root.folder / "var/lib/failover-agent").mkdir(0o700, exist_ok=True)
    rpm(root, "--erase", "failover-agent")
    yield root
    rpm(root, "--install", package)


def test_an_erased_package_leaves_the_journal_and_nothing_else(erased: Root) -> None:
    assert erased.has("var/lib/failover-agent")
    for path in ("usr/bin/failover-agent", "usr/lib/failover-agent", "etc/failover-metadata.nft"):
        assert not erased.has(path)
