# SPDX-License-Identifier: Apache-2.0
"""The rung ``quiesce``: the member's own agent runs the stop commands of the group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.rungs import Rung, ServerAfter
from mistral_failover.model.schemas import MAX_SECONDS, SECONDS
from mistral_failover.resources.fence.rung import Examined, FenceAttempt, FenceRung, Missing

if TYPE_CHECKING:
    from mistral_failover.cloud.servers import Evidence

_AT_WORK = (10.0, 300.0)
"""An agent that reports progress gets this many limits, and at least this many seconds."""


class Quiesce(FenceRung):
    """``limit`` is how long the agent may be silent, ``longest`` how long it may work."""

    proof = "its agent confirms that everything has stopped"
    limit = 30.0
    fields = {"longest": SECONDS}
    server_after = ServerAfter.RUNNING

    def read(self, stated: Mapping[str, Any], path: str) -> Rung:
        """Fill in ``longest`` as well."""
        rung = super().read(stated, path)
        limit, (times, least) = rung["limit"], _AT_WORK
        longest = float(stated.get("longest", min(max(times * limit, least), MAX_SECONDS)))
        if longest < limit:
            raise InvalidDocument(
                f"{path}.longest",
                f"shorter than the limit, {limit:g} s",
                "Raise it, or leave it out.",
            )
        return {**rung, "longest": longest}

    def longest(self, rung: Rung) -> float:
        """Return the time for an agent that is working."""
        return float(rung.get("longest") or rung["limit"])

    def words(self, rung: Rung) -> str:
        """Name both limits."""
        longest = (
            (f", {rung['longest']:g} s while it reports progress") if rung.get("longest") else ""
        )
        return f"{self.proof} (within {rung['limit']:g} s{longest})"

    def missing(self, rung: Rung, examined: Examined) -> Iterator[Missing]:
        """Require the command channel, because the rung sends commands."""
        from mistral_failover.groups.agent_health import sends_commands

        if sends_commands(examined.group) and not examined.settings.command_channel:
            yield Missing(
                "the rung quiesce sends commands, but no command channel is configured",
                "Set [failover] command_channel.",
            )

    def prove(self, attempt: FenceAttempt, rung: Rung) -> Evidence:
        """Run every stop command where its application was started."""
        from sqlalchemy.exc import SQLAlchemyError

        from mistral_failover.agent.channel.interface import ChannelError, Command
        from mistral_failover.agent.wire import Address
        from mistral_failover.cloud.errors import CloudError
        from mistral_failover.cloud.servers import Evidence
        from mistral_failover.cloud.transport import NoLongerNeeded
        from mistral_failover.model.ids import derived_id
        from mistral_failover.resources.commands import run_command
        from mistral_failover.runtime.errors import ActionError, caught

        operation, member = attempt.operation, attempt.target.member
        if attempt.target.without_stop_command:
            named = ", ".join(attempt.target.without_stop_command)
            said = f"no stop command on {member.name} covers {named}"
            return Evidence(False, self.kind, said)
        for server, name in attempt.target.stops:
            command = Command(
                id=derived_id(operation["key"], server, name),
                to=Address(operation["group_id"], operation["group"], member.name, server),
                epoch=member.epoch,
                name=name,
                limit=float(rung["limit"]),
                longest=self.longest(rung),
            )
            try:
                run_command(attempt.tools.channel, command)
            except (ActionError, ChannelError, CloudError, NoLongerNeeded, SQLAlchemyError):
                raise
            except Exception as error:  # no client of a broker holds a fence up
                caught(error, "sending the stop commands of a fence")
                said = f"the command channel failed ({type(error).__name__})"
                return Evidence(False, self.kind, said)
        done = " and ".join(sorted({stop for _, stop in attempt.target.stops}))
        said = f"{member.name} confirmed: {done}"
        if not done:
            said = f"nothing of the group is on {member.name}"
        return Evidence(True, self.kind, said)
