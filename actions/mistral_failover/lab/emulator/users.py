# SPDX-License-Identifier: Apache-2.0
"""Keystone's users, as far as an administrator disables and enables them."""

from typing import Any

from starlette.routing import Route

from mistral_failover.lab.emulator.identity import SERVICE, refused
from mistral_failover.lab.emulator.web import Call, endpoint


def _update(call: Call) -> Any:
    """PATCH /users/{id}. A disabled user needs new tokens: the former ones stay invalid."""
    if not call.admin:
        raise refused(
            403, "You are not authorized to perform the requested action: identity:update_user."
        )
    state = call.emulation.state
    user = state.users.get(call.path("user_id"))
    if user is None:
        raise refused(404, f"Could not find user: {call.path('user_id')}.")
    asked = call.body.get("user")
    if not isinstance(asked, dict) or not isinstance(asked.get("enabled"), bool):
        raise refused(400, "The emulated Keystone can change only 'enabled' of a user.")
    if asked["enabled"] and not user.enabled:
        state.tokens = {k: t for k, t in state.tokens.items() if t.user_id != user.id}
    user.enabled = asked["enabled"]
    call.emulation.changed()
    return {
        "user": {
            "id": user.id,
            "name": user.name,
            "domain_id": "default",
            "default_project_id": user.project_id,
            "enabled": user.enabled,
        }
    }


def routes() -> list[Route]:
    """The routes."""
    return [endpoint(SERVICE, "/identity/v3/users/{user_id}", _update, "user_update", ["PATCH"])]
