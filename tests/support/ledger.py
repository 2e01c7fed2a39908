# SPDX-License-Identifier: Apache-2.0
"""The data oracle: writers outside the guests, who record what the database acknowledged.

A writer for each server tries to connect all the time and writes numbered rows, one a transaction.
It records each row with the time when its commit was acknowledged. A writer inside a guest does the
same without a network, also behind a partition; the console of the guest is its record, and each
line of it gets the time at which it was seen there.

What must hold after any failover: each acknowledged row is there exactly once, no two servers
acknowledged rows at the same time, and none acknowledged one after it was proven to write no more.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg

TABLE = "ledger"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_PAUSE = 0.02  # seconds between two rows of a writer
_LOCAL = re.compile(rb"^wrote (\d+)\.\r*$", re.MULTILINE)
"""A whole line of the writer inside. The kernel's messages go to the same console and may come in
the middle of one: the rest of its number must not be read as another number."""


@dataclass(frozen=True)
class Acknowledged:
    """A row whose commit was acknowledged to its writer.

    :ivar at: seconds of `time.monotonic`.
    :ivar server: the member that acknowledged it.
    :ivar clock: seconds since the epoch, to compare with what others noted.
    :ivar guest: the boot of its guest: a member that comes back has another one, also at the same
        address; empty for the writer inside.
    """

    at: float
    server: str
    number: int
    clock: float
    guest: str = ""


def connect(address: str, limit: float = 2.0) -> psycopg.Connection[tuple[object, ...]]:
    """A connection of the application's user. Raises psycopg.OperationalError."""
    return psycopg.connect(
        host=address,
        user="postgres",
        dbname="postgres",
        autocommit=True,
        connect_timeout=max(2, int(limit)),
        # A server that went without a word is noticed by the missing acknowledgement.
        tcp_user_timeout=int(limit * 1000),
    )


