# SPDX-License-Identifier: Apache-2.0
"""The commands of the example on a block device: a loop device, its file system, PostgreSQL."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from support import postgresql
from support.postgresql import POSTGRESQL, VOLUME, query, run

DATA = "8b6ee9dc-9b4c-4b4d-9e67-6b8d3f2f3a01"
REFUSED, FAILED = 3, 4
NEEDED = ("losetup", "mkfs.ext4", "fsck", "blkid", "mount", "runuser", "debugfs")


def why_not() -> str:
    if not postgresql.IS_ROOT:
        return "mounting needs root"
    missing = [tool for tool in NEEDED if shutil.which(tool) is None]
    if missing:
        return f"there is no {', '.join(missing)}"
    if subprocess.run(["losetup", "-f"], capture_output=True).returncode != 0:
        return "there are no loop devices"
    return postgresql.why_not()


pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]


class Node:
    """A node, with a mount point and a database's socket of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        shutil.chown(folder, postgresql.owner())
        self.mount = folder / "data"
        self.env = {
            "VOLUME_MOUNT": str(self.mount),
            "VOLUME_OWNER": postgresql.owner() or "",
            "VOLUME_FORMAT": "ext4",
            "VOLUME_WAIT": "5",
            "PG_SOCKETS": str(folder),
            "PG_INIT": "yes",
            "PG_LIMIT": "20",
            "PG_OPTIONS": "-c listen_addresses=",
        }

    def volume(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return run(VOLUME, *arguments, env=self.env | more)

    def up(self, device: str) -> None:
        done = self.volume("up", DATA, device)
        assert done.returncode == 0, done.stderr
        assert self.volume("is-up", DATA, device).returncode == 0

    def down(self) -> None:
        done = self.volume("down")
        assert done.returncode == 0, done.stderr
        assert self.volume("is-down").returncode == 0

    def postgresql(self, verb: str) -> None:
        done = run(POSTGRESQL, verb, env=self.env, user=postgresql.owner())
        assert done.returncode == 0, done.stderr


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that the database's user can reach; whatever is mounted in it goes first."""
    made = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    for mount in made.glob("*/data"):
        run(VOLUME, "down", env={"VOLUME_MOUNT": str(mount), "VOLUME_KILL": "yes"})
    shutil.rmtree(made)


@pytest.fixture
def attach(folder: Path) -> Iterator[Callable[[Path], str]]:
    """Make a block device of a file, which is made if it is not there."""
    devices: list[str] = []

    def attached(file: Path) -> str:
        if not file.exists():
            with file.open("wb") as new:
                new.truncate(192 << 20)
        argv = ["losetup", "--find", "--show", str(file)]
        made = subprocess.run(argv, capture_output=True, text=True, check=True)
        devices.append(made.stdout.strip())
        return devices[-1]

    yield attached
    for mount in folder.glob("*/data"):
        run(VOLUME, "down", env={"VOLUME_MOUNT": str(mount), "VOLUME_KILL": "yes"})
    for device in devices:
        subprocess.run(["losetup", "-d", device], check=True)


@pytest.fixture
def device(folder: Path, attach: Callable[[Path], str]) -> str:
    return attach(folder / "volume.img")


@pytest.fixture
def node(folder: Path) -> Node:
    return Node(folder / "db_a")


def test_a_database_moves_with_its_volume(folder: Path, node: Node, device: str) -> None:
    node.up(device)
    node.postgresql("start")
    query("CREATE TABLE kept AS SELECT 42 AS answer", node.env)
    node.postgresql("stop")
    node.down()

    other = Node(folder / "db_b")
    other.up(device)
    other.postgresql("start")
    assert query("SELECT answer FROM kept", other.env) == "42"
    other.postgresql("stop")
    other.down()


def test_a_volume_of_a_node_that_died_is_repaired_and_the_database_recovers(
    folder: Path, node: Node, attach: Callable[[Path], str]
) -> None:
    node.up(attach(folder / "volume.img"))
    node.postgresql("start")
    query("CREATE TABLE kept AS SELECT 42 AS answer", node.env)
    shutil.copyfile(folder / "volume.img", folder / "copy.img")  # mounted, and the server runs

    other = Node(folder / "db_b")
    other.up(attach(folder / "copy.img"))
    other.postgresql("start")
    assert query("SELECT answer FROM kept", other.env) == "42"
    for each in (node, other):
        each.postgresql("stop")
        each.down()


def test_a_volume_with_no_file_system_gets_one_only_where_the_node_says_which(
    node: Node, device: str
) -> None:
    refused = node.volume("up", DATA, device, VOLUME_FORMAT="")
    assert refused.returncode == REFUSED
    assert "VOLUME_FORMAT" in refused.stderr
    node.up(device)
    assert node.mount.owner() == postgresql.owner()
    node.down()


def test_only_what_was_just_made_is_given_to_its_owner(node: Node, device: str) -> None:
    subprocess.run(["mkfs.ext4", "-q", device], check=True)
    node.up(device)
    assert node.mount.stat().st_uid == 0
    node.down()


def test_what_is_no_file_system_is_not_written_over(folder: Path, node: Node, device: str) -> None:
    Path(device).write_bytes(b"somebody's own format")
    refused = node.volume("up", DATA, device)
    assert refused.returncode == REFUSED
    assert (folder / "volume.img").read_bytes().startswith(b"somebody")


def test_a_file_system_that_needs_a_person_is_not_mounted(node: Node, device: str) -> None:
    node.up(device)
    node.down()
    for harm in ("clri <2>", "set_super_value state 2"):  # no root, and the kernel noticed
        subprocess.run(["debugfs", "-w", "-R", harm, device], check=True, capture_output=True)
    refused = node.volume("up", DATA, device)
    assert refused.returncode == REFUSED
    assert "an operator must repair" in refused.stderr
    assert node.volume("is-down").returncode == 0


def test_a_volume_that_is_mounted_elsewhere_is_left_there(
    folder: Path, node: Node, device: str
) -> None:
    node.up(device)
    other = Node(folder / "db_b")
    refused = other.volume("up", DATA, device)
    assert refused.returncode == REFUSED
    assert str(node.mount) in refused.stderr
    node.down()


def test_who_uses_the_volume_is_named_and_ended_only_where_that_is_allowed(
    node: Node, device: str
) -> None:
    node.up(device)
    bystander = subprocess.Popen(["sleep", "60"], cwd="/")
    user = subprocess.Popen(["sleep", "60"], cwd=node.mount)
    try:
        failed = node.volume("down", VOLUME_WAIT="0.3")
        assert failed.returncode == FAILED
        assert f"{user.pid} (sleep)" in failed.stderr
        assert node.volume("down", VOLUME_KILL="yes").returncode == 0
        assert user.wait(10) != 0
        assert bystander.poll() is None
    finally:
        user.kill()
        bystander.kill()


def test_a_disk_s_own_name_counts_more_than_what_nova_said(
    folder: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = module()
    by_id = folder / "by-id"
    by_id.mkdir()
    monkeypatch.setattr(volume, "BY_ID", by_id)
    assert volume._device(DATA, "/dev/nothing") is None
    assert volume._device(DATA, device) == Path(device)

    name = by_id / f"virtio-{DATA[:20]}"
    name.symlink_to(device)
    assert volume._device(DATA, "/dev/nothing") == Path(device)

    name.rename(by_id / "virtio-another-volume-of-an")
    assert volume._device(DATA, device) is None, "Nova's word was for a disk that is another one"
    monkeypatch.setenv("VOLUME_TRUST", "yes")
    assert volume._device(DATA, device) == Path(device)


def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("example_volume", VOLUME)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found
