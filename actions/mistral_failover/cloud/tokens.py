# SPDX-License-Identifier: Apache-2.0
"""Find out the project and the catalog of a request's token, or why Keystone refuses it.

A token is used as it is. A trust-scoped one must not be scoped again (Keystone answers 403), and,
unless its roles are an administrator's, it may not even validate itself (403, since Keystone takes
the trustee for the caller and the trustor for the subject; measured on Keystone 30). So this tries
three ways in order; ``docs/authentication.md`` explains why each may be trusted:

1. what Mistral's API learned when it validated the token, which comes with the request;
2. the token's own validation;
3. the catalog, which Keystone gives to any token that it still honours, and the project that the
   request names, which Keystone shows to an ordinary token of that project only.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from keystoneauth1 import access
from keystoneauth1.session import Session

from mistral_failover.cloud.errors import FOREIGN, CloudError, translate
from mistral_failover.cloud.url_paths import url_path

UNTOLD = 300.0
"""Seconds for which a token counts as valid if Keystone did not tell its expiry."""
NO_RIGHTS = frozenset({"TOKEN_EXPIRED", "TRUST_GONE"})
"""Error codes of requests that Keystone no longer accepts, whatever they ask for."""
_SPARE = 60.0


def carried(security: Any) -> access.AccessInfo | None:
    """Return what Mistral's API learned about the token, if the request carries it; a cron trigger
    carries nothing.

    Mistral calls it ``service_catalog``; it is the whole body of Keystone's answer.
    """
    body = getattr(security, "service_catalog", None)
    if not isinstance(body, Mapping):
        return None
    if not {"catalog", "project", "expires_at"} <= body.keys():
        return None
    return access.create(body={"token": dict(body)}, auth_token=security.auth_token)


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
        if failure.http_status not in (401, 403, 404):
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
        raise foreign(project_id, None) from None
    end = datetime.now(UTC) + timedelta(seconds=UNTOLD + _SPARE)
    body = {
        "methods": [],
        "user": {},
        "project": {"id": project_id},
        "catalog": catalog,
        "expires_at": end.isoformat(),
    }
    return access.create(body={"token": body}, auth_token=token)


def foreign(said: str, real: str | None) -> CloudError:
    """Return the error for a request that names one project and carries a token of another."""
    whose = f"project {real}" if real else "another one"
    return CloudError(
        "FORBIDDEN",
        f"The request names project {said}, but its token belongs to {whose}.",
        remedy="Call with a token of the project that owns the group.",
    )


def _get(session: Session, url: str, token: str) -> Any:
    """Ask with a token about itself; neither the token nor the answer is logged."""
    return session.get(
        url,
        headers={"X-Auth-Token": token, "X-Subject-Token": token},
        authenticated=False,
        log=False,
    )
