# SPDX-License-Identifier: Apache-2.0
"""Checks of the caller's rights: whose they are, how long they last, what they allow."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from mistral_failover.cloud import access_rules
from mistral_failover.cloud.errors import translated
from mistral_failover.doctor.checks import Examination, Finding, error, ok, warn
from mistral_failover.resources.offered import asked
from mistral_failover.store import groups

SOON = 900.0
"""Seconds before its expiry from which a token is short: a failover may last that long."""


def token(examination: Examination) -> Iterable[Finding]:
    """Check the request's rights, when they expire, and whether they are sufficient."""
    security = examination.request.context.security
    session = examination.cloud.session
    with translated("authenticate", "Keystone"):
        session.get_token()
        auth: Any = session.auth  # of Keystone's kinds, all of which have this
        access = auth.get_access(session)
    whose = _of(access, security)
    yield from _roles(examination, access)
    if not security.auth_token:
        yield ok(f"acts as {whose}, from the entry {examination.settings.cloud} of clouds.yaml")
        return
    trusted = ", through a trust" if security.trust_id or access.trust_scoped else ""
    if access.expires is None:
        yield ok(f"acts as {whose}{trusted}")
        return
    left = (access.expires - datetime.now(UTC)).total_seconds()
    sentence = f"acts as {whose}{trusted}; the token expires in {left / 60:.0f} min"
    if left < SOON:
        yield warn(
            sentence,
            "The sweep continues a failover whose token expires; get a new token for your own "
            "commands.",
        )
    else:
        yield ok(sentence)


def _roles(examination: Examination, access: Any) -> Iterable[Finding]:
    """Check whether the roles allow a failover; for a token whose roles are hidden, see the
    trusts."""
    roles = access.role_names
    if not roles or not lacking(roles):
        return
    if not examination.request.context.security.auth_token:
        remedy = (
            f"Put a credential with the role {ROLE} into the entry {examination.settings.cloud} of "
            f"clouds.yaml: openstack application credential create failover --role {ROLE}"
        )
    elif access.trust_scoped:
        remedy = f"Give the user the role {ROLE}, then have the trust created again: see trusts."
    else:
        remedy = (
            f"Ask an administrator of the cloud: openstack role add --user {access.user_id} "
            f"--project {examination.request.project_id} {ROLE}"
        )
    yield error(
        f"the caller may read but not act: its roles ({listed(roles)}) do not include {ROLE}, so "
        "each stop, detach, attach and PATCH of a failover would be FORBIDDEN",
        remedy,
    )


def services(examination: Examination) -> Iterable[Finding]:
    """Check that each service that the project's groups use shows the caller what it has."""
    definitions = examination.reading(groups.used_definitions)
    for each in asked(examination.cloud, definitions):
        where = f" at {each.place}" if each.place else ""
        problem = each.error
        if problem is None:
            yield ok(f"{each.service} answers{where}")
            continue
        remedy = problem.remedy
        if problem.code == "FORBIDDEN":
            remedy = f"Give the user (of the trust) a role that may read them, usually {ROLE}."
        yield error(f"{each.service}{where}: {problem.message} [{problem.code}]", remedy)
    for rule in access_rules.lacking(examination.cloud):
        yield warn(
            f"the application credential lacks an access rule: {rule}",
            "If a group needs it, make another credential, with the rules that the option "
            "--print-access-rules of the server prints.",
        )


def _of(access: Any, security: Any) -> str:
    """Return the user, as far as it is known, without anything secret."""
    try:
        user = access.username
    except (AttributeError, KeyError):
        user = None
    user = user or security.user_name or "a user whose name Keystone does not show"
    try:
        roles = ", ".join(access.role_names)
    except (AttributeError, KeyError):
        roles = ""
    return f"{user} ({roles})" if roles else str(user)


ROLE = "member"
"""The role for every operation of a failover. A user with less may look, and is refused at the
first stop, detach, attach or PATCH."""


def lacking(roles: Iterable[str]) -> bool:
    """Return whether these roles are not sufficient; Keystone lists implied roles too. Policies
    ignore the case of names."""
    return ROLE not in {role.lower() for role in roles}


def listed(roles: Iterable[str]) -> str:
    """Return roles in words."""
    return ", ".join(sorted(roles)) or "none"
