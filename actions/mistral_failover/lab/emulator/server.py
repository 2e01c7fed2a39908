# SPDX-License-Identifier: Apache-2.0
"""The emulated cloud as a server: in a thread of a test, or the body of a process. Every service
is on one port, by path."""

import asyncio
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TextIO

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mistral_failover.lab.emulator import (
    alarming,
    balancing,
    compute,
    compute_devices,
    control,
    identity,
    images,
    instance_actions,
    naming,
    network,
    orchestration,
    quota_sets,
    security_groups,
    snapshots,
    volume,
)
from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.lab.emulator.core import Emulation
from mistral_failover.lab.emulator.latency import profile

SERVICES = {
    "identity": identity,
    "compute": compute,
    "image": images,
    "network": network,
    "load-balancer": balancing,
    "dns": naming,
    "volume": volume,
    "orchestration": orchestration,
    "alarming": alarming,
    "emulator": control,
}


def application(emulation: Emulation) -> Starlette:
    """The application that serves `emulation`; its clock runs while the application does."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.emulation = emulation
        emulation.start()
        try:
            yield
        finally:
            emulation.stop()

    return Starlette(
        routes=[
            route
            for module in (
                *SERVICES.values(),
                compute_devices,
                instance_actions,
                quota_sets,
                security_groups,
                snapshots,
            )
            for route in module.routes()
        ]
        + balancing.routes("v2.0"),
        lifespan=lifespan,
        exception_handlers={HTTPException: _unrouted},
    )


def _unrouted(request: Request, error: Exception) -> Response:
    """A path or method that no service has, in the shape of the service it was meant for."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    service = SERVICES.get(request.url.path.split("/")[1], control)
    return JSONResponse(service.error_body(status, "The resource could not be found."), status)


LOOPBACK = "127.0.0.1"


class EmulatedCloud:
    """A cloud on a port of loopback.

    :param state_dir: a directory that keeps the state; None keeps it in memory.
    :param latency: a profile: zero, measured or parallel.
    :param overrides: single times in seconds.
    :param port: 0 takes a free one.
    :param workflow_url: a Mistral's API, ending in /v2, for the catalog; see also
        :meth:`offer_mistral`.
    :raises ValueError: an unknown profile or time.
    :raises OSError: the port is taken, or another cloud runs on the state directory.

    As a context manager it serves from a thread::

        with EmulatedCloud() as cloud:
            keystoneauth1.identity.v3.Password(f"{cloud.url}/identity/v3", ...)
    """

    def __init__(
        self,
        state_dir: str | Path | None = None,
        latency: str = "zero",
        *,
        overrides: dict[str, float] | None = None,
        port: int = 0,
        workflow_url: str | None = None,
        save_every: float = 0.0,
    ) -> None:
        times = profile(latency)
        times.override(overrides or {})
        self._lock = None if state_dir is None else _lock(Path(state_dir))
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        # Accepted sockets inherit it; without it every answer waits 40 ms for a delayed ACK.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((LOOPBACK, port))
        self._socket.listen(128)
        self.url = f"http://{LOOPBACK}:{self._socket.getsockname()[1]}"
        folder = None if state_dir is None else Path(state_dir)
        self.emulation = Emulation(folder, times, save_every=save_every)
        self.emulation.url = self.url
        self.emulation.workflow_url = workflow_url
        self._server = uvicorn.Server(
            uvicorn.Config(
                application(self.emulation),
                log_config=None,
                access_log=False,
                lifespan="on",
                timeout_graceful_shutdown=1,
                timeout_keep_alive=60,
            )
        )
        self._thread: threading.Thread | None = None

    def offer_mistral(self, url: str) -> None:
        """Add a Mistral that was started after this cloud to the catalog."""
        self.emulation.workflow_url = url

    @property
    def auth_url(self) -> str:
        """Keystone's URL."""
        return f"{self.url}/identity/v3"

    @cached_property
    def client(self) -> EmulatorClient:
        """A client of the emulator's own interface."""
        return EmulatorClient(self.url)

    def serve(self, *, idle_exit: float | None = None) -> None:
        """Serves until a signal, or until no request came for `idle_exit` seconds."""

        async def run() -> None:
            watch = asyncio.create_task(self._watch(idle_exit)) if idle_exit else None
            await self._server.serve(sockets=[self._socket])
            if watch is not None:
                watch.cancel()

        asyncio.run(run())

    async def _watch(self, idle_exit: float) -> None:
        while True:
            idle = time.monotonic() - self.emulation.last_request
            if idle >= idle_exit:
                self._server.should_exit = True
                return
            await asyncio.sleep(idle_exit - idle)

    def __enter__(self) -> "EmulatedCloud":
        self._thread = threading.Thread(target=self.serve, name="emulated-cloud", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(timeout=10)
        self._socket.close()
        if self._lock is not None:
            self._lock.close()


def _lock(state_dir: Path) -> TextIO:
    """Holds a state directory for as long as the returned file is open."""
    state_dir.mkdir(parents=True, exist_ok=True)
    file = (state_dir / "lock").open("w", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise OSError(f"another emulator runs on {state_dir}") from None
    return file


def announce(url: str, state_dir: Path) -> str:
    """Writes where the cloud is to `state_dir`/emulator.json, atomically; returns the line."""
    line = json.dumps({"url": url, "pid": os.getpid()})
    path = state_dir / "emulator.json"
    temporary = path.with_suffix(".json.tmp")
    temporary.write_text(line + "\n", encoding="utf-8")
    temporary.replace(path)
    return line
