# SPDX-License-Identifier: Apache-2.0
"""What must be installed: Debian's servers, and the services in an environment of their own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from testcloud import hashes
from testcloud.errors import CloudError
from testcloud.machines import places
from testcloud.processes import Folders
from testcloud.serving import PLACES
from testcloud.settings import HERE, Settings

_TURN = Path("/run/lock/mistral-failover-packages")
"""A lock between those who install at the same time: apt waits for its database, but not for its
lists."""
# A program of each, by which it is seen to be there.
DEBIAN = {
    "mariadb-server": "mariadbd",
    "rabbitmq-server": "rabbitmq-server",
    "memcached": "memcached",
    "qemu-utils": "qemu-img",  # Glance and Cinder look at images with it
    "gcc": "gcc",  # uWSGI is compiled
}
# What the machines need besides (docs/machines.md).
DEBIAN_FOR_MACHINES = {
    "ceph-mon": "ceph-mon",
    "ceph-osd": "ceph-osd",
    "ceph-mgr": "ceph-mgr",
    "ceph-common": "rbd",
    "qemu-system-x86": "qemu-system-x86_64",
    "libvirt-daemon": "libvirtd",
    "libvirt-clients": "virsh",
    "fence-agents": "fence_ipmilan",
    "openipmi": "ipmi_sim",
    "ipmitool": "ipmitool",
    "mmdebstrap": "mmdebstrap",
    "genisoimage": "genisoimage",
    "cpio": "cpio",
    "kmod": "depmod",
    "e2fsprogs": "mke2fs",
    "busybox-static": "busybox",
    "iproute2": "ip",
}
_LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
_MODULES = Path("/usr/lib/python3/dist-packages")
# A file of each.
FILES_FOR_MACHINES = {
    "qemu-block-extra": _LIBRARIES / "qemu" / "block-rbd.so",
    "libvirt-daemon-driver-qemu": _LIBRARIES / "libvirt/connection-driver/libvirt_driver_qemu.so",
    "python3-libvirt": _MODULES / "libvirt.py",
    "python3-rados": _MODULES / "rados.cpython-311-x86_64-linux-gnu.so",
    "python3-rbd": _MODULES / "rbd.cpython-311-x86_64-linux-gnu.so",
}
# A header of each.
HEADERS = {
    "libc6-dev": Path("/usr/include/stdio.h"),
    "python3-dev": Path(sysconfig.get_path("include")) / "Python.h",
}
REQUIREMENTS, CONSTRAINTS = HERE / "requirements.txt", HERE / "constraints.txt"
DRIVERS = HERE / "drivers"


def key() -> str:
    """A hash of everything that says what is installed."""
    python = ".".join(map(str, sys.version_info[:3]))
    return hashes.of_files([REQUIREMENTS, CONSTRAINTS, DRIVERS], python)


def install_programs(settings: Settings, tell: Callable[[str], None]) -> None:
    """Install what is missing of Debian's.

    :raises CloudError: PACKAGES_MISSING, INSTALL_FAILED, WRONG_MACHINE.
    """
    programs, files = DEBIAN, HEADERS
    if settings.machines:
        check_machine()
        programs, files = DEBIAN | DEBIAN_FOR_MACHINES, HEADERS | FILES_FOR_MACHINES
    missing = [package for package, file in files.items() if not file.exists()]
    install_debian(programs, settings, tell, "the test cloud runs on it", also=missing)
    if settings.machines:
        _link_modules(places.bindings(settings))


def install_services(settings: Settings, tell: Callable[[str], None]) -> None:
    """Install the services' environment, if it is missing or old.

    :raises CloudError: NO_UV, INSTALL_FAILED.
    """
    stamp = settings.venv / ".installed"
    if hashes.stamped(stamp, key()):
        return
    tell(f"installing the services; to follow it: tail -f {settings.log / 'install.log'}")
    settings.state.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(settings.venv, ignore_errors=True)
    python = settings.venv / "bin" / "python"
    with build_folder(settings) as folder:
        here = {"TMPDIR": str(folder)}
        create = [uv(), "venv", "--quiet", "--python", sys.executable, str(settings.venv)]
        run(create, settings, here)
        # A copy, since setuptools would leave files in the checkout.
        drivers = shutil.copytree(DRIVERS, folder / "drivers")
        run(
            [
                *(uv(), "pip", "install", "--compile-bytecode"),
                *("--python", str(python), "--constraint", str(CONSTRAINTS)),
                *("--requirement", str(REQUIREMENTS), str(drivers)),
            ],
            settings,
            here,
            tell,
        )
    hashes.stamp_with(stamp, key())


def check_machine() -> None:
    """See that real guests can run here.

    :raises CloudError: WRONG_MACHINE.
    """
    if os.getuid() != 0:
        raise CloudError("WRONG_MACHINE", "Machines need namespaces.", "Run it as root.")
    if sys.version_info[:2] != (3, 11) or platform.machine() != "x86_64":
        raise CloudError(
            "WRONG_MACHINE",
            "Machines use Debian 12's modules for libvirt and Ceph.",
            "Run it on Debian 12, amd64, with Python 3.11.",
        )


def _link_modules(folder: Path) -> None:
    """Have the services find Debian's modules, and nothing else that Debian has."""
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in ("libvirt*.py", "libvirtmod*.so", "rados.*.so", "rbd.*.so"):
        for module in _MODULES.glob(pattern):
            link = folder / module.name
            link.unlink(missing_ok=True)
            link.symlink_to(module)


