# SPDX-License-Identifier: Apache-2.0
"""Executions of a process that has ended.

Mistral keeps the next steps in threads, so a killed process leaves executions RUNNING forever.
Clients that wait for them must see an end.
"""

from collections.abc import Collection
from typing import Any

from mistral_failover.embedded.errors import EmbeddedError

_UNFINISHED = ("IDLE", "RUNNING", "RUNNING_DELAYED", "WAITING")
REASON = "The process that ran this has ended."


def unfinished(ids: Collection[str] | None) -> list[dict[str, Any]]:
    """The unfinished executions among ``ids`` (None: among all), oldest first.

    PAUSED ones are left out: a user paused them, and they can be resumed.
    """
    from mistral.db.v2 import api as db_api

    if ids is not None and not ids:
        return []
    with db_api.transaction(read_only=True):
        rows = db_api.get_workflow_executions(
            insecure=True, sort_keys=["created_at", "id"], state={"in": list(_UNFINISHED)}
        )
        return [
            {
                "id": row.id,
                "workflow_name": row.workflow_name,
                "state": row.state,
                "root_execution_id": row.root_execution_id,
                "created_at": row.created_at.isoformat(),
            }
            for row in rows
            if ids is None or row.id in ids
        ]


def end(ids: Collection[str], state: str) -> list[str]:
    """Set the unfinished executions among ``ids``, their tasks and actions to ``state``.

    Rows are written directly, in one transaction: Mistral's own stop would run the on-error tasks
    of parents, which is unwanted work.

    :raises EmbeddedError: ``BAD_STATE``.
    """
    from mistral.db.v2 import api as db_api

    if state not in ("CANCELLED", "ERROR"):
        raise EmbeddedError(
            "BAD_STATE",
            (f"{state} is not a final state for a stale execution"),
            "use CANCELLED or ERROR",
        )
    ended = [row["id"] for row in unfinished(ids)]
    values = {"state": state, "state_info": REASON}
    open_states = {"in": [*_UNFINISHED, "PAUSED"]}
    with db_api.transaction():
        for wf_id in ended:
            tasks = db_api.get_task_executions(
                insecure=True, workflow_execution_id=wf_id, state=open_states
            )
            for task in tasks:
                actions = db_api.get_action_executions(
                    insecure=True, task_execution_id=task.id, state=open_states
                )
                for action in actions:
                    action.update({"state": state, "accepted": True})
                task.update({**values, "processed": True})
            db_api.get_workflow_execution(wf_id).update(values)
    return ended
