# SPDX-License-Identifier: Apache-2.0
"""``make machines-down`` leaves nothing behind but the folder of the cloud: ``make
test-machines-down`` takes the running cloud down."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testcloud import settings
from testcloud.machines import places
from testcloud.settings import HERE, Settings

pytestmark = pytest.mark.machines

TOPS = ("/etc", "/var/lib", "/var/log", "/var/cache", "/run", "/opt", "/tmp")
PROGRAMS = ("ceph", "libvirt", "qemu", "rabbitmq", "mysql", "nova", "cinder", "openvswitch")


@pytest.fixture
def cloud() -> Settings:
    """The machines' cloud. This process stays outside of its network."""
    return settings.load({**os.environ, "FAILOVER_CLOUD_MACHINES": "yes"})


def test_down_leaves_nothing_behind(cloud: Settings, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--take-down", False):
        pytest.skip("it takes the cloud down: make test-machines-down")
    began = cloud.secrets_file.stat().st_mtime
    links = _links()
    names = [places.namespace(cloud, place) for place in (*cloud.hosts, places.CONTROL)]
    assert all(name.exists() for name in names), "the cloud is up"
    # Their process 1s, libvirtds, nova-computes, services, Ceph.
    assert len(_processes(cloud)) > 30

    down = subprocess.run(
        [sys.executable, "-m", "testcloud", "down"],
        env={**os.environ, "FAILOVER_CLOUD_MACHINES": "yes"},
        cwd=HERE.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert down.returncode == 0, down.stderr
    assert _processes(cloud) == {}
    assert [name for name in names if name.exists()] == []
    assert _links() == links
    assert [line for line in _mounts() if _concerns(cloud, line)] == []
    assert [str(path) for path in _changed_outside(began)] == []


def _processes(cloud: Settings) -> dict[int, str]:
    """The processes that have to do with the cloud, by what they were started with, and where they
    run; not this one and those above it."""
    found = {}
    above = _above()
    for here in Path("/proc").glob("[0-9]*"):
        try:
            command = (here / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            more = (here / "environ").read_text(errors="replace")
            told = f"{command}{more}{(here / 'cwd').readlink()}"
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if str(cloud.state) in told and int(here.name) not in above:
            found[int(here.name)] = command
    return found


def _above() -> set[int]:
    """This process and those above it."""
    pid, found = os.getpid(), set()
    while pid > 1:
        found.add(pid)
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        pid = next(int(line.split()[1]) for line in status.splitlines() if line[:5] == "PPid:")
    return found


def _links() -> set[str]:
    return {link.name for link in Path("/sys/class/net").iterdir()}


def _mounts() -> list[str]:
    return Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()


def _concerns(cloud: Settings, line: str) -> bool:
    return str(cloud.state) in line or places.namespace(cloud, "").name in line


def _changed_outside(began: float) -> Iterator[Path]:
    """Files of the cloud's programs that changed since its first start, in places that they have in
    common on this machine."""
    for top in map(Path, TOPS):
        for folder in top.iterdir():
            if folder.is_symlink() or not any(name in folder.name for name in PROGRAMS):
                continue
            for path in (folder, *folder.rglob("*")):
                if path.lstat().st_mtime > began:
                    yield path
