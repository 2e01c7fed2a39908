# SPDX-License-Identifier: Apache-2.0
"""The file of the agent's journal, and access to it."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

from mistral_failover import private_files
from mistral_failover.errors import CodedError

SCHEMA = 1
LOOKING = 1.0
"""Seconds that an agent waits for other processes to release its folder: a process that checks for
an agent holds it for a moment."""

ROOM = 128 * 1024
"""Bytes that must fit onto the disk for a command: its arguments and both of its outputs, as text
of several bytes a character, and SQLite's pages."""

_FILE = "journal.sqlite"
_MEMORY = Path("/dev/shm")  # noqa: S108 - a file system that needs no disk; the folder is private
_TABLES = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE commands (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    epoch INTEGER NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    arguments TEXT NOT NULL,
    reply_to TEXT NOT NULL,
    state TEXT NOT NULL,
    received_at REAL NOT NULL,
    started_at REAL,
    ended_at REAL,
    pid INTEGER,
    start_ticks INTEGER,
    boot_id TEXT,
    seconds REAL,
    exit_code INTEGER,
    stdout TEXT NOT NULL DEFAULT '',
    stderr TEXT NOT NULL DEFAULT '',
    message TEXT NOT NULL DEFAULT '',
    finding TEXT NOT NULL DEFAULT '',
    rehearsal TEXT NOT NULL DEFAULT '',
    seen_at REAL,
    UNIQUE (epoch, id)
);
CREATE TABLE depositions (
    epoch INTEGER PRIMARY KEY,
    learnt_at REAL NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    done_at REAL,
    message TEXT NOT NULL DEFAULT ''
);
"""


def unusable(folder: Path, error: Exception) -> CodedError:
    """Return the error for a failure of the disk or of SQLite."""
    return CodedError(
        "JOURNAL",
        f"the journal in {folder} is not usable: {error}",
        "Check that the folder is writable and has free space.",
    )


def make_folder(folder: Path) -> None:
    """Make sure that the folder exists and that no other user may read it. Raises `CodedError`,
    OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        private_files.check_directory(folder)
    except private_files.NotPrivate as error:
        # Its mode is not changed here: the file may name a shared folder, such as /var/lib.
        raise CodedError(
            "JOURNAL",
            f"{error.message}; it holds arguments and outputs",
            error.remedy,
        ) from None


def hold_folder(folder: Path) -> int:
    """Be the only agent of a folder for as long as the descriptor is open. Raises `CodedError`,
    OSError."""
    descriptor = _lock_file(folder)
    deadline = time.monotonic() + LOOKING
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(0.02)
                continue
            os.close(descriptor)
            raise CodedError(
                "JOURNAL_HELD",
                f"another agent has the journal in {folder}",
                "Run only one agent, or give each its own folder.",
            ) from None
        return descriptor


def _lock_file(folder: Path) -> int:
    try:
        return _open(folder / "lock", os.O_RDWR | os.O_CREAT)
    except OSError:  # a lock needs no right to write
        return _open(folder / "lock", os.O_RDONLY)


def is_folder_held(folder: Path) -> bool:
    """Return whether an agent holds a folder. Raises `CodedError`, OSError."""
    try:
        descriptor = _open(folder / "lock", os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        # Shared: several processes may check at once.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def has_file(folder: Path) -> bool:
    """Return whether an agent ever started with a folder."""
    return (folder / _FILE).is_file()


def open_file(folder: Path, *, alone: bool = False, safe: bool = True) -> sqlite3.Connection:
    """Open the journal in a folder; create it if it is missing. ``alone``: without the file that it
    would share with other processes, which takes space; they cannot use the journal in the
    meantime. ``safe``: what is committed survives a loss of power. Raises `CodedError`,
    sqlite3.Error."""
    path = folder / _FILE
    os.close(_open(path, os.O_RDWR | os.O_CREAT))
    db = sqlite3.connect(path, timeout=10.0, check_same_thread=False)
    try:
        if alone:
            db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {'FULL' if safe else 'OFF'}")
        with closing(db.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            version = cursor.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                for statement in _TABLES.split(";"):
                    cursor.execute(statement)
                cursor.execute(f"PRAGMA user_version = {SCHEMA}")
        db.commit()
    except BaseException:
        db.close()
        raise
    if version not in (0, SCHEMA):
        db.close()
        raise CodedError(
            "JOURNAL",
            f"the journal {path} has version {version}, but this agent supports version {SCHEMA}",
            "Install the agent version that wrote it, or a later one.",
        )
    return db


def open_copy(folder: Path) -> sqlite3.Connection:
    """Open a copy of the journal in memory, which refuses every change: for an agent whose disk
    cannot be written, so that it still knows its epoch. Raises OSError, sqlite3.Error."""
    db = sqlite3.connect(":memory:", check_same_thread=False)
    try:
        with tempfile.TemporaryDirectory(prefix="failover-agent-", dir=_MEMORY) as there:
            for end in ("", "-wal"):  # the latest transactions are in the second one
                if (folder / f"{_FILE}{end}").exists():
                    shutil.copyfile(folder / f"{_FILE}{end}", Path(there) / f"{_FILE}{end}")
            with closing(open_file(Path(there), alone=True, safe=False)) as copy:
                copy.backup(db)
        refuse_changes(db, yes=True)
    except BaseException:
        db.close()
        raise
    return db


def refuse_changes(db: sqlite3.Connection, *, yes: bool) -> None:
    """Let every change of a connection raise sqlite3.OperationalError, or allow them again."""
    db.execute(f"PRAGMA query_only = {'ON' if yes else 'OFF'}")


def write_probe(folder: Path) -> None:
    """Write as much as a command needs to the disk of a folder, and nothing remains of it. Raises
    OSError if it does not reach the disk."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        rest = memoryview(bytes(ROOM))
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())


def _open(file: Path, flags: int) -> int:
    try:
        return private_files.open_in_place(file, flags)
    except private_files.NotPrivate as error:
        raise CodedError("JOURNAL", error.message, error.remedy) from None
