# SPDX-License-Identifier: Apache-2.0
"""Takes a service of the test cloud away for a while, just when a failover needs it."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mistral_failover.store.tables import groups, operations, resources, traversals
from testcloud import cloud, readiness, service_processes
from testcloud.settings import HOST, Settings
from testcloud.tenant import until

Row = Mapping[str, Any]


NEXT_TRY = 10.0
"""The longest pause between two tries: all that an operation loses if only the service has to
return."""


@dataclass(frozen=True)
class Service:
    """One service.

    :ivar processes: the processes that are stopped.
    :ivar during: type and verb of the operation that is under way when they are.
    :ivar returns: seconds after a short absence within which everything works with it again. Then
        the rest of the failover takes no longer than a whole one does.
    """

    processes: tuple[str, ...]
    during: tuple[str, str]
    returns: float = NEXT_TRY


SERVICES = {
    "Keystone": Service(("keystone",), ("fence", "create")),
    "Nova": Service(("nova-api",), ("fence", "create")),
    "Cinder": Service(("cinder-api",), ("volume_attachment", "delete")),
    "Heat": Service(("heat-api", "heat-engine"), ("activation", "create")),
    "Heat in a PATCH": Service(("heat-api", "heat-engine"), ("stack_parameters", "update")),
    "Mistral's API": Service(("mistral-api",), ("fence", "create")),
    "memcached": Service(("memcached",), ("fence", "create")),
    "MariaDB": Service(("mariadb",), ("stack_parameters", "update")),
    # It may take along what Mistral was told. Then a sweep, which runs once a minute, has to find
    # the execution that did nothing for a minute. It may also take along a report of nova-compute:
    # then the host counts as down for a minute.
    "RabbitMQ": Service(("rabbitmq",), ("volume_attachment", "delete"), 180.0),
}


class Watch:
    """A look at a group in the state store, which need not answer: None then."""

    def __init__(self, where: Settings, group: str) -> None:
        self._engine = sa.create_engine(where.database_url("failover"), poolclass=sa.pool.NullPool)
        self._group = group

    def traversal(self) -> Row | None:
        """The group's current traversal."""
        return self._one(
            sa.select(traversals)
            .join(groups, groups.c.current_traversal == traversals.c.id)
            .where(groups.c.name == self._group)
        )

    def under_way(self, during: tuple[str, str]) -> Row | None:
        """An operation of this type and verb that has begun and not ended."""
        return self._one(
            sa.select(operations, resources.c.name)
            .join(groups, groups.c.id == operations.c.group_id)
            .join(resources, resources.c.id == operations.c.resource_id)
            .where(
                groups.c.name == self._group,
                resources.c.type == during[0],
                operations.c.verb == during[1],
                operations.c.status == "started",
            )
        )

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    def _one(self, query: sa.Select[Any]) -> Row | None:
        try:
            with self._engine.connect() as connection:
                row = connection.execute(query).first()
        except sa.exc.DBAPIError:
            return None
        return None if row is None else row._asdict()


def take_away(where: Settings, service: Service, seconds: float) -> float:
    """Stop a service at once, start it again after ``seconds``; when it answered again.

    A service keeps Keystone's answer in memcached, so that goes with Keystone's memory: else no
    service would notice for minutes that Keystone is away.
    """
    for name in service.processes:
        if name == "keystone":
            forget_tokens(where)
    with ThreadPoolExecutor(len(service.processes)) as pool:
        list(pool.map(lambda name: cloud.stop(where, [name], kill=True), service.processes))
    time.sleep(seconds)
    cloud.start(where, service.processes)
    ports = {process.name: process.port for process in service_processes.services(where)}
    for name in service.processes:
        if ports.get(name) is not None:
            readiness.wait_for_api(where, name)
    return time.time()


def forget_tokens(where: Settings) -> None:
    """Empty memcached."""
    with socket.create_connection((HOST, where.port("memcached")), timeout=5) as connection:
        connection.sendall(b"flush_all\r\n")
        assert connection.recv(16) == b"OK\r\n"


def until_under_way(watch: Watch, during: tuple[str, str], limit: float = 120) -> Row:
    """Wait until an operation of this type and verb is under way; the operation."""
    deadline = time.monotonic() + limit
    while (row := watch.under_way(during)) is None:
        assert time.monotonic() < deadline, f"no {' '.join(reversed(during))} was seen"
        time.sleep(0.02)
    return row


def until_reached(watch: Watch, before: str, limit: float) -> Row:
    """Wait until another traversal than ``before`` has ended; it."""

    def ended() -> Row | None:
        row = watch.traversal()
        at_rest = row is not None and row["ended_at"] is not None and row["id"] != before
        return row if at_rest else None

    found: Row = until(ended, "the failover to end", limit)
    return found
