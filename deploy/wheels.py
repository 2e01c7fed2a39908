# SPDX-License-Identifier: Apache-2.0
"""Build the two wheels from this checkout: ``python -m deploy.wheels [FOLDER]``.

From a copy: setuptools would leave files in the checkout, and take old ones from there.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = (
    *("actions", "workflows", "examples"),
    *("setup.cfg", "pyproject.toml", "README.md", "LICENSE"),
)
"""What the wheel of the package is built from."""
AGENT = "agent"
"""The folder from which the wheel of the agent is built."""


def build(folder: Path) -> tuple[Path, Path]:
    """Build both wheels into a folder; return the package's path and the agent's.

    :raises CalledProcessError: uv failed; it said why.
    """
    return _build(folder, *SOURCES), build_agent(folder)


def build_agent(folder: Path) -> Path:
    """Build the agent's wheel into a folder; return its path. Raises as :func:`build`."""
    return _build(folder, AGENT)


def _build(folder: Path, *names: str) -> Path:
    (wheel,) = build_kind("--wheel", folder, *names)
    return wheel


def build_kind(kind: str, folder: Path, *names: str) -> list[Path]:
    """Build these sources as uv's ``kind`` into a folder; return the paths. Raises as
    :func:`build`."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    with tempfile.TemporaryDirectory() as work:
        for name in names:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, Path(work) / "in" / name, ignore=ignored)
            else:
                shutil.copy(ROOT / name, Path(work) / "in" / name)
        place = Path(work) / "in" / AGENT if names == (AGENT,) else Path(work) / "in"
        pinned = ("--build-constraints", str(ROOT / "deploy" / "agent" / "build.txt"))
        uv = (sys.executable, "-m", "uv", "build", "--quiet", kind, *pinned)
        subprocess.run([*uv, "--out-dir", f"{work}/out", str(place)], check=True)
        folder.mkdir(parents=True, exist_ok=True)
        made = [*Path(work, "out").glob("*.whl"), *Path(work, "out").glob("*.tar.gz")]
        return [Path(shutil.copy(each, folder)) for each in made]


def main() -> int:
    """Build into the folder that is named, or ``dist``; print the paths."""
    for wheel in build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"):
        print(wheel)
    return 0


if __name__ == "__main__":
    sys.exit(main())
