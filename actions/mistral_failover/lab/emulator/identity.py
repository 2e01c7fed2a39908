# SPDX-License-Identifier: Apache-2.0
"""Keystone v3: tokens, the catalog, users, and OS-TRUST.

By a trust a user lets another act in a project, in the user's own name. Its token ends with the
trust, and cannot be used to get another token.
"""

import datetime
import secrets
import time
from collections.abc import Sequence
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mistral_failover.lab.emulator.core import Emulation
from mistral_failover.lab.emulator.state import (
    ApplicationCredential,
    Token,
    Trust,
    User,
    new_id,
    stable_hex,
    token_key,
)
from mistral_failover.lab.emulator.web import (
    NOT_AUTHORIZED,
    UNKNOWN,
    Call,
    Service,
    by_keystone,
    endpoint,
    is_valid,
    restricted,
    utc,
)

LIFETIME = 3600.0
DOMAIN = {"id": "default", "name": "Default"}
_ROLES = ("admin", "member", "reader")
"""Each implies those behind it."""
_TITLES = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found"}


def error_body(status: int, message: str) -> dict[str, Any]:
    """Keystone's error body."""
    title = _TITLES.get(status, "Internal Server Error")
    return {"error": {"code": status, "message": message, "title": title}}


SERVICE = Service("identity", error_body)
refused = SERVICE.refused


_UNAUTHORIZED = "You are not authorized to perform the requested action"


def issue(
    emulation: Emulation,
    user: User,
    project_id: str,
    *,
    methods: list[str],
    lifetime: float = LIFETIME,
    trust_id: str | None = None,
    application_credential_id: str | None = None,
) -> str:
    """Makes a token and returns it; the state keeps only its hash."""
    text = "gAAAAA" + secrets.token_urlsafe(48)
    now = time.time()
    emulation.state.tokens[token_key(text)] = Token(
        user.id, project_id, now, now + lifetime, methods, trust_id, application_credential_id
    )
    emulation.changed()
    return text


def role_id(name: str) -> str:
    """The id of a role."""
    return stable_hex("role", name)


def roles_of(user: User, trust: Trust | None = None) -> list[dict[str, str]]:
    """The roles of a user, or those that their trust delegates, with the roles that they imply."""
    given = trust.roles if trust is not None else ["admin" if user.admin else "member"]
    least = min(_ROLES.index(name) for name in given)
    return [{"id": role_id(name), "name": name} for name in _ROLES[least:]]


