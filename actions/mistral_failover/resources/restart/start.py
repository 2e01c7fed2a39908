# SPDX-License-Identifier: Apache-2.0
"""The way ``start``: the same server serves again, on its host, which lives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mistral_failover.model.goal import FENCE_TYPE, fence_name
from mistral_failover.model.rungs import ServerAfter, rung_kinds
from mistral_failover.resources.restart.way import Attempt, Result, Way

if TYPE_CHECKING:
    from mistral_failover.agent.wire import Address
    from mistral_failover.model.group import Limits

PROOF_LASTS = 900.0
"""Seconds after the fence in which its host is taken to live. A step that failed is tried again
hours later, and a request to a dead host would be carried out when that comes back."""


class Start(Way):
    """The guest crashed or was shut off, or only its application failed; its host lives, as the
    fence has proven just now.

    Only Nova's compute service, which stopped the server, and the guest's own agent say that:
    behind any other proof the host may be dead, and a start that it carries out when it comes back
    would come late. A server that Nova has ACTIVE is back when its agent says so: one that hangs at
    boot is ACTIVE, too.
    """

    when = (
        f"the fence was `stop` or `quiesce`, at most {PROOF_LASTS / 60:g} minutes ago, so its host "
        "lives: the same server, started if it is off"
    )

    does = "Nova starts the same server"

    def longest(self, limits: Limits) -> float:
        """Return how long it may boot."""
        return limits.boot

    def proofs(self, ladder: Sequence[str]) -> list[str]:
        """Return the rungs that prove that the host lives."""
        known = rung_kinds()
        return [
            kind
            for kind in ladder
            if kind in known and known[kind].server_after is not ServerAfter.CUT_OFF
        ]

    def bring_back(self, attempt: Attempt) -> Result:
        """Start it."""
        if not self.proofs([str(attempt.fence.get("rung", ""))]):
            return Result(None, "by the proof of its fence, its host may be dead")
        if _fenced_ago(attempt) > PROOF_LASTS:
            return Result(None, "its fence is long ago, so its host may be dead by now")
        return started(attempt)


def started(attempt: Attempt) -> Result:
    """Start the server on the host that it is on, and wait for its agent."""
    from mistral_failover.agent.wire import Address
    from mistral_failover.cloud import servers
    from mistral_failover.groups.agent_health import sends_commands
    from mistral_failover.store.leases import elapsed

    began, cloud, server = elapsed(), attempt.tools.cloud, attempt.server
    group, state = attempt.snapshot.group, attempt.snapshot.state
    shown = servers.start(cloud, server, group.limits.boot)
    if not shown.proven:
        return Result(None, shown.observed)
    if sends_commands(group):
        to = Address(state.id, state.name, attempt.member, server)
        if missing := _missing(attempt, to, began):
            return Result(None, f"{missing}: openstack console log show {server}")
    return Result(server, shown.observed)


def _fenced_ago(attempt: Attempt) -> float:
    """Return the seconds since the member's last fence ended."""
    from mistral_failover.store import views
    from mistral_failover.store.transaction import ProjectTransaction

    group_id, fence = attempt.snapshot.state.id, fence_name(attempt.member)

    def ago(tx: ProjectTransaction) -> float:
        return tx.now() - (views.last_ended(tx, group_id, FENCE_TYPE, fence) or 0.0)

    return attempt.tools.request.store.reading(ago)


def _missing(attempt: Attempt, to: Address, began: float) -> str:
    """Wait until the agent reports that it can carry out commands. Return why it does not; empty if
    it does.

    What it said before this attempt, or in an epoch that the fence ended, does not count. A channel
    that does not answer is waited for, too. A server that is off again, or in ERROR, does not come
    up any more.
    """
    from mistral_failover.agent.channel.interface import ChannelError
    from mistral_failover.cloud.errors import CloudError
    from mistral_failover.cloud.servers import server_state
    from mistral_failover.cloud.waits import ProbeResult
    from mistral_failover.store import groups
    from mistral_failover.store.leases import elapsed

    group_id, limit = attempt.snapshot.state.id, attempt.snapshot.group.limits.boot
    rows = attempt.tools.request.store.reading(lambda tx: groups.members_of(tx, group_id))
    epoch = rows[attempt.member].epoch

    def step() -> ProbeResult:
        seen = server_state(attempt.tools.cloud, attempt.server)
        if seen.task_state is None and (seen.unfit or seen.off):
            words = f"Nova started it, and then showed it {seen}"
            return ProbeResult(words, done=True, result=words)
        try:
            beat = attempt.tools.channel.heard(to)
        except ChannelError as error:
            return ProbeResult(error.message)
        if beat is None or beat.epoch < epoch or beat.ago > elapsed() - began:
            return ProbeResult("it has not reported")
        return ProbeResult(beat.not_ready or "it reports", done=not beat.not_ready, result="")

    try:
        left = max(limit - (elapsed() - began), 1.0)
        found = attempt.tools.cloud.wait(step, what=f"the agent of {attempt.member}", limit=left)
    except CloudError as error:
        if error.code != "TIMEOUT" or error.transient:
            raise
        return f"it is ACTIVE, but its agent did not report within {limit:g} s"
    return str(found)
