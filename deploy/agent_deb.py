# SPDX-License-Identifier: Apache-2.0
"""Build the Debian package of the agent: ``python -m deploy.agent_deb [FOLDER]``.

Needs dpkg-deb and uv, not root. The same sources, pins and SOURCE_DATE_EPOCH give the same bytes.
The package is for every architecture and every Python from 3.11 on: it has no compiled code.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
DEBIAN = ROOT / "deploy" / "debian"
EXAMPLES = ROOT / "examples"
LIBRARY = Path("usr/lib/failover-agent")
UNITS = Path("usr/lib/systemd/system")
DOCUMENTATION = Path("usr/share/doc/failover-agent")

_SOURCES = (
    "actions",
    "examples",
    "workflows",
    "LICENSE",
    "README.md",
    "pyproject.toml",
    "setup.cfg",
)
_IN_A_VENV = "/opt/failover/bin/failover-agent"
_UV = (sys.executable, "-m", "uv")
_UNREPRODUCIBLE = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json")
"""What an installer adds to a ``.dist-info``: it differs, and nothing reads it here."""


def build(folder: Path, epoch: int) -> Path:
    """Build the package into a folder; return its path.

    :param epoch: the time of all files, in seconds since 1970.
    :raises CalledProcessError: an installer or dpkg-deb failed; it said why.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        root = Path(work) / "root"
        version = _install_library(root / LIBRARY, Path(work))
        _install_program(root)
        _install_units(root)
        _install_documentation(root / DOCUMENTATION, version, epoch)
        _install_control(root, version)
        _normalise(root, epoch)
        package = folder / f"failover-agent_{version}_all.deb"
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(root), str(package)],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)},
        )
    return package


def _install_library(library: Path, work: Path) -> str:
    """Install the package and the pinned ones it needs; return the package's version."""
    sources = work / "sources"
    for name in _SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, sources / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, sources / name)
    pinned = ("--build-constraints", str(DEBIAN / "build.txt"))
    build = (*_UV, "build", "--quiet", "--wheel", *pinned, "--out-dir", str(work))
    subprocess.run([*build, str(sources)], check=True)
    (wheel,) = work.glob("*.whl")
    # One platform, whatever this machine is: so the result is the same everywhere.
    where = (
        *("--target", str(library), "--python-version", "3.11"),
        *("--python-platform", "x86_64-manylinux_2_28", "--only-binary", ":all:"),
    )
    install = (*_UV, "pip", "install", "--quiet", "--no-deps", "--link-mode", "copy", *where)
    subprocess.run([*install, "--require-hashes", "-r", str(DEBIAN / "agent.txt")], check=True)
    subprocess.run([*install, str(wheel)], check=True)
    for scripts in (library / "bin", library / "_yaml"):
        shutil.rmtree(scripts, ignore_errors=True)
    _keep_only(library, _needed_by(library, "mistral_failover.agent.daemon.main"))
    # PyYAML works without its compiled parser. The agent reads one small file.
    for path in [*library.rglob("*.so"), *library.glob(".lock")]:
        path.unlink()
    for information in library.glob("*.dist-info"):
        for name in _UNREPRODUCIBLE:
            (information / name).unlink(missing_ok=True)
    return wheel.name.split("-")[1]


def _needed_by(library: Path, module: str) -> set[Path]:
    """Return the files of this package that a module imports, directly or not, and its own."""
    found: set[Path] = set()
    waiting = [module]
    while waiting:
        names = waiting.pop().split(".")
        for length in range(1, len(names) + 1):
            folder = library.joinpath(*names[:length])
            file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
            if not file.exists() or file in found:
                continue  # a name in a module, not a module
            found.add(file)
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.Import):
                    waiting += [each.name for each in node.names]
                elif isinstance(node, ast.ImportFrom) and node.module:
                    waiting += [f"{node.module}.{each.name}" for each in node.names]
    return {file for file in found if file.is_relative_to(library / "mistral_failover")}


def _keep_only(library: Path, files: set[Path]) -> None:
    """Remove the rest of this package: a server needs the agent alone."""
    package = library / "mistral_failover"
    for path in sorted(package.rglob("*"), reverse=True):
        if path.is_file() and path not in files:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def _install_program(root: Path) -> None:
    program = root / "usr" / "bin" / "failover-agent"
    program.parent.mkdir(parents=True)
    shutil.copyfile(DEBIAN / "failover-agent", program)
    program.chmod(0o755)


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
        _write(root / UNITS / name, text)
    _write(root / "etc" / "failover-metadata.nft", files[Path("/etc/failover-metadata.nft")])


def _install_documentation(folder: Path, version: str, epoch: int) -> None:
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
    shutil.copyfile(DEBIAN / "copyright", folder / "copyright")
    date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(epoch))
    changes = (
        f"failover-agent ({version}) unstable; urgency=medium\n\n"
        f"  * See the release notes of mistral-failover {version}.\n\n"
        f" -- {_maintainer()}  {date}\n"
    )
    (folder / "changelog.gz").write_bytes(gzip.compress(changes.encode(), 9, mtime=0))


def _install_control(root: Path, version: str) -> None:
    control = root / "DEBIAN"
    control.mkdir()
    files = sorted(path for path in root.rglob("*") if path.is_file())
    size = sum(-(-path.stat().st_size // 1024) for path in files)
    text = (DEBIAN / "control").read_text("utf-8")
    _write(
        control / "control",
        text.format(version=version, maintainer=_maintainer(), size=size),
    )
    _write(
        control / "md5sums",
        "".join(
            f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}"
            f"  {path.relative_to(root)}\n"
            for path in files
        ),
    )
    settings = [path for path in files if path.is_relative_to(root / "etc")]
    _write(control / "conffiles", "".join(f"/{path.relative_to(root)}\n" for path in settings))
    for name in ("postinst", "prerm", "postrm"):
        shutil.copyfile(DEBIAN / name, control / name)
        (control / name).chmod(0o755)


def _maintainer() -> str:
    """Return who is named as the package's maintainer: DEBFULLNAME and DEBEMAIL, as elsewhere."""
    name = os.environ.get("DEBFULLNAME", "mistral-failover")
    return f"{name} <{os.environ.get('DEBEMAIL', 'root@localhost')}>"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _normalise(root: Path, epoch: int) -> None:
    """Give everything the modes of a package and one time."""
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


def main() -> int:
    """Build into the folder that is named, or ``dist``; print the package's path."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    print(build(folder, source_date_epoch()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
