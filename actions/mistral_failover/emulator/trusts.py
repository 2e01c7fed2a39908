# SPDX-License-Identifier: Apache-2.0
"""Keystone's OS-TRUST: a user lets another act in a project, in the user's own name.

A token got by a trust ends with the trust, and no other token can be got by it.
"""

import datetime
import time
from typing import Any

from starlette.routing import Route

from mistral_failover.emulator.core import Emulation
from mistral_failover.emulator.identity import SERVICE, refused
from mistral_failover.emulator.state import Trust, new_id
from mistral_failover.emulator.web import Call, endpoint, utc

_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


def make(
    emulation: Emulation, *, trustor: str, trustee: str, project_id: str, expires_at: float | None
) -> Trust:
    """A trust between two users, by their ids; `expires_at` is None for one without end."""
    trust = Trust(new_id().replace("-", ""), trustor, trustee, project_id, expires_at)
    emulation.state.trusts[trust.id] = trust
    emulation.changed()
    return trust


def _create(call: Call) -> Any:
    asked = call.body.get("trust")
    if not isinstance(asked, dict) or not {"trustor_user_id", "trustee_user_id"} <= set(asked):
        raise refused(400, "trust: trustor_user_id and trustee_user_id are required properties")
    if asked["trustor_user_id"] != call.user_id or asked.get("project_id") != call.project_id:
        raise refused(403, "You are not authorized to perform the requested action.")
    if call.token is not None and call.token.trust_id:
        raise refused(403, "You are not authorized to perform the requested action.")
    trust = make(
        call.emulation,
        trustor=call.user_id,
        trustee=str(asked["trustee_user_id"]),
        project_id=call.project_id,
        expires_at=_expiry(asked.get("expires_at")),
    )
    return 201, {"trust": _view(trust)}


def _expiry(text: Any) -> float | None:
    if text is None:
        return None
    try:
        when = datetime.datetime.strptime(str(text), _TIME).replace(tzinfo=datetime.UTC)
    except ValueError:
        raise refused(400, f"expires_at: {text!r} is not a time.") from None
    if when.timestamp() < time.time():
        raise refused(400, "The 'expires_at' must not be before now.")
    return when.timestamp()


def _view(trust: Trust) -> dict[str, Any]:
    return {
        "id": trust.id,
        "trustor_user_id": trust.trustor,
        "trustee_user_id": trust.trustee,
        "project_id": trust.project_id,
        "impersonation": True,
        "expires_at": utc(trust.expires_at, _TIME),
        "remaining_uses": None,
    }


def _delete(call: Call) -> Any:
    trust = call.emulation.state.trusts.get(call.path("trust_id"))
    if trust is None or not (call.admin or trust.trustor == call.user_id):
        raise refused(404, f"Could not find trust: {call.path('trust_id')}.")
    state = call.emulation.state
    del state.trusts[trust.id]
    state.tokens = {key: token for key, token in state.tokens.items() if token.trust_id != trust.id}
    call.emulation.changed()
    return 204, None


def routes() -> list[Route]:
    """The routes."""
    base = "/identity/v3/OS-TRUST/trusts"
    return [
        endpoint(SERVICE, base, _create, "trust_create", ["POST"]),
        endpoint(SERVICE, f"{base}/{{trust_id}}", _delete, "trust_delete", ["DELETE"]),
    ]