class Ledger:
    """Writers, one for each member, from `start` until `stop`.

    :ivar acknowledged: what was acknowledged, in the order of its time.
    :ivar seen_inside: the same of the writers inside, as far as their consoles were watched.
    """

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self.addresses = dict(addresses)
        self.acknowledged: list[Acknowledged] = []
        self.seen_inside: list[Acknowledged] = []
        self._numbers = itertools.count(1)
        self._ended = threading.Event()
        self._writers: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to write, or go on after `stop`."""
        self._ended = threading.Event()  # a writer that hangs in an earlier one's still ends
        for member, address in list(self.addresses.items()):
            self.also(member, address)

    def also(self, member: str, address: str) -> None:
        """Write to one more server, which may be a member's new one."""
        self.addresses[member] = address
        writer = threading.Thread(
            target=self._write, args=(member, address, self._ended), daemon=True
        )
        self._writers.append(writer)
        writer.start()

    def watch(self, member: str, console: Path) -> None:
        """Note the time of each row that the writer inside a member's guest tells from now on."""
        watcher = threading.Thread(
            target=self._watch, args=(member, console, self._ended), daemon=True
        )
        self._writers.append(watcher)
        watcher.start()

    def stop(self) -> None:
        """Write no more. A writer whose server does not answer ends with its connection's limit."""
        self._ended.set()
        for writer in self._writers:
            writer.join(timeout=10)
        self._writers.clear()

    def wait_for_rows(self, server: str, limit: float, count: int = 1) -> None:
        """Wait until a member has acknowledged ``count`` rows more, at most ``limit`` seconds."""
        known, deadline = len(self.acknowledged), time.monotonic() + limit
        while sum(row.server == server for row in self.acknowledged[known:]) < count:
            if time.monotonic() > deadline:
                raise AssertionError(f"{server} has not acknowledged {count} rows in {limit:g} s")
            time.sleep(0.01)

    def outage(self, since: float) -> float:
        """The seconds without an acknowledgement around a fault: from the last one of the server
        that served then to the first one of another server, or of the same one after a gap."""
        before = [row for row in self.acknowledged if row.at <= since]
        after = [row for row in self.acknowledged if row.at > since]
        times = [row.at for row in (*before[-1:], *after)]
        return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)

    def turns(self) -> list[str]:
        """The members in the order in which their guests acknowledged rows. Two that did it at the
        same time take turns again and again."""
        guests = ((row.server, row.guest) for row in self.acknowledged)
        return [server for (server, _), _ in itertools.groupby(guests)]

    def late(self, moment: float, server: str) -> list[Acknowledged]:
        """What the guest that a member had at a moment, in seconds since the epoch, acknowledged
        after it, and before another one did; the writer inside also later."""
        served = [row for row in self.acknowledged if row.server == server and row.clock <= moment]
        guest = served[-1].guest if served else ""
        ours = (server, guest)
        others = (row.clock for row in self.acknowledged if (row.server, row.guest) != ours)
        end = min((clock for clock in others if clock > moment), default=float("inf"))
        network = [row for row in self.acknowledged if row.clock < end and row.guest == guest]
        rows = [*network, *self.seen_inside]
        return [row for row in rows if row.server == server and row.clock > moment]

    def missing(self, rows: Counter[tuple[str, int]]) -> list[Acknowledged]:
        """What was acknowledged and is not there exactly once."""
        return [row for row in self.acknowledged if rows[row.server, row.number] != 1]

    def _write(self, member: str, address: str, ended: threading.Event) -> None:
        while not ended.is_set():
            with contextlib.suppress(psycopg.Error), connect(address) as connection:
                guest = _boot(connection)
                while not ended.is_set():
                    number = next(self._numbers)
                    row = (member, number)
                    connection.execute("INSERT INTO ledger VALUES (%s, %s)", row)
                    self.acknowledged.append(_now(*row, guest))
                    time.sleep(_PAUSE)
            time.sleep(_PAUSE)

    def _watch(self, member: str, console: Path, ended: threading.Event) -> None:
        with console.open("rb") as told:
            told.seek(0, os.SEEK_END)
            rest = b""
            while not ended.wait(_PAUSE / 2):
                lines, end, rest = (rest + told.read()).rpartition(b"\n")
                for number in _LOCAL.findall(lines + end):
                    self.seen_inside.append(_now(member, int(number)))


def _now(server: str, number: int, guest: str = "") -> Acknowledged:
    return Acknowledged(time.monotonic(), server, number, time.time(), guest)


def _boot(connection: psycopg.Connection[tuple[object, ...]]) -> str:
    """Which boot of which guest a connection leads to."""
    (found,) = connection.execute(f"SELECT pg_read_file('{_BOOT_ID}')").fetchone() or ("",)
    return str(found).strip()


def rows(address: str) -> Counter[tuple[str, int]]:
    """How often each row is in the database that serves now."""
    with connect(address) as connection:
        found = connection.execute("SELECT writer, number FROM ledger").fetchall()
    return Counter((str(writer), int(str(number))) for writer, number in found)


LOCAL = "inside"
"""The writer inside a guest."""

# Not Debian's wrapper of psql: an emulated processor needs seconds for its Perl.
_PSQL = "/usr/lib/postgresql/15/bin/psql -X -q -A -t -v ON_ERROR_STOP=1"
WRITE_INSIDE = (
    f"echo \"INSERT INTO {TABLE} SELECT '{LOCAL}', nextval('numbers')"
    f" RETURNING 'wrote ' || number || '.'"
    f' \\\\watch 0.02" | setsid su postgres -s /bin/sh -c "{_PSQL}" > /dev/console 2>&1 &'
)
"""A shell's command for a guest: rows without a network, a line on the console for each when its
commit was acknowledged."""


def acknowledged_inside(console: Path) -> list[int]:
    """The numbers that the writer inside a guest has told on its console."""
    return [int(number) for number in _LOCAL.findall(console.read_bytes())]
