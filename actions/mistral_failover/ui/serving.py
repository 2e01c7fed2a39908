# SPDX-License-Identifier: Apache-2.0
"""Serve the pages on loopback, from a thread."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator

import uvicorn

from mistral_failover.loopback import require_loopback
from mistral_failover.refusals import RefusalLog
from mistral_failover.ui.access import LoginSessions
from mistral_failover.ui.action_client import ActionClient
from mistral_failover.ui.app import application

_REFUSALS = RefusalLog(logging.getLogger(__name__), "The web page")
_STARTS = 10.0  # seconds


@contextlib.contextmanager
def serving(
    client: ActionClient,
    host: str,
    port: int,
    *,
    read_only: bool,
    announce: Callable[[str], None],
) -> Iterator[str]:
    """Serve while the block lasts; yield the address. ``port`` 0 takes a free one. ``announce`` is
    given each link for a login, see `AccessGuard`.

    Raises NotLoopback, and OSError if the port is taken.
    """
    require_loopback(host)
    logging.getLogger("uvicorn.error").addFilter(_limited)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit it; without it every answer waits 40 ms for a delayed ACK.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.bind((host, port))
        listening.listen(64)
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{listening.getsockname()[1]}"
        door = LoginSessions(lambda token: announce(f"{url}/login?token={token}"))
        server = uvicorn.Server(
            uvicorn.Config(
                application(client, door, read_only=read_only),
                log_config=None,
                access_log=False,  # it would have the tokens of the links
                lifespan="off",
                ws="none",  # whichever library is installed
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=1,
                limit_concurrency=256,
            )
        )
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listening]}, name="ui", daemon=True
        )
        thread.start()
        try:
            until = time.monotonic() + _STARTS
            while not server.started and thread.is_alive() and time.monotonic() < until:
                time.sleep(0.01)
            door.open()
            yield url
        finally:
            door.close()  # pages that are updated would keep the server from ending
            server.should_exit = True
            thread.join(timeout=10)


def _limited(record: logging.LogRecord) -> bool:
    """uvicorn warns of each request that is no HTTP, or one too many."""
    if record.levelno != logging.WARNING:
        return True
    _REFUSALS.refused(record.getMessage())
    return False