def describe(emulation: Emulation, token: Token) -> dict[str, Any]:
    """The body of a token."""
    state = emulation.state
    user, project = state.users[token.user_id], state.projects[token.project_id]
    trust = state.trusts.get(token.trust_id or "")
    body: dict[str, Any] = {
        "methods": token.methods,
        "user": {
            "id": user.id,
            "name": user.name,
            "domain": DOMAIN,
            "password_expires_at": None,
        },
        "project": {"id": project.id, "name": project.name, "domain": DOMAIN},
        "is_domain": False,
        "roles": roles_of(user, trust),
        "catalog": catalog(emulation, project.id),
        "audit_ids": [stable_hex("audit", str(token.issued_at))[:22]],
        "issued_at": utc(token.issued_at, "%Y-%m-%dT%H:%M:%S.%fZ"),
        "expires_at": utc(token.expires_at, "%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    if token.trust_id:
        body["OS-TRUST:trust"] = {
            "id": token.trust_id,
            "impersonation": True,
            "trustor_user": {"id": user.id},
            "trustee_user": {"id": user.id},
        }
    if token.application_credential_id:
        credential = state.application_credentials[token.application_credential_id]
        body["application_credential"] = {
            "id": credential.id,
            "name": credential.name,
            "restricted": True,
        }
        if credential.access_rules:
            body["application_credential"]["access_rules"] = credential.access_rules
    return {"token": body}


def catalog(emulation: Emulation, project_id: str) -> list[dict[str, Any]]:
    """The service catalog for a project, with a Mistral if the cloud was given one; as its operator
    has configured it."""
    config, url = emulation.state.config, emulation.url
    places = {
        ("identity", "keystone"): "{url}/identity",
        ("compute", "nova"): "{url}/compute/v2.1",
        ("image", "glance"): "{url}/image",
        ("volumev3", "cinderv3"): "{url}/volume/v3/{project}",
        ("block-storage", "cinder"): "{url}/volume/v3/{project}",
        ("network", "neutron"): "{url}/network",
        ("load-balancer", "octavia"): "{url}/load-balancer",
        ("dns", "designate"): "{url}/dns",
        ("orchestration", "heat"): "{url}/orchestration/v1/{project}",
        ("alarming", "aodh"): "{url}/alarming",
        ("workflowv2", "mistral"): emulation.workflow_url,
    }
    return [
        {
            "id": stable_hex("service", kind),
            "type": kind,
            "name": name,
            "endpoints": [
                {
                    "id": stable_hex("endpoint", kind, interface),
                    "interface": interface,
                    "region": config["region"],
                    "region_id": config["region"],
                    "url": place.replace("{url}", url).replace("{project}", project_id),
                }
                for interface in config["interfaces"]
            ],
        }
        for (kind, name), usual in places.items()
        if (place := config["endpoints"].get(kind, usual))
    ]


def _live(emulation: Emulation, text: str) -> Token | None:
    token = emulation.state.tokens.get(token_key(text))
    if token is None or token.expires_at <= time.time():
        return None
    return token if is_valid(emulation.state, token) else None


def create_token(call: Call) -> Response:
    """POST /auth/tokens: password, token or application_credential."""
    try:
        asked = call.body["auth"]
        methods = list(asked["identity"]["methods"])
        grant = _METHODS[methods[0]]
    except (KeyError, IndexError, TypeError):
        raise refused(400, "Expecting to find auth with a known method in request.") from None
    try:
        user, project_id, more = grant(call, asked)
    except (KeyError, TypeError):
        raise refused(400, "Expecting to find the method's data in request.") from None
    text = issue(call.emulation, user, project_id, **{"methods": methods, **more})
    token = call.emulation.state.tokens[token_key(text)]
    return JSONResponse(describe(call.emulation, token), 201, headers={"X-Subject-Token": text})


def _by_password(call: Call, asked: dict[str, Any]) -> tuple[User, str, dict[str, Any]]:
    given = asked["identity"]["password"]["user"]
    for user in call.emulation.state.users.values():
        if given.get("id") == user.id or given.get("name") == user.name:
            right = secrets.compare_digest(str(given["password"]), user.password)
            if right and user.enabled:
                return user, _scope(call, asked, user, user.project_id), {}
            break
    raise refused(401, UNKNOWN)


def _by_token(call: Call, asked: dict[str, Any]) -> tuple[User, str, dict[str, Any]]:
    token = _live(call.emulation, str(asked["identity"]["token"]["id"]))
    if token is None:
        raise refused(401, UNKNOWN)
    if token.trust_id:
        raise refused(
            403,
            "You are not authorized to perform the requested action: Using trust-scoped token "
            "to create another token. Create a new trust-scoped token instead.",
        )
    user = call.emulation.state.users[token.user_id]
    # A token got from a token never outlives it, and remembers how that one was got.
    more = {
        "lifetime": token.expires_at - time.time(),
        "methods": ["token", *(m for m in token.methods if m != "token")],
    }
    wanted = asked.get("scope")
    if isinstance(wanted, dict) and "OS-TRUST:trust" in wanted:
        return _by_trust(call, str(wanted["OS-TRUST:trust"]["id"]), user, more)
    return user, _scope(call, asked, user, token.project_id), more


def _by_trust(
    call: Call, trust_id: str, user: User, more: dict[str, Any]
) -> tuple[User, str, dict[str, Any]]:
    """The trustor, for whom the trustee now acts."""
    trust = call.emulation.state.trusts.get(trust_id)
    if trust is None or trust.trustee != user.id:
        raise refused(401, UNKNOWN)
    if trust.expires_at is not None:
        more["lifetime"] = min(more["lifetime"], trust.expires_at - time.time())
    if more["lifetime"] <= 0:
        raise refused(401, UNKNOWN)
    trustor = call.emulation.state.users[trust.trustor]
    if not trustor.enabled:
        raise refused(403, NOT_AUTHORIZED)
    return trustor, trust.project_id, {**more, "trust_id": trust.id}


def _by_application_credential(
    call: Call, asked: dict[str, Any]
) -> tuple[User, str, dict[str, Any]]:
    given = asked["identity"]["application_credential"]
    for known in call.emulation.state.application_credentials.values():
        if given.get("id") == known.id or given.get("name") == known.name:
            if secrets.compare_digest(str(given["secret"]), known.secret):
                user = call.emulation.state.users[known.user_id]
                if not user.enabled:
                    break
                return user, known.project_id, {"application_credential_id": known.id}
            break
    raise refused(401, UNKNOWN)


def _scope(call: Call, asked: dict[str, Any], user: User, default: str) -> str:
    wanted = asked.get("scope")
    if not isinstance(wanted, dict) or "project" not in wanted:
        return default
    for project in call.emulation.state.projects.values():
        named = wanted["project"].get("id") == project.id
        if named or wanted["project"].get("name") == project.name:
            if user.admin or user.project_id == project.id:
                return project.id
            break
    raise refused(401, UNKNOWN)


_METHODS = {
    "password": _by_password,
    "token": _by_token,
    "application_credential": _by_application_credential,
}


def validate_token(call: Call) -> Response:
    """GET /auth/tokens: validates a token; a token may validate itself.

    The token of a trust may not, unless its roles are an administrator's: Keystone takes the
    trustee for its owner and the trustor for the caller.
    """
    text = call.request.headers.get("x-subject-token", "")
    known = call.emulation.state.tokens.get(token_key(text))
    token = _live(call.emulation, text)
    understood = "openstack-identity-access-rules" in call.request.headers
    if known is not None and restricted(call.emulation.state, known) is not None and not understood:
        raise refused(404, "Failed to validate token")
    if token is None:
        if known is not None and known.trust_id and known.expires_at > time.time():
            raise refused(*by_keystone(call.emulation.state, known))
        raise refused(404, "Failed to validate token")
    trust = call.emulation.state.trusts.get(token.trust_id or "")
    owner = trust.trustee if trust is not None else token.user_id
    if not call.admin and owner != call.user_id:
        raise refused(403, f"{_UNAUTHORIZED}: identity:validate_token.")
    return JSONResponse(describe(call.emulation, token), headers={"X-Subject-Token": text})


def revoke_token(call: Call) -> tuple[int, None]:
    """DELETE /auth/tokens."""
    key = token_key(call.request.headers.get("x-subject-token", ""))
    call.emulation.state.tokens.pop(key, None)
    call.emulation.changed()
    return 204, None


def _version(call: Call) -> dict[str, Any]:
    return {
        "id": "v3.14",
        "status": "stable",
        "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": f"{call.emulation.url}/identity/v3/"}],
        "media-types": [
            {
                "base": "application/json",
                "type": "application/vnd.openstack.identity-v3+json",
            }
        ],
    }


