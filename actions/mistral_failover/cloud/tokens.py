# SPDX-License-Identifier: Apache-2.0
"""Asking Keystone about a token: whether it accepts the token, and what the token may do.

A service's own 401 does not tell. The service may not have heard yet that a token is valid, and it
refuses what the access rules of an application credential do not name, although Keystone accepts
the token (keystonemiddleware, ``validate_allowed_request``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from keystoneauth1 import access, plugin
from keystoneauth1.identity import BaseIdentityPlugin
from keystoneauth1.session import Session

from mistral_failover.cloud.answers import why_foreign
from mistral_failover.cloud.errors import FOREIGN, CloudError, refusal, translate
from mistral_failover.cloud.url_paths import url_path

UNTOLD = 300.0
"""Seconds for which a token counts as valid if Keystone did not tell its expiry."""
_SPARE = 60.0
_NAMED = frozenset({"stacks", "resources", "workflows"})
"""What is followed by a name in a path."""
_SHOW_RULES = {"OpenStack-Identity-Access-Rules": "1.0"}
"""Without it Keystone says of a token with access rules that there is none."""
_ID = re.compile("[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def keystone_of(url: str) -> str:
    """Return where Keystone's API is, by an address with or without its version."""
    found = url.rstrip("/")
    return found if found.endswith("/v3") else f"{found}/v3"


def asked(session: Session, auth_url: str, token: str, project_id: str | None) -> access.AccessInfo:
    """Ask Keystone about a token; ``project_id`` is the project that its request names.

    Raises `CloudError` TOKEN_EXPIRED or TRUST_GONE when Keystone does not accept the token,
    FORBIDDEN when it is not of that project, and what `translate` makes of other failures;
    `LeaseLost`.
    """
    try:
        answer = _get(session, auth_url + url_path("auth", "tokens"), token)
    except FOREIGN as error:
        failure = translate(error, "validate the token of the request", "Keystone")
        if failure.transient or failure.http_status not in (401, 403, 404):
            raise failure from None
    else:
        return access.create(resp=answer, auth_token=token)
    catalog = _catalog(session, auth_url, token)
    return _told_in_parts(session, auth_url, token, project_id, catalog)


def expired(status: int | None = None) -> CloudError:
    """Return the error for a token that Keystone does not accept."""
    return CloudError(
        "TOKEN_EXPIRED", "Keystone does not accept the token of the request.", http_status=status
    )


def _catalog(session: Session, auth_url: str, token: str) -> Any:
    """Return a token's catalog; a refusal here tells the reason more plainly than other calls
    do."""
    try:
        return _get(session, auth_url + url_path("auth", "catalog"), token).json()["catalog"]
    except FOREIGN as error:
        failure = translate(error, "read the catalog with the token of the request", "Keystone")
    if failure.transient:
        raise failure
    if failure.http_status == 404 and "find trust" in failure.message:
        words = "The trust of the request's token was deleted."
    elif failure.http_status == 403:
        words = (
            "Keystone does not honour the trust of the request's token: its user is disabled, or "
            "has lost a role that the trust delegates."
        )
    elif failure.http_status in (401, 404):
        raise expired(failure.http_status)
    else:
        raise failure
    raise CloudError("TRUST_GONE", words, http_status=failure.http_status)


def _told_in_parts(
    session: Session, auth_url: str, token: str, project_id: str | None, catalog: Any
) -> access.AccessInfo:
    if project_id is None:
        raise CloudError(
            "FORBIDDEN", ("The request's token names no project, and neither does the request.")
        )
    try:
        _get(session, auth_url + url_path("projects", project_id), token)
    except FOREIGN as error:
        doing = f"read project {project_id} with the token of the request"
        failure = translate(error, doing, "Keystone")
        if failure.code not in ("FORBIDDEN", "NOT_FOUND"):
            raise failure from None
        raise of_another_project(project_id, None) from None
    end = datetime.now(UTC) + timedelta(seconds=UNTOLD + _SPARE)
    body = {
        "methods": [],
        "user": {},
        "project": {"id": project_id},
        "catalog": catalog,
        "expires_at": end.isoformat(),
    }
    return access.create(body={"token": body}, auth_token=token)


def of_another_project(said: str, real: str | None) -> CloudError:
    """Return the error for a request that names one project and carries a token of another."""
    whose = f"project {real}" if real else "another one"
    return CloudError(
        "FORBIDDEN",
        f"The request names project {said}, but its token belongs to {whose}.",
        remedy="Call with a token of the project that owns the group.",
    )


def _get(session: Session, url: str, token: str) -> Any:
    """Ask with a token about itself; neither the token nor the answer is logged."""
    answer = session.get(
        url,
        headers={"X-Auth-Token": token, "X-Subject-Token": token, **_SHOW_RULES},
        authenticated=False,
        log=False,
    )
    if why_foreign(answer):
        raise refusal(answer, "ask Keystone about the token of the request", "Keystone")
    return answer


def why_unauthorised(
    session: Session,
    auth: plugin.BaseAuthPlugin | None,
    failure: CloudError,
    method: str,
    url: str,
    service_type: str,
) -> CloudError:
    """Return why a service answered a request 401, by what Keystone says of the token.

    ``auth``: what the request was authenticated with; ``failure``: the service's own answer, which
    is returned if that is not Keystone's. Otherwise the error is Keystone's own if it does not
    accept the token, or does not answer; FORBIDDEN if the token has access rules; and else a
    transient SERVER_ERROR, because the service is wrong.
    """
    if not isinstance(auth, BaseIdentityPlugin):
        return failure
    service = failure.service
    try:
        held = auth.get_access(session)
        known = asked(
            session,
            keystone_of(str(auth.auth_url)),
            str(held.auth_token),
            held.project_id,
        )
    except CloudError as error:
        return error
    except FOREIGN as error:
        return translate(error, "ask Keystone about the token", "Keystone")
    rules = getattr(known, "application_credential_access_rules", None)
    if rules is None:
        return CloudError(
            "SERVER_ERROR",
            f"{service} does not accept the token of the request (HTTP 401), although Keystone "
            "does.",
            remedy=f"Check [keystone_authtoken] in the configuration of {service}.",
            http_status=failure.http_status,
            service=service,
            detail="HTTP 401, although Keystone accepts the token",
        )
    kind = _type_of(known.service_catalog.catalog, url, service_type)
    rule = f"service: {kind}, method: {method.upper()}, path: {_as_in_rules(url)}"
    return CloudError(
        "FORBIDDEN",
        f"No access rule of the application credential allows this request to {service}; the rule "
        f"would be: {rule}.",
        remedy="Make another application credential, with this rule or without access rules. If "
        f"it has the rule, set service_type in [keystone_authtoken] of {service}.",
        http_status=failure.http_status,
        service=service,
    )


def _type_of(catalog: Iterable[Mapping[str, Any]], url: str, service_type: str) -> str:
    """Return the type by which the catalog has the service to which a URL leads. ``service_type``:
    the one by which it was looked up, which may be an alias."""
    found = [
        str(entry["type"])
        for entry in catalog
        for endpoint in entry["endpoints"]
        if url.startswith(endpoint["url"].rstrip("/"))
    ]
    return found[0] if found and service_type not in found else service_type


def _as_in_rules(url: str) -> str:
    """Return the path of a URL as access rules are written: with * for each id and name."""
    parts = urlsplit(url).path.split("/")
    for place, part in enumerate(parts):
        if _ID.fullmatch(part) or (part and place and parts[place - 1] in _NAMED):
            parts[place] = "*"
    return "/".join(parts)
