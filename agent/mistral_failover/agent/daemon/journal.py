# SPDX-License-Identifier: Apache-2.0
"""The agent's persistent state: its epoch, the commands it received, and their outcomes.

One SQLite file in a folder that only one agent at a time holds. Every method is one transaction, on
disk when it returns, so a crash leaves nothing between two of them. A command is identified by its
epoch and its id: what an earlier epoch did was undone when it ended.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from mistral_failover.agent.daemon.journal_file import (
    hold_folder,
    is_folder_held,
    make_folder,
    open_copy,
    open_file,
    refuse_changes,
    unusable,
    write_probe,
)
from mistral_failover.errors import CodedError
from mistral_failover.model.documents import load_json

KEPT = 1000
"""Commands of earlier epochs to keep, for operators to see."""
KEPT_REHEARSALS = 100
"""Ids of rehearsals to keep, so that a command that comes late does not begin one again."""

State = Literal["received", "started", "done", "unknown", "refused"]
"""``received``: known, and nothing of it took effect; ``started``: it runs, or the agent that ran
it died; ``done``: it ended, or an operator knows that it took effect; ``unknown``: its outcome is
unknown; ``refused``: its epoch had ended before it began."""


def boot_id() -> str:
    """Return the identity of this boot of the server: Linux makes another one at each boot, and
    keeps it while the server is suspended or moved while it runs."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


@dataclass(frozen=True)
class ProcessIdentity:
    """A process of this server, identified uniquely: its group has the number ``pid``, and it began
    ``start_ticks`` after the boot ``boot_id``."""

    pid: int
    start_ticks: int
    boot_id: str


@dataclass(frozen=True)
class JournalEntry:
    """A command in the journal; times are seconds since 1970 by the server's clock.

    ``boot_id``: the boot of its process; of a command that is done, the boot on which it took
    effect, as far as that is known. ``message`` says why it has no end, or who reported that end;
    ``finding`` what its check found. ``rehearsal``: the id of the one that it belongs to, or empty.
    ``seen_at``: when its check first found it in effect after it was done; None if it never did.
    """

    epoch: int
    id: str
    name: str
    arguments: dict[str, Any]
    reply_to: str
    state: State
    received_at: float
    started_at: float | None
    ended_at: float | None
    pid: int | None
    start_ticks: int | None
    boot_id: str | None
    seconds: float | None
    exit_code: int | None
    stdout: str
    stderr: str
    message: str
    finding: str
    rehearsal: str
    seen_at: float | None

    @property
    def said(self) -> str:
        """Why it has no end, and what its check found, in one line; empty: it came to its end."""
        return "; ".join(filter(None, (self.message, self.finding)))

    @property
    def has_begun(self) -> bool:
        """Whether it may have taken effect."""
        return self.state in ("started", "unknown", "done")

    @property
    def process(self) -> ProcessIdentity | None:
        """Its process, if the journal knows one."""
        if self.pid is None or self.start_ticks is None or self.boot_id is None:
            return None
        return ProcessIdentity(self.pid, self.start_ticks, self.boot_id)


@dataclass(frozen=True)
class Deposition:
    """When the agent learned a newer epoch, and the outcome. ``done_at``: when everything was
    stopped; None until then."""

    epoch: int
    learnt_at: float
    attempts: int
    done_at: float | None
    message: str


_COLUMNS = tuple(f.name for f in fields(JournalEntry))


