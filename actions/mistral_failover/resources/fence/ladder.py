# SPDX-License-Identifier: Apache-2.0
"""Climb a fence's ladder, rung by rung, until one proves that the member no longer writes.

A rung that is not available yields no proof and no failure: the next one is tried. Without any
proof the operation is blocked, and says what would help; it never assumes. A rung whose service was
unreachable has neither proven nor disproven anything: if no other rung proves it, the operation
fails transiently and is retried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from mistral_failover.agent.channel.interface import ChannelError
from mistral_failover.agent.wire import Address
from mistral_failover.cloud import servers
from mistral_failover.cloud.errors import NO_RIGHTS, CloudError
from mistral_failover.cloud.servers import Evidence
from mistral_failover.cloud.transport import LeaseLost, NoLongerNeeded
from mistral_failover.convergence.records import Action, Record
from mistral_failover.fault_points import reach
from mistral_failover.mistral.operation_documents import OperationDocument
from mistral_failover.model.goal import ACTIVATION, ATTACHMENT
from mistral_failover.model.remedies import Need
from mistral_failover.model.rungs import Rung, RungKind, ServerAfter, rung_kind
from mistral_failover.model.types import ResourceType
from mistral_failover.resources.activation import stop_command
from mistral_failover.resources.fence.rung import FenceAttempt, FenceRung, FenceTarget
from mistral_failover.resources.operation_context import OperationContext
from mistral_failover.resources.watch import WatchfulGuard
from mistral_failover.runtime.errors import ActionError, caught, confirm_command, in_words, masked
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups
from mistral_failover.store.groups import MemberRow
from mistral_failover.store.transaction import ProjectTransaction


def fence_target(
    member: MemberRow,
    records: Iterable[Record],
    types: Mapping[str, ResourceType],
    confirmed: Callable[[], str | None],
    written: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ways: Sequence[str] = (),
) -> FenceTarget:
    """Return what has to be fenced of a member, by the group's live records and its types.
    ``written``: the properties of activations by name, as the group file states them now. ``ways``:
    see `FenceTarget`."""
    records = list(records)
    heights = _heights(records)
    here = [r for r in records if r.member == member.name and r.action != Action.INIT]
    servers = {_server_of(r, member) for r in here} or {member.server_id}
    stops: dict[tuple[str | None, str], int] = {}
    for r in here:
        if r.type == ACTIVATION and r.properties and "stop" in r.properties:
            stop = (_server_of(r, member), stop_command(r.properties, written.get(r.name)))
            stops[stop] = max(stops.get(stop, 0), heights[r.id])
    # A resource is at rest with the applications on its own server only if its type says so.
    covered = {name for name, each in types.items() if each.quiesce_covers}
    on_volumes = {name for name, each in types.items() if each.storage_covers}
    quiet = {server for server, _ in stops}
    attached = {_server_of(r, member) for r in here if r.type == ATTACHMENT}
    return FenceTarget(
        member=member,
        servers=tuple(sorted(filter(None, servers))),
        stops=tuple(
            (server, stop)
            for (server, stop), _ in sorted(
                stops.items(), key=lambda found: (found[0][0] or "", -found[1], found[0][1])
            )
            if server
        ),
        without_stop_command=tuple(
            sorted(
                r.name
                for r in here
                if r.type != ACTIVATION
                and not (r.type in covered and _server_of(r, member) in quiet)
            )
        ),
        confirmed=confirmed,
        attached=tuple(sorted(filter(None, attached))),
        volumes=tuple(
            sorted({r.physical_id for r in here if r.type == ATTACHMENT and r.physical_id})
        ),
        beside_volumes=tuple(
            sorted(
                r.name
                for r in here
                if (r.type == ATTACHMENT and not r.physical_id)
                or r.type not in on_volumes
                or _server_of(r, member) not in attached
            )
        ),
        ways=tuple(ways),
    )


def _heights(records: list[Record]) -> dict[str, int]:
    """Return the height of each record: higher than all that it requires."""
    heights = dict.fromkeys((r.id for r in records), 0)
    for _ in records:  # one round for each record is enough, whatever they require
        before = dict(heights)
        for r in records:
            below = [heights[needed] + 1 for needed in r.requires if needed in heights]
            heights[r.id] = max([heights[r.id], *below])
        if heights == before:
            break
    return heights


def _server_of(record: Record, member: MemberRow) -> str | None:
    server: str | None = record.attributes.get("server_id") or member.server_id
    return server


def fence_member(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Climb a member's ladder until it is proven that it no longer writes; see :func:`fence`."""
    target = _suspect(context.request, operation)
    guard = WatchfulGuard(context.cloud.guard, target.confirmed)
    cloud = context.request.cloud(guard)
    channel = context.request.channel(cloud, guard)
    return fence(context, operation, target, replace(context, cloud=cloud, channel=channel))


