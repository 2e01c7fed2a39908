# SPDX-License-Identifier: Apache-2.0
"""The state that a plan depends on, as a document. The plan may be started if it is unchanged.

``{"definition": version, "traversal": id or null, "status": of the traversal, "goal": version,
"lost": [member, ...], "members": {name: {"server", "epoch", "fit"}}, "records": {id: {"what",
"state", "condemned"}}, "alarms": {id: {"decision", "lost": [member, ...]}} of those that wait,
"volumes": {name in the group file: id or null}}``
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mistral_failover.cloud.transport import Unguarded
from mistral_failover.cloud.volumes import resolve_volumes
from mistral_failover.convergence.records import Record, Traversal
from mistral_failover.groups import candidates
from mistral_failover.groups.candidates import HeatMember
from mistral_failover.groups.refresh_members import members_now
from mistral_failover.groups.snapshot import GroupSnapshot
from mistral_failover.model.assignment import MemberFact, reasons
from mistral_failover.model.goal import ATTACHMENT, Goal
from mistral_failover.model.order import Order
from mistral_failover.orders import failover
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, incidents
from mistral_failover.store.incidents import Incident
from mistral_failover.store.transaction import ProjectTransaction


@dataclass(frozen=True)
class Preconditions:
    """The state at the moment of planning.

    ``epochs`` are those that the members will have after they are recorded: a member whose server
    was replaced has a new one. ``seen``: the members according to Heat. ``servers``: those of all
    known members, by name. ``alarms``: those that are held, or admitted and not begun. ``volumes``:
    the ids behind names, None if there is no volume. ``now``: the database's time in seconds.
    ``noticed``: the members as they were recorded before they were read from the cloud.
    """

    records: Sequence[Record]
    epochs: Mapping[str, int]
    seen: Sequence[HeatMember]
    servers: Mapping[str, str | None]
    facts: Sequence[MemberFact]
    traversal: Traversal | None
    alarms: Sequence[Incident]
    volumes: Mapping[str, str | None]
    now: float
    noticed: Mapping[str, groups.MemberRow]


def read_preconditions(
    request: Request, snapshot: GroupSnapshot, lost: frozenset[str], volumes: Collection[str]
) -> Preconditions:
    """Read the state of a group, its members and these volumes, without recording anything.
    ``lost``: the members that are lost in the goal. Raises CloudError."""
    cloud = request.cloud(Unguarded())
    ids = resolve_volumes(cloud, snapshot.group.stack, volumes) if volumes else {}
    group, identity = snapshot.group, snapshot.state.id
    noticed = request.store.reading(lambda tx: groups.members_of(tx, identity))
    seen = members_now(cloud, snapshot)
    facts = candidates.member_facts(request, cloud, group, identity, seen, lost, thorough=True)

    def read(tx: ProjectTransaction) -> Preconditions:
        known = groups.members_of(tx, identity)
        current = snapshot.state.current_traversal
        return Preconditions(
            records=list(tx.records(identity)),
            epochs=_epochs(known, groups.all_members_of(tx, identity), seen),
            seen=tuple(seen),
            servers={name: row.server_id for name, row in known.items()}
            | {member.name: member.server_id for member in seen},
            facts=tuple(facts),
            traversal=tx.traversal(current) if current else None,
            alarms=tuple(incidents.waiting(tx, identity)),
            volumes=ids,
            now=tx.now(),
            noticed=noticed,
        )

    return request.store.reading(read)


def _epochs(
    known: Mapping[str, groups.MemberRow],
    ever: Mapping[str, groups.MemberRow],
    seen: Sequence[HeatMember],
) -> dict[str, int]:
    """Return the epochs of the members once those that were ``seen`` are recorded. ``ever``: also
    those that have left."""
    epochs = {name: row.epoch for name, row in known.items()}
    for member in seen:
        row = ever.get(member.name)
        replaced = row is not None and row.server_id != member.server_id
        epochs[member.name] = 1 if row is None else row.epoch + replaced
    return epochs


def unfit(snapshot: GroupSnapshot, found: Preconditions, lost: Iterable[str]) -> dict[str, str]:
    """Return the reason, in words, for each member that takes no role by itself while these are
    lost."""
    return reasons(snapshot.group, found.facts, frozenset(lost))


def as_document(
    snapshot: GroupSnapshot, order: Order, found: Preconditions, goal: str, lost: Iterable[str]
) -> dict[str, Any]:
    """Return the state as a document, see the module. ``goal``: the version of the planned goal;
    ``lost``: the members that are lost in it."""
    fit = {fact.name for fact in found.facts} - unfit(snapshot, found, lost).keys()
    return {
        "definition": failover.definition_of(order, snapshot.state),
        "traversal": snapshot.state.current_traversal,
        "status": found.traversal.status if found.traversal else None,
        "goal": goal,
        "lost": sorted(lost),
        "members": {
            name: {
                "server": found.servers.get(name),
                "epoch": epoch,
                "fit": name in fit,
            }
            for name, epoch in sorted(found.epochs.items())
        },
        "records": {
            record.id: {
                "what": f"{record.name} on {record.member}" if record.member else record.name,
                "state": f"{record.action}_{record.status}",
                "condemned": record.condemned_for == goal,
            }
            for record in found.records
        },
        "alarms": {
            alarm.id: {"decision": alarm.decision, "lost": sorted(alarm.lost)}
            for alarm in found.alarms
        },
        "volumes": dict(found.volumes),
    }


def volumes_of(goal: Goal) -> list[str]:
    """Return the volumes that a goal attaches, with their names in the group file."""
    named = {
        str(entry["properties"]["volume"])
        for entry in goal.document["resources"].values()
        if entry["type"] == ATTACHMENT
    }
    return sorted(named)


def differences(
    before: Mapping[str, Any], after: Mapping[str, Any], refused: Mapping[str, str]
) -> list[str]:
    """Return what has changed in the state, a sentence each; ``refused`` is the current result of
    :func:`unfit`."""
    return [
        *_of_the_group(before, after),
        *_of_members(before["members"], after["members"], refused),
        *_of_records(before["records"], after["records"]),
        *_of_alarms(before["alarms"], after["alarms"]),
        *_of_volumes(before["volumes"], after["volumes"]),
        *_of_the_goal(before, after),
    ]


def _of_the_group(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    if before["definition"] != after["definition"]:
        yield "the group's definition was changed"
    if before["traversal"] != after["traversal"]:
        yield "the group has received a goal since, another or the same"
    elif before["status"] != after["status"]:
        yield f"its traversal was {before['status']}, and is now {after['status']}"


def _of_members(
    before: Mapping[str, Any], after: Mapping[str, Any], refused: Mapping[str, str]
) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        was, is_now = before.get(name), after.get(name)
        if was is None or is_now is None:
            yield f"{name} is {'a new member' if was is None else 'no longer a member'}"
            continue
        if was["server"] != is_now["server"]:
            yield f"{name} was replaced: another server has its name"
        elif was["epoch"] != is_now["epoch"]:
            yield f"{name} was fenced or replaced"
        if was["fit"] and not is_now["fit"]:
            why = refused.get(name, "it is no longer a member of the stack")
            yield f"{name} can no longer take a role: {why}"
        elif is_now["fit"] and not was["fit"]:
            yield f"{name} can now take a role, which it could not before"


def _of_records(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(before.keys() - after.keys()):
        yield f"{before[key]['what']} no longer exists"
    for key in sorted(after.keys() - before.keys()):
        yield f"{after[key]['what']} is new"
    for key in sorted(before.keys() & after.keys()):
        was, is_now = before[key], after[key]
        if was["state"] != is_now["state"]:
            yield f"{was['what']} was {was['state']}, and is now {is_now['state']}"
        elif was["condemned"] != is_now["condemned"]:
            yield f"{was['what']} will be replaced"


def _of_alarms(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(before.keys() | after.keys()):
        was, is_now = before.get(key), after.get(key)
        if is_now is None:
            yield f"alarm {key} is no longer waiting"
        elif was != is_now:
            who = " and ".join(is_now["lost"]) or "a member"
            yield f"an alarm that reports {who} as lost is {is_now['decision']}: {key}"


def _of_volumes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(before.keys() & after.keys()):
        if before[name] != after[name]:
            yield f"{name} was volume {before[name]}, and is now {after[name]}"


def _of_the_goal(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    if before["goal"] != after["goal"]:
        yield f"the goal would now be another one, {after['goal'][:12]}"
