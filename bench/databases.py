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
    places = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    server = shutil.which("mariadbd", path=places) or shutil.which("mysqld", path=places)
    install = shutil.which("mariadb-install-db", path=places)
    if server is None or install is None:
        yield None
        return
    data, socket, log = folder / "mariadb", folder / "socket", folder / "mariadb.log"
    common = ["--no-defaults", f"--datadir={data}", f"--user={getpass.getuser()}"]
    subprocess.run(
        [install, *common, "--auth-root-authentication-method=normal", "--skip-test-db"],
        check=True,
        capture_output=True,
    )
    # Only this user may enter the folder, so the socket needs no password.
    with log.open("w") as output:
        process = subprocess.Popen(
            [server, *common, "--skip-networking", f"--socket={socket}"],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        url = f"mysql+pymysql://root@localhost/?unix_socket={socket}"
        _wait_until_it_answers(url, process, log)
        yield url
    finally:
        process.terminate()
        process.wait(_SECONDS)


def _wait_until_it_answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            engine.connect().close()
            return
        except sa.exc.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"MariaDB did not start:\n{log.read_text()[-2000:]}") from None
        time.sleep(0.1)
