# SPDX-License-Identifier: Apache-2.0
"""The ASGI application: every service on one port, by path."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mistral_failover.lab.emulator import (
    alarming,
    balancing,
    compute,
    compute_interfaces,
    compute_volumes,
    control,
    identity,
    instance_actions,
    naming,
    network,
    orchestration,
    stack_resources,
    trusts,
    users,
    volume,
    volume_actions,
)
from mistral_failover.lab.emulator.core import Emulation

SERVICES = {
    "identity": identity,
    "compute": compute,
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
                compute_interfaces,
                compute_volumes,
                instance_actions,
                stack_resources,
                trusts,
                users,
                volume_actions,
            )
            for route in module.routes()
        ],
        lifespan=lifespan,
        exception_handlers={HTTPException: _unrouted},
    )


def _unrouted(request: Request, error: Exception) -> Response:
    """A path or method that no service has, in the shape of the service it was meant for."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    service = SERVICES.get(request.url.path.split("/")[1], control)
    return JSONResponse(service.error_body(status, "The resource could not be found."), status)
