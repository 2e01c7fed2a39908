# SPDX-License-Identifier: Apache-2.0
"""Connections, transactions and the clock. SQLite for one process, MySQL or MariaDB for many.

SQLite: WAL. Every writing transaction is ``BEGIN IMMEDIATE``, so that it cannot fail half way
because of another writer. MySQL and MariaDB: READ COMMITTED. A transaction that hits a deadlock
runs again; so does one that a server refuses because it is read-only, once, on new connections.
"""

from __future__ import annotations

import contextlib
import random
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

import sqlalchemy as sa
import tenacity

# Not sqlalchemy's own name: Mistral 19, 21 and 22 replace that for the whole process, by a function
# that sets another level of isolation.
from sqlalchemy.engine import create_engine
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.pool import StaticPool
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from mistral_failover import lookups
from mistral_failover.errors import CodedError
from mistral_failover.store import counters, hooks, project_scope
from mistral_failover.store.project_scope import Scope
from mistral_failover.store.transaction import ProjectTransaction, SqlTransaction

T = TypeVar("T")
Tx = TypeVar("Tx", bound=SqlTransaction)


class Mode(Enum):
    """How a transaction uses the database; see the methods of these names."""

    WRITING = "atomically"
    READING = "reading"
    SNAPSHOT = "snapshot"


ANSWERS_WITHIN = 10.0
"""Seconds within which MySQL must answer. One that does not, as behind a partition, counts as away.
It is a third of a lease, so a renewal without an answer is repeated before the lease ends."""
_ROW_LOCK = 0.8  # of that: within it a statement gets its row lock, or an error that is repeated
IDLE = 60
"""Seconds without a statement after which MySQL ends a session, and with it the transaction of a
process that is frozen or behind a partition: by default its rows stay locked for hours."""
_BUSY_SECONDS = 30
_AGAIN = 0.05  # seconds between two attempts to change the mode of a new SQLite file
_ATTEMPTS = 10
_POOL = 32  # connections that are kept; of a server, as many more at need
_PAUSE = 0.01  # seconds that the first repeat waits at most
# MySQL's deadlock, lock wait timeout, and duplicate row. In the last case another transaction has
# inserted the row since it was looked for; the repeat finds it.
_REPEATABLE = frozenset({1213, 1205, 1062})
READ_ONLY = frozenset({1047, 1290, 1792, 1836})
"""MySQL's numbers of the errors with which a server refuses every change: it is read-only, or
(Galera's 1047) not part of its cluster. After a failover of the database, the address leads to
another server, while connections that exist stay at the old one. So such a refusal counts as a
lost connection, and nothing of the transaction was done."""
# MySQL's numbers of a server that is away for a while: no connection is free, it starts or stops,
# the connection broke or was ended, a limit of time or room was reached, its cluster did not agree.
# Everything else is the answer to what we asked: a statement with a mistake, a missing column, a
# row that may not be. PyMySQL raises most of both as the same OperationalError.
_AWAY = READ_ONLY | {
    *(1020, 1021, 1030, 1037, 1038, 1040, 1041, 1042, 1043, 1053, 1077, 1078, 1079, 1080, 1114),
    *(1129, 1135, 1152, 1154, 1155, 1156, 1157, 1158, 1159, 1160, 1161, 1180, 1181, 1184, 1203),
    *(1205, 1206, 1213, 1226, 1317, 1689, 1927, 1969, 3024, 3100, 3101, 3168),
    *(3169, 4031),
    *range(2000, 3000),  # the client's: it cannot connect, or has lost the connection
    *range(9000, 9100),  # ProxySQL's, of the servers behind it
}
# Of SQLite: busy, locked, failing to read or write, full, not to be opened.
_SQLITE_AWAY = frozenset({5, 6, 10, 13, 14})
_CANNOT_CONNECT = 2003  # the client's number
_MYSQL = 3306
_SUPPORTED = frozenset({"sqlite", "mysql", "mariadb"})
USABLE = (
    "Use SQLite, sqlite:////FOLDER/failover.sqlite, or MySQL or MariaDB, "
    "mysql+pymysql://USER:PASSWORD@HOST/NAME."
)
"""The remedy for a URL that cannot be that of a state store."""


