# SPDX-License-Identifier: Apache-2.0
"""Check the alarms that a group file names: they exist, can fire, and name a server."""

from __future__ import annotations

from collections.abc import Iterable

from mistral_failover.cloud import event_alarms
from mistral_failover.cloud.errors import CloudError
from mistral_failover.doctor.checks import ExaminedGroup, Finding, error, ok, warn
from mistral_failover.model.goal import ALARM
from mistral_failover.model.remedies import need


def declared(subject: ExaminedGroup) -> Iterable[Finding]:
    """Check each alarm of the group file, as Aodh shows it. Which server it watches is a part of
    the check ``service``."""
    if subject.out_of_service:
        return
    for spec in subject.snapshot.group.resources.values():
        if spec.type != ALARM:
            continue
        try:
            found = event_alarms.alarm(subject.examination.cloud, str(spec.properties["alarm"]))
        except CloudError as problem:
            gone = problem.code == "NOT_FOUND"
            remedy = subject.advised(need("ANOTHER_ALARM")) if gone else problem.remedy
            yield error(f"{spec.name}: {problem.message} [{problem.code}]", remedy)
            continue
        if not found.enabled:
            yield warn(
                f"{spec.name}: {found} is disabled, so it does not fire",
                subject.advised(need("ENABLE_ALARM", alarm=found.id)),
            )
        elif not found.servers:
            yield warn(
                f"{spec.name}: {found} names no server, so nothing of it follows a member",
                "Add a condition for traits.instance_id to its query, or take it out of the group "
                "file.",
            )
        else:
            yield ok(f"{spec.name}: {found} can follow its member")
