# SPDX-License-Identifier: Apache-2.0
"""Climbing a fence's ladder: rung by rung, until one proves that the member no longer writes.

A rung that can not be had yields no proof and no failure: the next one is tried. Without any
proof the operation is blocked, and says what would help; it never assumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mistral_failover.actions.errors import ActionError
from mistral_failover.actions.operations import Document, Tools, run_command
from mistral_failover.agent.channel import ChannelError, Command
from mistral_failover.agent.wire import Address
from mistral_failover.cloud import servers
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.guard import LeaseLost
from mistral_failover.cloud.servers import Evidence
from mistral_failover.cloud.tokens import NO_RIGHTS
from mistral_failover.convergence.records import Record
from mistral_failover.model.ids import derived_id
from mistral_failover.store.groups import MemberRow

ACTIVATION = "activation"
ATTACHMENT = "volume_attachment"


@dataclass(frozen=True)
class Suspect:
    """The member to fence.

    ``servers``: every server that records of the member were made on, which need not be the one
    behind its name by now. ``stops``: (server, stop command) of each application there.
    ``unvouched``: names of what is there and no stop command speaks for. ``confirmed``: what a
    person vouches for by now, or None; they may speak while the ladder is climbed. ``attached``:
    the servers among them that volumes of the group hang on.
    """

    member: MemberRow
    servers: tuple[str, ...]
    stops: tuple[tuple[str, str], ...]
    unvouched: tuple[str, ...]
    confirmed: Callable[[], str | None]
    attached: tuple[str, ...] = ()


def suspect_of(
    member: MemberRow, records: Iterable[Record], confirmed: Callable[[], str | None]
) -> Suspect:
    """What has to be fenced of a member, by the group's live records."""
    here = [r for r in records if r.member == member.name and r.action != "INIT"]
    servers = {_server_of(r, member) for r in here} or {member.server_id}
    stops = {
        (_server_of(r, member), str(r.properties["stop"]))
        for r in here
        if r.type == ACTIVATION and r.properties and "stop" in r.properties
    }
    # A volume is at rest when the applications on its own server are; of other things nobody knows.
    quiet = {server for server, _ in stops}
    attached = {_server_of(r, member) for r in here if r.type == ATTACHMENT}
    return Suspect(
        member=member,
        servers=tuple(sorted(filter(None, servers))),
        stops=tuple(sorted((server, stop) for server, stop in stops if server)),
        unvouched=tuple(
            sorted(
                r.name
                for r in here
                if r.type != ACTIVATION
                and not (r.type == ATTACHMENT and _server_of(r, member) in quiet)
            )
        ),
        confirmed=confirmed,
        attached=tuple(sorted(filter(None, attached))),
    )


def _server_of(record: Record, member: MemberRow) -> str | None:
    server: str | None = record.attributes.get("server_id") or member.server_id
    return server


def fence(tools: Tools, operation: Document, suspect: Suspect) -> dict[str, Any]:
    """Climb the ladder; returns rung and observed, the proof in a sentence.

    What a person confirms counts before any rung. A member that quiesced is climbed on for while
    Nova has its server in error, since Nova detaches nothing from that until it is stopped; without
    a further proof its word is the proof, and for that nothing is deleted. Raises ActionError
    FENCE_UNPROVEN, blocked, when nothing yields one.
    """
    tried: list[str] = []
    quiesced: Evidence | None = None
    for rung in [{"kind": "confirm", "limit": 0}, *operation["properties"]["ladder"]]:
        if quiesced is not None and rung["kind"] == "delete":
            continue
        evidence = _RUNGS[rung["kind"]](tools, operation, suspect, float(rung["limit"]))
        if evidence.proven and evidence.rung == "quiesce" and _in_error(tools, suspect):
            quiesced = evidence
        elif evidence.proven:
            return _proof(evidence)
        elif evidence.rung != "confirm":
            tried.append(f"{evidence.rung}: {evidence.observed}")
    # Somebody may have spoken meanwhile.
    evidence = _confirm(tools, operation, suspect, 0)
    if evidence.proven:
        return _proof(evidence)
    if quiesced is not None:
        return _proof(quiesced)
    name = suspect.member.name
    raise ActionError(
        "FENCE_UNPROVEN",
        f"it is not certain that {name} no longer writes "
        f"({'; '.join([*tried, f'confirm: {evidence.observed}'])})",
        f"Make sure that it is off, then confirm it: run the workflow failover.confirm_fenced "
        f'with group "{operation["group"]}", member "{name}" and because.',
        blocked=True,
    )


