# SPDX-License-Identifier: Apache-2.0
"""The way ``start``: the same server serves again, on its host, which lives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mistral_failover.model.goal import FENCE_TYPE, fence_name
from mistral_failover.model.heartbeats import SILENT
from mistral_failover.model.rungs import ServerAfter, rung_kinds
from mistral_failover.resources.restart.way import Attempt, Result, Way

if TYPE_CHECKING:
    from mistral_failover.agent.wire import Address
    from mistral_failover.model.group import Limits

STOP_LIMIT = 60.0
"""Seconds to stop a server that came up without its agent."""
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
        "lives: the same server, started if it is off, or if its guest is dead"
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
        now = attempt.tools.request.store.reading(lambda tx: tx.now())
        if now - _fenced_at(attempt) > PROOF_LASTS:
            return Result(None, "its fence is long ago, so its host may be dead by now")
        return started(attempt, leave=attempt.wish["restart"][-1] == self.name)


def started(attempt: Attempt, *, leave: bool) -> Result:
    """Start the server on the host that it is on, and wait for its agent. ``leave`` it running if
    that does not report; otherwise it is stopped.

    One that runs, and that nothing has started since its fence, is stopped first, unless its agent
    is heard: its guest is dead, which Nova does not see, and waiting for it is no use. So it is for
    a standby, whose fence finds nothing to stop there.
    """
    from mistral_failover.agent.wire import Address
    from mistral_failover.cloud import servers
    from mistral_failover.groups.agent_health import sends_commands
    from mistral_failover.store.leases import elapsed

    began, cloud, server = elapsed(), attempt.tools.cloud, attempt.server
    group, state = attempt.snapshot.group, attempt.snapshot.state

    def left() -> float:
        return max(group.limits.boot - (elapsed() - began), 1.0)

    to = Address(state.id, state.name, attempt.member, server)
    if _runs_as_before(attempt) and not (sends_commands(group) and _is_heard(attempt, to, began)):
        stopped = servers.stop(cloud, server, min(STOP_LIMIT, left()))
        if not stopped.proven:
            why = stopped.observed.rstrip(".")
            return Result(None, f"nothing says that its guest runs, and it is not stopped: {why}")
    shown = servers.start(cloud, server, left())
    if not shown.proven:
        return Result(None, shown.observed)
    if sends_commands(group) and (missing := _missing(attempt, to, began)):
        if not leave:
            _stop_again(attempt)
        return Result(None, f"{missing}: openstack console log show {server}")
    return Result(server, shown.observed)


def _runs_as_before(attempt: Attempt) -> bool:
    """Return whether Nova has the server ACTIVE, and has not been asked to start it since its
    fence."""
    from mistral_failover.cloud import servers

    cloud, server = attempt.tools.cloud, attempt.server
    if servers.server_state(cloud, server).status != "ACTIVE":
        return False
    return not servers.may_have_started_since(cloud, server, _fenced_at(attempt))


def _is_heard(attempt: Attempt, to: Address, began: float) -> bool:
    """Wait until the agent is heard, or counts as silent. Return whether it is heard, which is
    taken to be so if the channel does not answer."""
    from mistral_failover.agent.channel.interface import ChannelError
    from mistral_failover.cloud.errors import CloudError
    from mistral_failover.cloud.waits import ProbeResult
    from mistral_failover.store.leases import elapsed

    answered = False

    def step() -> ProbeResult:
        nonlocal answered
        _refuse_unwanted(attempt)
        try:
            beat = attempt.tools.channel.heard(to)
        except ChannelError as error:
            return ProbeResult(error.message)
        answered = True
        if beat is None:
            return ProbeResult("it was never heard")
        heard, silent = beat.ago <= elapsed() - began, beat.ago > SILENT
        return ProbeResult(f"heard {beat.ago:.0f} s ago", done=heard or silent, result=heard)

    wait = min(SILENT, attempt.snapshot.group.limits.boot / 2)
    try:
        return bool(
            attempt.tools.cloud.wait(step, what=f"the agent of {attempt.member}", limit=wait)
        )
    except CloudError as error:
        if error.code != "TIMEOUT" or error.transient:
            raise
        return not answered


def _stop_again(attempt: Attempt) -> None:
    """Stop a server that did not come up, since what follows relies on the proof of its fence: the
    disk that it boots from goes to the next one."""
    from mistral_failover.cloud import servers

    if servers.server_state(attempt.tools.cloud, attempt.server).status == "ACTIVE":
        servers.stop(attempt.tools.cloud, attempt.server, STOP_LIMIT)


def _fenced_at(attempt: Attempt) -> float:
    """Return when the member's last fence ended, in seconds since 1970; 0 if it has none."""
    from mistral_failover.store import views

    group_id, fence = attempt.snapshot.state.id, fence_name(attempt.member)
    ended = attempt.tools.request.store.reading(
        lambda tx: views.last_ended(tx, group_id, FENCE_TYPE, fence)
    )
    return ended or 0.0


def _missing(attempt: Attempt, to: Address, began: float) -> str:
    """Wait until the agent reports that it can carry out commands. Return why it does not; empty if
    it does.

    What it said before this attempt, or in an epoch that the fence ended, does not count. A channel
    that does not answer is waited for, too. A server that is off again, or in ERROR, does not come
    up any more. Raises ActionError NOT_BACK if the group has a goal that does not want it so: what
    that wants waits for the end of this.
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
        _refuse_unwanted(attempt)
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


def _refuse_unwanted(attempt: Attempt) -> None:
    """Raise ActionError NOT_BACK if the group's present goal does not bring the member back by the
    same ways. If it does by others, the server is stopped for them."""
    from mistral_failover.groups.snapshot import group_snapshot
    from mistral_failover.runtime.errors import ActionError

    now = group_snapshot(attempt.tools.request, attempt.snapshot.group.name)
    wish = now.replacing.get(attempt.member, {})
    if any(wish.get(key) != attempt.wish.get(key) for key in ("server_id", "restart")):
        if wish.get("server_id") == attempt.server:
            _stop_again(attempt)
        raise ActionError(
            "NOT_BACK",
            f"{attempt.member} is not waited for, because {now.group.name} has another goal",
            f"Its server {attempt.server} was started.",
        )