@contextmanager
def build_folder(settings: Settings) -> Iterator[Path]:
    """A folder to build in, also the installers' TMPDIR; removed at the end."""
    settings.temporary.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=settings.temporary) as folder:
        yield Path(folder)


def uv() -> str:
    """The path of uv: beside this Python, or in the PATH."""
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise CloudError("NO_UV", "There is no uv.", "make .venv/.installed")
    return found


_LOOK = 0.5
"""Seconds between looks at what an installer has written."""
_STEP = re.compile(rb"(?:Unpacking|Setting up|Building|Built|Prepared|Installed) \S.*")
"""What apt and uv say of each package, or of all of them."""


def run(
    command: list[str],
    folders: Folders,
    environment: dict[str, str] | None = None,
    tell: Callable[[str], None] | None = None,
) -> None:
    """Run an installer to its end; its output goes to ``log/install.log``, and each step that it
    writes there is told.

    :raises CloudError: INSTALL_FAILED.
    """
    folders.log.mkdir(parents=True, exist_ok=True)
    log = folders.log / "install.log"
    with log.open("ab") as output, log.open("rb") as written:
        written.seek(0, os.SEEK_END)
        # Not through a pipe: a service that a package starts would hold it open.
        done = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
        )
        try:
            _follow(done, written, tell or (lambda step: None))
        except BaseException:
            done.kill()
            done.wait()
            raise
    if done.returncode != 0:
        name = " ".join([Path(command[0]).name, *command[1:3]])
        raise CloudError("INSTALL_FAILED", f"{name} failed.", f"See {log}.")


def _follow(
    installer: subprocess.Popen[bytes], written: BinaryIO, tell: Callable[[str], None]
) -> None:
    """Tell each step that an installer writes, until it ends."""
    rest, over = b"", False
    while not over:
        with contextlib.suppress(subprocess.TimeoutExpired):
            installer.wait(_LOOK)
        over = installer.returncode is not None
        *lines, rest = (rest + written.read()).split(b"\n")
        for line in lines:
            if step := _STEP.match(line):
                tell(f"  {step[0].decode(errors='replace').removesuffix(' ...')}")


def install_debian(
    programs: Mapping[str, str],
    folders: Folders,
    tell: Callable[[str], None],
    why: str,
    *,
    also: Iterable[str] = (),
) -> None:
    """Install Debian's packages of which the program is missing, and these besides. Each step is
    told before it begins, because apt may take minutes; ``why``: what needs the packages.

    :raises CloudError: PACKAGES_MISSING, INSTALL_FAILED.
    """
    missing = [p for p, program in programs.items() if shutil.which(program, path=PLACES) is None]
    missing += also
    if not missing:
        return
    apt = shutil.which("apt-get")
    command = f"apt-get install --no-install-recommends {' '.join(missing)}"
    if apt is None or os.getuid() != 0:
        raise CloudError(
            "PACKAGES_MISSING",
            f"These packages are missing: {', '.join(missing)}.",
            f"sudo {command}",
        )
    for package in missing:
        tell(f"installing Debian's {package}: {why}")
    tell(f"this may take minutes; to follow it: tail -f {folders.log / 'install.log'}")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    # On a machine that has just booted apt may be busy with its own updates.
    patient = ["-o", "DPkg::Lock::Timeout=600"]
    with _TURN.open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        tell("apt-get update ...")
        run([apt, "update", "-q"], folders, quiet)
        tell("apt-get install ...")
        install = [apt, *patient, "install", "-qy", "--no-install-recommends", *missing]
        run(install, folders, quiet, tell)
