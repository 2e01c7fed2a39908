# SPDX-License-Identifier: Apache-2.0
"""Keystone's OS-TRUST: a user lets another act in a project, in the user's own name.

A trust's token ends with the trust, and cannot be used to get another token.
"""

import datetime
import time
from collections.abc import Sequence
from typing import Any

from starlette.routing import Route

from mistral_failover.lab.emulator.core import Emulation
from mistral_failover.lab.emulator.identity import SERVICE, refused, role_id, roles_of
from mistral_failover.lab.emulator.state import Trust, new_id
from mistral_failover.lab.emulator.token_validity import NOT_AUTHORIZED
from mistral_failover.lab.emulator.web import Call, endpoint, utc

_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


def make(
    emulation: Emulation,
    *,
    trustor: str,
    trustee: str,
    project_id: str,
    expires_at: float | None,
    roles: Sequence[str] = ("member",),
) -> Trust:
    """A trust between two users, by their ids; `expires_at` is None for one without end."""
    key = new_id().replace("-", "")
    trust = Trust(key, trustor, trustee, project_id, expires_at, list(roles))
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
        roles=_roles(call, asked.get("roles")),
    )
    return 201, {"trust": _view(trust) | _view_of_roles(trust)}


def _roles(call: Call, asked: Any) -> list[str]:
    """The names of the roles that a trust delegates; its user must have all of them."""
    if not isinstance(asked, list) or not asked:
        raise refused(403, f"{NOT_AUTHORIZED[:-1]}: At least one role should be specified.")
    assert call.user is not None
    have = {role["id"]: role["name"] for role in roles_of(call.user)}
    names = [str(have.get(role.get("id"), role.get("name"))) for role in asked]
    for name in names:
        if name not in have.values():
            raise refused(404, f"Could not find role: {role_id(name)}.")
    return names


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


def _view_of_roles(trust: Trust) -> dict[str, Any]:
    """Shown for one trust, but not in a list."""
    return {"roles": [{"id": role_id(name), "name": name} for name in trust.roles]}


def _list(call: Call) -> Any:
    """GET: the trusts that the caller gave; only an administrator sees others, and an application
    credential sees none."""
    wanted = call.query("trustor_user_id")
    if wanted != call.user_id and not call.admin:
        raise refused(403, f"{NOT_AUTHORIZED[:-1]}: identity:list_trusts_for_trustor.")
    _refuse_delegated(call)
    found = [t for t in call.emulation.state.trusts.values() if wanted in (None, t.trustor)]
    return {"trusts": [_view(trust) for trust in found]}


def _show(call: Call) -> Any:
    trust = _found(call)
    if call.user_id not in (trust.trustor, trust.trustee) and not call.admin:
        raise refused(403, f"{NOT_AUTHORIZED[:-1]}: identity:get_trust.")
    _refuse_delegated(call)
    return {"trust": _view(trust) | _view_of_roles(trust)}


def _refuse_delegated(call: Call) -> None:
    if call.token is not None and call.token.application_credential_id:
        raise refused(403, f"{NOT_AUTHORIZED[:-1]}: Delegated tokens cannot manage trusts.")


def _found(call: Call) -> Trust:
    trust = call.emulation.state.trusts.get(call.path("trust_id"))
    if trust is None or (trust.expires_at is not None and trust.expires_at <= time.time()):
        raise refused(404, f"Could not find trust: {call.path('trust_id')}.")
    return trust


def _delete(call: Call) -> Any:
    """Tokens of the trust stay, but are no longer honoured."""
    trust = _found(call)
    if not (call.admin or trust.trustor == call.user_id):
        raise refused(403, f"{NOT_AUTHORIZED[:-1]}: identity:delete_trust.")
    del call.emulation.state.trusts[trust.id]
    call.emulation.changed()
    return 204, None


def routes() -> list[Route]:
    """The routes."""
    base = "/identity/v3/OS-TRUST/trusts"
    return [
        endpoint(SERVICE, base, _create, "trust_create", ["POST"]),
        endpoint(SERVICE, base, _list, "trust_list"),
        endpoint(SERVICE, f"{base}/{{trust_id}}", _show, "trust_show"),
        endpoint(SERVICE, f"{base}/{{trust_id}}", _delete, "trust_delete", ["DELETE"]),
    ]
