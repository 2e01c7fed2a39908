# SPDX-License-Identifier: Apache-2.0
"""Has something changed? Hashes of files, and stamps that remember one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

_NOT_SOURCE = {"__pycache__", "build"}


def of_files(paths: Iterable[Path], *more: str) -> str:
    """A hash of files, of all source files below folders, with their places, and of texts."""
    digest = hashlib.sha256()
    for top in paths:
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            parts = path.relative_to(top.parent).parts
            if path.is_file() and not any(p in _NOT_SOURCE or "egg-info" in p for p in parts):
                digest.update(f"{'/'.join(parts)}\0{path.stat().st_size}\0".encode())
                digest.update(path.read_bytes())
    for text in more:
        digest.update(f"\0{text}".encode())
    return digest.hexdigest()[:16]


def stamped(stamp: Path, value: str) -> bool:
    """Whether the stamp holds this value."""
    return stamp.is_file() and stamp.read_text(encoding="ascii") == value


def stamp_with(stamp: Path, value: str) -> None:
    """Remember a value."""
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(value, encoding="ascii")
