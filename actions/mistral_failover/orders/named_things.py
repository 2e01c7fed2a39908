# SPDX-License-Identifier: Apache-2.0
"""Find what a group file without a stack names, when the file is given.

What is found is stored with the definition, and nothing looks for it again until the file is given
again. A service that does not answer then refuses nothing that was found before and is named in the
same way.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.named import ProjectThings
from mistral_failover.model.group import Group, parse_group
from mistral_failover.model.named import Identity
from mistral_failover.resources.resolution import Problem, Resolution, problem_of, says_nothing
from mistral_failover.runtime.deadlines import DeadlineGuard
from mistral_failover.runtime.request import Request

LIMIT = 20.0
"""Seconds for all questions."""


@dataclass(frozen=True)
class FoundThings:
    """What is behind the names of a group file. ``identities``: by their place in the file.
    ``missing``: what is not there, or not only once, or could not be asked for. ``wrong`` and
    ``unchecked``: the same of what is named as before, so the group keeps what it has."""

    identities: Mapping[str, Identity] = field(default_factory=dict)
    missing: tuple[Problem, ...] = ()
    wrong: tuple[Problem, ...] = ()
    unchecked: tuple[Problem, ...] = ()

    def of(self, resolution: Resolution) -> Resolution:
        """Return a resolution with what was kept, and without what is said here already."""
        said = {each.path for each in (*self.missing, *self.wrong)}
        return replace(
            resolution,
            wrong=(*self.wrong, *(each for each in resolution.wrong if each.path not in said)),
            unchecked=(*self.unchecked, *resolution.unchecked),
        )


def find_named(request: Request, group: Group, known: Mapping[str, Any] | None) -> FoundThings:
    """Ask the cloud for everything that a group file without a stack names. ``known``: what is
    defined for the group now. Never raises CloudError."""
    if not group.named:
        return FoundThings()
    before, named_before = _before(group, known)
    guard = DeadlineGuard(time.monotonic() + LIMIT, request.runtime.settings.http_timeout)
    things = ProjectThings(request.cloud(guard))
    identities: dict[str, Identity] = {}
    missing: list[Problem] = []
    wrong: list[Problem] = []
    unchecked: list[Problem] = []
    for each in group.named:
        try:
            identities[each.path] = things.identity(each)
        except CloudError as error:
            kind = missing
            if each.path in before and each in named_before:
                identities[each.path] = before[each.path]
                kind = unchecked if says_nothing(error) else wrong
            kind.append(problem_of(each.path, error))
    return FoundThings(identities, tuple(missing), tuple(wrong), tuple(unchecked))


def _before(group: Group, known: Mapping[str, Any] | None) -> tuple[Mapping[str, Identity], Any]:
    """Return what was found when the present definition was given, and what that names."""
    if known is None or "identities" not in known:
        return {}, ()
    former = parse_group(known["document"], name=group.name, types=known["types"])
    return known["identities"], set(former.named)
