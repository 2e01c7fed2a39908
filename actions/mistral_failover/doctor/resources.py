# SPDX-License-Identifier: Apache-2.0
"""Checks of a group's resources by the modules of their types: they exist, are free to move, and
each member can get them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mistral_failover.doctor.checks import ExaminedGroup, Finding, error, ok
from mistral_failover.groups import refresh_members
from mistral_failover.model.goal import ALARM, ATTACHMENT
from mistral_failover.model.types import Provides, ResourceType
from mistral_failover.resources.modules import ExaminedResource, examined, examiner

_OWN_CHECKS = (ALARM, ATTACHMENT)
"""The types with checks that say more."""


def addresses(subject: ExaminedGroup) -> Iterable[Finding]:
    """Check each address of the group file, as Neutron, Octavia and Designate report it."""
    return _examined(subject, lambda each: each.provides is Provides.ADDRESS)


def others(subject: ExaminedGroup) -> Iterable[Finding]:
    """Check the other resources: the parameters and templates of the stack, and what types of other
    packages check."""
    return _examined(
        subject,
        lambda each: each.provides is not Provides.ADDRESS and each.name not in _OWN_CHECKS,
    )


def _examined(
    subject: ExaminedGroup, concerns: Callable[[ResourceType], bool]
) -> Iterable[Finding]:
    group = subject.snapshot.group
    specs = [
        spec
        for spec in group.resources.values()
        if concerns(group.types[spec.type]) and examiner(spec.type)
    ]
    if not specs or subject.out_of_service:
        return
    cloud = subject.examination.cloud
    members = {
        member.server_id: member.name
        for member in refresh_members.members_now(cloud, subject.snapshot)
    }
    for spec in specs:
        resource = ExaminedResource(cloud, group.name, group.stack, spec, members, group.resources)
        said, wrong = examined(resource, group.types[spec.type])
        for problem in wrong:
            yield error(f"{spec.name}: {problem.message} [{problem.code}]", problem.remedy)
        if said:
            yield ok(f"{spec.name}: {said}")
