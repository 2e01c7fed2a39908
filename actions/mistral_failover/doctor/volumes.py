# SPDX-License-Identifier: Apache-2.0
"""Checks of a group's volumes: they exist, can be moved, and are where they should be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from shlex import quote
from typing import Any

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import server_state
from mistral_failover.cloud.volume_holders import (
    SERVER_ID,
    holders_of,
    in_state,
    state_of,
    volume_of,
)
from mistral_failover.cloud.volume_states import USABLE
from mistral_failover.cloud.volumes import refuse_unmovable, resolve_volume
from mistral_failover.convergence.records import Action, Record, Status
from mistral_failover.doctor.checks import ExaminedGroup, Finding, error, ok, warn
from mistral_failover.model import remedies
from mistral_failover.model.goal import ATTACHMENT, goal_resources
from mistral_failover.model.remedies import need
from mistral_failover.store.transaction import ProjectTransaction


def volumes(subject: ExaminedGroup) -> Iterable[Finding]:
    """Check each volume of the group file, as Cinder reports it."""
    snapshot, examination = subject.snapshot, subject.examination
    current = snapshot.state.current_traversal
    specs = [s for s in snapshot.group.resources.values() if s.type == ATTACHMENT]
    if not specs or subject.out_of_service:
        return

    def read(tx: ProjectTransaction) -> tuple[list[Record], dict[str, str]]:
        traversal = tx.traversal(current) if current else None
        goal = tx.goal(snapshot.state.id, traversal.goal_version) if traversal else None
        wanted = {
            r.name: str(r.properties["volume"])
            for r in (goal_resources(goal) if goal else ())
            if r.type == ATTACHMENT
        }
        return list(tx.records(snapshot.state.id)), wanted

    records, wanted = examination.reading(read)
    here = {
        r.name: r
        for r in records
        if r.type == ATTACHMENT
        and r.action in (Action.CREATE, Action.UPDATE)
        and r.status == Status.COMPLETE
    }
    leaving = {
        (r.name, str(r.attributes.get("server_id"))): r
        for r in records
        if r.type == ATTACHMENT and r.action == Action.DELETE and not r.gone
    }
    for spec in specs:
        # Named by the group file itself, it is what is in force, whatever the present goal has.
        named = spec.properties.get("volume")
        volume = named if isinstance(named, str) else wanted.get(spec.name)
        if isinstance(volume, str):
            yield from _volume(subject, spec.name, volume, here.get(spec.name), leaving)


def _volume(
    subject: ExaminedGroup,
    name: str,
    volume: str,
    record: Record | None,
    leaving: Mapping[tuple[str, str], Record],
) -> Iterable[Finding]:
    """Check a volume. ``leaving``: the attachments that the group is about to end, by name and
    server."""
    cloud, stack = subject.examination.cloud, subject.snapshot.group.stack
    try:
        refuse_unmovable(cloud, stack, {volume: [record.member or ""] if record else []})
        identity = resolve_volume(cloud, stack, volume)
        found = volume_of(cloud, identity)
    except CloudError as problem:
        yield error(f"{name} ({volume}): {problem.message} [{problem.code}]", problem.remedy)
        return
    if found.status not in USABLE:
        yield _in_state(cloud, name, found, record)
        return
    holders = [str(SERVER_ID.of(held)) for held in found.attachments]
    if record is not None and subject.snapshot.reached:
        yield from _where(subject, name, identity, holders, record)
    elif left := [leaving[name, each] for each in holders if (name, each) in leaving]:
        state = "failed" if left[0].status == Status.FAILED else "is not done yet"
        yield warn(
            f"{name}: volume {identity} is still on {left[0].member} (server {holders[0]}): its "
            f"detach {state}",
            f"What that waits for: failover status {quote(subject.name)}",
        )
    elif holders and record is None:
        fields = {"server": holders[0], "volume": identity}
        yield warn(
            f"{name}: volume {identity} is attached to server {', '.join(holders)}, but the group "
            "did not attach it",
            f"{remedies.command('DETACH_VOLUME', subject.name, **fields)}, unless this is intended",
        )
    else:
        yield ok(f"{name}: volume {identity}, {state_of(found)}")
    orphans = [c for c in holders_of(cloud, identity) if c.server_id not in holders]
    if orphans and subject.snapshot.reached:
        yield warn(
            f"{name}: volume {identity} also has {', '.join(map(str, orphans))}",
            "The next attach or detach deletes attachments that are not in use. To delete it now: "
            f"{remedies.command('DELETE_ATTACHMENT', subject.name, attachment=orphans[0].id)}",
        )


def _in_state(cloud: Cloud, name: str, volume: Any, record: Record | None) -> Finding:
    server = record.attributes.get("server_id") if record else None
    try:
        trouble = in_state(cloud, volume, *([str(server)] if server else []))
    except CloudError as problem:
        trouble = problem
    level = error if trouble.code != "VOLUME_BUSY" else warn
    return level(f"{name}: {trouble.message} [{trouble.code}]", trouble.remedy)


def _where(
    subject: ExaminedGroup, name: str, volume: str, holders: list[str], record: Record
) -> Iterable[Finding]:
    attributes: Mapping[str, Any] = record.attributes
    server = str(attributes.get("server_id"))
    if server in holders:
        yield ok(f"{name}: volume {volume} is on {record.member} (server {server})")
    elif not holders and not server_state(subject.examination.cloud, server).exists:
        yield error(
            f"{name}: volume {volume} should be on {record.member}, whose server {server} does not "
            "exist any more",
            subject.advised(need("MOVE", lost=[str(record.member)])),
        )
    else:
        actual = f"server {', '.join(holders)}" if holders else "no server"
        yield error(
            f"{name}: volume {volume} should be on {record.member} (server {server}), but is on "
            f"{actual}",
            "Another client moved it: what gives it back is said with the service. Or start a "
            "failover, which attaches the volume where the goal wants it.",
        )
