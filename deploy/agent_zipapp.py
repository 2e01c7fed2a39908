# SPDX-License-Identifier: Apache-2.0
"""Build the agent as one file that Python runs: ``python -m deploy.agent_zipapp [FOLDER]``.

For guests without ``apt`` and ``rpm``. Needs uv, not root.
"""

from __future__ import annotations

import sys
import tempfile
import zipapp
from pathlib import Path

from deploy import agent_files as files


def build(folder: Path, epoch: int) -> Path:
    """Build the file into a folder; return its path.

    :param epoch: the time of all files in it, in seconds since 1970.
    :raises CalledProcessError: an installer failed; it said why.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        library = Path(work) / "library"
        version = files.install_library(library, Path(work))
        files.normalise(library, epoch)
        made = folder / f"failover-agent-{version}.pyz"
        zipapp.create_archive(library, made, interpreter="/usr/bin/env python3", compressed=True)
    return made


def main() -> int:
    """Build into the folder that is named, or ``dist``; print the file's path."""
    print(build(files.wanted_folder(), files.source_date_epoch()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
