# SPDX-License-Identifier: Apache-2.0
"""The state of the volumes that a plan moves, and the problems that may follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mistral_failover.cloud import volume_holders
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.volume_holders import MULTIATTACH, SERVER_ID, volume_of
from mistral_failover.cloud.volume_states import USABLE
from mistral_failover.cloud.volumes import boots_from, resolve_volume
from mistral_failover.groups.snapshot import GroupSnapshot
from mistral_failover.model.goal import ATTACHMENT, Goal
from mistral_failover.orders.plan.documents import PlanStep
from mistral_failover.orders.plan.preconditions import Preconditions

Trouble = tuple[str, str, str]
"""A code, a sentence, a remedy."""


def volumes(
    snapshot: GroupSnapshot,
    found: Preconditions,
    goal: Goal,
    steps: Sequence[PlanStep],
    cloud: Cloud,
) -> Iterator[Trouble]:
    """Yield the problems of each volume that a step attaches or detaches. A volume that cannot be
    read is a problem too. Raises CloudError if Cinder or Heat does not answer at all."""
    ours = _holders(found)
    for name in sorted(_moved(goal, found, steps)):
        try:
            volume = volume_of(cloud, resolve_volume(cloud, snapshot.group.stack, name))
        except CloudError as error:
            if error.code not in ("NOT_FOUND", "BAD_REQUEST"):
                raise
            yield error.code, error.message, error.remedy
            continue
        yield from _of(cloud, volume, name, ours)


def _moved(goal: Goal, found: Preconditions, steps: Sequence[PlanStep]) -> set[str]:
    """Return the volumes that are attached or detached, with their names in the group file."""
    touched = {step["resource"] for step in steps if step["type"] == ATTACHMENT}
    wanted = {
        name: entry["properties"]
        for name, entry in goal.document["resources"].items()
        if entry["type"] == ATTACHMENT
    }
    stated = [wanted[name] for name in touched if name in wanted]
    stated += [r.properties for r in found.records if r.name in touched and r.properties]
    return {str(properties["volume"]) for properties in stated if "volume" in properties}


def _holders(found: Preconditions) -> set[str]:
    """Return the servers that the group's volumes are or will be attached to."""
    made = {record.attributes.get("server_id") for record in found.records}
    return {str(server) for server in (*made, *found.servers.values()) if server}


def _of(cloud: Cloud, volume: Any, name: str, ours: set[str]) -> Iterator[Trouble]:
    shared = bool(MULTIATTACH.of(volume))
    held = [attached for attached in volume.attachments if SERVER_ID.of(attached)]
    if volume.status not in USABLE:
        error = volume_holders.in_state(cloud, volume, *sorted(ours))
        yield error.code, f"{name}: {error.message}", error.remedy
    if any(boots_from(volume, attached) for attached in held):
        error = volume_holders.is_root(volume.id, held[0]["server_id"])
        yield error.code, f"{name}: {error.message}", error.remedy
    elif not shared and any(attached["server_id"] not in ours for attached in held):
        error = volume_holders.in_use(volume)
        yield (
            error.code,
            (f"{name} is attached to a server that does not belong to the group"),
            error.remedy,
        )
    if shared:
        yield (
            "VOLUME_SHARED",
            f"{name} is multi-attach: Nova would let several members write to it at the same time",
            "Only the fence keeps the former member from writing: do not attach it anywhere else.",
        )
