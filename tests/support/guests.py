# SPDX-License-Identifier: Apache-2.0
"""Guests' Pythons: each that is installed here, in an environment with the agent's wheel alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST = (3, 9)
TOOLS = ("pytest>=8.2", "pytest-timeout>=2.3", "hypothesis>=6.100,<7")
"""What the agent's own tests need besides."""


def interpreters() -> dict[str, Path]:
    """The Pythons that are installed here and new enough, by version (``3.9``), oldest first: on
    the path, and pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    folders = [*map(Path, os.environ["PATH"].split(os.pathsep)), *pyenv.glob("*/bin")]
    found: dict[tuple[int, ...], Path] = {}
    for folder in folders:
        for path in folder.glob("python3.*"):
            named = re.fullmatch(r"python(3)\.(\d+)", path.name)
            if named is None or "shims" in path.parts or (folder.parent / "pyvenv.cfg").exists():
                continue
            found.setdefault(tuple(map(int, named.groups())), path)
    return {".".join(map(str, each)): found[each] for each in sorted(found) if each >= OLDEST}


def environment(folder: Path, python: Path, wheel: Path, *more: str) -> Path:
    """Make an environment with the agent's wheel, and install ``more``; return its Python."""
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
    subprocess.run([uv, "venv", "--quiet", "--python", str(python), str(folder)], check=True)
    made = folder / "bin" / "python"
    install = [uv, "pip", "install", "--quiet", "--python", str(made)]
    subprocess.run([*install, str(wheel), *more], check=True)
    return made
