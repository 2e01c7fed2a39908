# SPDX-License-Identifier: Apache-2.0
"""What every package of the agent has: the library, which Python runs as it is, and around it the
program, the units and the documentation.

The same sources, pins and epoch give the same bytes. Nothing is compiled, so it fits every
architecture and every Python from 3.9 on.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from deploy import wheels

ROOT = wheels.ROOT
SHARED = ROOT / "deploy" / "agent"
EXAMPLES = ROOT / "examples"
LIBRARY = Path("usr/lib/failover-agent")
UNITS = Path("usr/lib/systemd/system")
DOCUMENTATION = Path("usr/share/doc/failover-agent")

_IN_A_VENV = "/opt/failover/bin/failover-agent"
_UV = (sys.executable, "-m", "uv")
_UNREPRODUCIBLE = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json")
"""What an installer adds to a ``.dist-info``: it differs, and nothing reads it here."""


def install_library(library: Path, work: Path) -> str:
    """Install the agent and what it needs into a folder that Python can run; return its version.

    :param work: a folder for what is only needed meanwhile.
    :raises CalledProcessError: an installer failed; it said why.
    """
    wheel = wheels.build_agent(work)
    # One platform, whatever this machine is: so the result is the same everywhere.
    where = (
        *("--target", str(library), "--python-version", "3.9"),
        *("--python-platform", "x86_64-manylinux_2_28", "--only-binary", ":all:"),
    )
    install = (*_UV, "pip", "install", "--quiet", "--no-deps", "--link-mode", "copy", *where)
    pinned = ("--require-hashes", "-r", str(SHARED / "requirements.txt"))
    subprocess.run([*install, *pinned], check=True)
    subprocess.run([*install, str(wheel)], check=True)
    for unused in ("bin", "_yaml", "tzdata", "mistral_failover/agent/examples"):
        shutil.rmtree(library / unused, ignore_errors=True)
    # PyYAML works without its compiled parser. The agent reads one small file.
    for path in [*library.rglob("*.so"), *library.glob(".lock")]:
        path.unlink()
    for information in library.glob("*.dist-info"):
        for name in _UNREPRODUCIBLE:
            (information / name).unlink(missing_ok=True)
    shutil.copyfile(SHARED / "__main__.py", library / "__main__.py")
    return wheel.name.split("-")[1]


def install(root: Path, work: Path) -> str:
    """Install everything that does not depend on the kind of package; return the version.

    Arguments and errors: :func:`install_library`.
    """
    version = install_library(root / LIBRARY, work)
    program = root / "usr" / "bin" / "failover-agent"
    program.parent.mkdir(parents=True)
    shutil.copyfile(SHARED / "failover-agent", program)
    program.chmod(0o755)
    _install_units(root)
    _install_documentation(root / DOCUMENTATION)
    return version


def _install_units(root: Path) -> None:
    """Install the units of the examples, which are the only source of them."""
    unit = (EXAMPLES / "failover-agent.service").read_text("utf-8")
    assert unit.count(_IN_A_VENV) == 1
    written: dict[str, str] = {
        "failover-agent.service": unit.replace(_IN_A_VENV, "/usr/bin/failover-agent").replace(
            "# /etc/systemd/system/failover-agent.service\n", ""
        )
    }
    cloud_init: dict[str, Any] = yaml.safe_load((EXAMPLES / "cloud-init.yaml").read_text("utf-8"))
    files = {Path(each["path"]): each["content"] for each in cloud_init["write_files"]}
    written["failover-metadata.service"] = files[
        Path("/etc/systemd/system/failover-metadata.service")
    ]
    for name, text in written.items():
        write(root / UNITS / name, text)
    write(root / "etc" / "failover-metadata.nft", files[Path("/etc/failover-metadata.nft")])


def _install_documentation(folder: Path) -> None:
    examples = folder / "examples"
    examples.mkdir(parents=True)
    source = EXAMPLES / "postgresql-on-a-volume"
    for name, mode in (
        ("failover-agent.yaml", 0o644),
        ("volume.py", 0o755),
        ("postgresql.sh", 0o755),
    ):
        shutil.copyfile(source / name, examples / name)
        (examples / name).chmod(mode)


def maintainer() -> str:
    """Return who is named as the package's maintainer: DEBFULLNAME and DEBEMAIL, as elsewhere."""
    name = os.environ.get("DEBFULLNAME", "mistral-failover")
    return f"{name} <{os.environ.get('DEBEMAIL', 'root@localhost')}>"


def write(path: Path, text: str) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def normalise(root: Path, epoch: int) -> None:
    """Give everything the modes of a package and one time, in seconds since 1970."""
    for path in [root, *root.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
        else:
            path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
        os.utime(path, (epoch, epoch))


def source_date_epoch() -> int:
    """Return SOURCE_DATE_EPOCH, or else the time of the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        log = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
        given = subprocess.run(log, check=True, capture_output=True, text=True).stdout
    return int(given)


def wanted_folder() -> Path:
    """Return the folder that the command line names, or ``dist``."""
    return Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
