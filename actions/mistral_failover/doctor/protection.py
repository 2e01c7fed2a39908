# SPDX-License-Identifier: Apache-2.0
"""Check what protects a group beyond a failover that works: that its failure is noticed, that one
zone does not take all members, and that a lost member can be made again."""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote

from mistral_failover.cloud import boot_disks, room
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.project_listing import ProjectListing
from mistral_failover.cloud.servers import server_state
from mistral_failover.doctor.checks import ExaminedGroup, Finding, error, ok, warn
from mistral_failover.groups import refresh_members
from mistral_failover.model.goal import ALARM
from mistral_failover.store import incidents


def noticed(subject: ExaminedGroup) -> Iterable[Finding]:
    """Check that something starts a failover: an alarm in the group file, one that came before, or
    the observation. An alarm from outside is known only once it has come."""
    group, identity = subject.snapshot.group, subject.snapshot.state.id
    if group.heal == "failover":
        yield ok("a look that finds the active server gone starts a failover (heal)")
    elif any(spec.type == ALARM for spec in group.resources.values()):
        yield ok("its file names an alarm")
    elif subject.examination.reading(lambda tx: incidents.any_about(tx, identity)):
        yield ok("alarms about it have come")
    elif _signalled(subject):
        yield ok(f"an alarm in Aodh signals stack {group.stack}")
    else:
        yield warn(
            "no alarm that leads to it is known: its file names none, and none has come",
            "Create an alarm for the server of each member (docs/alarms.md), and add it to the "
            "group file as a resource of type alarm; or set heal: failover there. Then: failover "
            f"group update FILE --name {quote(subject.name)}",
        )


def _signalled(subject: ExaminedGroup) -> bool:
    """Return whether an alarm in Aodh signals the group's stack; False if Aodh cannot be asked."""
    try:
        stack = subject.snapshot.group.stack
        return bool(ProjectListing(subject.examination.cloud).alarms(stack))
    except CloudError:
        return False


def spread(subject: ExaminedGroup) -> Iterable[Finding]:
    """Check that not all members are in one zone of several."""
    if subject.out_of_service:
        return
    cloud = subject.examination.cloud
    seen = refresh_members.members_now(cloud, subject.snapshot)
    if len(seen) < 2:
        return
    found = {server_state(cloud, member.server_id).zone for member in seen}
    others = [zone for zone in room.zones(cloud) if zone not in found]
    if len(found) == 1 and None not in found and others:
        yield warn(
            f"all members are in the zone {next(iter(found))} and would fail with it",
            f"Give a server of the stack another availability_zone ({', '.join(others)}), if the "
            "volumes can be attached there.",
        )


def quota(subject: ExaminedGroup) -> Iterable[Finding]:
    """Check, if a failover may make another server, that the project's quota allows one, and that
    its flavor and image are there. Heat makes the new server before it deletes the old one."""
    if subject.out_of_service or not subject.snapshot.group.members.makes_servers:
        return
    cloud = subject.examination.cloud
    for member in refresh_members.members_now(cloud, subject.snapshot):
        try:
            lacking = room.lacking(cloud, subject.snapshot.group.stack, member.server_id)
        except CloudError as problem:
            if problem.code in room.HIDDEN:
                yield warn(
                    f"whether there is room for another server for {member.name} is not known: "
                    f"{problem.message}",
                    problem.remedy,
                )
                return
            if problem.code != "NOT_FOUND":
                raise
            continue  # `members` says that its server is gone
        if lacking:
            yield error(
                f"another server for {member.name} could not be made: {'; '.join(lacking)}",
                "If it is the quota, ask an administrator of the cloud: openstack quota set "
                f"--instances N --cores N --ram N {subject.examination.request.project_id}. "
                "Otherwise correct the stack's template, and update the stack.",
            )
        else:
            yield ok(f"there is room for another server for {member.name}")
        return  # of the oldest: they are meant to be alike


def boot(subject: ExaminedGroup) -> Iterable[Finding]:
    """Check, if a failover may make another server, that no boot disk that it gets, too, would be
    deleted with the present one."""
    group = subject.snapshot.group
    if subject.out_of_service or not group.members.makes_servers:
        return
    cloud = subject.examination.cloud
    for member in refresh_members.members_now(cloud, subject.snapshot):
        try:
            disk = boot_disks.kept_boot_disk(cloud, group.stack, member.server_id)
        except CloudError as problem:
            if problem.code != "VOLUME_WOULD_GO":
                raise
            yield error(f"{member.name}: {problem.message}", problem.remedy)
        else:
            if disk is not None:
                yield ok(f"the next server of {member.name} boots from the same volume, {disk}")
