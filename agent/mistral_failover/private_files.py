# SPDX-License-Identifier: Apache-2.0
"""Files and directories that hold secrets: only their owner may read or write them.

Every secret in a file is read here, so that all are under one rule. Every check is of what was
opened, not of a name that may lead elsewhere a moment later.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_LINKS = 40  # as many as the kernel follows
_READING = os.O_RDONLY | os.O_NONBLOCK  # a FIFO without a writer would be waited for


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


@contextmanager
def opened(
    file: Path, *, installed: bool = False, for_root: bool = False, public: bool = False
) -> Iterator[BinaryIO]:
    """Open a file with a secret for reading: the only way to read one.

    It must belong to this user or root, no other user may have access, and it must not be a
    symbolic link, which may lead to another file a moment later.

    ``installed``: an administrator installs it for a service. Then the group may read it if it
    belongs to root, and a link is followed if this user or root made it: Kubernetes mounts secrets
    as links, and ACME clients link to the present key. ``for_root``: if this user is root, the file
    may belong to any user: for what is only sent to a service of that user, such as a token.
    ``public``: everyone may read it, and no other user change it: for a file that has no secret
    itself, and says what is run.

    Raises `NotPrivate`; OSError if the file is not readable, or no regular file.
    """
    descriptor = _follow(file) if installed else open_in_place(file, _READING)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(file))
    with os.fdopen(descriptor, "rb") as stream:
        of_group = 0o040 if installed and found.st_uid == 0 else 0
        _check(
            file,
            found,
            "chmod go-w" if public else "chmod 600",
            any_owner=for_root and os.geteuid() == 0,
            allowed=0o055 if public else of_group,
        )
        yield stream


def read(
    file: Path, *, installed: bool = False, for_root: bool = False, public: bool = False
) -> bytes:
    """Return the content of a file with a secret. Arguments and errors: :func:`opened`."""
    with opened(file, installed=installed, for_root=for_root, public=public) as stream:
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


def _follow(file: Path) -> int:
    """Open a file for reading, through the links of this user and root; return its descriptor."""
    place = file
    for _ in range(_LINKS):
        try:
            return os.open(place, _READING | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
        link = os.open(place, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if (owner := os.fstat(link).st_uid) not in (0, os.geteuid()):
                raise NotPrivate(
                    f"{place} is a symbolic link of another user (uid {owner})",
                    f'Run: cp --remove-destination "$(readlink -f {place})" {place}',
                )
            place = place.parent / os.readlink("", dir_fd=link)
        finally:
            os.close(link)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(file))


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
