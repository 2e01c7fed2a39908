# SPDX-License-Identifier: Apache-2.0
"""Whose agent is silent while those of others are heard."""

from __future__ import annotations

import time
from collections.abc import Mapping

from mistral_failover.actions.runtime import Request
from mistral_failover.agent.channel import ChannelError
from mistral_failover.agent.wire import Address
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.guard import Unguarded
from mistral_failover.model.group import Group

SILENT = 60.0
"""Seconds without a heartbeat after which an agent is taken for silent: one comes every 10 s."""
ASK = 5.0
"""Seconds after which no further agent is asked for, however many members there are."""
_COMMANDED = "failover.activate"


def sends_commands(group: Group) -> bool:
    """Whether anything of a group is started or stopped by agents."""
    kinds = [group.types[spec.type] for spec in group.resources.values()]
    return any(spec.action == _COMMANDED for kind in kinds for spec in kind.operations.values())


def silent(
    request: Request, group: Group, group_id: str, servers: Mapping[str, str]
) -> dict[str, str]:
    """Of some members, given with their servers, those whose agents have been silent, in words.

    Each agent is asked for once, and none is waited for. Where none at all is heard it is rather
    the channel, and one of which nothing is known may only be new: neither is said to be silent.
    """
    if not sends_commands(group):
        return {}
    guard = Unguarded(request.runtime.settings.http_timeout)
    ago: dict[str, float] = {}
    end = time.monotonic() + ASK
    try:
        channel = request.channel(request.cloud(guard), guard)
        for name, server_id in servers.items():
            if time.monotonic() > end:
                break
            beat = channel.heard(Address(group_id, group.name, name, server_id))
            if beat is not None:
                ago[name] = beat.ago
    except (ChannelError, CloudError):
        return {}  # the channel is out of reach, for the others as well
    if all(seconds > SILENT for seconds in ago.values()):
        return {}
    return {
        name: f"its agent has said nothing for {seconds:.0f} s"
        for name, seconds in ago.items()
        if seconds > SILENT
    }
