# SPDX-License-Identifier: Apache-2.0
"""A server's credential: the entry of clouds.yaml, and its project."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mistral_failover import private_files
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import NO_RIGHTS, CloudError, translated
from mistral_failover.cloud.session import entry_of, session_for
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.model.documents import load_json
from mistral_failover.settings import Settings

LOG = logging.getLogger(__name__)
_FILE = "project.json"
_SECRET = ("password", "secret", "token", "passcode")
_PAUSE = 2.0
_CALL = 10.0  # seconds of one call


@dataclass(frozen=True)
class Credential:
    """What Keystone reports about the credential. ``application``: it is an application credential,
    which can be revoked by itself."""

    project: str
    user: str
    roles: frozenset[str]
    application: bool


def cloud_of(name: str) -> tuple[Cloud, Credential]:
    """Return the cloud of an entry, and what Keystone reports about the credential. Raises
    CloudError; CREDENTIAL_REFUSED if Keystone does not (or no longer) know it."""
    settings = Settings(cloud=name, http_timeout=_CALL)
    session = session_for(None, guard=Unguarded(_CALL), settings=settings)
    auth: Any = session.auth
    try:
        with translated("authenticate", "Keystone"):
            access = auth.get_access(session)
    except CloudError as error:
        if error.code in NO_RIGHTS:
            raise _refused(name) from None
        raise
    if not access.project_id:
        raise CloudError(
            "NO_PROJECT",
            f"The entry {name} of clouds.yaml belongs to no project.",
            remedy="Give it project_name, or use an application credential.",
        )
    said = Credential(
        project=access.project_id,
        user=access.username or access.user_id,
        roles=frozenset(access.role_names),
        application=access.application_credential_id is not None,
    )
    return Cloud(session, settings), said


def _refused(name: str) -> CloudError:
    return CloudError(
        "CREDENTIAL_REFUSED",
        f"Keystone refuses the credential of the entry {name} of clouds.yaml.",
        remedy=(
            "It ended with its user, or with a role of the user. Create a new one: openstack "
            "application credential create failover --role member"
        ),
    )


def project_of(name: str, folder: Path, pause: Callable[[float], object] = time.sleep) -> str:
    """Return the project of an entry, from Keystone. If Keystone is not reachable, use the project
    it reported before: a server takes alarms also while the control plane is down.

    Raises CloudError.
    """
    file, key = folder / _FILE, _key(name)
    try:
        project = _asked(name, pause)
    except CloudError as error:
        known = _remembered(file, key) if error.retryable else None
        if known is None:
            raise
        LOG.warning("Keystone is not reachable, continuing with the known project: %s", error)
        return known
    private_files.write(file, json.dumps({"credential": key, "project": project}) + "\n")
    return project


def _asked(name: str, pause: Callable[[float], object]) -> str:
    for wait in (_PAUSE, _PAUSE, None):
        try:
            return cloud_of(name)[1].project
        except CloudError as error:
            if wait is None or not error.retryable:
                raise
            pause(wait)
    raise AssertionError("unreachable: the last attempt returns or raises")


def _remembered(file: Path, key: str) -> str | None:
    try:
        known = load_json(file.read_bytes(), "file")
        return str(known["project"]) if known["credential"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _key(name: str) -> str:
    """Identify the credential, without its secret."""
    auth = entry_of(name).config.get("auth", {})
    said = {k: v for k, v in auth.items() if not any(word in k for word in _SECRET)}
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()
