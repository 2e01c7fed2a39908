# SPDX-License-Identifier: Apache-2.0
"""Rehearsals: what a failover would do on the standby, done on copies of the volumes.

In a group file::

    rehearsal:
      limit: 1800                  # seconds in all, without the cleanup; default 3600
      checks:                      # commands of the member's agent, in this order
        - newest-row               # or, in full:
        - {command: amcheck, exit_code: 0, role: active, arguments: {depth: full}}

``model.rehearsal_goal`` makes a goal of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.validation import did_you_mean

SNAPSHOTS = "data_snapshots"
COPY = "data_copy"
COPY_ATTACHMENT = "copy_attachment"
APPLICATION = "rehearsed_application"
CHECK = "rehearsed_check"
TYPES = frozenset({SNAPSHOTS, COPY, COPY_ATTACHMENT, APPLICATION, CHECK})
"""The types of which a rehearsal's goal consists. Only the engine may use them."""
DEFAULT_LIMIT = 3600.0
PATIENCE = 120.0
"""Seconds for which a rehearsal waits for a service that does not answer: it can be repeated."""
PRIORITY = -1000
"""Of a rehearsal among failovers: the last."""
SHOWN = 4096
"""Characters of a check's output that are kept."""
_LONGEST = 200


class RehearsalOutcome(StrEnum):
    """What a rehearsal came to. ENDED: a failover, an operator or the limit ended it, so it says
    nothing about the standby."""

    RUNNING = "RUNNING"
    PASSED = "PASSED"
    FAILED = "FAILED"
    ENDED = "ENDED"


@dataclass(frozen=True)
class RehearsalCheck:
    """A command that must end with ``exit_code`` on the copy. ``role``: of the member that runs it;
    None: the first that moves."""

    command: str
    exit_code: int = 0
    role: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RehearsalSpec:
    """What a group file says of rehearsals. ``limit``: seconds."""

    checks: tuple[RehearsalCheck, ...] = ()
    limit: float = DEFAULT_LIMIT


def read_rehearsal(given: Mapping[str, Any], roles: Sequence[str]) -> RehearsalSpec:
    """Read ``rehearsal`` of a group file, whose grammar was checked. Raises InvalidDocument for a
    role that the group does not have."""
    checks = []
    for number, said in enumerate(given.get("checks", ())):
        check: Mapping[str, Any] = {"command": said} if isinstance(said, str) else said
        role = check.get("role")
        if role is not None and role not in roles:
            raise InvalidDocument(
                f"rehearsal.checks[{number}].role",
                f'"{role}" is not a role of the group',
                did_you_mean(role, roles),
            )
        checks.append(
            RehearsalCheck(
                check["command"], check.get("exit_code", 0), role, check.get("arguments", {})
            )
        )
    return RehearsalSpec(tuple(checks), float(given.get("limit", DEFAULT_LIMIT)))


def group_name(group: str, rehearsal_id: str) -> str:
    """Return the name of the group in which a rehearsal of a group is carried out."""
    return f"{group[:_LONGEST]} rehearsal {rehearsal_id}"


def thing_name(rehearsal_id: str, volume_id: str) -> str:
    """Return the name of the snapshot and of the copy of a volume, which only they have."""
    return f"failover-rehearsal-{rehearsal_id}-{volume_id}"
