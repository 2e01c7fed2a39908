# SPDX-License-Identifier: Apache-2.0
"""A real Ceph in a folder: one monitor, and one OSD in memory; up in about three seconds.

Debian: ceph-mon, ceph-osd, ceph-common (``python -m support.fence_agents``). For a whole cloud with
a manager see ``testcloud.machines.ceph``.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool", "rbd")
POOL = "volumes"
LIMIT = 30
"""Seconds for one command: none of Ceph's ends by itself."""
_CONFIGURATION = """\
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{port}]
public addr = 127.0.0.1
keyring = {here}/$type.$id.keyring
run dir = {here}
admin socket =
log file =
mon cluster log file = /dev/null
osd pool default size = 1
osd pool default min size = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
auth allow insecure global id reclaim = false
[client]
public addr =
[mon]
mon data = {here}/mon
mon initial members = a
mon data avail warn = 2
mon data avail crit = 1
[osd]
osd data = {here}/osd.0
osd objectstore = memstore
memstore device bytes = 268435456
osd class default list = *
osd class load list = *
"""
RIGHTS = ("mon", 'allow command "osd blocklist", allow r')
"""What docs/fencing.md gives to the user that fences, with the right to read the pool."""


@dataclass(frozen=True)
class RealCeph:
    """A running Ceph, with a pool and the users ``client.admin`` and ``client.fence``."""

    folder: Path

    @property
    def conf(self) -> Path:
        """Its configuration."""
        return self.folder / "ceph.conf"

    def run(self, program: str, *words: str, given: str | None = None) -> str:
        """Run a command as the administrator; return what it prints."""
        conf = () if program in {"ceph-authtool", "monmaptool"} else ("-c", str(self.conf))
        done = subprocess.run(
            ["timeout", str(LIMIT), program, *conf, *words],
            input=given,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            cwd=self.folder,
        )
        return done.stdout

    def watchers(self, image: str) -> list[str]:
        """Return the clients that have an image open."""
        shown = json.loads(self.run("rbd", "status", image, "--format", "json"))
        return [each["address"] for each in shown["watchers"]]


@contextmanager
def real_ceph(folder: Path) -> Iterator[RealCeph]:
    """Start a Ceph in an empty folder, and end it."""
    made, started = RealCeph(folder), list[subprocess.Popen[bytes]]()

    def start(program: str, identity: str) -> None:
        command = [program, "-c", str(made.conf), "-i", identity, "-f"]
        with (folder / f"{program}.log").open("wb") as log:
            started.append(subprocess.Popen(command, stdout=log, stderr=log))

    try:
        _monitor(made)
        start("ceph-mon", "a")
        _osd(made)
        start("ceph-osd", "0")
        made.run("ceph", "osd", "pool", "create", POOL, "8")
        made.run("ceph", "osd", "pool", "application", "enable", POOL, "rbd")
        _user(made, "client.fence", *RIGHTS, "osd", f"profile rbd-read-only pool={POOL}")
        yield made
    finally:
        for process in reversed(started):  # an OSD without its monitor does not end by itself
            process.kill()
            process.wait()


def missing() -> list[str]:
    """Return the programs that are not installed."""
    return [each for each in PROGRAMS if shutil.which(each) is None]


def _monitor(made: RealCeph) -> None:
    here, fsid = made.folder, str(uuid.uuid4())
    (here / "mon").mkdir()
    (here / "osd.0").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    made.conf.write_text(_CONFIGURATION.format(fsid=fsid, port=port, here=here), "utf-8")
    admin, own = "client.admin.keyring", "mon.a.keyring"
    everything = ("--cap", "mon", "allow *", "--cap", "osd", "allow *")
    made.run("ceph-authtool", "-C", admin, "-g", "-n", "client.admin", *everything)
    made.run("ceph-authtool", "-C", own, "-g", "-n", "mon.", "--cap", "mon", "allow *")
    made.run("ceph-authtool", own, "--import-keyring", admin)
    address = f"[v2:127.0.0.1:{port}]"
    made.run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", address, "monmap")
    made.run("ceph-mon", "--mkfs", "-i", "a", "--monmap", "monmap", "--keyring", own)


def _osd(made: RealCeph) -> None:
    identity = str(uuid.uuid4())
    secret = made.run("ceph-authtool", "--gen-print-key").strip()
    given = json.dumps({"cephx_secret": secret})
    made.run("ceph", "osd", "new", identity, "0", "-i", "-", given=given)
    (made.folder / "osd.0.keyring").write_text(f"[osd.0]\n\tkey = {secret}\n", "utf-8")
    made.run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", identity)


def _user(made: RealCeph, name: str, *rights: str) -> None:
    text = made.run("ceph", "auth", "get-or-create", name, *rights)
    file = made.folder / f"{name}.keyring"
    file.touch(mode=0o600)
    file.write_text(text, "utf-8")
    os.chmod(file, 0o600)  # noqa: PTH101
