# SPDX-License-Identifier: Apache-2.0
"""A state store that is away is told as such: worth another try, without the words of SQLAlchemy,
which quote statements."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pymysql
import pytest
import sqlalchemy as sa

from mistral_failover.errors import CodedError
from mistral_failover.runtime import process
from mistral_failover.runtime.errors import ActionError, describe
from mistral_failover.runtime.process import Runtime
from mistral_failover.settings import Settings
from mistral_failover.store import schema
from mistral_failover.store.database import ANSWERS_WITHIN, Database

STATEMENT = "SELECT traversal FROM secrets_of_the_schema"


def refused(tmp_path: Path) -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    return f"mysql+pymysql://root:hunter2@127.0.0.1:{port}/failover"


def no_such_directory(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/nowhere/failover.sqlite"


@pytest.mark.parametrize(
    ("url", "detail"),
    [(refused, "connection refused"), (no_such_directory, "error SQLITE_CANTOPEN")],
)
def test_a_store_that_does_not_answer(
    tmp_path: Path, url: Callable[[Path], str], detail: str
) -> None:
    database = Database(url(tmp_path))
    with pytest.raises(sa.exc.SQLAlchemyError) as raised:
        database.reading(lambda tx: tx.now())

    facts = describe(raised.value)

    assert facts["code"] == "STORE_UNREACHABLE"
    assert facts["transient"] is True
    assert (facts["service"], facts["detail"]) == ("the state store", detail)
    assert facts["message"] == f"The state store is not available: {detail}"
    assert "Start the database" in facts["remedy"]
    assert "hunter2" not in str(facts)


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a server that accepts connections and says nothing, as a frozen machine does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"mysql+pymysql://root:hunter2@127.0.0.1:{server.getsockname()[1]}/failover"


def test_a_store_that_accepts_and_says_nothing_is_given_up(silent: str) -> None:
    database = Database(silent, timeout=0.2)
    with pytest.raises(sa.exc.SQLAlchemyError) as raised:
        database.reading(lambda tx: tx.now())

    facts = describe(raised.value)

    assert (facts["code"], facts["transient"]) == ("STORE_UNREACHABLE", True)
    assert facts["message"] == "The state store is not available: no answer"


def test_a_store_that_says_nothing_holds_no_call_up_that_has_another_one(
    silent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Settings(database=f"sqlite:///{tmp_path}/other.sqlite")
    connects, over = threading.Event(), threading.Event()

    def connect(settings: Settings) -> Runtime:
        if settings.database == silent:
            connects.set()
            assert over.wait(60)
            raise ActionError("STORE_UNREACHABLE", "no answer", "")
        return Runtime(settings)

    monkeypatch.setattr(process, "Runtime", connect)
    monkeypatch.setattr(process, "_runtimes", {})
    monkeypatch.setattr(process.configuration, "load", lambda: Settings(database=silent))
    with ThreadPoolExecutor() as pool:
        waits = pool.submit(process.runtime)
        assert connects.wait(60)
        monkeypatch.setattr(process.configuration, "load", lambda: other)

        assert process.runtime().settings == other
        assert not process.hand_back(0.1)

        process.reopen()
        over.set()
        assert isinstance(waits.exception(60), ActionError)


def test_a_store_that_answers_when_the_process_ends_is_handed_no_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(settings: Settings) -> Runtime:
        made = Runtime(settings)
        process.hand_back(0.0)  # while it connects
        return made

    settings = Settings(database=f"sqlite:///{tmp_path}/state.sqlite")
    monkeypatch.setattr(process, "Runtime", connect)
    monkeypatch.setattr(process, "_runtimes", {})
    monkeypatch.setattr(process.configuration, "load", lambda: settings)

    made = process.runtime()

    assert made.workers.stopping
    process.reopen()
    assert not made.workers.stopping


def test_a_schema_is_not_changed_on_a_store_that_says_nothing(silent: str) -> None:
    with pytest.raises(sa.exc.SQLAlchemyError) as raised:
        schema.upgrade(Database(silent, timeout=0.2))

    assert describe(raised.value)["code"] == "STORE_UNREACHABLE"


def test_a_call_waits_for_the_store_for_a_third_of_a_lease_at_most() -> None:
    """So the renewal that gets no answer can be repeated before the lease ends."""
    assert Settings().lease / 3 >= ANSWERS_WITHIN


def of_mysql(number: int, kind: type[Exception] = pymysql.OperationalError) -> Exception:
    wrapped = {
        pymysql.OperationalError: sa.exc.OperationalError,
        pymysql.ProgrammingError: sa.exc.ProgrammingError,
        pymysql.IntegrityError: sa.exc.IntegrityError,
    }[kind]
    return wrapped(STATEMENT, {}, kind(number, "words of the server"))


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (of_mysql(2006), "connection lost"),
        (of_mysql(2013), "connection lost"),
        (of_mysql(1927), "connection lost"),
        (of_mysql(1040), "error 1040"),  # too many connections
        (of_mysql(1053), "error 1053"),  # it is shutting down
        (of_mysql(1135), "error 1135"),  # it has no thread for the connection
        (of_mysql(3168), "error 3168"),  # not all of it has started
        (of_mysql(1047), "it takes no changes"),  # its cluster has no majority
        (of_mysql(1213), "error 1213"),  # deadlocks without end
        (
            sa.exc.OperationalError(STATEMENT, {}, pymysql.OperationalError("words of the server")),
            "connection lost",
        ),
        (
            sa.exc.InternalError(STATEMENT, {}, pymysql.InternalError("words of the server")),
            "connection lost",
        ),
        (
            sa.exc.DBAPIError(STATEMENT, {}, Exception("gone"), connection_invalidated=True),
            "connection lost",
        ),
        (sa.exc.TimeoutError("QueuePool limit of size 32 overflow 32"), "no connection is free"),
    ],
    ids=str,
)
def test_a_store_that_went_away(error: Exception, detail: str) -> None:
    facts = describe(error)

    assert (facts["code"], facts["transient"], facts["detail"]) == (
        "STORE_UNREACHABLE",
        True,
        detail,
    )
    assert facts["unknown"] is True, "what was begun may have taken effect"
    assert STATEMENT not in str(facts)
    assert "words of the server" not in str(facts)


def missing_table() -> Exception:
    engine = sa.create_engine("sqlite://")
    with pytest.raises(sa.exc.OperationalError) as raised, engine.connect() as connection:
        connection.execute(sa.text(STATEMENT))
    return raised.value


@pytest.mark.parametrize(
    ("make", "number"),
    [
        (lambda: of_mysql(1045), "error 1045"),  # it refuses the login
        (lambda: of_mysql(1049), "error 1049"),  # it has no such database
        (lambda: of_mysql(1054), "error 1054"),  # a column is missing: PyMySQL's class is the same
        (lambda: of_mysql(1142), "error 1142"),  # its user may not do it
        (lambda: of_mysql(1364), "error 1364"),  # a field has no value
        (lambda: of_mysql(1146, pymysql.ProgrammingError), "error 1146"),
        (lambda: of_mysql(1452, pymysql.IntegrityError), "error 1452"),
        (missing_table, "error SQLITE_ERROR"),
    ],
)
def test_a_store_that_is_there_and_refuses_is_nothing_to_wait_for(
    make: Callable[[], Any], number: str
) -> None:
    facts = describe(make())

    assert facts["code"] == "STORE_ERROR"
    assert number in facts["message"]
    assert "transient" not in facts
    assert facts["unknown"] is True
    assert STATEMENT not in str(facts)
    assert "words of the server" not in str(facts)


@pytest.mark.parametrize("kind", ["postgresql", "oracle", "mssql"])
def test_an_executor_refuses_a_database_that_is_not_supported(kind: str) -> None:
    with pytest.raises(CodedError) as refused:
        Runtime(Settings(database=f"{kind}://user:hunter2@db.example.org/failover"))

    facts = describe(refused.value)

    assert facts["code"] == "CONFIG"
    assert facts["message"] == f"[failover] database names {kind}, which is not supported"
    assert facts["remedy"].startswith("Use SQLite")
    assert "MySQL or MariaDB" in facts["remedy"]
    assert "hunter2" not in str(facts)
