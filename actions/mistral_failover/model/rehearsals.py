# SPDX-License-Identifier: Apache-2.0
"""Rehearsals: what a failover would do on the standby, done on copies of the volumes.

In a group file::

    rehearsal:
      every: 7d                    # or hours, as in 36h: it begins by itself
      between: 02:00-05:00         # in UTC; default: at any time of day
      members: each                # in turn; default: chosen, the one that a failover would choose
      limit: 1800                  # seconds in all, without the cleanup; default 3600
      checks:                      # commands of the member's agent, in this order
        - newest-row               # or, in full:
        - {command: amcheck, exit_code: 0, role: active, arguments: {depth: full}}

``model.rehearsal_goal`` makes a goal of it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
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
AGAIN = 3600.0
"""Seconds until one that could not begin, or was ended, is tried again."""
EACH = "each"
"""The value of ``members`` by which each member has its turn."""
_LONGEST = 200
_DAY = 86400.0
_SPREAD = 0.75  # of the window: what waits for another one needs time, too
_EARLY = 0.1  # of the interval: else each one would begin a little later than the last one


class RehearsalOutcome(StrEnum):
    """What a rehearsal came to. ENDED: a failover, an operator or the limit ended it, so it says
    nothing about the standby."""

    RUNNING = "RUNNING"
    PASSED = "PASSED"
    FAILED = "FAILED"
    ENDED = "ENDED"


@dataclass(frozen=True)
class Place:
    """Where a step of a rehearsal is carried out. ``member``: None: on none; ``role``: that of the
    application or the check, None: it is of no single role."""

    member: str | None = None
    role: str | None = None


@dataclass(frozen=True)
class RehearsalCheck:
    """A command that must end with ``exit_code`` on the copy. ``role``: of the member that runs it;
    None: the first that moves."""

    command: str
    exit_code: int = 0
    role: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RehearsalSchedule:
    """When rehearsals begin by themselves: ``every`` so many seconds, in a daily window that begins
    ``after`` seconds of a day of UTC and has ``length`` seconds. ``words``: as in the file."""

    every: float
    after: float
    length: float
    words: str

    def is_due(self, group_id: str, now: float, last: float | None) -> bool:
        """Return whether the next rehearsal of a group is to begin; ``last``: when the last one
        that passed or failed began. Groups with the same window are spread over it."""
        if last is not None and now - last < self.every * (1 - _EARLY):
            return False
        into = (now - self.after) % _DAY
        return self.length * _SPREAD * _fraction(group_id) <= into < self.length

    def missed_since(self, now: float, last: float, turns: int = 1) -> float | None:
        """Return since when a rehearsal is missing; None: none is. Each day has a window, so one
        that has not begun a day later was missed. ``turns``: how many are rehearsed in turn."""
        wanted = last + turns * self.every
        return wanted if now >= wanted + turns * _DAY else None


def _fraction(group_id: str) -> float:
    """Return a number from 0 to below 1, always the same for a group."""
    return int.from_bytes(hashlib.sha256(group_id.encode()).digest()[:4], "big") / 2**32


@dataclass(frozen=True)
class RehearsalSpec:
    """What a group file says of rehearsals. ``limit``: seconds; ``schedule``: None: they begin only
    when someone asks for one; ``each``: a rehearsal that names no member is that of the member
    whose turn it is, instead of the one that a failover would choose."""

    checks: tuple[RehearsalCheck, ...] = ()
    limit: float = DEFAULT_LIMIT
    schedule: RehearsalSchedule | None = None
    each: bool = False


def read_rehearsal(given: Mapping[str, Any], roles: Sequence[str]) -> RehearsalSpec:
    """Read ``rehearsal`` of a group file, whose grammar was checked. Raises InvalidDocument for a
    role that the group does not have, and for a window without an interval."""
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
    limit = float(given.get("limit", DEFAULT_LIMIT))
    return RehearsalSpec(tuple(checks), limit, _schedule(given), given.get("members") == EACH)


def _schedule(given: Mapping[str, Any]) -> RehearsalSchedule | None:
    every, between = given.get("every"), given.get("between")
    if every is None:
        if between is not None:
            raise InvalidDocument(
                "rehearsal.between",
                "without every, no rehearsal begins by itself",
                'Add how often, as in every: 7d; or remove "between".',
            )
        return None
    seconds = int(every[:-1]) * (_DAY if every.endswith("d") else 3600.0)
    begins, ends = 0.0, _DAY
    if between is not None:
        hours = [int(each) for each in re.findall(r"[0-9]+", between)]
        begins, ends = hours[0] * 3600.0 + hours[1] * 60.0, hours[2] * 3600.0 + hours[3] * 60.0
    length = (ends - begins) % _DAY or _DAY
    words = f"every {every}" + (f", between {between} UTC" if between is not None else "")
    return RehearsalSchedule(seconds, begins, length, words)


def judged_roles(
    outcome: RehearsalOutcome, roles: Mapping[str, str], steps: Iterable[Place]
) -> dict[str, str]:
    """Return of which roles a rehearsal says something, each with its member: all, or none if it
    was ended. ``steps``: those that failed; if they are of certain roles or members, it failed for
    these, and says nothing of the others."""
    if outcome not in (RehearsalOutcome.PASSED, RehearsalOutcome.FAILED):
        return {}
    failed = {
        role: member
        for role, member in roles.items()
        for step in steps
        if step.member == member and step.role in (None, role)
    }
    return failed or dict(roles)


def role_words(roles: Mapping[str, str]) -> str:
    """Return in words which member takes which role."""
    return ", ".join(f"{role} on {member}" for role, member in sorted(roles.items()))


def group_name(group: str, rehearsal_id: str) -> str:
    """Return the name of the group in which a rehearsal of a group is carried out."""
    return f"{group[:_LONGEST]} rehearsal {rehearsal_id}"


def thing_name(rehearsal_id: str, volume_id: str) -> str:
    """Return the name of the snapshot and of the copy of a volume, which only they have."""
    return f"failover-rehearsal-{rehearsal_id}-{volume_id}"
