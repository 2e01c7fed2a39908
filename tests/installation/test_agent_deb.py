# SPDX-License-Identifier: Apache-2.0
"""The Debian package of the agent: what is in it, and what it does in a root of its own."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import subprocess
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deploy import agent_deb, agent_files
from support.agents import Node, shell
from support.pages import AGENT, ROOT
from support.waiting import until
from testbroker.broker import PrivateBroker

pytestmark = [pytest.mark.package, pytest.mark.timeout(600)]

SUITES = ("bullseye", "bookworm", "trixie")
"""Debian 11, whose Python is the oldest that is supported, to 13."""
EPOCH = 1_790_000_000
UNIT = "usr/lib/systemd/system/failover-agent.service"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return agent_deb.build(tmp_path_factory.mktemp("package"), EPOCH)


@pytest.fixture(scope="module")
def content(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's files, with its control files in ``DEBIAN``."""
    folder = tmp_path_factory.mktemp("content")
    subprocess.run(["dpkg-deb", "--raw-extract", package, folder], check=True)
    return folder


# -- what is in it


def test_the_same_sources_give_the_same_bytes(package: Path, tmp_path: Path) -> None:
    time.sleep(1.1)  # files get other times
    again = agent_deb.build(tmp_path, EPOCH)

    assert (
        hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(package.read_bytes()).digest()
    )


def test_it_has_no_compiled_code_so_it_fits_every_architecture(content: Path) -> None:
    compiled = [path for path in content.rglob("*") if path.suffix in {".so", ".pyc"}]

    assert compiled == []


def test_a_node_gets_the_agent_and_nothing_else_of_the_package(content: Path) -> None:
    folder = content / agent_files.LIBRARY / "mistral_failover"
    shipped = {path.relative_to(folder) for path in folder.rglob("*.py")}

    examples = AGENT / "agent" / "examples"
    ours = {path.relative_to(AGENT) for path in AGENT.rglob("*.py") if path.parent != examples}
    assert shipped == ours


def test_everything_in_etc_is_a_conffile_and_the_agents_own_file_is_not_there(
    content: Path,
) -> None:
    """It names the node, so a package cannot have one; dpkg never asks about it."""
    listed = (content / "DEBIAN" / "conffiles").read_text().split()
    shipped = [f"/{path.relative_to(content)}" for path in (content / "etc").rglob("*.*")]

    assert listed == shipped == ["/etc/failover-metadata.nft"]


def test_what_it_carries_is_in_the_ranges_of_the_package() -> None:
    wanted = (agent_files.SHARED / "requirements.in").read_text()
    project = tomllib.loads((ROOT / "agent" / "pyproject.toml").read_text("utf-8"))["project"]

    requirements = [line for line in wanted.splitlines() if not line.startswith("#")]
    assert requirements == project["dependencies"]


def test_its_unit_is_that_of_the_example_but_for_the_place_of_the_program(content: Path) -> None:
    example = (agent_files.EXAMPLES / "failover-agent.service").read_text().splitlines()
    shipped = (content / UNIT).read_text().splitlines()

    assert set(shipped) - set(example) == {
        "ExecStart=/usr/bin/failover-agent run --config /etc/failover-agent.yaml"
    }
    assert len(set(example) - set(shipped)) == 2  # the program, and where to put the file


def test_it_ships_an_example_of_the_agents_file_and_of_its_programs(content: Path) -> None:
    source = agent_files.EXAMPLES / "postgresql-on-a-volume"
    shipped = content / agent_files.DOCUMENTATION / "examples"

    assert {path.name for path in shipped.iterdir()} == {
        *("failover-agent.yaml", "volume.py", "postgresql.sh")
    }
    for path in shipped.iterdir():
        assert path.read_bytes() == (source / path.name).read_bytes()


# -- in a root of its own


class Root:
    """An installed Debian without anything else, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, *words: str) -> list[str]:
        """What runs a command in it, with its own processes and mounts."""
        return [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child=SIGTERM"),
            *(f"--root={self.folder}", "--mount-proc=/proc", *words),
        ]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
        )

    @contextlib.contextmanager
    def running(self, *words: str) -> Iterator[None]:
        """A program for as long as the block runs; then it gets SIGTERM and must end."""
        ended = self.folder / "tmp" / "ended"
        script = '"$@" & trap "kill $!" TERM; while ! wait; do :; done; touch /tmp/ended'
        process = subprocess.Popen(self.command("sh", "-c", script, "sh", *words))
        try:
            yield
        finally:
            process.kill()  # unshare itself ignores SIGTERM; its child gets one
            process.wait(10)
            until(ended.exists)
            ended.unlink()

    def install(self, package: Path) -> None:
        shutil.copy(package, self.folder / "tmp" / "agent.deb")
        done = self.run("dpkg", "--install", "--force-confold", "/tmp/agent.deb")
        assert done.returncode == 0, done.stdout + done.stderr

    def has(self, path: str) -> bool:
        return (self.folder / path.lstrip("/")).exists()


@pytest.fixture(scope="module", params=SUITES)
def fresh(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Root]:
    folder = tmp_path_factory.mktemp(request.param) / "root"
    # What every Debian has that boots; the package itself brings Python's modules.
    packages = "--include=python3,init-system-helpers"
    make = ["mmdebstrap", "--quiet", "--variant=minbase", packages, request.param, str(folder)]
    subprocess.run(make, check=True, timeout=300)
    yield Root(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def root(fresh: Root, package: Path) -> Root:
    """With the package, which the test leaves as it is."""
    if not fresh.has("usr/bin/failover-agent"):
        fresh.install(package)
    return fresh


@pytest.fixture
def own_root(root: Root) -> Iterator[Root]:
    """With the package, for a test that changes it."""
    yield root
    (root.folder / "etc/failover-agent.yaml").unlink(missing_ok=True)
    assert root.run("dpkg", "--purge", "failover-agent").returncode == 0


@pytest.fixture(scope="module")
def newer(content: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The next version of the package."""
    folder = shutil.copytree(content, tmp_path_factory.mktemp("newer") / "content")
    control = folder / "DEBIAN" / "control"
    control.write_text(re.sub(r"(?m)^Version: .*$", "Version: 99", control.read_text()))
    nft = folder / "etc/failover-metadata.nft"
    nft.write_text(nft.read_text() + "# of the new version\n")
    package = folder.parent / "newer.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", folder, package], check=True)
    return package


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateBroker]:
    with PrivateBroker(tmp_path_factory.mktemp("broker")) as made:
        yield made


