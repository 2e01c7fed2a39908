# SPDX-License-Identifier: Apache-2.0
"""Whether everything that a failover will need is there: the checks, one after the other.

A check looks, touches nothing, and tells what it found. What it raises is a finding as well, so
nothing that is wrong keeps the others from being looked at; and all together end in time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, TypeVar

from mistral_failover.cloud.clients import Cloud
from mistral_failover.groups.snapshot import GroupSnapshot, group_snapshot
from mistral_failover.mistral.api import Mistral, mistral_of
from mistral_failover.runtime.deadlines import Until
from mistral_failover.runtime.errors import describe
from mistral_failover.runtime.process import Request
from mistral_failover.store import groups

LIMIT = 40.0
"""Seconds for all checks: Mistral gives an action that is waited for 60 by default."""
CALL = 5.0
"""Seconds for one call to Mistral."""
GROUPS = 20
"""Groups that are looked at where none is named."""

Level = Literal["ok", "warn", "error"]
T = TypeVar("T")


@dataclass(frozen=True)
class Finding:
    """What a check found. ``warn``: a failover may work, or will do less than it could; ``error``:
    it will not work. ``remedy``: what to do, empty where all is well. ``group``: None for what
    concerns the whole project."""

    check: str
    level: Level
    sentence: str
    remedy: str = ""
    group: str | None = None


class Look:
    """One look at everything: what the checks share."""

    def __init__(self, request: Request, limit: float = LIMIT) -> None:
        """``limit``: seconds for all checks."""
        self.request = request
        self.settings = request.runtime.settings
        self.deadline = time.monotonic() + limit
        self.without_mistral = False
        """It was asked and did not answer: nobody asks again."""

    @property
    def left(self) -> float:
        """Seconds until the checks end."""
        return max(0.0, self.deadline - time.monotonic())

    @property
    def guard(self) -> Until:
        """For every call to anything."""
        return Until(self.deadline, self.settings.http_timeout)

    @cached_property
    def cloud(self) -> Cloud:
        """The cloud with the caller's rights. Raises CloudError."""
        return self.request.cloud(self.guard)

    @cached_property
    def mistral(self) -> Mistral | None:
        """Mistral with the caller's rights; None where nobody says where it is. Raises
        CloudError."""
        return mistral_of(self.request, Until(self.deadline, CALL))

    def reading(self, function: Callable[[Any], T]) -> T:
        """Read the state store."""
        return self.request.runtime.database.reading(function)


@dataclass(frozen=True)
class Subject:
    """A group that is looked at."""

    look: Look
    snapshot: GroupSnapshot

    @property
    def name(self) -> str:
        """The group's name."""
        return self.snapshot.group.name

    @property
    def out_of_service(self) -> bool:
        """It was taken out of service, so its stack may be gone, and nobody misses anything."""
        return self.snapshot.state.current_traversal is not None and not self.snapshot.roles


Check = Callable[[Look], Iterable[Finding]]
"""A check of what concerns the whole project."""
GroupCheck = Callable[[Subject], Iterable[Finding]]
"""A check of one group."""


def examine(
    look: Look,
    group: str | None,
    checks: Sequence[tuple[str, Check]],
    group_checks: Sequence[tuple[str, GroupCheck]],
) -> list[Finding]:
    """Carry the checks out, those of groups for one group or for the project's first."""
    found: list[Finding] = []
    for name, check in checks:
        found += carried_out(look, name, None, partial(check, look))
    found += carried_out(look, "groups", None, partial(_groups, look, group))
    for each in _names(look, group):
        known: list[Subject] = []
        found += carried_out(look, "group", each, partial(_known, look, each, known))
        for subject in known:
            for name, group_check in group_checks:
                found += carried_out(look, name, each, partial(group_check, subject))
    return _once(found)


def carried_out(
    look: Look, name: str, group: str | None, check: Callable[[], Iterable[Finding]]
) -> list[Finding]:
    """What a check finds, or what it raises, as findings of its name and group."""
    if not look.left:
        late = f"not looked at: the checks took longer than {LIMIT:.0f} s"
        return [Finding(name, "warn", late, "Run it again, for one group.", group)]
    found: list[Finding] = []
    try:
        for each in check():
            found.append(Finding(name, each.level, each.sentence, each.remedy, group))
    except Exception as error:  # noqa: BLE001 - what is wrong is what is looked for
        facts = describe(error)
        sentence = f"{facts['message'].rstrip('.')} [{facts['code']}]"
        found.append(Finding(name, "error", sentence, facts["remedy"], group))
    return found


def ok(sentence: str) -> Finding:
    """All is well."""
    return Finding("", "ok", sentence)


def warn(sentence: str, remedy: str) -> Finding:
    """A failover will do less than it could."""
    return Finding("", "warn", sentence, remedy)


def error(sentence: str, remedy: str) -> Finding:
    """A failover will not work."""
    return Finding("", "error", sentence, remedy)


def _names(look: Look, group: str | None) -> list[str]:
    if group is not None:
        return [group]
    try:
        project = look.request.project_id
        return look.reading(lambda tx: groups.names(tx, project))[:GROUPS]
    except Exception:  # noqa: BLE001 - the checks of the project have told
        return []


def _groups(look: Look, group: str | None) -> Iterable[Finding]:
    if group is not None:
        return
    names = look.reading(lambda tx: groups.names(tx, look.request.project_id))
    if not names:
        yield warn("the project has no group", "failover group create FILE")
    elif len(names) > GROUPS:
        yield warn(
            f"only the first {GROUPS} of {len(names)} groups are looked at", "failover doctor GROUP"
        )


def _known(look: Look, group: str, known: list[Subject]) -> Iterable[Finding]:
    known.append(Subject(look, group_snapshot(look.request, group)))
    return ()


def _once(found: Iterable[Finding]) -> list[Finding]:
    """What several checks met, say a service that does not answer, is told once."""
    told: set[tuple[str | None, str]] = set()
    kept = []
    for each in found:
        if each.level == "error" and (each.group, each.sentence) in told:
            continue
        told.add((each.group, each.sentence))
        kept.append(each)
    return kept
