# SPDX-License-Identifier: Apache-2.0
"""Actions on the members of a group."""

from __future__ import annotations

from typing import Annotated, Any

from mistral_failover.actions.base import FailoverAction
from mistral_failover.orders.answers import MemberInTurn
from mistral_failover.orders.evidence import evidence
from mistral_failover.orders.replace import LONGEST_PAUSE, next_member
from mistral_failover.reports import members as member_report
from mistral_failover.runtime.inputs import Names, Text, bad_input, whole
from mistral_failover.runtime.request import Request


class Members(FailoverAction):
    """List a group's members: what they hold, whether they may take a role, and why not."""

    def answer(self, request: Request, group: Text) -> Any:
        return member_report.members(request, group)


class Evidence(FailoverAction):
    """Say what is known of a lost member: its server, host, agent, volumes and power."""

    def answer(self, request: Request, group: Text, member: Text) -> Any:
        return evidence(request, group, member)


def _turn(key: str, given: Any) -> list[MemberInTurn] | None:
    """Return the servers as the first answer listed them. Raises ActionError BAD_INPUT."""
    if given is None:
        return None
    fields = ("member", "server")
    if not isinstance(given, list) or not all(
        isinstance(each, dict) and all(isinstance(each.get(field), str) for field in fields)
        for each in given
    ):
        raise bad_input(
            key,
            "a list of members with their servers",
            given,
            "Repeat the turn from the first answer, or leave it out.",
        )
    return [{"member": each["member"], "server": each["server"]} for each in given]


class NextMember(FailoverAction):
    """Return the next member when members are replaced one by one."""

    def answer(
        self,
        request: Request,
        group: Text,
        members: Names = (),
        turn: Annotated[list[MemberInTurn] | None, _turn] = None,
        pause: Annotated[int, whole(0, LONGEST_PAUSE)] = 0,
    ) -> Any:
        return next_member(request, group, members, turn, pause)
