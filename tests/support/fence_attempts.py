# SPDX-License-Identifier: Apache-2.0
"""Climbing a ladder whose rungs do what a test says."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mistral_failover.agent.channel.interface import Command, CommandResult, Heartbeat
from mistral_failover.agent.wire import Address
from mistral_failover.cloud import boot_disks, servers
from mistral_failover.cloud.servers import Evidence, ServerState
from mistral_failover.cloud.waits import Pauses, ProbeResult, pauses_until
from mistral_failover.resources.fence.ladder import fence
from mistral_failover.resources.fence.rung import FenceTarget
from mistral_failover.resources.operation_context import OperationContext
from mistral_failover.runtime.errors import ActionError
from mistral_failover.store.groups import MemberRow
from support.no_cloud import RunningServers

OFF = Evidence(True, "stop", "SHUTOFF")
STILL_ON = Evidence(False, "stop", "still ACTIVE")
GONE = Evidence(True, "delete", "deleted")
NOT_GONE = Evidence(False, "delete", "deleted in the database alone")
MEMBER = MemberRow("db_a", "s-a", 1.0, 4, None)


class Cloud(RunningServers):
    """What waits without a guard, and shortly."""

    @staticmethod
    def pauses(probe: Callable[[], ProbeResult], *, what: str, limit: float) -> Pauses[Any]:
        return pauses_until(probe, what=what, limit=limit, first=0.001, ceiling=0.01)


class Attempt:
    """A climb: what each rung does when it comes to it, and in which order they came."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.climbed: list[Any] = []
        self.commands: list[Command] = []
        self.deposed: list[tuple[str, int]] = []
        self.mistral: Any = None
        self.answers: dict[str, Any] = {
            "depose": None,
            "quiesce": 0,
            "heard": None,
            "stop": OFF,
            "delete": GONE,
            "confirm": None,
        }
        monkeypatch.setattr(servers, "stop", self._nova("stop"))
        monkeypatch.setattr(servers, "delete_server", self._nova("delete"))
        monkeypatch.setattr(boot_disks, "must_stay", lambda *_: False)

    def _nova(self, rung: str) -> Callable[..., Any]:
        def verb(cloud: object, server_id: str, limit: float, *, root: bool = False) -> Any:
            self.climbed.append((rung, server_id, limit))
            return self._answer(rung)

        return verb

    def _answer(self, rung: str) -> Any:
        answer = self.answers[rung]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def run(self, command: Command) -> CommandResult:
        """The command channel."""
        self.commands.append(command)
        self.climbed.append(("quiesce", command.to.server_id, command.limit))
        code = self._answer("quiesce")
        return CommandResult(command.id, code, "", "it hangs", False)

    def depose(self, to: Address, epoch: int) -> None:
        """The command channel, too."""
        assert (to.group, to.member) == ("payments", "db_a")
        self.deposed.append((to.server_id, epoch))
        self._answer("depose")

    def heard(self, to: Address) -> Heartbeat | None:
        """And this."""
        beat: Heartbeat | None = self._answer("heard")
        return beat

    def reading(self, read: Callable[[Any], float]) -> float:
        """The state store, whose clock shows how far the climb is."""
        return read(SimpleNamespace(now=lambda: float(len(self.climbed))))

    def confirmed(self) -> str | None:
        """What a person has said by now."""
        self.climbed.append("confirm")
        said: str | None = self.answers["confirm"]
        return said

    def climb(
        self,
        *ladder: str | dict[str, Any],
        member: MemberRow = MEMBER,
        servers: tuple[str, ...] = ("s-a",),
        stops: tuple[str, ...] = ("pg-stop",),
        without_stop_command: tuple[str, ...] = (),
        attached: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        operation: Any = {
            "key": "k",
            "group": "payments",
            "stack": "payments",
            "group_id": "g-1",
            "ticket": {"lock": {"token": 1}},
            "properties": {
                "ladder": [
                    {"kind": rung, "limit": 5} if isinstance(rung, str) else rung for rung in ladder
                ]
            },
        }
        here = tuple((server, stop) for server in servers for stop in stops)
        target = FenceTarget(member, servers, here, without_stop_command, self.confirmed, attached)
        request: Any = SimpleNamespace(store=self)
        context = OperationContext(request, Cloud(), self, lambda: self.mistral)  # type: ignore[arg-type]
        attributes: dict[str, Any] = fence(context, operation, target)["attributes"]
        return attributes


def nova_has_it_in(monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    state = ServerState(status, None, None, exists=True)
    monkeypatch.setattr(servers, "server_state", lambda cloud, server: state)


def observed(attempt: Attempt, *ladder: Any) -> str:
    with pytest.raises(ActionError) as caught:
        attempt.climb(*ladder)
    said: str = caught.value.message
    return said
