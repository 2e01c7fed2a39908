# SPDX-License-Identifier: Apache-2.0
"""Mistral's own programs for a benchmark: an API, cron triggers, and pairs of an engine and an
executor, over RabbitMQ on MariaDB.

Everything is private: it runs as the current user on loopback, and ends with the benchmark. Mistral
has its defaults, except that nobody logs in. The sweep is a cron trigger every minute, as an
operator makes it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa
from kombu.connection import Connection

from bench.databases import MariaDb
from bench.staging import SETTINGS, Usage, cpu
from mistral_failover.lab.drill.scene import Scene
from mistral_failover.mistral.client import MistralClient
from testbroker.broker import PrivateBroker, free_ports
from testcloud import pids
from testcloud.errors import CloudError
from testcloud.ini import Sections, text
from testcloud.processes import Processes
from testcloud.serving import listens, program, until
from testcloud.settings import HOST, write_private

ENGINE, EXECUTOR = "engine", "executor"
_API, _PERIODIC = "api", "periodic"
_LIMIT = 120.0  # seconds until all processes take messages
_SWEEP = {"name": "sweep", "workflow_name": "failover.sweep", "pattern": "* * * * *"}
# A durable commit, as by default; more connections than the default's 151 for many processes.
_DATABASE = ("--max-connections=1000", "--skip-log-bin")


def check_installed() -> None:
    """Raise `CloudError` PACKAGES_MISSING where RabbitMQ or MariaDB is not installed."""
    program("rabbitmq-server")
    if not MariaDb.is_installed():
        raise CloudError(
            "PACKAGES_MISSING",
            "There is no mariadbd.",
            "Install the package mariadb-server (Debian, Ubuntu); it runs without root.",
        )


class Services:
    """The processes; a context manager.

    :ivar folder: a new one, which no other user may enter.
    :ivar broker: the RabbitMQ.
    :ivar database: the MariaDB, with Mistral's state and the state store.
    """

    def __init__(
        self, folder: Path, pairs: int, programs: Path = Path(sys.executable).parent
    ) -> None:
        """``programs``: the folder with Mistral's, of an environment that has the package."""
        self.folder = folder.absolute()
        self._programs = programs
        self.broker = PrivateBroker(self.folder / "rabbitmq")
        self.database = MariaDb(self.folder, *_DATABASE)
        self._port = free_ports(1)[0]
        self._processes = Processes(self)
        numbers = range(1, pairs + 1)
        self.engines = [f"{ENGINE}-{number}" for number in numbers]
        self.executors = [f"{EXECUTOR}-{number}" for number in numbers]
        self._stack = contextlib.ExitStack()
        self._ended: defaultdict[str, float] = defaultdict(float)

    @property
    def run(self) -> Path:
        """One file for each process."""
        return self.folder / "run"

    @property
    def log(self) -> Path:
        """One log for each process."""
        return self.folder / "log"

    @property
    def url(self) -> str:
        """The API's base."""
        return f"http://{HOST}:{self._port}/v2"

    @property
    def state_store(self) -> str:
        """The URL of the state store."""
        return self._database_url("failover")

    @cached_property
    def client(self) -> MistralClient:
        """A client of the API."""
        return MistralClient(self.url)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.folder.mkdir(mode=0o700, parents=True)
            stack.enter_context(self.broker)
            stack.enter_context(self.database)
            engine = sa.create_engine(self.database.url, isolation_level="AUTOCOMMIT")
            with engine.connect() as connection:
                for name in ("mistral", "failover"):
                    connection.execute(sa.text(f"CREATE DATABASE {name} CHARACTER SET utf8mb4"))
            engine.dispose()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stack.close()

    def start(self, options: Mapping[str, Any]) -> None:
        """Start Mistral with its workflows and the sweep; ``options``: of ``[failover]``."""
        self._prepare(options)
        self._stack.callback(self._processes.stop_all, [*self._all(), _API, _PERIODIC])
        for name in [*self._all(), _API]:
            self.start_process(name)
        until(self._processes, _API, lambda: listens(HOST, self._port))
        self.wait_until_all_listen()
        self._sweep()
        self.start_process(_PERIODIC)

    def start_process(self, name: str) -> None:
        """Start an engine or an executor, unless it runs."""
        kind = name.partition("-")[0]
        server = self._programs / "mistral-server"
        command = [str(server), "--config-file", str(self._file), "--server", kind]
        self._processes.start(name, command, os.environ, self.folder)

    def kill(self, name: str) -> None:
        """Kill an engine or an executor, as a crash would."""
        self._ended[name.partition("-")[0]] += self._cpu(name)
        self._processes.stop(name, kill=True)

    def restart_database(self, seconds: float) -> None:
        """Kill MariaDB, and start it again after a while."""
        self._ended["database"] += cpu(self.database.pid)
        self.database.kill()
        time.sleep(seconds)
        self.database.start()

    def cut_off_broker(self, seconds: float) -> None:
        """Let RabbitMQ neither take nor give anything for a while, as behind a broken network."""
        assert self.broker.pid is not None
        os.kill(self.broker.pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            os.kill(self.broker.pid, signal.SIGCONT)

    def wait_until_all_listen(self) -> None:
        """Wait until the engines and executors take messages.

        :raises CloudError: NOT_READY.
        """
        deadline = time.monotonic() + _LIMIT
        while not self._all_listen():
            if time.monotonic() > deadline:
                raise CloudError("NOT_READY", "Mistral does not listen.", f"See {self.log}.")
            time.sleep(0.2)

    def usage(self) -> Usage:
        """Return the CPU that the processes have used until now, and the memory of Mistral's."""
        used = self._ended.copy()
        for name in [*self._all(), _API, _PERIODIC]:
            used[name.partition("-")[0]] += self._cpu(name)
        used["database"] += cpu(self.database.pid)
        used["broker"] += cpu(self.broker.pid)
        mine = used[ENGINE] + used[EXECUTOR] + used[_API] + used[_PERIODIC]
        found = [pid for name in self._all() for pid in self._members(name)]
        return Usage(
            mistral=mine,
            database=used["database"],
            broker=used["broker"],
            memory=pids.memory(found) / 2**20,
        )

    def row_locks(self) -> tuple[int, int]:
        """Return how often MariaDB had a transaction wait for a row, and how many deadlocks it
        found, since it started."""
        engine = sa.create_engine(self.database.url, poolclass=sa.pool.NullPool)
        query = sa.text(
            "SHOW GLOBAL STATUS WHERE Variable_name IN "
            "('Innodb_row_lock_waits', 'Innodb_deadlocks')"
        )
        with engine.connect() as connection:
            found = {name: int(value) for name, value in connection.execute(query)}
        return found["Innodb_row_lock_waits"], found["Innodb_deadlocks"]

    # -- how it is done

    def _sweep(self) -> None:
        self.client.request("POST", "cron_triggers", json=_SWEEP)

    def _all(self) -> list[str]:
        return [*self.engines, *self.executors]

    def _members(self, name: str) -> list[int]:
        found = self._processes.find(name)
        return [] if found is None else found.members()

    def _cpu(self, name: str) -> float:
        return sum(cpu(pid) for pid in self._members(name))

    def _all_listen(self) -> bool:
        with Connection(self.broker.url) as connection:
            channel = connection.default_channel
            found = []
            for queue in ("mistral_engine", "mistral_executor"):
                try:
                    asked = channel.queue_declare(queue=queue, passive=True)
                except connection.channel_errors:
                    return False
                found.append(int(asked.consumer_count))
        return min(found) >= len(self.engines)

    def _prepare(self, options: Mapping[str, Any]) -> None:
        self._configure(options)
        self._manage("upgrade", "head")
        self._manage("populate")

    def _configure(self, options: Mapping[str, Any]) -> None:
        given = {key: value for key, value in options.items() if value is not None}
        sections: Sections = {
            "DEFAULT": {"transport_url": self.broker.url.replace("amqp:", "rabbit:", 1)},
            "database": {"connection": self._database_url("mistral")},
            "pecan": {"auth_enable": False},
            "api": {"host": HOST, "port": self._port, "api_workers": 1},
            "cron_trigger": {"run_in_api": False},
            # Nobody logs in, so nobody may send code.
            "action_providers": {"denylist": "dynamic"},
            **({"failover": given} if given else {}),
        }
        write_private(self._file, text(sections))

    @property
    def _file(self) -> Path:
        return self.folder / "mistral.conf"

    def _database_url(self, name: str) -> str:
        url = sa.engine.make_url(self.database.url).set(database=name)
        return url.render_as_string(hide_password=False)

    def _manage(self, *words: str) -> None:
        program = str(self._programs / "mistral-db-manage")
        command = [program, "--config-file", str(self._file), *words]
        # Each task's check of Mistral's own JSON schema takes 0.1 s.
        unchecked = {**os.environ, "OS_API__VALIDATION_MODE": "disabled"}
        done = subprocess.run(command, capture_output=True, text=True, env=unchecked, check=False)
        if done.returncode != 0:
            said = f"{done.stdout}{done.stderr}"[-2000:]
            raise RuntimeError(f"mistral-db-manage {words[0]} failed:\n{said}")


class AllInOne(Services):
    """What ``mistral-server --server all`` starts."""

    _NAME = "all-1"

    def start(self, options: Mapping[str, Any]) -> None:
        """As that of `Services`."""
        self.engines = self.executors = [self._NAME]
        self._prepare(options)
        self._stack.callback(self._processes.stop_all, [self._NAME])
        self.start_process(self._NAME)
        until(self._processes, self._NAME, lambda: listens(HOST, self._port))
        self.wait_until_all_listen()
        self._sweep()

    def start_without_package(self) -> None:
        """Start Mistral again as after docs/install.md, "Removing it": without ``[failover]``, and
        after another ``populate``. The package is no longer in its environment."""
        self._processes.stop_all([self._NAME])
        self._configure({})
        self._manage("populate")
        self.start_process(self._NAME)
        until(self._processes, self._NAME, lambda: listens(HOST, self._port))
        self.wait_until_all_listen()


class SeparateProcesses(Scene):
    """A scene whose Mistral is that.

    :ivar services: the processes.
    """

    def __init__(
        self, state_dir: Path, *, services: Services, more: Mapping[str, Any], **options: Any
    ) -> None:
        """``more``: further options of ``[failover]``."""
        self.services = services
        settings = {
            **SETTINGS,
            **more,
            "database": self.services.state_store,
            "mistral_url": self.services.url,
        }
        super().__init__(state_dir, settings=settings, **options)

    @property
    def client(self) -> MistralClient:
        """A client of Mistral's API."""
        return self.services.client

    def _start_mistral(self, stack: contextlib.ExitStack) -> None:
        stack.enter_context(self.services)
        stack.callback(self.database.close)
        self.services.start(self._options())
        self._since = self._last_sentence()