def _suspect(request: Request, operation: OperationDocument) -> FenceTarget:
    name, group_id = operation["properties"]["member"], operation["group_id"]
    store = request.store

    def member(tx: ProjectTransaction) -> MemberRow:
        return groups.members_of(tx, group_id)[name]

    def read(tx: ProjectTransaction) -> FenceTarget:
        state = groups.get(tx, group_id)
        assert state is not None  # an operation of it is under way
        group = request.runtime.definitions.group(tx, state)
        return fence_target(
            member(tx),
            tx.records(group_id),
            group.types,
            lambda: store.reading(member).confirmed_because,
            {
                spec.name: spec.properties
                for spec in group.resources.values()
                if spec.type == ACTIVATION
            },
            group.members.restart,
        )

    return store.reading(read)


def fence(
    tools: OperationContext,
    operation: OperationDocument,
    target: FenceTarget,
    climbing: OperationContext | None = None,
) -> dict[str, Any]:
    """Climb the ladder; return rung and observed, the proof in a sentence.

    First tell the member's agents that they are deposed, if they are reachable. An operator's
    confirmation counts before any rung; ``climbing`` are the rungs' tools, whose guard ends the
    rung that is under way when the confirmation comes. After all rungs, Nova's own record that the
    member's servers were deleted counts, whatever the ladder has. If a member quiesced but Nova has
    its server in ERROR, climb on, because Nova detaches nothing from such a server until it is
    stopped; without a further proof the agent's confirmation is the proof, and for that nothing is
    deleted and no workflow is run. Raises ActionError FENCE_UNPROVEN, blocked, if nothing yields a
    proof; also transient, if a rung's service was unreachable; about a server that is locked, or in
    another state that a person must end.
    """
    attempt = FenceAttempt(climbing or tools, operation, target)
    _depose(tools, attempt)
    quiesced: Evidence | None = None
    refused: list[Need] = []
    for rung in operation["properties"]["ladder"]:
        kind = rung_kind(rung["kind"])
        if kind.asks_operator:
            continue  # asked before every rung, and at the end
        if quiesced is not None and kind.server_after is not ServerAfter.SHUTOFF:
            continue
        evidence = _confirm(attempt)
        if not evidence.proven:
            evidence = _climb(attempt, kind, rung)
        running = rung_kind(evidence.rung).server_after is ServerAfter.RUNNING
        if evidence.proven and running and _in_error(tools, target):
            quiesced = evidence
        elif evidence.proven:
            return _proof(evidence)
        else:
            _note(attempt, evidence)
            refused += evidence.needs
    # An operator may have confirmed it meanwhile, or deleted the servers.
    evidence = _confirm(attempt)
    if evidence.proven:
        return _proof(evidence)
    if (deleted := _deleted(attempt)).proven:
        return _proof(deleted)
    if quiesced is not None:
        return _proof(quiesced)
    group, name = operation["group"], target.member.name
    waits_for = attempt.unasked[0] if attempt.unasked else None
    about = _hindering(tools, target)
    goes_on = " Once that state has ended, a sweep continues." if about else ""
    _note(attempt, evidence)
    raise ActionError(
        "FENCE_UNPROVEN",
        f"it is not proven that {name} has stopped writing "
        f"({'; '.join(map(in_words, attempt.tried))})",
        f"Make sure that it is off, then confirm it: {confirm_command(group, name)} (or run the "
        f'workflow failover.confirm_fenced with group "{group}", member "{name}" and because).'
        f"{goes_on}",
        blocked=True,
        transient=waits_for is not None,
        service=waits_for.service if waits_for else "",
        detail=waits_for.detail if waits_for else "",
        about=about,
        tried=attempt.tried,
        needs=tuple(dict.fromkeys(refused)),
    )


def _note(attempt: FenceAttempt, evidence: Evidence) -> None:
    """Note what a rung without a proof found, and when."""
    at = attempt.tools.request.store.reading(lambda tx: tx.now())
    attempt.tried.append({"what": evidence.rung, "found": evidence.observed, "at": at})


