# SPDX-License-Identifier: Apache-2.0
"""Sessions: the rights of a call, from a request's token or an entry of clouds.yaml, which
openstacksdk reads; nothing else of it is used.

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

import hashlib
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from keystoneauth1 import access, plugin
from keystoneauth1.identity.access import AccessInfoPlugin
from keystoneauth1.session import Session
from openstack import config as clouds
from openstack.config import loader
from openstack.config.cloud_region import CloudRegion
from openstack.exceptions import ConfigException

from mistral_failover.cloud.answers import why_foreign
from mistral_failover.cloud.errors import (
    FOREIGN,
    NO_RIGHTS,
    CloudError,
    refusal,
    translate,
)
from mistral_failover.cloud.transport import Guard, GuardedSession, Unguarded
from mistral_failover.cloud.url_paths import url_path
from mistral_failover.settings import Settings

EXPIRES_SOON = 60  # seconds before its expiry from which a validated token is validated again
_REMEMBERED = 256  # maximum number of tokens and cloud entries of one process
UNTOLD = 300.0
"""Seconds for which a token counts as valid if Keystone did not tell its expiry."""
_SPARE = 60.0


class _AuthenticationCache:
    """A small thread-safe store of authentications; the least recently used is dropped first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, plugin.BaseAuthPlugin] = OrderedDict()

    def get(
        self,
        key: str,
        make: Callable[[], Any],
        usable: Callable[[Any], bool],
    ) -> Any:
        """Return the usable entry of the key, or make it.

        Two threads may make the same entry at once: that is harmless, and no thread waits for HTTP
        here.
        """
        with self._lock:
            known = self._known.get(key)
            if known is not None and usable(known):
                self._known.move_to_end(key)
                return known
        made = make()
        with self._lock:
            self._known[key] = made
            self._known.move_to_end(key)
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return made

    def forget(self, key: str) -> None:
        """Drop the entry of the key."""
        with self._lock:
            self._known.pop(key, None)


# An authentication also remembers the services' versions, so each entry saves several calls.
_tokens = _AuthenticationCache()
_entries = _AuthenticationCache()


def session_for(security: Any, *, guard: Guard, settings: Settings) -> GuardedSession:
    """Make a session with the rights of a request.

    ``security`` has the attributes of mistral_lib's security context: ``auth_uri``, ``auth_token``,
    ``service_catalog``, ``project_id``, ``region_name``, ``insecure``, ``auth_cacert``,
    ``is_target``; missing ones count as None. Without a token the entry ``settings.cloud`` of
    clouds.yaml is used.

    Raises `CloudError` TOKEN_EXPIRED or TRUST_GONE when Keystone does not (or no longer) accept the
    token, FORBIDDEN when the token belongs to another project than the request says or the request
    is meant for another cloud, CONFIG when there is neither a token nor a usable entry, and what
    `translate` makes of other failures; `LeaseLost`.
    """
    refuse_other_clouds(security)
    if getattr(security, "auth_token", None):
        return _session_of_token(security, guard, settings)
    if settings.cloud:
        return _session_of_entry(settings.cloud, guard, settings)
    raise CloudError(
        "CONFIG",
        "The request carries no token, and no cloud is configured to act with instead.",
        remedy="Call with a token, or, for a Mistral whose authentication is off, set "
        "[failover] cloud to an entry of clouds.yaml.",
    )


def refuse_other_clouds(security: Any) -> None:
    """Refuse a request that names another cloud by Mistral's headers X-Target-...: the caller sets
    its project in a header, and no service has checked it.

    Raises `CloudError` FORBIDDEN.
    """
    if getattr(security, "is_target", None):
        raise CloudError(
            "FORBIDDEN",
            "The request names another cloud (X-Target-Auth-Uri), so its project is not verified.",
            remedy="Call without the headers X-Target-..., with a token of this cloud.",
        )


def why_refused(security: Any, settings: Settings) -> CloudError | None:
    """Ask Keystone whether it still accepts the token of a request; return why not, or None.

    Services cache a token's validity for minutes, and answer 503 rather than 401 for some tokens
    that Keystone refuses, so their own answers do not tell. None also if Keystone cannot be asked,
    and without a token.
    """
    if not getattr(security, "auth_token", None):
        return None
    guard = Unguarded(settings.http_timeout)
    try:
        session, auth_url, key = _for_token(security, guard, settings)
        asked(session, auth_url, security.auth_token, getattr(security, "project_id", None))
    except CloudError as error:
        if error.code not in NO_RIGHTS:
            return None
        _tokens.forget(key)
        return error
    return None


