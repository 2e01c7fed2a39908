# SPDX-License-Identifier: Apache-2.0
"""Climbing a fence's ladder: rung by rung, until one proves that the member no longer writes.

A rung that can not be had yields no proof and no failure: the next one is tried. Without any
proof the operation is blocked, and says what would help; it never assumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mistral_failover.actions.errors import ActionError
from mistral_failover.actions.operations import Document, Tools, run_command
from mistral_failover.agent.channel import ChannelError, Command
from mistral_failover.cloud import servers
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.guard import LeaseLost
from mistral_failover.cloud.servers import Evidence
from mistral_failover.convergence.traversals import derived_id
from mistral_failover.store.groups import MemberRow


@dataclass(frozen=True)
class Suspect:
    """The member to fence: what is known of it, the stop commands of what runs on it, and what a
    person vouches for by now, or None: they may speak while the ladder is climbed."""

    member: MemberRow
    stops: tuple[str, ...]
    confirmed: Callable[[], str | None]


def fence(tools: Tools, operation: Document, suspect: Suspect) -> dict[str, Any]:
    """Climb the ladder; returns rung and observed, the proof in a sentence.

    Raises ActionError FENCE_UNPROVEN, blocked, when no rung yields a proof.
    """
    member = suspect.member
    if member.server_id is None:
        evidence = Evidence(True, "delete", f"{member.name} has no server any more")
        return _proof(evidence)
    tried: list[str] = []
    for rung in operation["properties"]["ladder"]:
        evidence = _RUNGS[rung["kind"]](tools, operation, suspect, float(rung["limit"]))
        if evidence.proven:
            return _proof(evidence)
        tried.append(f"{evidence.rung}: {evidence.observed}")
    raise ActionError(
        "FENCE_UNPROVEN",
        f"it is not certain that {member.name} no longer writes ({'; '.join(tried)})",
        f"Make sure that it is off, then confirm it: run the workflow failover.confirm_fenced "
        f'with group "{operation["group"]}", member "{member.name}" and because.',
        blocked=True,
    )


def _proof(evidence: Evidence) -> dict[str, Any]:
    return {"attributes": {"rung": evidence.rung, "observed": evidence.observed}}


def _quiesce(tools: Tools, operation: Document, suspect: Suspect, limit: float) -> Evidence:
    """The member's own agent says that everything of the group on it has stopped."""
    member = suspect.member
    for name in suspect.stops:
        command = Command(
            id=derived_id(operation["key"], name),
            group=operation["group"],
            member=member.name,
            server_id=str(member.server_id),
            epoch=member.epoch,
            name=name,
            limit=limit,
        )
        try:
            run_command(tools.channel, command)
        except LeaseLost:
            raise
        except (ChannelError, CloudError, ActionError) as error:
            return Evidence(False, "quiesce", str(error))
    done = " and ".join(suspect.stops) or "nothing of the group was running"
    return Evidence(True, "quiesce", f"{member.name} confirmed: {done}")


def _stop(tools: Tools, operation: Document, suspect: Suspect, limit: float) -> Evidence:
    return _by_nova(servers.stop, "stop", tools, suspect, limit)


def _delete(tools: Tools, operation: Document, suspect: Suspect, limit: float) -> Evidence:
    return _by_nova(servers.delete_server, "delete", tools, suspect, limit)


def _by_nova(
    verb: Callable[..., Evidence], rung: str, tools: Tools, suspect: Suspect, limit: float
) -> Evidence:
    try:
        return verb(tools.cloud, str(suspect.member.server_id), limit)
    except LeaseLost:
        raise
    except CloudError as error:
        return Evidence(False, rung, str(error))


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
