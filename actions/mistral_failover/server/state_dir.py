# SPDX-License-Identifier: Apache-2.0
"""The state directory of a server: it locks out a second server, and tells clients the address."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mistral_failover import private_files
from mistral_failover.embedded.access import make_private
from mistral_failover.errors import CodedError
from mistral_failover.model.documents import load_json

_LOCK = "server.lock"
SERVER_FILE = "server.json"
"""``{"url", "token_file", "pid", "webhook", "secret_file"}``, and ``metrics``, ``emulator`` and its
``clouds_file`` where there are any; there as long as the server is ready."""


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold a state directory for one server; create it if it is missing.

    Raises CodedError STATE_DIR_UNUSABLE, STATE_DIR_OPEN, STATE_DIR_IN_USE.
    """
    try:
        make_private(folder)
        # flock, not a pid file: the kernel releases it with a killed process.
        lock = os.fdopen(private_files.open_in_place(folder / _LOCK, os.O_WRONLY | os.O_CREAT), "w")
    except private_files.NotPrivate as error:
        raise CodedError("STATE_DIR_UNUSABLE", error.message, error.remedy) from None
    except OSError as error:
        raise _unusable(folder, error.strerror) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _taken(folder) from None
        yield


def check_free(folder: Path) -> None:
    """Check that a server could use this existing state directory; leave nothing in it.

    Raises CodedError as :func:`claimed`.
    """
    try:
        taken = _in_use(folder)
        try_writing(folder)
        make_private(folder)
    except OSError as error:
        raise _unusable(folder, error.strerror) from None
    if taken:
        raise _taken(folder)


def try_writing(folder: Path) -> None:
    """Create a file in a folder and remove it at once: the mode alone does not tell whether that is
    possible, least of all for root. Raises OSError."""
    with tempfile.TemporaryFile(dir=folder):
        pass


def running(folder: Path) -> dict[str, Any]:
    """Return what the server that runs with this state directory announces; empty: none runs."""
    try:
        if _in_use(folder):
            found: dict[str, Any] = load_json((folder / SERVER_FILE).read_bytes(), "file")
            return found
    except (OSError, ValueError):
        pass  # it is about to start, or it belongs to another user
    return {}


def _in_use(folder: Path) -> bool:
    try:
        lock = (folder / _LOCK).open("rb")
    except FileNotFoundError:
        return False
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _unusable(folder: Path, why: str | None) -> CodedError:
    return CodedError(
        "STATE_DIR_UNUSABLE",
        f"the state directory {folder} is not writable: {why}",
        "Name another one with --state-dir, or give this one to the server's user.",
    )


def _taken(folder: Path) -> CodedError:
    return CodedError(
        "STATE_DIR_IN_USE",
        f"another failover server runs on {folder}",
        "Stop that server, or name another --state-dir.",
    )


@contextlib.contextmanager
def announced(folder: Path, facts: Mapping[str, Any]) -> Iterator[None]:
    """Announce the server's addresses while the block lasts, in a file that only its owner may
    read."""
    file = folder / SERVER_FILE
    private_files.write(file, json.dumps(facts) + "\n")
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def forget(folder: Path) -> None:
    """Remove the announcement of a killed server."""
    (folder / SERVER_FILE).unlink(missing_ok=True)
