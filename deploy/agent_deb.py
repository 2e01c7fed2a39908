# SPDX-License-Identifier: Apache-2.0
"""Build the Debian package of the agent: ``python -m deploy.agent_deb [FOLDER]``.

Needs dpkg-deb and uv, not root.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from deploy import agent_files as files

DEBIAN = files.ROOT / "deploy" / "debian"


def build(folder: Path, epoch: int) -> Path:
    """Build the package into a folder; return its path.

    :param epoch: the time of all files, in seconds since 1970.
    :raises CalledProcessError: an installer or dpkg-deb failed; it said why.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        root = Path(work) / "root"
        version = files.install(root, Path(work))
        _install_changes(root / files.DOCUMENTATION, version, epoch)
        _install_control(root, version)
        files.normalise(root, epoch)
        package = folder / f"failover-agent_{version}_all.deb"
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(root), str(package)],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)},
        )
    return package


def _install_changes(folder: Path, version: str, epoch: int) -> None:
    shutil.copyfile(DEBIAN / "copyright", folder / "copyright")
    date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(epoch))
    changes = (
        f"failover-agent ({version}) unstable; urgency=medium\n\n"
        f"  * See the release notes of mistral-failover {version}.\n\n"
        f" -- {files.maintainer()}  {date}\n"
    )
    (folder / "changelog.gz").write_bytes(gzip.compress(changes.encode(), 9, mtime=0))


def _install_control(root: Path, version: str) -> None:
    control = root / "DEBIAN"
    control.mkdir()
    found = sorted(path for path in root.rglob("*") if path.is_file())
    size = sum(-(-path.stat().st_size // 1024) for path in found)
    text = (DEBIAN / "control").read_text("utf-8")
    files.write(
        control / "control",
        text.format(version=version, maintainer=files.maintainer(), size=size),
    )
    files.write(
        control / "md5sums",
        "".join(
            f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}"
            f"  {path.relative_to(root)}\n"
            for path in found
        ),
    )
    settings = [path for path in found if path.is_relative_to(root / "etc")]
    lines = "".join(f"/{path.relative_to(root)}\n" for path in settings)
    files.write(control / "conffiles", lines)
    for name in ("postinst", "prerm", "postrm"):
        shutil.copyfile(DEBIAN / name, control / name)
        (control / name).chmod(0o755)


def main() -> int:
    """Build into the folder that is named, or ``dist``; print the package's path."""
    print(build(files.wanted_folder(), files.source_date_epoch()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
