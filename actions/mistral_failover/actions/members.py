# SPDX-License-Identifier: Apache-2.0
"""Actions on the members of a group."""

from __future__ import annotations

from typing import Any

from mistral_failover.actions.base import FailoverAction
from mistral_failover.orders.answers import MemberInTurn
from mistral_failover.orders.evidence import evidence
from mistral_failover.orders.replace import LONGEST_PAUSE, next_member
from mistral_failover.reports import members as member_report
from mistral_failover.runtime.inputs import bad_input, names, text, whole
from mistral_failover.runtime.request import Request


class Members(FailoverAction):
    """List a group's members: what they hold, whether they may take a role, and why not."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group = group

    def answer(self, request: Request) -> Any:
        return member_report.members(request, text("group", self.group))


class Evidence(FailoverAction):
    """Say what is known of a lost member: its server, host, agent, volumes and power."""

    def __init__(self, group: Any, member: Any) -> None:
        super().__init__()
        self.group = group
        self.member = member

    def answer(self, request: Request) -> Any:
        return evidence(request, text("group", self.group), text("member", self.member))


class NextMember(FailoverAction):
    """Return the next member when members are replaced one by one."""

    def __init__(self, group: Any, members: Any = None, turn: Any = None, pause: Any = 0) -> None:
        super().__init__()
        self.group = group
        self.members = members
        self.turn = turn
        self.pause = pause

    def answer(self, request: Request) -> Any:
        return next_member(
            request,
            text("group", self.group),
            names("members", self.members),
            _turn(self.turn),
            whole("pause", self.pause, 0, LONGEST_PAUSE),
        )


def _turn(given: Any) -> list[MemberInTurn] | None:
    """Return the servers as the first answer listed them. Raises ActionError BAD_INPUT."""
    if given is None:
        return None
    keys = ("member", "server")
    if not isinstance(given, list) or not all(
        isinstance(each, dict) and all(isinstance(each.get(key), str) for key in keys)
        for each in given
    ):
        raise bad_input(
            "turn",
            "a list of members with their servers",
            given,
            "Repeat the turn from the first answer, or leave it out.",
        )
    return [{"member": each["member"], "server": each["server"]} for each in given]
