# SPDX-License-Identifier: Apache-2.0
"""The unix socket of an API: for its user alone, and never that of another process that lives."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from mistral_failover import private_files
from mistral_failover.errors import CodedError
from mistral_failover.http_server import BACKLOG

LONGEST = 107
"""Maximum length of a socket's path in bytes, on Linux."""


def bound(path: Path) -> socket.socket:
    """Return a socket that listens at ``path``, mode 0600; its directory is made if it is missing.

    The socket of a dead process is replaced. Raises CodedError SOCKET_TAKEN (a process listens
    there), SOCKET_DIR_OPEN (another user may enter the directory), SOCKET_UNUSABLE.
    """
    _check_length(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone_in(path.parent):
            _check_unused(path)
            path.unlink(missing_ok=True)
            # Linux gives the file the mode of the descriptor, so it is never open to others.
            os.fchmod(listening.fileno(), 0o600)
            listening.bind(str(path))
            listening.listen(BACKLOG)
    except CodedError:
        listening.close()
        raise
    except OSError as error:
        listening.close()
        raise _unusable(path, error.strerror or str(error)) from None
    return listening


def removed(path: Path, made: os.stat_result) -> None:
    """Remove a socket, unless another one is at its path. ``made``: the file that was made."""
    with contextlib.suppress(OSError), _alone_in(path.parent):
        if os.path.samestat(os.lstat(path), made):
            path.unlink()


def check_free(path: Path) -> None:
    """Check that :func:`bound` would work, as far as that shows; leave nothing behind. Raises as
    :func:`bound`."""
    _check_length(path)
    try:
        if path.parent.exists():
            _check_private(path.parent)
            _check_unused(path)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from None


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Two processes that start at once must not both replace the socket of a dead one."""
    _check_private(folder)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _check_private(folder: Path) -> None:
    try:
        private_files.check_directory(folder)
    except private_files.NotPrivate as error:
        # Another user could put a socket there, and receive the token.
        raise CodedError("SOCKET_DIR_OPEN", error.message, error.remedy) from None


def _check_unused(path: Path) -> None:
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise _unusable(path, "there is a file that is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)  # EAGAIN: it lives, and has too many to answer
        found = asking.connect_ex(str(path))
    if found not in (errno.ECONNREFUSED, errno.ENOENT):
        raise CodedError(
            "SOCKET_TAKEN",
            f"another process already listens on {path}",
            f"Find the process: ss -lxp src {path}. Or choose another path.",
        )


def _check_length(path: Path) -> None:
    if len(os.fsencode(path)) > LONGEST:
        raise _unusable(path, f"its path is longer than {LONGEST} bytes")


def _unusable(path: Path, why: str) -> CodedError:
    return CodedError(
        "SOCKET_UNUSABLE",
        f"the API cannot listen on {path}: {why}",
        "Choose another path, in a directory of the server's user: --listen unix:PATH.",
    )