def supported(url: str) -> sa.URL:
    """Return the parsed URL of a state database; imports no driver.

    Raises CodedError CONFIG for another kind of database; SQLAlchemy's ArgumentError for a text
    that is no URL.
    """
    found = sa.engine.make_url(url)
    if found.get_backend_name() not in _SUPPORTED:
        kind = found.get_backend_name()
        message = f"[failover] database names {kind}, which is not supported"
        raise CodedError("CONFIG", message, USABLE)
    return found


class DatabaseClock(FunctionElement[float]):
    """The database's time, in seconds since the epoch."""

    type = sa.Double()
    inherit_cache = True
    name = "failover_now"


_NOW = DatabaseClock()


@compiles(DatabaseClock)
def _some_clock(element: DatabaseClock, compiler: SQLCompiler, **options: Any) -> str:
    return "CURRENT_TIMESTAMP"  # never executed: SQLAlchemy renders it to find a SELECT's tables


@compiles(DatabaseClock, "sqlite")
def _sqlite_clock(element: DatabaseClock, compiler: SQLCompiler, **options: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(DatabaseClock, "mysql")
@compiles(DatabaseClock, "mariadb")
def _mysql_clock(element: DatabaseClock, compiler: SQLCompiler, **options: Any) -> str:
    # Through no local time: UNIX_TIMESTAMP(NOW(6)) jumps by an hour where summer time ends.
    return "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) / 1e6)"


class Database:
    """A state database; implements ``convergence.ports.Store``. Share one per process.

    A transaction belongs to one project: use :meth:`for_project`. The database's own transactions
    see every project: they are for workers and leases, which work on what they were handed, and for
    what concerns many projects, such as the fences of hosts.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], float] | None = None,
        timeout: float = ANSWERS_WITHIN,
    ) -> None:
        """Open the database. ``clock`` replaces the database's clock, to simulate time.
        ``timeout``: the seconds within which a server must answer.

        Raises as :func:`supported`.
        """
        self._clock = clock
        self._timeout = timeout
        self.url = supported(url)
        self.engine = self._connectable()
        project_scope.install(self.engine)
        sa.event.listen(self.engine, "handle_error", _leave_what_is_lost)
        if self.url.get_driver_name() == "pymysql":
            sa.event.listen(self.engine, "do_connect", _connected)
        self._reader = self.engine.execution_options(failover_reads=True)
        self._snapshots = self._reader
        # In SQLite a second writer sleeps and tries again: with many threads, most of the time is
        # lost asleep. So the threads of this process queue here. A database in memory has only one
        # connection, so readers queue too.
        sqlite = self.url.get_backend_name() == "sqlite"
        self._writers = threading.Lock() if sqlite else contextlib.nullcontext()
        if not sqlite:
            self._snapshots = self.engine.execution_options(isolation_level="REPEATABLE READ")
        in_memory = sqlite and _in_memory(self.url)
        self._readers = self._writers if in_memory else contextlib.nullcontext()

    def _connectable(self) -> sa.Engine:
        if self.url.get_backend_name() != "sqlite":
            return create_engine(
                self.url,
                connect_args=bounded(self.url, self._timeout),
                isolation_level="READ COMMITTED",
                pool_size=_POOL,
                max_overflow=_POOL,
                pool_timeout=self._timeout,
                pool_pre_ping=True,
                pool_recycle=1800,
                hide_parameters=True,  # an exception's text must not show stored data
            )
        pool: dict[str, Any] = {"pool_size": _POOL}
        if _in_memory(self.url):
            pool = {"poolclass": StaticPool}
        engine = create_engine(
            self.url,
            connect_args={"check_same_thread": False, "timeout": _BUSY_SECONDS},
            hide_parameters=True,
            **pool,
        )
        sa.event.listen(engine, "connect", _prepare_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
        return engine

    def now(self) -> sa.ColumnElement[float]:
        """Return an SQL expression for the current time."""
        if self._clock is None:
            return _NOW
        return sa.literal(self._clock(), sa.Double)

    def skew(self) -> float:
        """Return the seconds by which the clocks of the database and of this machine differ at
        least; what the question took is not counted."""
        before = time.time()
        shown = self.reading(lambda tx: tx.now())
        return max(before - shown, shown - time.time(), 0.0)

    def for_project(self, project_id: str) -> ProjectStore:
        """Return the database as one project sees it."""
        return ProjectStore(self, project_id)

    def atomically(self, function: Callable[[SqlTransaction], T]) -> T:
        """Run ``function`` in one writing transaction; see ``convergence.ports.Store``."""
        return self.run(function, Mode.WRITING, self._of_every_project)

    def reading(self, function: Callable[[SqlTransaction], T]) -> T:
        """Run ``function`` in a transaction that only reads, and does not block writers."""
        return self.run(function, Mode.READING, self._of_every_project)

    def snapshot(self, function: Callable[[SqlTransaction], T]) -> T:
        """Run as :meth:`reading`; everything that is read is from the same moment."""
        return self.run(function, Mode.SNAPSHOT, self._of_every_project)

    def _of_every_project(self, connection: sa.Connection) -> SqlTransaction:
        return SqlTransaction(connection, self.now)

    def run(
        self, function: Callable[[Tx], T], mode: Mode, transaction: Callable[[sa.Connection], Tx]
    ) -> T:
        """Run ``function`` in what ``transaction`` makes of a connection."""
        engine, turn = {
            Mode.WRITING: (self.engine, self._writers),
            Mode.READING: (self._reader, self._readers),
            Mode.SNAPSHOT: (self._snapshots, self._readers),
        }[mode]

        def once() -> T:
            with turn, engine.begin() as connection:
                tx = transaction(connection)
                answer = function(tx)
                counters.write(tx)
            hooks.committed(tx.to_tell)
            return answer

        try:
            return once()
        except sa.exc.DBAPIError as error:
            if not (_is_repeatable(error) or number(error) in READ_ONLY):
                raise
        time.sleep(random.uniform(0.0, _PAUSE))  # noqa: S311 - not all repeat it at once
        return _REPEATING(once)

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


class ProjectStore:
    """The state database as one project sees it: no statement finds or changes a row of another
    one (``store.project_scope``)."""

    def __init__(self, database: Database, project_id: str) -> None:
        self._database = database
        self.project_id = project_id

    @property
    def of_none(self) -> ProjectStore:
        """The state database as seen by what is no project's: rows of the project ""."""
        return ProjectStore(self._database, "")

    def atomically(self, function: Callable[[ProjectTransaction], T]) -> T:
        """See :meth:`Database.atomically`."""
        return self._database.run(function, Mode.WRITING, self._transaction)

    def reading(self, function: Callable[[ProjectTransaction], T]) -> T:
        """See :meth:`Database.reading`."""
        return self._database.run(function, Mode.READING, self._transaction)

    def snapshot(self, function: Callable[[ProjectTransaction], T]) -> T:
        """See :meth:`Database.snapshot`."""
        return self._database.run(function, Mode.SNAPSHOT, self._transaction)

    def _transaction(self, connection: sa.Connection) -> ProjectTransaction:
        scoped = connection.execution_options(**{project_scope.OPTION: Scope(self.project_id)})
        return ProjectTransaction(scoped, self._database.now, self.project_id)


def bounded(url: sa.URL, seconds: float) -> dict[str, Any]:
    """Return the driver's arguments that bound the time without an answer from a server. By default
    PyMySQL waits for ever. (Another driver is configured in the URL.)"""
    if url.get_driver_name() != "pymysql":
        return {}
    lock = max(1, int(seconds * _ROW_LOCK))
    session = f"innodb_lock_wait_timeout = {lock}, SESSION wait_timeout = {IDLE}"
    return {
        "connect_timeout": seconds,
        "read_timeout": seconds,
        "write_timeout": seconds,
        "init_command": f"SET SESSION {session}",
    }


def _connected(dialect: Any, _record: Any, given: Any, options: dict[str, Any]) -> Any:
    """Connect PyMySQL to one of the addresses of its server, within the limit of connecting: by
    itself it looks the name up without one."""
    host, port = options.get("host"), options.get("port") or _MYSQL
    if not host or options.get("unix_socket"):
        return None  # SQLAlchemy then connects
    end = time.monotonic() + options["connect_timeout"]
    failure: OSError | None = None
    try:
        found = lookups.addresses(host, port, options["connect_timeout"])
    except OSError as error:
        found, failure = [], error
    for address, seconds in lookups.shares(found, lambda: max(_AGAIN, end - time.monotonic())):
        try:
            made = socket.create_connection((address, port), seconds)
        except OSError as error:
            failure = error
            continue
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection = dialect.loaded_dbapi.connect(*given, **options, defer_connect=True)
        connection.connect(made)  # TLS verifies the name, which it has
        return connection
    number, said = _CANNOT_CONNECT, f"cannot connect to {host}: {failure}"
    raise dialect.loaded_dbapi.OperationalError(number, said) from failure


def _in_memory(url: sa.URL) -> bool:
    return url.database in (None, "", ":memory:")


def _prepare_sqlite(connection: Any, record: Any) -> None:
    # The driver must not open transactions: _begin_sqlite chooses which kind is opened.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={_BUSY_SECONDS * 1000}")
    _to_wal(cursor)
    # An intent must survive a power cut that comes after its side effect.
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _to_wal(cursor: sqlite3.Cursor) -> None:
    """Let readers and the writer work at once. The change of a new file to this mode does not wait
    for another process that makes it at the same moment, whatever the timeout says."""
    until = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() >= until:
                raise
        time.sleep(_AGAIN)


def _begin_sqlite(connection: sa.Connection) -> None:
    reads = connection.get_execution_options().get("failover_reads")
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _is_repeatable(error: BaseException) -> bool:
    if not isinstance(error, sa.exc.DBAPIError) or error.orig is None:
        return False
    busy = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
    return busy or number(error) in _REPEATABLE


def number(error: sa.exc.SQLAlchemyError) -> int | None:
    """Return a server's own number of an error; None if it has none, as those of SQLite."""
    first = next(iter(getattr(getattr(error, "orig", None), "args", ())), None)
    return first if isinstance(first, int) else None


def is_away(error: BaseException) -> bool:
    """Return whether an error says that the state store is unavailable at the moment: it may come
    back. Any other error of the store is a defect, of this package or of the database's setup, and
    must not be treated as an outage."""
    if isinstance(error, sa.exc.TimeoutError):  # no connection is free
        return True
    if not isinstance(error, sa.exc.DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    if (code := getattr(error.orig, "sqlite_errorcode", None)) is not None:
        return code & 0xFF in _SQLITE_AWAY
    # PyMySQL's InternalError without a number: what came is no packet, so the connection is broken.
    if not isinstance(
        error, sa.exc.OperationalError | sa.exc.InterfaceError | sa.exc.InternalError
    ):
        return False
    return not (of_server := number(error)) or of_server in _AWAY


def _leave_what_is_lost(context: sa.engine.ExceptionContext) -> None:
    """Count the connection as lost after a refusal of every change, or after what is no packet."""
    found = next(iter(getattr(context.original_exception, "args", ())), None)
    broken = isinstance(context.sqlalchemy_exception, sa.exc.InternalError) and not isinstance(
        found, int
    )
    if found in READ_ONLY or broken:
        # Of all connections of the pool, those that exist are not used again.
        context.is_disconnect = True


_REPEATING = tenacity.Retrying(
    retry=tenacity.retry_if_exception(_is_repeatable),
    stop=tenacity.stop_after_attempt(_ATTEMPTS - 1),  # after the first one, in Database.run
    wait=tenacity.wait_random_exponential(multiplier=_PAUSE, max=1.0),
    reraise=True,
)
