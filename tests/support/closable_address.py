# SPDX-License-Identifier: Apache-2.0
"""An address before a server that can be shut for a while, as if the server had gone away."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

_REQUESTS = (b"GET ", b"POST ", b"PUT ", b"DELETE ")


class ClosableProxy:
    """Hands connections on to ``url`` while it is open. A context manager; open at the start.

    ``shuts_after``: how a request begins that is the last one to be let through.
    """

    def __init__(self, url: str, shuts_after: bytes | None = None) -> None:
        self._last = shuts_after
        self._was_last = False
        found = urlsplit(url)
        self._target = (str(found.hostname), int(found.port or 80))
        self._path = found.path
        self._port = 0
        self._door: socket.socket | None = None
        self._through: list[socket.socket] = []
        self.shut_by_itself = threading.Event()

    @property
    def url(self) -> str:
        """The same address, by this way."""
        return f"http://127.0.0.1:{self._port}{self._path}"

    def __enter__(self) -> ClosableProxy:
        self.open()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.shut()

    def open(self) -> None:
        """Let everybody through, at the same address as before."""
        self._door = socket.create_server(("127.0.0.1", self._port))
        self._port = self._door.getsockname()[1]
        threading.Thread(target=self._serve, args=(self._door,), daemon=True).start()

    def open_again(self) -> None:
        """Open it for good after it shut by itself."""
        self._last, self._was_last = None, False
        self.open()

    def shut(self) -> None:
        """Refuse everybody, and cut those off who are through."""
        if self._door is not None:
            # Closed alone, a socket that a thread waits on goes on accepting.
            with contextlib.suppress(OSError):
                self._door.shutdown(socket.SHUT_RDWR)
            self._door.close()
            self._door = None
        for each in self._through:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._through.clear()

    def _serve(self, door: socket.socket) -> None:
        for here in _accepted(door):
            there = socket.create_connection(self._target)
            self._through += [here, there]
            threading.Thread(target=self._in, args=(here, there), daemon=True).start()
            threading.Thread(target=_out, args=(there, here), daemon=True).start()

    def _in(self, here: socket.socket, there: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := here.recv(65536):
                if self._was_last and data.startswith(_REQUESTS):
                    self.shut()
                    self.shut_by_itself.set()
                    return
                if self._last is not None and data.startswith(self._last):
                    self._was_last = True
                there.sendall(data)
        with contextlib.suppress(OSError):
            there.shutdown(socket.SHUT_WR)


def _accepted(door: socket.socket) -> Iterator[socket.socket]:
    with contextlib.suppress(OSError):
        while True:
            yield door.accept()[0]


def _out(there: socket.socket, here: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := there.recv(65536):
            here.sendall(data)
    with contextlib.suppress(OSError):
        here.shutdown(socket.SHUT_WR)
