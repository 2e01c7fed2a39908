# SPDX-License-Identifier: Apache-2.0
"""Build the RPM of the agent: ``python -m deploy.agent_rpm [FOLDER]``.

Needs rpmbuild (Debian's package ``rpm`` has it, too) and uv, not root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy import agent_files as files

SPEC = files.ROOT / "deploy" / "rpm" / "failover-agent.spec"


def build(folder: Path, epoch: int) -> Path:
    """Build the package into a folder; return its path.

    :param epoch: the time of all files, in seconds since 1970.
    :raises CalledProcessError: an installer or rpmbuild failed; it said why.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        root = Path(work) / "root"
        version = files.install(root, Path(work))
        files.normalise(root, epoch)
        defined = {
            "_topdir": f"{work}/rpm",
            "agent_version": version,
            "agent_root": str(root),
            "packager": files.maintainer(),
            "_buildhost": "localhost",
            "use_source_date_epoch_as_buildtime": "1",
            "clamp_mtime_to_source_date_epoch": "1",
        }
        options = [word for name in defined for word in ("--define", f"{name} {defined[name]}")]
        subprocess.run(
            ["rpmbuild", "-bb", "--quiet", "--target", "noarch", *options, str(SPEC)],
            check=True,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)},
        )
        (made,) = Path(work, "rpm", "RPMS").rglob("*.rpm")
        return Path(shutil.copy(made, folder))


def main() -> int:
    """Build into the folder that is named, or ``dist``; print the package's path."""
    print(build(files.wanted_folder(), files.source_date_epoch()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
