# SPDX-License-Identifier: Apache-2.0
"""The processes of the test cloud's Mistral: who carries out what, and who listens."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from kombu.connection import Connection

from mistral_failover.store.tables import groups, operations, resources, traversals
from testcloud.processes import Processes
from testcloud.settings import HOST, Settings
from testcloud.tenant import until

ENGINE = "mistral-engine"
EXECUTORS = ("mistral-executor-1", "mistral-executor-2")

Row = Mapping[str, Any]


def ledger(where: Settings, group: str) -> dict[str, Row]:
    """The operations of a group by their keys, each with its resource's name, type and id."""
    engine = sa.create_engine(where.database_url("failover"), poolclass=sa.pool.NullPool)
    query = (
        sa.select(operations, resources.c.name, resources.c.type, resources.c.physical_id)
        .join(groups, groups.c.id == operations.c.group_id)
        .join(resources, resources.c.id == operations.c.resource_id)
        .where(groups.c.name == group)
    )
    with engine.connect() as connection:
        return {row.key: dict(row._mapping) for row in connection.execute(query)}


def pid_of(owner: str) -> int:
    """The process in an owner's words: execution/action@host:pid."""
    return int(owner.rpartition(":")[2])


def is_held(row: Row, pid: int) -> bool:
    """Whether a process has an operation in its hands."""
    return row["status"] == "started" and pid_of(row["owner"]) == pid


def executor_of(where: Settings, pid: int) -> str:
    """The executor that a worker's process belongs to."""
    for name in EXECUTORS:
        found = Processes(where).find(name)
        if found is not None and pid in found.members():
            return name
    raise AssertionError(f"no executor has process {pid}")


def client_at(where: Settings, port: int) -> str:
    """The executor that has a connection from this port on loopback."""
    address = f"{int.from_bytes(socket.inet_aton(HOST), sys.byteorder):08X}:{port:04X}"
    rows = (line.split() for line in Path("/proc/net/tcp").read_text("ascii").splitlines())
    links = {f"socket:[{row[9]}]" for row in rows if row[1] == address}
    for name in EXECUTORS:
        found = Processes(where).find(name)
        for pid in found.members() if found is not None else ():
            if links & {_link(file) for file in Path(f"/proc/{pid}/fd").iterdir()}:
                return name
    raise AssertionError(f"no executor calls from port {port}")


def _link(file: Path) -> str:
    try:
        return str(file.readlink())
    except FileNotFoundError:  # closed meanwhile
        return ""


def until_attaching(where: Settings, group: str) -> Row:
    """Wait until a volume is being attached; the operation."""
    look = partial(_attaching, where, group)
    (row, *_) = until(look, "a volume to be attached", 120, longest=0.05)
    return dict(row)


def freeze_with_an_attachment(where: Settings, group: str) -> tuple[str, int]:
    """Freeze an executor while it makes an attachment; its name, and the worker's process."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        pid = pid_of(until_attaching(where, group)["owner"])
        name = executor_of(where, pid)
        os.kill(pid, signal.SIGSTOP)
        if any(is_held(row, pid) for row in _attaching(where, group)):
            return name, pid
        os.kill(pid, signal.SIGCONT)  # it was quicker: that one is over
    raise AssertionError("every attachment was over too soon")


def wake_with_sigterm(where: Settings, name: str, pid: int) -> None:
    """Tell an executor to stop, as its service manager would, and let its frozen worker go on."""
    main = Processes(where).pid(name)
    for each in {pid, main or pid}:
        os.kill(each, signal.SIGTERM)
    os.kill(pid, signal.SIGCONT)


def is_reached(where: Settings, traversal: str) -> bool:
    """Whether a traversal reached its goal, by the state store: Mistral's engine is not asked."""
    engine = sa.create_engine(where.database_url("failover"), poolclass=sa.pool.NullPool)
    query = sa.select(traversals.c.status).where(traversals.c.id == traversal)
    with engine.connect() as connection:
        return bool(connection.execute(query).scalar() == "COMPLETE")


def until_all_listen(where: Settings) -> None:
    """Wait until Mistral's engine and both executors take messages."""

    def listen() -> bool:
        with Connection(where.messages_url.replace("rabbit:", "pyamqp:", 1)) as connection:
            channel = connection.default_channel
            found = [
                channel.queue_declare(queue=queue, passive=True).consumer_count
                for queue in ("mistral_engine", "mistral_executor")
            ]
        return found == [1, len(EXECUTORS)]

    until(listen, "Mistral's processes to listen", 120)


def _attaching(where: Settings, group: str) -> list[Row]:
    made = ("volume_attachment", "create", "started")
    rows = ledger(where, group).values()
    return [row for row in rows if (row["type"], row["verb"], row["status"]) == made]
