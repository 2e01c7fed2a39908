# SPDX-License-Identifier: Apache-2.0
"""The initial state, saved once: a later first start takes it instead of making it.

It holds the databases, Keystone's keys and the passwords that belong to them, so only its owner
may read it. It is valid for the same versions, configuration and ports, which are in its name.
"""

from __future__ import annotations

import contextlib
import os
import tarfile
from pathlib import Path

from testcloud import hashes, packages
from testcloud.settings import HERE, Settings

PARTS = ("data/mariadb", "data/keystone", "data/mistral", "secrets.json")
# The modules that say what an initialised cloud has.
_MAKERS = ("databases", "identity", "infrastructure", "sections", "settings")


def key(settings: Settings) -> str:
    """Which initial state suits."""
    makers = [HERE / f"{name}.py" for name in _MAKERS]
    ports = f"{settings.first_port} {settings.password or ''}"
    return hashes.of_files(makers, packages.key(), ports)


def exists(settings: Settings) -> bool:
    """Whether a suitable one is there."""
    return _path(settings).is_file()


def save(settings: Settings) -> None:
    """Save the state, while MariaDB is stopped; older ones go."""
    settings.saved.mkdir(parents=True, exist_ok=True)
    path = _path(settings)
    temporary = path.with_suffix(".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w") as archive:
        for part in PARTS:
            archive.add(settings.state / part, arcname=part)
    for old in settings.saved.glob("*.tar"):
        old.unlink()
    temporary.replace(path)


def restore(settings: Settings) -> None:
    """Unpack the saved state into a state folder that has none."""
    with contextlib.closing(tarfile.open(_path(settings))) as archive:
        archive.extractall(settings.state, filter="tar")
    settings.forget_secrets()


def _path(settings: Settings) -> Path:
    return settings.saved / f"{key(settings)}.tar"
