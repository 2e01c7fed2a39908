# SPDX-License-Identifier: Apache-2.0
"""Checks of the trusts through which alarms and cron triggers act as the caller.

Keystone lists the trusts that a user created, but not their purpose. So the list can prove that the
path of an alarm is broken; only a test proves that it works.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from oslo_utils import timeutils

from mistral_failover.cloud.errors import CloudError, translated
from mistral_failover.cloud.url_paths import url_path
from mistral_failover.doctor.checks import Examination, Finding, error, ok, warn
from mistral_failover.doctor.rights import ROLE, lacking, listed

MOST = 20
"""Trusts whose roles are checked; Keystone shows them for one trust at a time."""
SOON = 7 * 86400.0
"""Seconds before its expiry from which a trust is short: an alarm may come at any time."""
REHEARSE = (
    "Test the path of each alarm: openstack stack resource signal STACK RESOURCE --data BODY; see "
    "docs/authentication.md, When rights end."
)
REMEDY = (
    f"As a user with the role {ROLE}, create the trust again: update the stack, or create the "
    f"alarm or the cron trigger again. {REHEARSE}"
)
_PATH = "/OS-TRUST/trusts"
_KEYSTONE = {
    "service_type": "identity",
    "interface": "public",
    "min_version": "3",
    "max_version": "3.latest",
}


def trusts(examination: Examination) -> Iterable[Finding]:
    """Check that the trusts of alarms and cron triggers exist, last, and pass on what a failover
    needs."""
    security = examination.request.context.security
    if not security.auth_token:
        return  # where requests bring no token, nothing acts by a trust
    auth: Any = examination.cloud.session.auth  # of a token, so Keystone's answer is known already
    access = auth.get_access(examination.cloud.session)
    if security.trust_id or access.trust_scoped or not access.role_names:
        # A token of which Keystone does not tell the roles is a trust's: see cloud.session.
        yield from _own(examination, security.trust_id, access)
        return
    try:
        given = _given(examination, access.user_id)
    except CloudError as problem:
        if problem.code != "FORBIDDEN":
            raise
        yield warn(
            "Keystone does not list trusts for this token, as for any application credential",
            REHEARSE,
        )
        return
    yield from _told(examination, given)


def _own(examination: Examination, trust: str | None, access: Any) -> Iterable[Finding]:
    """Check the trust through which the request itself came."""
    roles = access.role_names or (_roles(examination, trust) if trust else None)
    if roles is None:
        yield warn("Keystone does not show the roles of this request's trust", REHEARSE)
    elif lacking(roles):
        yield error(
            f"this request came through a trust that passes on only {listed(roles)}", REMEDY
        )
    else:
        yield ok(f"this request came through a trust that passes on {listed(roles)}")


def _told(examination: Examination, given: list[Mapping[str, Any]]) -> Iterable[Finding]:
    now = datetime.now(UTC)
    left = {str(each["id"]): _left(each.get("expires_at"), now) for each in given}
    lasting = [trust for trust, seconds in left.items() if seconds is None or seconds > 0]
    if not lasting:
        yield warn(
            "the caller has created no trust in this project: neither Heat's alarms nor cron "
            "triggers can act for this user",
            f"That is fine if another user last updated the stacks. {REHEARSE}",
        )
        return
    short = [seconds for seconds in left.values() if seconds is not None and 0 < seconds < SOON]
    if short:
        yield warn(
            f"{len(short)} of the trusts that the caller created here expire soon, the first in "
            f"{min(short) / 3600:.0f} h",
            REMEDY,
        )
    poor = [roles for trust in lasting[:MOST] if lacking(roles := _roles(examination, trust))]
    if poor:
        yield warn(
            f"{len(poor)} of the trusts that the caller created here pass on too few roles "
            f"({listed(poor[0])}): an alarm that comes through one of them cannot move anything",
            REMEDY,
        )
    if not short and not poor:
        yield ok(
            f"the caller created {len(lasting)} trusts here, which pass on {ROLE}; only a test "
            "shows whether those of the stacks are among them (docs/authentication.md)"
        )


def _given(examination: Examination, user: str) -> list[Mapping[str, Any]]:
    """Return the trusts that a user created in the project of the request. Raises CloudError."""
    query = urlencode({"trustor_user_id": user})
    found = _asked(examination, f"{_PATH}?{query}", "list the trusts of the caller")
    project = examination.request.project_id
    return [each for each in found["trusts"] if each.get("project_id") == project]


def _roles(examination: Examination, trust: str) -> list[str]:
    """Return the names of the roles that a trust passes on. Raises CloudError."""
    found = _asked(examination, _PATH + url_path(trust), "read a trust of the caller")
    return [str(role["name"]) for role in found["trust"].get("roles", ())]


def _asked(examination: Examination, path: str, doing: str) -> Any:
    """Return Keystone's answer without logging it, because it names trusts."""
    with translated(doing):
        return examination.cloud.session.get(path, endpoint_filter=_KEYSTONE, log=False).json()


def _left(end: Any, now: datetime) -> float | None:
    """Return the seconds until a trust expires; None: never."""
    return (timeutils.parse_isotime(str(end)) - now).total_seconds() if end else None