def _versions(call: Call) -> tuple[int, Any]:
    return 300, {"versions": {"values": [_version(call)]}}


def _project_view(call: Call, project_id: str) -> dict[str, Any]:
    project = call.emulation.state.projects[project_id]
    return {"id": project.id, "name": project.name, "domain_id": "default"}


def _projects(call: Call) -> Any:
    return {"projects": [_project_view(call, call.project_id)]}


def _project(call: Call) -> Any:
    """GET /projects/{id}: the caller's own; others are an administrator's to see."""
    wanted = call.path("project_id")
    if not call.sees(wanted):
        raise refused(403, f"{_UNAUTHORIZED}: identity:get_project.")
    if wanted not in call.emulation.state.projects:
        raise refused(404, f"Could not find project: {wanted}.")
    return {"project": _project_view(call, wanted)}


def _catalog(call: Call) -> Any:
    """GET /auth/catalog: any token may ask."""
    return {"catalog": catalog(call.emulation, call.project_id)}


# -- users, as far as an administrator disables and enables them


def _update_user(call: Call) -> Any:
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
            "enabled": user.enabled,
        }
    }


def _user_routes() -> list[Route]:
    """The routes of users."""
    user = "/identity/v3/users/{user_id}"
    credentials = f"{user}/application_credentials"
    return [
        endpoint(SERVICE, user, _update_user, "user_update", ["PATCH"]),
        endpoint(SERVICE, credentials, _create_credential, "credential_create", ["POST"]),
    ]


