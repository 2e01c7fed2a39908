# SPDX-License-Identifier: Apache-2.0
"""What a MariaDB says that is not to be taken at its word: its local time, and that it answers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bench.databases import MariaDb
from mistral_failover.errors import CodedError
from mistral_failover.mistral.client import MistralClient
from mistral_failover.runtime import process
from mistral_failover.runtime.errors import describe
from mistral_failover.server import checks, service
from mistral_failover.server.addresses import Address as Door
from mistral_failover.server.options import Options
from mistral_failover.store import schema
from mistral_failover.store.database import Database, DatabaseClock

# The European rule of summer time, which needs no files of zones.
BERLIN = "CET-1CEST,M3.5.0,M10.5.0/3"
SUMMER_ENDS = datetime(2026, 10, 25, 1, tzinfo=UTC).timestamp()
SUMMER_BEGINS = datetime(2026, 3, 29, 1, tzinfo=UTC).timestamp()
ORDINARY = (
    "CREATE DATABASE failover",
    "CREATE USER failover@localhost",
    "GRANT ALL ON failover.* TO failover@localhost",
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MariaDb, MariaDb]]:
    """Two servers with local time; neither knows of the other."""
    if not MariaDb.is_installed():
        pytest.skip("needs mariadbd")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TZ", BERLIN)
        one, other = (MariaDb(tmp_path_factory.mktemp(name)) for name in ("one", "other"))
        with one, other:
            for server in (one, other):
                as_administrator(server, *ORDINARY)
            yield one, other


def as_administrator(server: MariaDb, *statements: str) -> None:
    engine = sa.create_engine(server.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
    engine.dispose()


@pytest.fixture
def address(servers: tuple[MariaDb, MariaDb], tmp_path: Path) -> Iterator[Address]:
    """The address of the first server, which can be moved to the second one."""
    found = Address(tmp_path / "address", servers)
    yield found
    for server in servers:
        as_administrator(server, "SET GLOBAL read_only = 0", "SET GLOBAL init_connect = ''")


class Address:
    """An address behind which one server follows the other, as a virtual IP or a proxy does it:
    connections that exist stay where they are."""

    def __init__(self, path: Path, servers: tuple[MariaDb, MariaDb]) -> None:
        self.path, self.servers = path, servers
        self.point_to(servers[0])

    def point_to(self, server: MariaDb) -> None:
        self.path.unlink(missing_ok=True)
        self.path.symlink_to(str(sa.engine.make_url(server.url).query["unix_socket"]))

    @property
    def url(self) -> str:
        """Of a state store at this address."""
        return f"mysql+pymysql://failover@localhost/failover?unix_socket={self.path}"

    def database(self) -> Database:
        """A state store at this address."""
        return Database(self.url)


@pytest.mark.parametrize("turn", [SUMMER_ENDS, SUMMER_BEGINS], ids=["ends", "begins"])
def test_the_clock_runs_on_where_summer_time_begins_or_ends(address: Address, turn: float) -> None:
    database = address.database()
    with database.engine.connect() as connection:
        for instant in (turn - 3601.5, turn - 0.25, turn, turn + 0.25, turn + 3601.5):
            connection.execute(sa.text(f"SET SESSION timestamp = {instant}"))
            now = connection.execute(sa.select(DatabaseClock())).scalar_one()
            assert now == pytest.approx(instant, abs=1e-4)
    database.close()


def test_mistral_22_and_older_do_not_set_the_isolation_of_the_state_store(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They replace ``sqlalchemy.create_engine`` for the whole process: each engine that it makes
    gets a name of the level that MariaDB does not answer, so a snapshot cannot be reset."""
    made = sa.create_engine

    def of_mistral(*args: Any, **options: Any) -> sa.Engine:
        return made(*args, **options | {"isolation_level": "READ_COMMITTED"})

    monkeypatch.setattr(sa, "create_engine", of_mistral)
    store = Database(address.url)
    schema.upgrade(store)

    assert store.snapshot(lambda tx: tx.now()) <= store.reading(lambda tx: tx.now())
    store.close()


def test_a_server_that_turned_read_only_is_left_for_the_one_at_its_address(
    address: Address,
) -> None:
    old, new = address.servers
    for server in (new, old):
        address.point_to(server)
        database = address.database()
        schema.upgrade(database)
        database.atomically(lambda tx: tx.number())

    as_administrator(old, "SET GLOBAL read_only = 1")
    address.point_to(new)

    assert database.atomically(lambda tx: tx.number()) > 0
    database.close()


def test_a_store_that_is_read_only_is_away_and_comes_back_by_itself(address: Address) -> None:
    database = address.database()
    schema.upgrade(database)
    database.atomically(lambda tx: tx.number())
    as_administrator(address.servers[0], "SET GLOBAL read_only = 1")

    with pytest.raises(sa.exc.DBAPIError) as refused:
        database.atomically(lambda tx: tx.number())

    said = describe(refused.value)
    assert (said["code"], said["transient"]) == ("STORE_UNREACHABLE", True)
    assert said["detail"] == "it takes no changes"
    as_administrator(address.servers[0], "SET GLOBAL read_only = 0")
    assert database.atomically(lambda tx: tx.number()) > 0
    database.close()


def test_who_can_not_write_takes_no_alarm(address: Address) -> None:
    database = address.database()
    schema.upgrade(database)
    health = service.Health(Answering("http://127.0.0.1"), database)
    assert (health.look(), health.good) == (True, True)
    as_administrator(address.servers[0], "SET GLOBAL read_only = 1")

    assert (health.look(), health.good) == (True, False), "Mistral itself is not stuck"

    as_administrator(address.servers[0], "SET GLOBAL read_only = 0")
    assert (health.look(), health.good) == (True, True)
    database.close()


class Answering(MistralClient):
    """A Mistral that answers."""

    def request(self, *_: object, **__: object) -> dict[str, object]:
        return {}


def test_a_store_whose_clock_is_another_is_refused_at_the_start(
    address: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = address.database()
    schema.upgrade(database)
    database.close()
    door = Door("127.0.0.1", 0)
    options = Options(tmp_path / "state", None, door, (), door, settings={"database": address.url})
    assert "CLOCKS_DIFFER" not in {each.code for each in checks.run_checks(options)}

    as_administrator(
        address.servers[0], "SET GLOBAL init_connect = 'SET timestamp = UNIX_TIMESTAMP() + 60'"
    )

    (found,) = (each for each in checks.run_checks(options) if each.code == "CLOCKS_DIFFER")
    assert found.grave
    monkeypatch.setattr(process, "runtime", lambda: Store(address.database()))
    with pytest.raises(CodedError) as refused:
        service._store()
    assert refused.value.code == "CLOCKS_DIFFER"


class Store:
    """What a server asks of its runtime when it starts."""

    def __init__(self, database: Database) -> None:
        self.database = database