def _depose(tools: OperationContext, attempt: FenceAttempt) -> None:
    """Tell the agent of every server that its epoch has ended. An unreachable agent learns it when
    it comes back; an unreachable channel does not prevent the fence."""
    operation, member = attempt.operation, attempt.target.member
    for server in attempt.target.servers:
        address = Address(operation["group_id"], operation["group"], member.name, server)
        reach("depose.before")
        try:
            tools.channel.depose(address, member.epoch)
        except Exception as error:  # whatever it is, the ladder is to be climbed
            _raise_ours(error)
            caught(error, "telling an agent that its epoch has ended")
            said = Evidence(False, "depose", _words(error))
            known = {(each["what"], each["found"]) for each in attempt.tried}
            if (said.rung, said.observed) not in known and attempt.target.stops:
                _note(attempt, said)  # without a stop command no agent is in question
        reach("depose.after")


def _proof(evidence: Evidence) -> dict[str, Any]:
    named = {"disks": list(evidence.disks)} if rung_kind(evidence.rung).of_disks else {}
    return {"attributes": {"rung": evidence.rung, "observed": evidence.observed, **named}}


def _in_error(tools: OperationContext, target: FenceTarget) -> bool:
    """Return whether Nova refuses to detach volumes from one of the member's servers because of its
    state (409, "while it is in vm_state error"; measured with Nova 34)."""
    try:
        states = [servers.server_state(tools.cloud, server) for server in target.attached]
    except CloudError as error:
        _raise_ours(error)
        return False  # it quiesced; whether Nova detaches will show
    return any(state.status == "ERROR" for state in states)


def _hindering(tools: OperationContext, target: FenceTarget) -> dict[str, str] | None:
    """Return a server of the member that is in a state which a person must end, and in which Nova
    may refuse to stop or delete it, as an error is ``about`` it; None if there is none."""
    try:
        for server in target.servers:
            by = servers.server_state(tools.cloud, server).hindrance
            if by is not None and by.remedy and not by.passes:
                return {"server": server, "sight": servers.server_fingerprint(tools.cloud, server)}
    except CloudError as error:
        _raise_ours(error)
    return None


def _climb(attempt: FenceAttempt, kind: RungKind, rung: Rung) -> Evidence:
    """Return what one rung found. An error of its service is no proof; it is kept in ``unasked`` if
    the rung may prove something later."""
    if not isinstance(kind, FenceRung):
        return Evidence(False, kind.kind, "no installed package provides this rung")
    try:
        return kind.prove(attempt, rung)
    except NoLongerNeeded as ended:
        return Evidence(False, kind.kind, f"not awaited: {ended}")
    except (CloudError, ChannelError, ActionError) as error:
        _raise_ours(error)
        if isinstance(error, CloudError | ChannelError) and error.transient:
            attempt.unasked.append(error)
        name = kind.name(rung)
        whose = "" if name == kind.kind else f"{name}: "
        return Evidence(False, kind.kind, f"{whose}{_words(error)}")


def _words(error: Exception) -> str:
    """Describe an error. The output of a command may contain anything, and this goes into a
    workflow's input."""
    if not isinstance(error, ChannelError | CloudError | ActionError):
        return f"the command channel failed ({type(error).__name__})"
    said = masked(error.message).rstrip(".")
    return f"{said}. {error.remedy}" if error.code == "UNKNOWN_OUTCOME" else said


def _raise_ours(error: Exception) -> None:
    """Raise an error that says nothing about the member: the lease or the rights are lost, or the
    state store, without which no call is permitted, is unreachable."""
    ours = isinstance(error, LeaseLost | SQLAlchemyError)
    if ours or getattr(error, "code", None) in NO_RIGHTS:
        raise error


def _confirm(attempt: FenceAttempt) -> Evidence:
    """Return an operator's confirmation, if there is one. Nothing waits here: the confirmation
    triggers the fence again."""
    because = attempt.target.confirmed()
    if because is None:
        return Evidence(False, "confirm", "no operator has confirmed it yet")
    return Evidence(True, "confirm", f"an operator confirmed it: {because}")


def _deleted(attempt: FenceAttempt) -> Evidence:
    """Return whether every server of the member is proven to be deleted."""
    proofs, cloud = [], attempt.tools.cloud
    try:
        for server in attempt.target.servers:
            if servers.server_state(cloud, server).exists:
                return Evidence(False, "delete", f"server {server} exists")
            proofs.append(servers.deletion_proof(cloud, server))
    except CloudError as error:
        _raise_ours(error)
        return Evidence(False, "delete", _words(error))
    observed = " ".join(each.observed for each in proofs)
    return Evidence(bool(proofs) and all(each.proven for each in proofs), "delete", observed)


OPERATIONS = (fence_member,)
