# SPDX-License-Identifier: Apache-2.0
"""The guests over HTTP: the emulator's protocol for commands, and its control of guests.

A command is taken from whoever has a token of the project that owns the server, as Keystone and
Nova say. The control (`GUESTS` of the emulator) asks nobody who he is: it is for tests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Route

from mistral_failover.lab.emulator import control
from mistral_failover.lab.emulator.core import Emulation
from mistral_failover.lab.emulator.state import Application, Token, User
from mistral_failover.lab.emulator.web import Call, Handler, Service, endpoint, plain_error
from testcloud.guests.cloud_reader import BadToken, CloudReader, Unreachable
from testcloud.guests.mirror import Mirror

APPLICATIONS = (
    Application("files", "volume-up", "volume-down", needs_volume=True),
    Application("postgresql", "pg-start", "pg-stop", "pg-status", needs_volume=True),
    Application("web", "web-start", "web-stop", "web-status"),
)
"""What every guest can run."""
COMMANDS = Service("guests", control.error_body, authenticated=False)
CONTROL = Service("guests", control.error_body, authenticated=False, delayed=False)


def application(emulation: Emulation, reader: CloudReader) -> Starlette:
    """The service; its clock and its look at the cloud run while it does."""
    mirror = Mirror(emulation, reader)
    for known in APPLICATIONS:
        emulation.state.applications.setdefault(known.name, known)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.emulation = emulation
        emulation.start()
        watching = asyncio.create_task(mirror.watch())
        try:
            yield
        finally:
            watching.cancel()
            emulation.stop()

    async def guarded(handler: Handler, call: Call) -> Any:
        server_id = call.path("server_id")
        try:
            token = await _identify(call, reader)
            await mirror.refresh(server_id)
            server = emulation.state.servers.get(server_id)
            if server is not None and call.sees(server.project_id):
                await mirror.place(server_id, token)
        except Unreachable as error:
            raise _unreachable(error) from None
        return await handler(call)

    async def fault(call: Call) -> Any:
        server_id = call.body.get("id")
        if call.body.get("target") == "server" and isinstance(server_id, str):
            try:
                await mirror.refresh(server_id)
            except Unreachable as error:
                raise _unreachable(error) from None
        return faults(call)

    faults = next(handler for path, handler, _ in control.GUESTS if path == "/faults")
    handlers = {"/faults": fault}
    routes: list[Route] = [
        endpoint(CONTROL, f"/emulator{path}", handlers.get(path, handler), "control", [method])
        for path, handler, method in control.GUESTS
    ]
    routes += [
        endpoint(
            COMMANDS,
            f"/emulator/guests/{{server_id}}/{end}",
            partial(guarded, handler),
            operation,
            [method],
        )
        for end, handler, operation, method in control.AGENTS
    ]
    return Starlette(routes=routes, lifespan=lifespan)


async def _identify(call: Call, reader: CloudReader) -> str:
    """Tell the call whose it is; return its token."""
    token = call.request.headers.get("x-auth-token", "")
    try:
        caller = await asyncio.to_thread(reader.caller, token)
    except BadToken:
        raise plain_error(
            "UNAUTHORIZED", 401, "Keystone does not know the token.", "Get a new one."
        ) from None
    now = time.time()
    call.token = Token(caller.user_id, caller.project_id, now, now, ["token"])
    call.user = User(caller.user_id, caller.user_name, "", caller.project_id)
    return token


def _unreachable(error: Unreachable) -> Exception:
    return plain_error(
        "CLOUD_UNREACHABLE",
        503,
        f"The cloud did not say what is true of the server: {error}.",
        "make cloud-status",
    )
