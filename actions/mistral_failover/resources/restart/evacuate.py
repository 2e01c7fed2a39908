# SPDX-License-Identifier: Apache-2.0
"""The way ``evacuate``: Nova makes the same server again on another host, with its disks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mistral_failover.convergence.records import Record, Status
from mistral_failover.model.goal import ATTACHMENT, FENCE_TYPE, fence_name
from mistral_failover.model.restarts import ANOTHER_SERVER
from mistral_failover.model.rungs import HostRung
from mistral_failover.resources.restart.start import PROOF_LASTS, started
from mistral_failover.resources.restart.way import Attempt, Deletion, LostServer, Result, Way

if TYPE_CHECKING:
    from mistral_failover.cloud.fields import Feature
    from mistral_failover.cloud.servers import Evidence
    from mistral_failover.mistral.operation_documents import OperationDocument
    from mistral_failover.model.group import Limits
    from mistral_failover.resources.operation_context import OperationContext
    from mistral_failover.store.transaction import ProjectTransaction

NAME = "evacuate"
PROOFS = (HostRung.HOST_POWER, HostRung.STORAGE, "confirm")
"""The rungs whose proof is about the member's host, or is an operator's word."""
ASKS_NOVA = ("stop", "delete")
"""The rungs that have Nova do something to the server, which a dead host would do when it comes
back."""
LIMIT = 180.0
"""Seconds for Nova to make the server again."""


class Evacuate(Way):
    """The host is dead, which its fence has proven. The right is an administrator's by default, and
    is that of the group's own user: a group gets nothing done by it that its user may not do.

    Its volumes stay with the server until it is off on its new host, and Nova detaches them there:
    see `before_release`.
    """

    when = (
        f"the fence was `host_power`, `storage` or `confirm`, at most {PROOF_LASTS / 60:g} minutes "
        "ago, and Nova counts the host as down: the same server, made again by Nova on another "
        "host, off, and then started"
    )

    does = "Nova makes the same server again on another host, off, and starts it"

    def longest(self, limits: Limits) -> float:
        """Return how long that takes, and how long it may then boot."""
        return LIMIT + limits.boot

    def proofs(self, ladder: Sequence[str]) -> list[str]:
        """Return the rungs that prove its host off, up to the one by which Nova is asked to stop
        or delete it."""
        first = itertools.takewhile(lambda kind: kind not in ASKS_NOVA, ladder)
        return [kind for kind in first if kind in PROOFS]

    def features(self) -> Iterable[Feature]:
        """Require that Nova leaves the server off."""
        from mistral_failover.cloud.servers import EVACUATION

        return (EVACUATION,)

    def deletes(self, lost: LostServer) -> Iterator[Deletion]:
        """Yield the disk of its system, which Nova makes again if the hosts do not share it."""
        from mistral_failover.cloud.servers import server_state, system_disk
        from mistral_failover.resources.restart.disks import disks_of

        there = server_state(lost.cloud, lost.server).exists
        if there and system_disk(lost.server) in disks_of(lost.cloud, lost.server):
            words = "unless the hosts share its storage: Nova makes it again from the image"
            yield Deletion("the disk of its system", words)

    def bring_back(self, attempt: Attempt) -> Result:
        """Evacuate it, and start it there."""
        tools, server = attempt.tools, attempt.server
        group_id = attempt.snapshot.state.id
        found = _evacuated(tools, group_id, attempt.member, server, attempt.fence, LIMIT)
        if isinstance(found, NotEvacuated):
            return Result(None, found.why)
        if not found.proven:
            return Result(None, found.observed.rstrip("."))
        # The proof of its fence is about the former host, so it must not come up later.
        return started(attempt, leave=False)


@dataclass(frozen=True)
class NotEvacuated:
    """Why a server was not evacuated, in words. ``may_write``: because its guest may write on."""

    why: str
    may_write: bool = False


def _evacuated(
    tools: OperationContext,
    group_id: str,
    member: str,
    server: str,
    fence: Mapping[str, Any],
    limit: float,
) -> Evidence | NotEvacuated:
    """Evacuate a member's server if what fenced it allows that; return why it does not otherwise.
    Raises `CloudError`, `LeaseLost`."""
    from mistral_failover.cloud import servers
    from mistral_failover.resources.restart.disks import disks_of, may_still_write
    from mistral_failover.store import views

    if fence.get("rung") not in PROOFS:
        return NotEvacuated("the proof of its fence does not say that its host is off")
    if left := may_still_write(tools, group_id, member, fence, disks_of(tools.cloud, server)):
        return NotEvacuated(left, may_write=True)

    def times(tx: ProjectTransaction) -> tuple[float, float]:
        ended = views.last_ended(tx, group_id, FENCE_TYPE, fence_name(member))
        return tx.now(), ended or 0.0

    now, fenced_at = tools.request.store.reading(times)
    if now - fenced_at > PROOF_LASTS:
        return NotEvacuated("its fence is long ago, so its host may be back by now")
    return servers.evacuate(tools.cloud, server, limit, fenced_at=fenced_at)


def before_release(
    context: OperationContext, operation: OperationDocument, server: str, *, or_delete: bool
) -> NotEvacuated | None:
    """Evacuate the lost server that has a volume, if that is how its member comes back: Nova
    detaches nothing on a dead host, and everything from a server that is off on a living one.
    Return why it was not evacuated; None if it was, or was not to be.

    ``or_delete``: the server may be deleted for it. That is quicker, so it counts where another
    member waits for the volume.

    Raises `CloudError`, `LeaseLost`.
    """
    from mistral_failover.groups.snapshot import named_snapshot_in
    from mistral_failover.resources.operation_context import fence_proof, member_of

    proof = fence_proof(operation)
    if proof is None or proof["rung"] not in PROOFS:
        return None
    member = member_of(operation)["name"]

    def wanted(tx: ProjectTransaction) -> Mapping[str, Any]:
        snapshot = named_snapshot_in(context.request, tx, operation["group"])
        quicker = or_delete and not snapshot.vacant
        return {} if quicker else snapshot.replacing.get(member, {})

    wish = context.request.store.reading(wanted)
    ways = list(wish.get("restart", ()))
    before = ways[: ways.index(ANOTHER_SERVER)] if ANOTHER_SERVER in ways else ways
    if NAME not in before or wish.get("server_id") != server:
        return None
    limit = min(LIMIT, operation["timeout"] / 2)
    if not _is_first(context, operation, server, limit):
        return None
    found = _evacuated(context, operation["group_id"], member, server, proof, limit)
    if isinstance(found, NotEvacuated):
        return found
    return None if found.proven else NotEvacuated(found.observed.rstrip("."))


@contextmanager
def says_why_not(operation: OperationDocument, refused: NotEvacuated | None) -> Iterator[None]:
    """Let an error that waits for an operator say why the server was not evacuated: its host is
    down, or Nova has it in ERROR since it tried. If its guest may write on, nothing else that leads
    on is safe before it is off."""
    from mistral_failover.cloud.errors import CloudError
    from mistral_failover.resources.operation_context import member_of
    from mistral_failover.runtime.errors import confirm_command

    try:
        yield
    except CloudError as error:
        if error.blocked and refused is not None:
            error.message += f". It was not evacuated: {refused.why}"
            if refused.may_write:
                confirm = confirm_command(operation["group"], member_of(operation)["name"])
                error.remedy = f"Make sure that its host is off, then confirm it: {confirm}."
        raise


def _is_first(
    context: OperationContext, operation: OperationDocument, server: str, limit: float
) -> bool:
    """Return whether this volume is the one whose release evacuates the server. The releases of the
    others wait for it, until the server is elsewhere or that release has failed: newer versions of
    Nova begin a second evacuation beside the first."""
    from mistral_failover.cloud.errors import CloudError
    from mistral_failover.cloud.servers import server_state
    from mistral_failover.cloud.waits import ProbeResult

    group_id, own = operation["group_id"], operation["resource"]["id"]

    def step() -> ProbeResult:
        first = _first(context.request.store.reading(lambda tx: tx.records(group_id)), server)
        if first is None or first.id == own:
            return ProbeResult("it is the first", done=True, result=True)
        seen = server_state(context.cloud, server)
        over = first.status == Status.FAILED or not seen.host_silent
        return ProbeResult(f"{first.name} has it evacuated", done=over, result=False)

    try:
        return bool(context.cloud.wait(step, what=f"server {server} to be evacuated", limit=limit))
    except CloudError as error:
        if error.code != "TIMEOUT" or error.transient:
            raise
        return False


def _first(records: Iterable[Record], server: str) -> Record | None:
    """Return the volume on a server that is released first: nothing else there requires it."""
    records = [each for each in records if not each.gone]
    requires: dict[str, set[str]] = {}
    for each in records:
        requires.setdefault(each.name, set()).update(each.requires)

    def all_required(name: str) -> set[str]:
        found: set[str] = set()
        left = [name]
        while left:
            more = requires.get(left.pop(), set()) - found
            found |= more
            left += more
        return found

    here = [
        each
        for each in records
        if each.type == ATTACHMENT and each.attributes.get("server_id") == server
    ]
    needed = set().union(*(all_required(each.name) for each in here))
    free = [each for each in here if each.name not in needed]
    return min(free, key=lambda each: each.id, default=None)