class Journal:
    """The journal of one agent; safe to use from several threads."""

    def __init__(
        self, folder: Path, *, hold: bool = True, safe: bool = True, boot: str | None = None
    ) -> None:
        """Open the journal, and create it if it is missing. ``hold``: as the agent, of which only
        one may run; commands that read or settle need not. ``safe``: what is written survives a
        loss of power; an emulated one needs not survive a real one. ``boot``: the identity of this
        boot of the server, if it is not that of this machine. Raises `CodedError`."""
        self.boot = boot_id() if boot is None else boot
        """The identity of this boot of the server."""
        self._folder = folder
        self._safe = safe
        self._lock = threading.RLock()
        self._held: int | None = None
        self._owner: str | None = None
        self._is_copy = False
        try:
            make_folder(folder)
            if hold:
                self._held = hold_folder(folder)
            self._db = self._open()
        except (OSError, sqlite3.Error) as error:
            self._release()
            raise unusable(folder, error) from None
        except CodedError:
            self._release()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the journal for another agent."""
        with self._lock:
            self._db.close()
            self._release()

    def is_held(self) -> bool:
        """Return whether an agent holds it."""
        return self._held is not None or is_folder_held(self._folder)

    def belong_to(self, owner: str) -> bool:
        """Start a new journal if this one belongs to another server: a server may be made from an
        image of another one. Return whether it did."""
        self._owner = owner
        with self._lock:
            if self._setting("owner") == owner:  # a full disk must not keep the agent from starting
                return False
            if self._is_copy:
                refuse_changes(self._db, yes=False)
            try:
                return self._change_owner(owner)
            finally:
                if self._is_copy:
                    refuse_changes(self._db, yes=True)

    def probe(self) -> None:
        """Write as much as a command needs. If only a copy of the journal could be opened, open
        the journal itself first. Raises sqlite3.Error, OSError, `CodedError` if that fails."""
        with self._lock:
            if self._is_copy:
                self._replace_copy()
        write_probe(self._folder)
        with self._lock, self._db:
            self._set("probed_at", str(time.time()))

    def _replace_copy(self) -> None:
        # It counts only once its owner is right: the next try begins again with the copy.
        copy, self._db, self._is_copy = self._db, open_file(self._folder), False
        try:
            if self._owner is not None:
                self.belong_to(self._owner)
        except BaseException:
            opened, self._db, self._is_copy = self._db, copy, True
            opened.close()
            raise
        copy.close()

    def _change_owner(self, owner: str) -> bool:
        with self._db:
            former = self._setting("owner")
            if former is not None:
                for table in ("settings", "commands", "depositions"):
                    self._db.execute(f"DELETE FROM {table}")  # noqa: S608 - ours
            self._set("owner", owner)
        return former is not None

    # -- the epoch, the member's name

    def epoch(self, least: int) -> int:
        """Return the agent's epoch: the latest that it knows, or ``least`` if that is later."""
        found = self._setting("epoch")
        return max(least, int(found)) if found is not None else least

    def raise_epoch(self, epoch: int) -> bool:
        """Enter a later epoch, whose deposition is not carried out yet; return False if it is not
        later than the last."""
        with self._lock, self._db:
            found = self._setting("epoch")
            if found is not None and int(found) >= epoch:
                return False
            self._set("epoch", str(epoch))
            self._db.execute(
                "INSERT OR IGNORE INTO depositions (epoch, learnt_at) VALUES (?, ?)",
                (epoch, time.time()),
            )
            self._db.execute(
                "DELETE FROM commands WHERE epoch < ? AND number NOT IN (SELECT number FROM"
                " commands WHERE epoch < ? ORDER BY number DESC LIMIT ?)",
                (epoch, epoch, KEPT),
            )
        return True

    def member(self) -> str | None:
        """Return the member's name as the executors sent it last."""
        return self._setting("member")

    def learn_member(self, name: str) -> None:
        """Store the member's name."""
        if self._setting("member") != name:
            with self._lock, self._db:
                self._set("member", name)

    # -- commands

    def find(self, epoch: int, command_id: str) -> JournalEntry | None:
        """Return a command's record."""
        rows = self._rows("WHERE epoch = ? AND id = ?", (epoch, command_id))
        return rows[0] if rows else None

    def open_rows(self) -> list[JournalEntry]:
        """Return the commands that have begun or whose outcome is unknown, oldest first."""
        return self._rows("WHERE state IN ('started', 'unknown') ORDER BY number")

    def latest(self, count: int) -> list[JournalEntry]:
        """Return the latest commands, newest first."""
        return self._rows("ORDER BY number DESC LIMIT ?", (count,))

    def served(self, epoch: int, besides: Collection[str]) -> bool:
        """Return whether a requested command has ever begun in the epoch, ``besides`` those of
        these names."""
        rows = self._rows("WHERE epoch = ? AND reply_to != '' AND rehearsal = ''", (epoch,))
        return any(row.name not in besides for row in rows)

    def in_effect(self, epoch: int) -> list[JournalEntry]:
        """Return of each command's name the latest request of an epoch that succeeded, on whatever
        boot, the latest last."""
        return self._rows(
            "WHERE number IN (SELECT MAX(number) FROM commands WHERE epoch = ? AND reply_to != ''"
            " AND rehearsal = '' AND state = 'done' AND exit_code = 0 GROUP BY name)"
            " ORDER BY number",
            (epoch,),
        )

    def confirmed(self, row: JournalEntry) -> None:
        """Record that a command that was done on an earlier boot is in effect on this one."""
        self._change(row.epoch, row.id, boot_id=self.boot)

    def seen(self, row: JournalEntry) -> None:
        """Record that the check of a command that is done found it in effect."""
        self._change(row.epoch, row.id, seen_at=time.time())

    def start(
        self,
        epoch: int,
        command_id: str,
        name: str,
        arguments: Mapping[str, Any],
        reply_to: str,
        rehearsal: str = "",
    ) -> None:
        """Record the intent: from now on the command may have taken effect. ``reply_to``: empty for
        a command of the agent's own; ``rehearsal``: empty for a real one."""
        now = time.time()
        with self._lock, self._db:
            self._db.execute(
                "INSERT INTO commands (epoch, id, name, arguments, reply_to, state, received_at,"
                " started_at, rehearsal) VALUES (?, ?, ?, ?, ?, 'started', ?, ?, ?)"
                " ON CONFLICT (epoch, id) DO UPDATE SET state = 'started', started_at = ?,"
                " reply_to = excluded.reply_to, ended_at = NULL, pid = NULL, start_ticks = NULL,"
                " boot_id = NULL, message = '', finding = '', seen_at = NULL",
                (
                    *(epoch, command_id, name, json.dumps(dict(arguments)), reply_to),
                    *(now, now, rehearsal, now),
                ),
            )

    def running(self, epoch: int, command_id: str, identity: ProcessIdentity) -> None:
        """Record the process that runs the command."""
        self._change(epoch, command_id, **asdict(identity))

    def done(
        self,
        epoch: int,
        command_id: str,
        *,
        exit_code: int,
        stdout: str = "",
        stderr: str = "",
        seconds: float | None = None,
    ) -> None:
        """Record a command's outcome."""
        self._change(
            epoch,
            command_id,
            state="done",
            exit_code=exit_code,
            stdout=stdout,
            stderr=stderr,
            seconds=seconds,
            ended_at=time.time(),
            boot_id=self.boot,
            message="",
            finding="",
        )

    def found(self, epoch: int, command_id: str, state: State, finding: str) -> None:
        """Record what a command's check found; ``state``: done, received or unknown. Unless it
        found that the command is done, an operator's statement prevails."""
        if state == "done":
            seen = {"ended_at": time.time(), "boot_id": self.boot, "finding": finding}
            self._change(epoch, command_id, state=state, exit_code=0, **seen)
            return
        with self._lock, self._db:
            self._db.execute(
                "UPDATE commands SET state = ?, finding = ?, ended_at = ?"
                " WHERE epoch = ? AND id = ? AND state IN ('started', 'unknown')",
                (state, finding, time.time(), epoch, command_id),
            )

    def leave(self, epoch: int, command_id: str, state: State, message: str) -> None:
        """Record that a command did not end: it is unknown, refused, or may begin again. An
        operator's statement that it is done prevails."""
        with self._lock, self._db:
            self._db.execute(
                "UPDATE commands SET state = ?, message = ?, ended_at = ?"
                " WHERE epoch = ? AND id = ? AND state IN ('started', 'unknown')",
                (state, message, time.time(), epoch, command_id),
            )

    def settle(self, command_id: str, *, done: bool) -> JournalEntry | None:
        """Record an operator's statement about an unknown command; return its new record, or None
        if no unknown command has that id."""
        said = f"an operator stated that it {'took effect' if done else 'did not take effect'}"
        values = ("done", 0) if done else ("received", None)
        with self._lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            epoch = self._db.execute(
                "SELECT MAX(epoch) FROM commands WHERE id = ? AND state = 'unknown'", (command_id,)
            ).fetchone()[0]
            self._db.execute(
                "UPDATE commands SET state = ?, exit_code = ?, ended_at = ?, message = ?,"
                " boot_id = ?, finding = ''"
                " WHERE id = ? AND epoch = ?",
                (*values, time.time(), said, self.boot, command_id, epoch),
            )
        return None if epoch is None else self.find(epoch, command_id)

    # -- rehearsals

    def rehearse(self, rehearsal: str) -> None:
        """Record that a rehearsal has begun, or must not begin any more."""
        known = self._rehearsals()
        if rehearsal not in known:
            with self._lock, self._db:
                self._set("rehearsals", json.dumps([*known, rehearsal][-KEPT_REHEARSALS:]))

    def look(self, process: ProcessIdentity) -> None:
        """Record the process of the latest check that the agent runs by itself."""
        self._set_process("look", process)

    def looked(self) -> ProcessIdentity | None:
        """Return the process of the latest such check; None: there was none."""
        return self._process("look")

    def was_rehearsed(self, rehearsal: str) -> bool:
        """Return whether :meth:`rehearse` was called for a rehearsal."""
        return rehearsal in self._rehearsals()

    def isolate(self, process: ProcessIdentity) -> None:
        """Record the first process of the latest isolation."""
        self._set_process("isolated", process)

    def isolated(self) -> ProcessIdentity | None:
        """Return the first process of the latest isolation; None: there was none."""
        return self._process("isolated")

    def _set_process(self, name: str, process: ProcessIdentity) -> None:
        with self._lock, self._db:
            self._set(name, json.dumps(asdict(process)))

    def _process(self, name: str) -> ProcessIdentity | None:
        found = self._setting(name)
        return ProcessIdentity(**load_json(found, "setting")) if found else None

    def _rehearsals(self) -> list[str]:
        found = self._setting("rehearsals")
        known: list[str] = load_json(found, "setting") if found else []
        return known

    # -- depositions

    def deposition(self, epoch: int) -> Deposition | None:
        """Return the deposition of an epoch; None if the epoch was configured, not learned."""
        with self._lock:
            row = self._db.execute(
                "SELECT epoch, learnt_at, attempts, done_at, message FROM depositions"
                " WHERE epoch = ?",
                (epoch,),
            ).fetchone()
        return Deposition(*row) if row else None

    def deposing(self, epoch: int, *, done: bool, message: str) -> None:
        """Record one attempt to stop what a deposed agent has to stop."""
        with self._lock, self._db:
            self._db.execute(
                "UPDATE depositions SET attempts = attempts + 1, message = ?, done_at = ?"
                " WHERE epoch <= ? AND done_at IS NULL",
                (message, time.time() if done else None, epoch),
            )

    # -- within

    def _rows(self, where: str, values: tuple[Any, ...] = ()) -> list[JournalEntry]:
        with self._lock:
            found = self._db.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM commands {where}",  # noqa: S608 - both are ours
                values,
            ).fetchall()
        return [
            JournalEntry(**{**dict(zip(_COLUMNS, row)), "arguments": load_json(row[3], "row")})
            for row in found
        ]

    def _change(self, epoch: int, command_id: str, **values: Any) -> None:
        columns = ", ".join(f"{name} = ?" for name in values)
        with self._lock, self._db:
            self._db.execute(
                f"UPDATE commands SET {columns} WHERE epoch = ? AND id = ?",  # noqa: S608
                (*values.values(), epoch, command_id),
            )

    def _open(self) -> sqlite3.Connection:
        if not self._safe:
            return open_file(self._folder, alone=True, safe=False)
        try:
            return open_file(self._folder)
        except (OSError, sqlite3.OperationalError):
            if self._held is None:
                raise
            # An agent whose disk cannot be written must still know its epoch, and stop what it has
            # to. It carries out no command, and says so in its heartbeats.
            db = open_copy(self._folder)
            self._is_copy = True
            return db

    def _setting(self, name: str) -> str | None:
        with self._lock:
            row = self._db.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    def _set(self, name: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))

    def _release(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None
