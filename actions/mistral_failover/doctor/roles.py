# SPDX-License-Identifier: Apache-2.0
"""The role without which nobody fails anything over: see ``docs/authentication.md``."""

from __future__ import annotations

from collections.abc import Iterable

ROLE = "member"
"""What every verb of a failover needs; who has less may look, and is refused at the first stop,
detach, attach or PATCH."""


def lacking(roles: Iterable[str]) -> bool:
    """Whether these roles, as Keystone tells them of a token with those that they imply, are not
    enough. Policies compare names without their case."""
    return ROLE not in {role.lower() for role in roles}


def listed(roles: Iterable[str]) -> str:
    """Roles in words."""
    return ", ".join(sorted(roles)) or "none"
