# SPDX-License-Identifier: Apache-2.0
"""The state directory of a server: one server at a time, and where it is to be found."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mistral_failover.embedded.errors import EmbeddedError

SERVER_FILE = "server.json"
"""``{"url", "pid", "webhook", "secret_file"}``, and ``metrics``, ``emulator`` and its
``clouds_file`` where there are any; there as long as the server is ready."""


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold a state directory, which is made where it is missing, for one server.

    Raises EmbeddedError STATE_DIR_UNUSABLE, STATE_DIR_IN_USE.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # flock, not a pid file: the kernel releases it with a killed process.
        lock = (folder / "server.lock").open("a")
    except OSError as error:
        raise EmbeddedError(
            "STATE_DIR_UNUSABLE",
            f"the state directory {folder} can not be written: {error.strerror}",
            "Name another one with --state-dir, or have this one belong to the server's user.",
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EmbeddedError(
                "STATE_DIR_IN_USE",
                f"another failover server runs on {folder}",
                "Stop that one, or name another --state-dir.",
            ) from None
        yield


@contextlib.contextmanager
def announced(folder: Path, facts: Mapping[str, Any]) -> Iterator[None]:
    """Say where the server is while the block lasts, in a file that only its owner reads."""
    file = folder / SERVER_FILE
    write_private(file, json.dumps(facts) + "\n")
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def forget(folder: Path) -> None:
    """Remove what a killed server has left of its announcement."""
    (folder / SERVER_FILE).unlink(missing_ok=True)


def write_private(file: Path, text: str) -> None:
    """Write a file that only its owner reads; at every moment there is the old one or the new."""
    made = file.with_name(file.name + ".new")
    made.unlink(missing_ok=True)
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    made.replace(file)
