# SPDX-License-Identifier: Apache-2.0
"""Checks of a group's resources by the modules of their types: they exist, are free to move, and
each member can get them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mistral_failover.cloud.errors import CloudError
from mistral_failover.doctor.checks import ExaminedGroup, Finding, error, ok
from mistral_failover.groups import refresh_members
from mistral_failover.model.types import Provides, ResourceType
from mistral_failover.resources.modules import ExaminedResource, examiner


def addresses(subject: ExaminedGroup) -> Iterable[Finding]:
    """Check each address of the group file, as Neutron, Octavia and Designate report it."""
    return _examined(subject, lambda each: each.provides is Provides.ADDRESS)


def others(subject: ExaminedGroup) -> Iterable[Finding]:
    """Check what is no address; only types of other packages have such checks."""
    return _examined(subject, lambda each: each.provides is not Provides.ADDRESS)


def _examined(
    subject: ExaminedGroup, concerns: Callable[[ResourceType], bool]
) -> Iterable[Finding]:
    group = subject.snapshot.group
    found = [
        (spec, how)
        for spec in group.resources.values()
        if concerns(group.types[spec.type]) and (how := examiner(spec.type))
    ]
    if not found or subject.out_of_service:
        return
    cloud = subject.examination.cloud
    members = {
        member.server_id: member.name
        for member in refresh_members.members_now(cloud, subject.snapshot)
    }
    for spec, how in found:
        try:
            said = how(ExaminedResource(cloud, group.name, group.stack, spec, members))
        except CloudError as problem:
            yield error(f"{spec.name}: {problem.message} [{problem.code}]", problem.remedy)
        else:
            yield ok(f"{spec.name}: {said}")