def _session_of_token(security: Any, guard: Guard, settings: Settings) -> GuardedSession:
    session, auth_url, key = _for_token(security, guard, settings)
    said = getattr(security, "project_id", None)
    session.auth = proven = _tokens.get(
        key,
        make=lambda: _prove(session, auth_url, security, said),
        usable=lambda known: not known.auth_ref.will_expire_soon(EXPIRES_SOON),
    )
    if said and said != proven.auth_ref.project_id:
        raise _foreign(said, proven.auth_ref.project_id)
    return session


def _for_token(security: Any, guard: Guard, settings: Settings) -> tuple[GuardedSession, str, str]:
    """Return a session without authentication yet, Keystone's URL, and the cache key of the
    token."""
    auth_uri = getattr(security, "auth_uri", None) or settings.auth_url
    if not auth_uri:
        raise CloudError(
            "CONFIG",
            "The request carries a token but no address of Keystone.",
            remedy=(
                "Set [keystone_authtoken] www_authenticate_uri in mistral.conf on every host with "
                "an engine, executor or API, or set [failover] auth_url."
            ),
        )
    auth_url = auth_uri.rstrip("/")
    if not auth_url.endswith("/v3"):
        auth_url += "/v3"
    verify: bool | str = getattr(security, "auth_cacert", None) or True
    if getattr(security, "insecure", None):
        verify = False
    session = GuardedSession(
        guard=guard,
        timeout=settings.http_timeout,
        verify=verify,
        region_name=getattr(security, "region_name", None),
    )
    return session, auth_url, _key(auth_url, security.auth_token, verify)


def _prove(
    session: GuardedSession, auth_url: str, security: Any, said: str | None
) -> AccessInfoPlugin:
    found = _carried(security) or asked(session, auth_url, security.auth_token, said)
    if found.will_expire_soon(0):
        raise _expired()
    return AccessInfoPlugin(found, auth_url=auth_url)


def _session_of_entry(name: str, guard: Guard, settings: Settings) -> GuardedSession:
    region = entry_of(name)
    verify, cert = region.get_requests_verify_args()
    # The key is the content, not the name: the file may change while this process runs.
    key = _key(name, json.dumps(region.config, sort_keys=True, default=str))
    return GuardedSession(
        guard=guard,
        timeout=settings.http_timeout,
        auth=_entries.get(key, make=region.get_auth, usable=lambda _: True),
        verify=True if verify is None else verify,
        cert=cert,
        region_name=region.region_name or None,
    )


def entry_of(name: str) -> CloudRegion:
    """Return an entry of clouds.yaml. The files are parsed again only once one of them, or the
    environment, has changed: parsing takes longer than a request to the cloud. Raises `CloudError`
    CONFIG."""
    own = [os.environ.get(f"OS_CLIENT_{kind}_FILE") for kind in ("CONFIG", "SECURE", "VENDOR")]
    files = (*loader.CONFIG_FILES, *loader.SECURE_FILES, *loader.VENDOR_FILES, *filter(None, own))
    environment = {key: value for key, value in os.environ.items() if key.startswith("OS_")}
    now = [environment, *((file, _version_of(file)) for file in files)]
    then, region = _read.get(name, (None, None))
    if region is None or now != then:
        try:
            region = clouds.OpenStackConfig().get_one(cloud=name)
        except ConfigException as error:
            words = f"Could not read the entry {name} of clouds.yaml: {error}"
            raise CloudError("CONFIG", words) from None
        _read[name] = now, region
    return region


_read: dict[str, tuple[list[Any], CloudRegion]] = {}
"""The entries that were read, and of what."""


def _version_of(file: str) -> tuple[int, int, int] | None:
    """Return what differs between two contents of a file; None if there is none."""
    try:
        found = os.stat(file)  # noqa: PTH116 - a name as openstacksdk has it
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _key(*parts: Any) -> str:
    """Hash the parts, so that no secret is stored as a key."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def _carried(security: Any) -> access.AccessInfo | None:
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
        if failure.transient or failure.http_status not in (401, 403, 404):
            raise failure from None
    else:
        return access.create(resp=answer, auth_token=token)
    catalog = _catalog(session, auth_url, token)
    return _told_in_parts(session, auth_url, token, project_id, catalog)


def _expired(status: int | None = None) -> CloudError:
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
        raise _expired(failure.http_status)
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
        raise _foreign(project_id, None) from None
    end = datetime.now(UTC) + timedelta(seconds=UNTOLD + _SPARE)
    body = {
        "methods": [],
        "user": {},
        "project": {"id": project_id},
        "catalog": catalog,
        "expires_at": end.isoformat(),
    }
    return access.create(body={"token": body}, auth_token=token)


def _foreign(said: str, real: str | None) -> CloudError:
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
        headers={"X-Auth-Token": token, "X-Subject-Token": token},
        authenticated=False,
        log=False,
    )
    if why_foreign(answer):
        raise refusal(answer, "ask Keystone about the token of the request", "Keystone")
    return answer
