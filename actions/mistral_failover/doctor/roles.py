# SPDX-License-Identifier: Apache-2.0
"""The role that every failover needs: see ``docs/authentication.md``."""

from __future__ import annotations

from collections.abc import Iterable

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
