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

import functools
import hashlib
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from keystoneauth1 import access, plugin
from keystoneauth1.identity.access import AccessInfoPlugin
from openstack import config as clouds
from openstack.config import loader
from openstack.config.cloud_region import CloudRegion
from openstack.exceptions import ConfigException

from mistral_failover.cloud.certificates import bundle, check, version_of
from mistral_failover.cloud.errors import (
    NO_RIGHTS,
    CloudError,
)
from mistral_failover.cloud.tokens import asked, expired, keystone_of, of_another_project
from mistral_failover.cloud.transport import Guard, GuardedSession, Places, Unguarded
from mistral_failover.settings import Settings

EXPIRES_SOON = 60  # seconds before its expiry from which a validated token is validated again
_REMEMBERED = 256  # maximum number of tokens and cloud entries of one process


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
    if not proven.auth_ref.project_id:
        raise CloudError(
            "FORBIDDEN",
            "The token of the request belongs to no project: it is for the system, for a domain, "
            "or for nothing.",
            remedy="Call with a token that is scoped to the project that owns the group.",
        )
    if said and said != proven.auth_ref.project_id:
        raise of_another_project(said, proven.auth_ref.project_id)
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
    auth_url = keystone_of(auth_uri)
    insecure = bool(getattr(security, "insecure", None))
    verify = _verified(False if insecure else getattr(security, "auth_cacert", None), settings)
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
        raise expired()
    return AccessInfoPlugin(found, auth_url=auth_url)


def _session_of_entry(name: str, guard: Guard, settings: Settings) -> GuardedSession:
    entry = _entry(name)
    region = entry.region
    return GuardedSession(
        guard=guard,
        timeout=settings.http_timeout,
        auth=_entries.get(entry.key, make=region.get_auth, usable=lambda _: True),
        verify=_verified(entry.verify, settings),
        cert=entry.cert,
        region_name=region.region_name or None,
        places=entry.places,
    )


def _verified(named: bool | str | None, settings: Settings) -> bool | str:
    """Return by which file the certificates of a cloud are verified. ``named``: by the request or
    its entry of clouds.yaml. False: by none; True: by what the system trusts.

    Raises `CloudError` CONFIG for a file that is no file of certificates: requests would raise
    what no caller expects.
    """
    if named is False:
        return False
    chosen = bundle() if named in (None, True) else named
    if named in (None, True) and settings.cacert:
        chosen = settings.cacert
    if isinstance(chosen, str):
        check(chosen)
    return chosen


def entry_of(name: str) -> CloudRegion:
    """Return an entry of clouds.yaml. Raises `CloudError` CONFIG."""
    return _entry(name).region


@dataclass(frozen=True)
class _Entry:
    """An entry of clouds.yaml, and what is derived from it: where it places services, and how
    certificates are verified. ``key``: of its authentication."""

    region: CloudRegion
    places: Places
    verify: bool | str | None
    cert: Any
    key: str


def _entry(name: str) -> _Entry:
    """Return an entry of clouds.yaml. The files are parsed again only once one of them, or the
    environment, has changed: parsing takes longer than a request to the cloud. And openstacksdk
    copies all types of services for each question about one. Raises `CloudError` CONFIG."""
    own = [os.environ.get(f"OS_CLIENT_{kind}_FILE") for kind in ("CONFIG", "SECURE", "VENDOR")]
    files = (*loader.CONFIG_FILES, *loader.SECURE_FILES, *loader.VENDOR_FILES, *filter(None, own))
    environment = {key: value for key, value in os.environ.items() if key.startswith("OS_")}
    now = [environment, *((file, version_of(file)) for file in files)]
    then, found = _read.get(name, (None, None))
    if found is None or now != then:
        try:
            region = clouds.OpenStackConfig().get_one(cloud=name)
        except ConfigException as error:
            words = f"Could not read the entry {name} of clouds.yaml: {error}"
            raise CloudError("CONFIG", words) from None
        places = Places(functools.cache(region.get_interface), functools.cache(region.get_endpoint))
        # The key is the content, not the name: the file may change while this process runs.
        key = _key(name, json.dumps(region.config, sort_keys=True, default=str))
        found = _Entry(region, places, *region.get_requests_verify_args(), key=key)
        _read[name] = now, found
    return found


_read: dict[str, tuple[list[Any], _Entry]] = {}
"""The entries that were read, and of what."""


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
