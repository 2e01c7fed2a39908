# SPDX-License-Identifier: Apache-2.0
"""What runs."""

from __future__ import annotations

from typing import Any

from testcloud import pids, service_processes
from testcloud.processes import Processes
from testcloud.settings import Settings

COLUMNS = ("name", "pid", "port", "state", "age", "memory")


def rows(settings: Settings) -> list[dict[str, Any]]:
    """One row for each process: name, pid, port, state (up or down), age in seconds, memory in MiB.

    Children count for the memory. What a process that is down would have is None.
    """
    processes = Processes(settings)
    ports: dict[str, int | None] = {n: settings.port(n) for n in service_processes.INFRASTRUCTURE}
    ports |= {p.name: p.port for p in service_processes.services(settings)}
    result = []
    for name, port in ports.items():
        found = processes.find(name)
        result.append(
            {
                "name": name,
                "pid": None if found is None else found.pid,
                "port": port,
                "state": "down" if found is None else "up",
                "age": None if found is None else round(found.age(), 1),
                "memory": None if found is None else round(pids.memory(found.members()) / 2**20),
            }
        )
    return result


def table(listed: list[dict[str, Any]]) -> str:
    """The rows as aligned text, with the sum of the memory below."""
    shown = [list(COLUMNS)]
    shown += [[_text(row[column]) for column in COLUMNS] for row in listed]
    widths = [max(len(row[i]) for row in shown) for i in range(len(COLUMNS))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in shown]
    up = sum(row["state"] == "up" for row in listed)
    total = sum(row["memory"] or 0 for row in listed)
    return "\n".join([*(line.rstrip() for line in lines), f"{up} of {len(listed)} up, {total} MiB"])


def _text(value: Any) -> str:
    return "-" if value is None else str(value)
