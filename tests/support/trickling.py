# SPDX-License-Identifier: Apache-2.0
"""A server that answers in drops."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def trickling(begin: bytes, piece: bytes, host: str = "127.0.0.1") -> Iterator[int]:
    """Listen on a port. One connection is sent ``begin`` at once, and then for 20 s one piece every
    20 ms."""
    listening = socket.create_server((host, 0))
    over = threading.Event()

    def serve() -> None:
        with listening.accept()[0] as connection:
            connection.sendall(begin)
            end = time.monotonic() + 20
            while time.monotonic() < end and not over.wait(0.02):
                try:
                    connection.sendall(piece)
                except OSError:
                    return

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    yield listening.getsockname()[1]
    over.set()
    serving.join()
    listening.close()
