# SPDX-License-Identifier: Apache-2.0
"""The file of the agent's journal, and who may have it."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from contextlib import closing
from pathlib import Path

SCHEMA = 1

_FILE = "journal.sqlite"
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


class JournalError(Exception):
    """The journal can not be used. ``code``: JOURNAL_HELD (another agent has it) or JOURNAL."""

    def __init__(self, code: str, message: str, remedy: str) -> None:
        self.code = code
        self.message = message
        self.remedy = remedy
        super().__init__(f"{code}: {message}. {remedy}")


def hold_folder(folder: Path) -> int:
    """Be the only agent of a folder, for as long as the descriptor is open. Raises `JournalError`,
    OSError."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise JournalError(
            "JOURNAL_HELD",
            f"another agent has the journal in {folder}",
            "Let one agent run only, or give each a folder of its own.",
        ) from None
    return descriptor


def open_file(folder: Path) -> sqlite3.Connection:
    """The journal in a folder, made where there is none. Raises `JournalError`, sqlite3.Error."""
    path = folder / _FILE
    path.touch(mode=0o600)
    db = sqlite3.connect(path, timeout=10.0, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
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
        raise JournalError(
            "JOURNAL",
            f"the journal {path} is of version {version}, and this agent knows {SCHEMA}",
            "Install the agent that wrote it, or a later one.",
        )
    return db
