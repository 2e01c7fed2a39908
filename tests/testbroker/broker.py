# SPDX-License-Identifier: Apache-2.0
"""One private RabbitMQ: start, stop, kill, start again on the same data; users and their rights."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from amqp.exceptions import NotFound
from kombu.connection import Connection

from testcloud.errors import CloudError
from testcloud.packages import install_debian
from testcloud.processes import Processes
from testcloud.rabbitmq import CONTROL, Node
from testcloud.serving import program
from testcloud.settings import HOST

DEBIAN = {"rabbitmq-server": "rabbitmq-server"}
"""The package, and the program by which it is seen to be there."""
VIRTUAL_HOST = "failover"
ADMINISTRATOR = "failover"
PORTS = range(20000, 32000)
"""Below those that the kernel gives to connections, so that a killed broker finds its own again."""

_CONTROL_LIMIT = 60.0


class PrivateBroker:
    """A broker with everything of its own; a context manager.

    :ivar folder: a new one: what it keeps, its logs, its password.
    :ivar port: where it takes connections, on loopback; the same after a kill.
    :ivar password: of its administrator, who may do everything in the virtual host.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.port, nodes_port, epmd_port = free_ports(3)
        self.password = secrets.token_hex(16)
        self._processes = Processes(self)
        self._node = Node(
            name=f"testbroker{self.port}",
            home=self.folder / "data",
            log=self.log,
            config=self.folder / "rabbitmq.conf",
            port=self.port,
            nodes_port=nodes_port,
            epmd_port=epmd_port,
            user=ADMINISTRATOR,
            password=self.password,
            virtual_host=VIRTUAL_HOST,
        )

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
        """With the administrator's password."""
        return self.url_of(ADMINISTRATOR, self.password)

    def url_of(self, user: str, password: str) -> str:
        """The URL of a user."""
        return f"amqp://{user}:{password}@{HOST}:{self.port}/{VIRTUAL_HOST}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, unless it runs; returns when it takes connections.

        :raises CloudError: PACKAGES_MISSING, PROCESS_DIED, NOT_READY.
        """
        with ExitStack() as undo:
            undo.callback(self.stop)
            self._node.start(self._processes, _environment())
            undo.pop_all()

    def stop(self) -> None:
        """End it in order, and its epmd; what it keeps stays."""
        self._processes.stop("rabbitmq")
        self._processes.stop("epmd")

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would."""
        self._processes.stop("rabbitmq", kill=True)

    @property
    def pid(self) -> int | None:
        """Its process, None when it does not run."""
        return self._processes.pid("rabbitmq")

    def add_user(self, name: str, *, configure: str, write: str, read: str) -> str:
        """Make a user with these rights (regular expressions of names); returns the URL.

        :raises CloudError: CONTROL_FAILED.
        """
        password = secrets.token_hex(16)
        self.control("add_user", name, say=f"{password}\n")
        self.permit(name, configure=configure, write=write, read=read)
        return self.url_of(name, password)

    def permit(self, name: str, *, configure: str, write: str, read: str) -> None:
        """Give a user these rights instead of those that they have.

        :raises CloudError: CONTROL_FAILED.
        """
        self.control("set_permissions", "-p", VIRTUAL_HOST, name, configure, write, read)

    def queues(self) -> dict[str, int]:
        """The names of all queues, each with the number of messages in it.

        :raises CloudError: CONTROL_FAILED.
        """
        told = self.control("list_queues", "-p", VIRTUAL_HOST, "name", "messages")
        rows = [line.split("\t") for line in told.splitlines()]
        return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}

    def depth(self, queue: str) -> int | None:
        """How many messages are in a queue, None where there is none by that name; in
        milliseconds, while rabbitmqctl takes a second."""
        with Connection(self.url) as connection:
            try:
                found = connection.default_channel.queue_declare(queue, passive=True)
            except NotFound:
                return None
        return int(found.message_count)

    def control(self, *arguments: str, say: str = "") -> str:
        """Run rabbitmqctl, and return what it prints; ``say`` is its standard input.

        :raises CloudError: CONTROL_FAILED.
        """
        done = subprocess.run(
            [program(CONTROL), "--quiet", *arguments],
            input=say,
            capture_output=True,
            text=True,
            env=self._node.variables(_environment()),
            cwd=self.folder,
            timeout=_CONTROL_LIMIT,
            check=False,
        )
        if done.returncode != 0:
            said = " ".join(done.stderr.split()).removeprefix("Error: ")[:300]
            raise CloudError(
                "CONTROL_FAILED",
                f"rabbitmqctl {arguments[0]}: {said or done.returncode}",
                f"See {self.log}.",
            )
        return done.stdout


def install(folder: Path, tell: Callable[[str], None]) -> None:
    """Install Debian's package where it is missing; the installer's log comes into the folder.

    :raises CloudError: PACKAGES_MISSING, INSTALL_FAILED.
    """
    install_debian(DEBIAN, PrivateBroker(folder), tell, "agents and executors talk through it")


def free_ports(count: int) -> list[int]:
    """So many free ports of loopback."""
    with ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            taken = held.enter_context(socket.socket())
            try:
                taken.bind((HOST, secrets.choice(PORTS)))
            except OSError:
                continue
            found.append(taken.getsockname()[1])
        return found


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
