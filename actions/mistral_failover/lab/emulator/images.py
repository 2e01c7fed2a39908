# SPDX-License-Identifier: Apache-2.0
"""Glance's API v2, to look at only: what tools ask before they name an image to Nova.

An image's id is its name, as a flavor's is. Each is there that is not gone, since nothing of it
runs in an emulated guest. A list has those of the servers, and the one whose name it asks for.
"""

from __future__ import annotations

from typing import Any

from starlette.routing import Route

from mistral_failover.lab.emulator.state import CloudState
from mistral_failover.lab.emulator.web import Call, Service, endpoint, paged

LISTED = "tiny"
"""The image that is also listed before a server has one."""


def error_body(status: int, message: str) -> dict[str, Any]:
    """Glance's error body, which is a page elsewhere; clients read only its status."""
    return {"code": status, "message": message}


SERVICE = Service("image", error_body)


def exists(state: CloudState, name: str) -> bool:
    """Whether an image was not deleted."""
    return name not in state.config["gone"]


def listed(state: CloudState) -> list[str]:
    """The images of all servers, without those that were deleted."""
    known = {server.image for server in state.servers.values()} | {LISTED}
    return sorted(name for name in known - {""} if exists(state, name))


def _view(name: str) -> dict[str, Any]:
    return {
        "id": name,
        "name": name,
        "status": "active",
        "visibility": "public",
        "container_format": "bare",
        "disk_format": "qcow2",
        "min_disk": 0,
        "min_ram": 0,
        "size": 1,
        "protected": False,
        "os_hidden": False,
        "tags": [],
        "self": f"/v2/images/{name}",
        "file": f"/v2/images/{name}/file",
        "schema": "/v2/schemas/image",
    }


def _versions(call: Call) -> Any:
    """GET /: the versions. Glance answers 300."""
    links = [{"rel": "self", "href": f"{call.emulation.url}/image/v2/"}]
    return 300, {"versions": [{"id": "v2.0", "status": "CURRENT", "links": links}]}


def _list(call: Call) -> Any:
    """GET /v2/images, by name if it is asked for."""
    state, name = call.emulation.state, call.query("name")
    names = listed(state) if name is None else [name] if exists(state, name) else []
    page = paged(call, names, key=str)
    return {"images": [*map(_view, page)], "first": "/v2/images", "schema": "/v2/schemas/images"}


def _show(call: Call) -> Any:
    """GET /v2/images/ID."""
    name = call.path("image_id")
    if not exists(call.emulation.state, name):
        raise SERVICE.refused(404, f"No image found with ID {name}")
    return _view(name)


def routes() -> list[Route]:
    """Glance's routes."""
    table = (
        ("/image", _versions, "versions", True),
        ("/image/", _versions, "versions", True),
        ("/image/v2/images", _list, "image_list", False),
        ("/image/v2/images/{image_id}", _show, "image_show", False),
    )
    return [
        endpoint(SERVICE, path, handler, name, public=public)
        for path, handler, name, public in table
    ]
