# SPDX-License-Identifier: Apache-2.0
"""The databases that the core is measured on: SQLite in a file, and MariaDB if there is one.

MariaDB is the server that ``FAILOVER_TEST_DATABASE`` names, or a private one: started here by the
current user with a data directory of its own, reachable through a socket in that directory alone,
and stopped at the end. Its settings are its defaults: a commit is on disk when it returns.
"""

from __future__ import annotations

import contextlib
import getpass
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import sqlalchemy as sa

from mistral_failover.store import schema
from mistral_failover.store.database import Database

_SECONDS = 60  # for the server to come up, or to go
_ABSENT = (
    "   MariaDB is left out: there is no mariadbd here, and FAILOVER_TEST_DATABASE names no server."
    "\n   The package mariadb-server (Debian, Ubuntu) brings it; it runs without root."
)

Fresh = Callable[[], str]
"""Makes an empty database with the schema in it; returns its URL."""


@contextlib.contextmanager
def at_hand() -> Iterator[dict[str, Fresh]]:
    """By name, what makes a database; everything is removed at the end."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="failover-bench-")))
        numbers = itertools.count()
        kinds: dict[str, Fresh] = {
            "sqlite": lambda: _with_schema(f"sqlite:///{folder / f'{next(numbers)}.sqlite'}")
        }
        named = os.environ.get("FAILOVER_TEST_DATABASE")
        server = named or stack.enter_context(private(folder))
        if server is None:
            print(_ABSENT, flush=True)
        else:
            url = sa.engine.make_url(server)
            admin = sa.create_engine(url.set(database=""), isolation_level="AUTOCOMMIT")
            stack.callback(admin.dispose)
            kinds[url.get_backend_name() if named else "mariadb"] = lambda: _with_schema(
                stack.enter_context(_created(admin, url, next(numbers)))
            )
        yield kinds


@contextlib.contextmanager
def _created(admin: sa.Engine, url: sa.URL, number: int) -> Iterator[str]:
    name = f"failover_bench_{os.getpid()}_{number}"
    with admin.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    try:
        yield url.set(database=name).render_as_string(hide_password=False)
    finally:
        with admin.connect() as connection:
            connection.execute(sa.text(f"DROP DATABASE {name}"))


def _with_schema(url: str) -> str:
    database = Database(url)
    schema.upgrade(database)
    database.close()
    return url


@contextlib.contextmanager
def private(folder: Path) -> Iterator[str | None]:
    """The URL of a server of our own; None when none is installed."""
    if not MariaDb.is_installed():
        yield None
        return
    with MariaDb(folder) as server:
        yield server.url


class MariaDb:
    """A server of our own, with its data in a folder that only this user may enter; a context
    manager.

    :ivar url: of its administrator, through a socket; it needs no password.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        """``options``: further ones of mariadbd."""
        self._log = folder / "mariadb.log"
        self._common = [
            "--no-defaults",
            f"--datadir={folder / 'mariadb'}",
            f"--user={getpass.getuser()}",
        ]
        self._options = ["--skip-networking", f"--socket={folder / 'socket'}", *options]
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"mysql+pymysql://root@localhost/?unix_socket={folder / 'socket'}"

    @staticmethod
    def is_installed() -> bool:
        """Return whether this machine has a MariaDB."""
        return None not in (_program("mariadbd", "mysqld"), _program("mariadb-install-db"))

    def __enter__(self) -> Self:
        subprocess.run(
            [
                str(_program("mariadb-install-db")),
                *self._common,
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ],
            check=True,
            capture_output=True,
        )
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_SECONDS)

    @property
    def pid(self) -> int | None:
        """Of the running process, else None."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start it on its data; returns when it answers. Raises RuntimeError."""
        with self._log.open("a") as output:
            self._process = subprocess.Popen(
                [str(_program("mariadbd", "mysqld")), *self._common, *self._options],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        engine = sa.create_engine(self.url, poolclass=sa.pool.NullPool)
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                engine.connect().close()
                return
            except sa.exc.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    why = self._log.read_text()[-2000:]
                    raise RuntimeError(f"MariaDB did not start:\n{why}") from None
            time.sleep(0.1)

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_SECONDS)
            self._process = None


def _program(*names: str) -> str | None:
    places = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    return next(filter(None, (shutil.which(name, path=places) for name in names)), None)
