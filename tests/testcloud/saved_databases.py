# SPDX-License-Identifier: Apache-2.0
"""The databases with their schemas, saved once: a later first start takes them instead of making
them, which keeps two cores busy for a minute. Clouds of both kinds share them.

They hold the package's workflows and no accounts of the cloud, but the secrets that belong to them,
so only their owner may read them. They are valid for the same versions, password and modules, a
hash of which is their name.
"""

from __future__ import annotations

import contextlib
import os
import tarfile
from pathlib import Path

from testcloud import hashes, packages
from testcloud.settings import HERE, Settings

PARTS = ("data/mariadb", "data/mistral", "secrets.json")
# The modules that say what is in them.
_MAKERS = ("databases", "infrastructure", "sections", "settings")


def key(settings: Settings) -> str:
    """Which saved databases suit."""
    makers = [HERE / f"{name}.py" for name in _MAKERS]
    return hashes.of_files(makers, packages.key(), settings.password or "")


def exist(settings: Settings) -> bool:
    """Whether suitable ones are there."""
    return _path(settings).is_file()


def save(settings: Settings) -> None:
    """Save them, while MariaDB is stopped; older ones go."""
    settings.saved.mkdir(parents=True, exist_ok=True)
    path = _path(settings)
    temporary = path.with_suffix(f".{os.getpid()}")  # another cloud may save the same
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w") as archive:
            for part in PARTS:
                archive.add(settings.state / part, arcname=part)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    for old in settings.saved.glob("*.tar"):
        if old != path:
            old.unlink(missing_ok=True)


def restore(settings: Settings) -> None:
    """Unpack them into a state folder that has none."""
    with contextlib.closing(tarfile.open(_path(settings))) as archive:
        archive.extractall(settings.state, filter="tar")
    settings.forget_secrets()


def _path(settings: Settings) -> Path:
    return settings.saved / f"{key(settings)}.tar"
