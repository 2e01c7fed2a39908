# SPDX-License-Identifier: Apache-2.0
"""Check whether everything that a failover needs is there, one check after the other.

A check only reads, and reports what it found. An exception of a check is a finding too, so no fault
hides the others; all checks together end in time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, wraps
from shlex import quote
from typing import Literal, TypeVar

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.stacks import stack_shown
from mistral_failover.groups.refresh_members import another_stack
from mistral_failover.groups.snapshot import GroupSnapshot, group_snapshot
from mistral_failover.mistral.api import Mistral, mistral_of
from mistral_failover.model import remedies
from mistral_failover.model.remedies import STACK_GONE, Need
from mistral_failover.runtime.deadlines import DeadlineGuard
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups
from mistral_failover.store.transaction import ProjectTransaction

LIMIT = 40.0
"""Seconds for all checks: Mistral gives an action that is waited for 60 by default."""
CALL = 5.0
"""Seconds for one call to Mistral."""
GROUPS = 20
"""Groups that are checked if none is named."""

Level = Literal["ok", "warn", "error"]
T = TypeVar("T")


@dataclass(frozen=True)
class Finding:
    """The result of a check. ``warn``: a failover may work, or will do less than it could;
    ``error``: it will not work. ``remedy``: what to do, empty if all is well. ``group``: None if it
    concerns the whole project."""

    check: str
    level: Level
    sentence: str
    remedy: str = ""
    group: str | None = None


class Examination:
    """What the checks of one run share."""

    def __init__(self, request: Request, limit: float = LIMIT) -> None:
        """``limit``: seconds for all checks."""
        self.request = request
        self.settings = request.runtime.settings
        self.deadline = time.monotonic() + limit
        self.without_mistral = False
        """Mistral was asked and did not answer: no further check asks it."""

    @property
    def left(self) -> float:
        """Seconds until the checks end."""
        return max(0.0, self.deadline - time.monotonic())

    @property
    def guard(self) -> DeadlineGuard:
        """The guard for every call to a service."""
        return DeadlineGuard(self.deadline, self.settings.http_timeout)

    @cached_property
    def cloud(self) -> Cloud:
        """Return the cloud with the caller's rights. Raises CloudError."""
        return self.request.cloud(self.guard)

    @cached_property
    def mistral(self) -> Mistral | None:
        """Return Mistral with the caller's rights; None if its address is unknown. Raises
        CloudError."""
        return mistral_of(self.request, DeadlineGuard(self.deadline, CALL))

    def reading(self, function: Callable[[ProjectTransaction], T]) -> T:
        """Read the state store."""
        return self.request.store.reading(function)


@dataclass(frozen=True)
class EndedStack:
    """A group has no stack any more, or not yet: a ``sentence``, and what helps."""

    sentence: str
    remedy: str


@dataclass(frozen=True)
class ExaminedGroup:
    """A group that is checked."""

    examination: Examination
    snapshot: GroupSnapshot

    @property
    def name(self) -> str:
        """The group's name."""
        return self.snapshot.group.name

    def advised(self, *needed: Need) -> str:
        """Return the commands of remedies, in the order in which they are typed."""
        return remedies.sentence(needed, self.name)

    @cached_property
    def ended_stack(self) -> EndedStack | None:
        """What became of its stack, if that does not exist, or was deleted and made again. Raises
        CloudError."""
        name, state = self.snapshot.group.stack, self.snapshot.state
        if name is None or self.out_of_service:
            return None
        try:
            found = str(stack_shown(self.examination.cloud, name).id)
        except CloudError as problem:
            if problem.code != "NOT_FOUND":
                raise
            gone = f"stack {name} does not exist"
            if state.current_traversal is not None:
                return EndedStack(gone, self.advised(*STACK_GONE))
            return EndedStack(
                gone,
                f"Make it, then: {self.advised(remedies.need('ACTIVATE'))}. Or correct its name in "
                f"the group file, then: failover group update FILE --name {quote(self.name)}",
            )
        if state.stack_name != name or state.stack_id in (None, found):
            return None
        again = another_stack(name, str(state.stack_id), found)
        return EndedStack(again, self.advised(remedies.need("ADOPT_STACK")))

    @property
    def out_of_service(self) -> bool:
        """Return whether it was taken out of service: then its stack may be gone, and nothing is
        missing."""
        return self.snapshot.state.current_traversal is not None and not self.snapshot.in_service


Check = Callable[[Examination], Iterable[Finding]]
"""A check that concerns the whole project."""
GroupCheck = Callable[[ExaminedGroup], Iterable[Finding]]
"""A check of one group."""


def in_stack(check: GroupCheck) -> GroupCheck:
    """Return a check of what a group has in its stack, which is left out if there is none any
    more: what it would advise leads nowhere, and the check of the stack says what does."""

    @wraps(check)
    def checked(subject: ExaminedGroup) -> Iterable[Finding]:
        return () if subject.ended_stack else check(subject)

    return checked


def examine(
    examination: Examination,
    group: str | None,
    checks: Sequence[tuple[str, Check]],
    group_checks: Sequence[tuple[str, GroupCheck]],
) -> list[Finding]:
    """Run the checks; those of groups for one group or for the project's first groups."""
    found: list[Finding] = []
    for name, check in checks:
        found += carried_out(examination, name, None, partial(check, examination))
    found += carried_out(examination, "groups", None, partial(_groups, examination, group))
    for each in _names(examination, group):
        known: list[ExaminedGroup] = []
        found += carried_out(examination, "group", each, partial(_known, examination, each, known))
        for subject in known:
            for name, group_check in group_checks:
                found += carried_out(examination, name, each, partial(group_check, subject))
    return _once(found)


def carried_out(
    examination: Examination, name: str, group: str | None, check: Callable[[], Iterable[Finding]]
) -> list[Finding]:
    """Return the findings of a check, or its exception as a finding, with its name and group."""
    if not examination.left:
        late = f"not checked: the checks took longer than {LIMIT:.0f} s"
        return [Finding(name, "warn", late, "Run it again for one group.", group)]
    found: list[Finding] = []
    try:
        for each in check():
            found.append(Finding(name, each.level, each.sentence, each.remedy, group))
    except Exception as error:  # what is wrong is what is looked for
        facts = examination.request.caught(error, f"checking {name}")
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


def _names(examination: Examination, group: str | None) -> list[str]:
    if group is not None:
        return [group]
    try:
        return examination.reading(groups.names)[:GROUPS]
    except Exception as error:  # the checks of the project have told
        examination.request.caught(error, "listing the groups to check")
        return []


def _groups(examination: Examination, group: str | None) -> Iterable[Finding]:
    if group is not None:
        return
    names = examination.reading(groups.names)
    if not names:
        yield warn("the project has no group", "failover group create FILE")
    elif len(names) > GROUPS:
        yield warn(
            f"only the first {GROUPS} of {len(names)} groups are checked", "failover doctor GROUP"
        )


def _known(examination: Examination, group: str, known: list[ExaminedGroup]) -> Iterable[Finding]:
    known.append(ExaminedGroup(examination, group_snapshot(examination.request, group)))
    return ()


def _once(found: Iterable[Finding]) -> list[Finding]:
    """Report once what several checks met, such as a service that does not answer."""
    told: set[tuple[str | None, str]] = set()
    kept = []
    for each in found:
        if each.level == "error" and (each.group, each.sentence) in told:
            continue
        told.add((each.group, each.sentence))
        kept.append(each)
    return kept
