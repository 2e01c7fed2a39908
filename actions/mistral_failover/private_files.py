# SPDX-License-Identifier: Apache-2.0
"""Files and directories that hold secrets: only their owner may read or write them.

Every check is of what was opened, not of a name that may lead elsewhere a moment later.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


class NotPrivate(Exception):
    """Other users could read or change a file or directory. ``message`` says which one and why;
    ``remedy`` says which command helps."""

    def __init__(self, message: str, remedy: str) -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(f"{message}. {remedy}")


def check_directory(folder: Path) -> None:
    """Check that no other user, root excepted, can enter a directory.

    Raises `NotPrivate`; OSError if there is no such directory.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _check(folder, os.fstat(descriptor), "chmod 700")
    finally:
        os.close(descriptor)


def read(file: Path, *, for_root: bool = False, for_group: bool = False) -> bytes:
    """Return the content of a file that only its owner, this user or root, can read and write.

    ``for_root``: if this user is root, the file may belong to any user: for what is only sent to a
    service of that user, such as a token. ``for_group``: the group of the file may read it if it
    belongs to root: for what an administrator installs for a service.

    Raises `NotPrivate`, also for a symbolic link, which may lead to another file a moment later;
    OSError if the file is not readable.
    """
    descriptor = open_in_place(file, os.O_RDONLY)
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(stream.fileno())
        _check(
            file,
            found,
            "chmod 600",
            any_owner=for_root and os.geteuid() == 0,
            allowed=0o040 if for_group and found.st_uid == 0 else 0,
        )
        return stream.read()


def write(file: Path, text: str) -> None:
    """Write a file that only its owner may read; readers always find the old content or the new.

    Raises OSError.
    """
    made = file.with_name(file.name + ".new")
    made.unlink(missing_ok=True)
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    made.replace(file)


def open_in_place(file: Path, flags: int) -> int:
    """Open a file, or create it for its owner alone; return its descriptor.

    Raises `NotPrivate` for a symbolic link: it would lead to a file elsewhere. Raises OSError.
    """
    try:
        return os.open(file, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        if file.is_symlink():
            raise NotPrivate(
                f"{file} is a symbolic link",
                f'Run: cp --remove-destination "$(readlink -f {file})" {file}',
            ) from None
        raise


def _check(
    path: Path,
    found: os.stat_result,
    chmod: str,
    *,
    any_owner: bool = False,
    allowed: int = 0,
) -> None:
    if not any_owner and found.st_uid not in (0, os.geteuid()):
        raise NotPrivate(
            f"{path} belongs to another user (uid {found.st_uid})",
            f"Run as that user, or: chown {os.geteuid()}: {path}",
        )
    if mode := stat.S_IMODE(found.st_mode) & 0o077 & ~allowed:
        may = "read or write" if mode & 0o022 else "read"
        raise NotPrivate(
            f"other users may {may} {path} (mode {stat.S_IMODE(found.st_mode):04o})",
            f"Run: {chmod} {path}",
        )