# -- OS-TRUST: a user lets another act in a project, in the user's own name


_TRUST_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


def make_trust(
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


def _create_trust(call: Call) -> Any:
    asked = call.body.get("trust")
    if not isinstance(asked, dict) or not {"trustor_user_id", "trustee_user_id"} <= set(asked):
        raise refused(400, "trust: trustor_user_id and trustee_user_id are required properties")
    if asked["trustor_user_id"] != call.user_id or asked.get("project_id") != call.project_id:
        raise refused(403, "You are not authorized to perform the requested action.")
    if call.token is not None and call.token.trust_id:
        raise refused(403, "You are not authorized to perform the requested action.")
    trust = make_trust(
        call.emulation,
        trustor=call.user_id,
        trustee=str(asked["trustee_user_id"]),
        project_id=call.project_id,
        expires_at=_trust_expiry(asked.get("expires_at")),
        roles=_delegated_roles(call, asked.get("roles")),
    )
    return 201, {"trust": _trust_view(trust) | _trust_roles_view(trust)}


def _delegated_roles(call: Call, asked: Any) -> list[str]:
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


def _trust_expiry(text: Any) -> float | None:
    if text is None:
        return None
    try:
        when = datetime.datetime.strptime(str(text), _TRUST_TIME).replace(tzinfo=datetime.UTC)
    except ValueError:
        raise refused(400, f"expires_at: {text!r} is not a time.") from None
    if when.timestamp() < time.time():
        raise refused(400, "The 'expires_at' must not be before now.")
    return when.timestamp()


def _trust_view(trust: Trust) -> dict[str, Any]:
    return {
        "id": trust.id,
        "trustor_user_id": trust.trustor,
        "trustee_user_id": trust.trustee,
        "project_id": trust.project_id,
        "impersonation": True,
        "expires_at": utc(trust.expires_at, _TRUST_TIME),
        "remaining_uses": None,
    }


def _trust_roles_view(trust: Trust) -> dict[str, Any]:
    """Shown for one trust, but not in a list."""
    return {"roles": [{"id": role_id(name), "name": name} for name in trust.roles]}


def _list_trusts(call: Call) -> Any:
    """GET: the trusts that the caller gave; only an administrator sees others, and an application
    credential sees none."""
    wanted = call.query("trustor_user_id")
    if wanted != call.user_id and not call.admin:
        raise refused(403, f"{NOT_AUTHORIZED[:-1]}: identity:list_trusts_for_trustor.")
    _refuse_delegated(call)
    found = [t for t in call.emulation.state.trusts.values() if wanted in (None, t.trustor)]
    return {"trusts": [_trust_view(trust) for trust in found]}


def _show_trust(call: Call) -> Any:
    trust = _found_trust(call)
    if call.user_id not in (trust.trustor, trust.trustee) and not call.admin:
        raise refused(403, f"{NOT_AUTHORIZED[:-1]}: identity:get_trust.")
    _refuse_delegated(call)
    return {"trust": _trust_view(trust) | _trust_roles_view(trust)}


def _refuse_delegated(call: Call) -> None:
    if call.token is not None and call.token.application_credential_id:
        raise refused(403, f"{NOT_AUTHORIZED[:-1]}: Delegated tokens cannot manage trusts.")


def _found_trust(call: Call) -> Trust:
    trust = call.emulation.state.trusts.get(call.path("trust_id"))
    if trust is None or (trust.expires_at is not None and trust.expires_at <= time.time()):
        raise refused(404, f"Could not find trust: {call.path('trust_id')}.")
    return trust


def _delete_trust(call: Call) -> Any:
    """Tokens of the trust stay, but are no longer honoured."""
    trust = _found_trust(call)
    if not (call.admin or trust.trustor == call.user_id):
        raise refused(403, f"{NOT_AUTHORIZED[:-1]}: identity:delete_trust.")
    del call.emulation.state.trusts[trust.id]
    call.emulation.changed()
    return 204, None


def _trust_routes() -> list[Route]:
    """The routes of trusts."""
    base = "/identity/v3/OS-TRUST/trusts"
    return [
        endpoint(SERVICE, base, _create_trust, "trust_create", ["POST"]),
        endpoint(SERVICE, base, _list_trusts, "trust_list"),
        endpoint(SERVICE, f"{base}/{{trust_id}}", _show_trust, "trust_show"),
        endpoint(SERVICE, f"{base}/{{trust_id}}", _delete_trust, "trust_delete", ["DELETE"]),
    ]


def _create_credential(call: Call) -> Any:
    """POST /users/{id}/application_credentials: one for the project of the caller's token."""
    wanted = call.body.get("application_credential")
    if not isinstance(wanted, dict) or "name" not in wanted:
        raise refused(400, "Expecting to find application_credential in request.")
    if call.path("user_id") != call.user_id:
        raise refused(403, f"{_UNAUTHORIZED}: identity:create_application_credential.")
    made = add_credential(
        call.emulation, call.user_id, call.project_id, wanted["name"], wanted.get("access_rules")
    )
    return 201, {"application_credential": dict(vars(made))}


def add_credential(
    emulation: Emulation,
    user_id: str,
    project_id: str,
    name: str,
    access_rules: list[dict[str, str]] | None,
) -> ApplicationCredential:
    """Makes an application credential."""
    made = ApplicationCredential(
        new_id().replace("-", ""),
        name,
        secrets.token_urlsafe(24),
        user_id,
        project_id,
        access_rules,
    )
    emulation.state.application_credentials[made.id] = made
    emulation.changed()
    return made


def routes() -> list[Route]:
    """Keystone's routes."""
    token = "/identity/v3/auth/tokens"  # noqa: S105 - a path
    return [
        *_user_routes(),
        *_trust_routes(),
        endpoint(SERVICE, "/identity", _versions, "versions", public=True),
        endpoint(SERVICE, "/identity/", _versions, "versions", public=True),
        endpoint(
            SERVICE, "/identity/v3", lambda c: {"version": _version(c)}, "versions", public=True
        ),
        endpoint(
            SERVICE, "/identity/v3/", lambda c: {"version": _version(c)}, "versions", public=True
        ),
        endpoint(SERVICE, token, create_token, "token", ["POST"], public=True),
        endpoint(SERVICE, token, validate_token, "token_validate"),
        endpoint(SERVICE, token, revoke_token, "token_revoke", ["DELETE"]),
        endpoint(SERVICE, "/identity/v3/auth/projects", _projects, "projects"),
        endpoint(SERVICE, "/identity/v3/auth/catalog", _catalog, "catalog"),
        endpoint(SERVICE, "/identity/v3/projects/{project_id}", _project, "project"),
    ]