@pytest.fixture
def node(root: Root, broker: PrivateBroker, tmp_path: Path) -> Iterator[Node]:
    """A member of which the root is the server."""
    made = Node(tmp_path, broker.url, journal="/var/lib/failover-agent")
    made.commands = {"increment": {"argv": shell("echo x >> /srv/counter")}}
    shutil.copy(made.write(), root.folder / "etc" / "failover-agent.yaml")
    yield made
    for path in ("etc/failover-agent.yaml", "srv/counter"):
        (root.folder / path).unlink(missing_ok=True)


def test_the_installed_agent_tells_its_version(root: Root, package: Path) -> None:
    done = root.run("failover-agent", "--version")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split()[1] == package.name.split("_")[1]


def test_it_does_not_take_another_kombu_that_is_installed(root: Root) -> None:
    """Debian 12's is too old; any other might break it."""
    other = root.folder / "usr/lib/python3/dist-packages/kombu"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("raise ImportError('this is not ours')")
    try:
        done = root.run("failover-agent", "--version")
    finally:
        shutil.rmtree(other)

    assert (done.returncode, done.stderr) == (0, "")


def test_without_its_file_it_says_what_is_missing(root: Root) -> None:
    done = root.run("failover-agent", "check")

    assert done.returncode == 2
    assert "/etc/failover-agent.yaml" in done.stderr


def test_check_finds_a_node_in_order(root: Root, node: Node) -> None:
    done = root.run("failover-agent", "check")

    assert (done.returncode, done.stderr) == (0, "")
    assert "the file is valid" in done.stdout
    assert "is usable" in done.stdout


def test_check_says_that_the_broker_does_not_answer(root: Root, node: Node) -> None:
    file = root.folder / "etc" / "failover-agent.yaml"
    document = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({**document, "broker": "amqp://a:b@127.0.0.1:1/failover"}))

    done = root.run("failover-agent", "check")

    assert done.returncode == 1
    assert "is not usable" in done.stderr


def test_the_installed_agent_carries_out_a_command(root: Root, node: Node) -> None:
    with root.running("failover-agent", "run"):
        until(lambda: root.has("var/lib/failover-agent"))
        assert node.run("increment").exit_code == 0

    assert (root.folder / "srv" / "counter").read_text() == "x\n"


def test_it_is_enabled_and_the_firewall_is_not(root: Root) -> None:
    """Until its file exists, the unit does nothing (ConditionPathExists)."""
    wanted = root.folder / "etc/systemd/system"

    links = [path.name for path in wanted.glob("*.wants/failover-*")]
    assert links == ["failover-agent.service"]
    assert "ConditionPathExists=/etc/failover-agent.yaml" in (root.folder / UNIT).read_text()


def test_an_upgrade_keeps_the_settings_and_the_journal(own_root: Root, newer: Path) -> None:
    ours = {
        own_root.folder / "etc/failover-metadata.nft": "# changed here\n",
        own_root.folder / "etc/failover-agent.yaml": "# of this node\n",
        own_root.folder / "var/lib/failover-agent/journal": "memory",
    }
    for path, text in ours.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    own_root.install(newer)

    assert {path: path.read_text() for path in ours} == ours
    status = own_root.run("dpkg-query", "--show", "--showformat=${Version}", "failover-agent")
    assert status.stdout == "99"


def test_what_is_disabled_stays_disabled_after_an_upgrade(own_root: Root, newer: Path) -> None:
    link = own_root.folder / "etc/systemd/system/multi-user.target.wants/failover-agent.service"
    link.unlink()

    own_root.install(newer)

    assert not link.is_symlink()


def test_no_installed_file_differs_from_the_package(root: Root) -> None:
    root.run("failover-agent", "--version")  # Python would write compiled modules

    assert root.run("dpkg", "--verify", "failover-agent").stdout == ""


def test_a_removal_leaves_the_settings_and_the_journal_and_nothing_else(own_root: Root) -> None:
    journal = own_root.folder / "var/lib/failover-agent"
    journal.mkdir(exist_ok=True)

    assert own_root.run("dpkg", "--remove", "failover-agent").returncode == 0

    assert not own_root.has("usr/lib/failover-agent")
    assert not own_root.has("usr/bin/failover-agent")
    assert own_root.has("etc/failover-metadata.nft")
    assert journal.exists()


def test_a_purge_leaves_only_what_the_operator_wrote(own_root: Root) -> None:
    own = own_root.folder / "etc/failover-agent.yaml"
    own.write_text("mine")
    (own_root.folder / "var/lib/failover-agent").mkdir(exist_ok=True)

    assert own_root.run("dpkg", "--purge", "failover-agent").returncode == 0

    left = [path for path in own_root.folder.rglob("*failover-*") if "dpkg" not in path.parts]
    assert left == [own]
