# SPDX-License-Identifier: Apache-2.0
"""``python -m testcloud.guests``: the guests as a process of the test cloud."""

from __future__ import annotations

import sys
from pathlib import Path

import uvicorn

from mistral_failover.lab.emulator.core import Emulation
from mistral_failover.lab.emulator.latency import profile
from testcloud import settings
from testcloud.guests.nova_database import NovaDatabase
from testcloud.guests.service import application


def emulation(folder: Path, latency: str) -> Emulation:
    """The guests as they were; those of a version that kept them otherwise are forgotten."""
    try:
        return Emulation(folder, profile(latency))
    except (KeyError, TypeError):
        state = folder / "state.json"
        state.replace(folder / "state.json.unreadable")
        print(f"{state} is of another version: put aside", file=sys.stderr)
        return Emulation(folder, profile(latency))


def main() -> None:
    """Serve until TERM."""
    where = settings.load()
    account = (where.auth_url, "guests", where.secret("service"), "service")
    reader = NovaDatabase(*account, database=where.database_url("nova"))
    uvicorn.run(
        application(emulation(where.data / "guests", where.latency), reader),
        host=where.host,
        port=where.port("guests"),
        log_level="warning",
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=1,
    )


if __name__ == "__main__":
    main()
