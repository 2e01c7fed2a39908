# SPDX-License-Identifier: Apache-2.0
"""Serve the pages on loopback, from a thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from mistral_failover.http_server import ANSWER, BACKLOG, Gone, Listener, Places, RefusalLog
from mistral_failover.loopback import require_loopback
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
        listening.listen(BACKLOG)
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{listening.getsockname()[1]}"
        door = LoginSessions(lambda token: announce(f"{url}/login?token={token}"))
        config = uvicorn.Config(
            application(client, door, read_only=read_only),
            log_config=None,
            access_log=False,  # it would have the tokens of the links
            lifespan="off",
            ws="none",  # whichever library is installed
            server_header=False,
            headers=[("Connection", "close")],  # one request each, as `http_server` has it
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
        server = _Server(config)
        thread = threading.Thread(target=server.run, name="ui", daemon=True)
        thread.start()
        try:
            until = time.monotonic() + _STARTS
            while not server.started and thread.is_alive() and time.monotonic() < until:
                time.sleep(0.01)
            door.open()
            with Listener(listening, server.places, server.begin, name="web page"):
                yield url
        finally:
            door.close()  # pages that are updated would keep the server from ending
            server.should_exit = True
            thread.join(timeout=10)


class _Server(uvicorn.Server):
    """Answers on connections that `Listener` accepts."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.places = Places()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer until ``should_exit``."""
        super().run(sockets=sockets or [])  # it listens on none by itself

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def begin(self, connection: socket.socket, _peer: str) -> None:
        """Answer on a connection. Raises RuntimeError if the server does not run."""
        if self._loop is None or not self.started:
            raise RuntimeError("the server of the web page does not run")
        connection.setblocking(False)
        asyncio.run_coroutine_threadsafe(self._begin(connection), self._loop)

    async def _begin(self, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: _Connection(self, connection), connection
            )
        except OSError:  # the client has gone
            connection.close()
            self.places.leave(connection)


class _Connection(H11Protocol):
    """Tells the rule of places whose turn it is."""

    def __init__(self, server: _Server, connection: socket.socket) -> None:
        super().__init__(server.config, server.server_state, server.lifespan.state)
        self._places = server.places
        self._connection = connection

    def data_received(self, data: bytes) -> None:
        """Read a part of a request; once it has arrived, it is our turn."""
        super().data_received(data)
        self._our_turn()

    def on_response_complete(self) -> None:
        """Wait for the client to take the answer."""
        self._clients_turn(ANSWER)
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Wait for the client to take what was written."""
        self._clients_turn(ANSWER)
        super().pause_writing()

    def resume_writing(self) -> None:
        """Go on."""
        self._our_turn()
        super().resume_writing()

    def _our_turn(self) -> None:
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering and self.conn.their_state is not h11.SEND_BODY:
            with contextlib.suppress(Gone):  # which the connection will be told
                self._places.our_turn(self._connection)

    def _clients_turn(self, seconds: float) -> None:
        with contextlib.suppress(Gone):
            self._places.clients_turn(self._connection, seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._places.leave(self._connection)
        super().connection_lost(exc)


def _limited(record: logging.LogRecord) -> bool:
    """uvicorn warns of each request that is no HTTP, or one too many."""
    if record.levelno != logging.WARNING:
        return True
    _REFUSALS.refused(record.getMessage())
    return False
