# SPDX-License-Identifier: Apache-2.0
"""Clients of a port that never end their request, and connect again when they are disconnected."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import threading
import time
from typing import Self

_BEGUN = b"POST /v2/executions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n"
_LONGEST = 600.0  # seconds that a flood lasts at most
_PAUSE = 0.02  # seconds between two looks: some thousand new connections per second at most


class SlowClients:
    """``count`` clients of a port of 127.0.0.1, from a thread while the block lasts. Each sends a
    byte now and then. ``again``: whether they connect again, and ``pause``: how many seconds later
    at most. ``ended``: how many connections were ended by the server."""

    def __init__(self, port: int, count: int, *, again: bool = True, pause: float = _PAUSE) -> None:
        self.ended = 0
        self._address = ("127.0.0.1", port)
        self._again = again
        self._pause = pause
        self._clients: dict[int, socket.socket] = {}
        self._ready = select.poll()
        self._count = count
        self._stopped = threading.Event()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._flood, name="slow clients", daemon=True)

    def __enter__(self) -> Self:
        for _ in range(self._count):
            self._connect()
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stopped.set()
        self._thread.join()
        for client in self._clients.values():
            client.close()

    def wait_until_ended(self, count: int, seconds: float) -> bool:
        """Wait until the server has ended so many connections; return whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: self.ended >= count, seconds)

    def _connect(self) -> None:
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(self._address)
        self._clients[client.fileno()] = client
        self._ready.register(client, select.POLLIN | select.POLLOUT)

    def _flood(self) -> None:
        until = time.monotonic() + _LONGEST
        while not self._stopped.wait(self._pause) and time.monotonic() < until:
            for number, event in self._ready.poll(0):
                if event & (select.POLLIN | select.POLLHUP | select.POLLERR):
                    self._over(number)
                elif event & select.POLLOUT:  # it is connected
                    with contextlib.suppress(OSError):
                        self._clients[number].send(_BEGUN)
                    self._ready.modify(number, select.POLLIN)
            for client in random.sample(list(self._clients.values()), len(self._clients) // 50):
                with contextlib.suppress(OSError):
                    client.send(b"x")

    def _over(self, number: int) -> None:
        self._ready.unregister(number)
        self._clients.pop(number).close()
        with self._changed:
            self.ended += 1
            self._changed.notify_all()
        if self._again:
            self._connect()
