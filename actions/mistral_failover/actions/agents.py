# SPDX-License-Identifier: Apache-2.0
"""Actions on the agents of a group's members."""

from __future__ import annotations

from typing import Any

from mistral_failover.actions.base import FailoverAction
from mistral_failover.groups import agent_health, agent_keys
from mistral_failover.runtime.inputs import OptionalText, Text
from mistral_failover.runtime.request import Request


class Agents(FailoverAction):
    """Show the last heartbeats of the agents on a group's members."""

    def answer(self, request: Request, group: Text) -> Any:
        return agent_health.agents(request, group)


class Enroll(FailoverAction):
    """Hand out the key of a member's agent, or of all of a group's agents.

    Run it outside of workflows, with run_sync true and save_result false: then Mistral stores
    nothing.
    """

    def answer(self, request: Request, group: Text, member: OptionalText = None) -> Any:
        return agent_keys.enroll(request, group, member)