def _proof(evidence: Evidence) -> dict[str, Any]:
    return {"attributes": {"rung": evidence.rung, "observed": evidence.observed}}


def _in_error(tools: Tools, suspect: Suspect) -> bool:
    """Whether Nova refuses to detach volumes from a server of the member's, for the state that it
    has it in (409, "while it is in vm_state error"; measured with Nova 34)."""
    try:
        states = [servers.server_state(tools.cloud, server) for server in suspect.attached]
    except CloudError as error:
        _raise_ours(error)
        return False  # it quiesced; whether Nova detaches will show
    return any(state.status == "ERROR" for state in states)


def _quiesce(tools: Tools, operation: Document, suspect: Suspect, limit: float) -> Evidence:
    """The member's own agent says that everything of the group on it has stopped."""
    member = suspect.member
    if suspect.unvouched:
        named = ", ".join(suspect.unvouched)
        return Evidence(False, "quiesce", f"no stop command on {member.name} speaks for {named}")
    for server, name in suspect.stops:
        command = Command(
            id=derived_id(operation["key"], server, name),
            to=Address(operation["group_id"], operation["group"], member.name, server),
            epoch=member.epoch,
            name=name,
            limit=limit,
        )
        try:
            run_command(tools.channel, command)
        except (ChannelError, CloudError, ActionError) as error:
            _raise_ours(error)
            return Evidence(False, "quiesce", str(error))
    done = " and ".join(sorted({stop for _, stop in suspect.stops}))
    return Evidence(
        True,
        "quiesce",
        f"{member.name} confirmed: {done}" if done else f"nothing of the group is on {member.name}",
    )


def _stop(tools: Tools, operation: Document, suspect: Suspect, limit: float) -> Evidence:
    return _by_nova(servers.stop, "stop", tools, suspect, limit)


def _delete(tools: Tools, operation: Document, suspect: Suspect, limit: float) -> Evidence:
    return _by_nova(servers.delete_server, "delete", tools, suspect, limit)


def _by_nova(
    verb: Callable[..., Evidence], rung: str, tools: Tools, suspect: Suspect, limit: float
) -> Evidence:
    """The proofs of all the member's servers, or the first that is missing."""
    if not suspect.servers:
        return Evidence(False, rung, f"no server of {suspect.member.name} is known")
    proofs = []
    for server in suspect.servers:
        try:
            evidence = verb(tools.cloud, server, limit)
        except CloudError as error:
            _raise_ours(error)
            return Evidence(False, rung, str(error))
        if not evidence.proven:
            return evidence
        proofs.append(evidence.observed)
    return Evidence(True, rung, " ".join(proofs))


def _raise_ours(error: Exception) -> None:
    """Raise what says nothing about the member: that it is not for us any more to find out."""
    if isinstance(error, LeaseLost) or getattr(error, "code", None) in NO_RIGHTS:
        raise error


def _confirm(tools: Tools, operation: Document, suspect: Suspect, limit: float) -> Evidence:
    """A person vouched for it. Nobody is waited for here: their word triggers the fence again."""
    because = suspect.confirmed()
    if because is None:
        return Evidence(False, "confirm", "nobody has confirmed it yet")
    return Evidence(True, "confirm", f"a person confirmed it: {because}")


_RUNGS: Mapping[str, Callable[[Tools, Document, Suspect, float], Evidence]] = {
    "quiesce": _quiesce,
    "stop": _stop,
    "delete": _delete,
    "confirm": _confirm,
}
