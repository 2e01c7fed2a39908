# SPDX-License-Identifier: Apache-2.0
"""Start a workflow of this package without waiting for its end.

A workflow that waits for a stack cannot wait for a failover that itself waits for the stack: the
first activation, which the stack's creation starts, ends with a PATCH of that stack.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mistral_failover.fault_points import reach
from mistral_failover.mistral.api import mistral_of
from mistral_failover.model.canonical import canonical_json
from mistral_failover.model.ids import derived_id
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request

PUBLIC = "failover."
PRIVATE = "failover._"


def launch(request: Request, workflow: str, input: Any, because: str) -> dict[str, Any]:
    """Start a workflow as an execution of its own, once for each execution that asks for it.

    The new execution's id is derived from the asking one's, so a repeat starts nothing. Returns
    ``workflow`` and ``execution``, its id. Raises ActionError BAD_INPUT for anything but a public
    workflow of this package, or if there is no execution to derive the id from; CloudError.
    """
    if not workflow.startswith(PUBLIC) or workflow.startswith(PRIVATE):
        raise ActionError(
            "BAD_INPUT",
            f"workflow: {workflow} is not one of the public workflows of this package",
            "Name one of the workflows failover.*; start any other workflow in Mistral itself.",
        )
    if not isinstance(input, Mapping):
        raise ActionError("BAD_INPUT", "input: a mapping is expected", "Correct input.")
    asking = request.context.execution.workflow_execution_id
    if not asking:
        raise ActionError(
            "BAD_INPUT",
            "this was not called by a workflow, so a repeat could not be recognized",
            f"Start {workflow} itself.",
        )
    mistral = mistral_of(request)
    if mistral is None:
        raise ActionError(
            "CONFIG",
            "neither the token nor the configuration has the URL of Mistral's API",
            "Set [failover] mistral_url, or call with a token.",
        )
    execution = derived_id("launch", request.project_id, asking, workflow, canonical_json(input))
    reach("launch.before")
    # Where the asking workflow is, this one is too; Mistral itself looks there for sub-workflows
    # only.
    namespace = mistral.namespace_of(asking)
    mistral.start(execution, workflow, input, because, namespace)
    reach("launch.after")
    return {"workflow": workflow, "execution": execution}
