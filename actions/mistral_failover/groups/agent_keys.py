# SPDX-License-Identifier: Apache-2.0
"""Hand out the keys that members' agents sign with.

A key is derived from the installation's secret (`[failover] agent_key_file`) and from its purpose,
so nothing is stored, the same key is handed out every time, and a server can get its key before its
group is defined. Keys are only for the request's own project; a user who may see a project's groups
may command its members anyway.
"""

from __future__ import annotations

from mistral_failover.agent.channel.keys import read_secret
from mistral_failover.agent.wire import group_key, member_key
from mistral_failover.model.ids import group_id
from mistral_failover.model.validation import check_grammar
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request


def enroll(request: Request, group: str, member: str | None) -> dict[str, str]:
    """Return what an agent's configuration needs: ``project``, ``group``, ``group_id`` and
    ``member`` with its ``key``, or, without a member, ``group_key``, for servers whose names are
    not known in advance. Keys are hexadecimal.

    Raises ActionError WOULD_BE_KEPT if Mistral would store the key; ChannelError CONFIG without a
    usable secret; InvalidDocument for an invalid name.
    """
    check_grammar("name", group, "group")
    if member is not None:
        check_grammar("name", member, "member")
    execution = request.context.execution
    if execution.workflow_execution_id or execution.action_execution_id:
        raise ActionError(
            "WOULD_BE_KEPT",
            "Mistral stores the results of actions in workflows and of background actions, so the "
            "key would be stored in its database",
            "Run failover.enroll outside of workflows, with run_sync true and save_result false, "
            "as `failover agent key` does.",
        )
    identity = group_id(request.project_id, group)
    key = group_key(read_secret(request.runtime.settings.agent_key_file), identity)
    facts = {"project": request.project_id, "group": group, "group_id": identity}
    if member is None:
        return {**facts, "group_key": key.hex()}
    return {**facts, "member": member, "key": member_key(key, member).hex()}
