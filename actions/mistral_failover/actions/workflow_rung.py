# SPDX-License-Identifier: Apache-2.0
"""The rung ``workflow: name``: a workflow of the user's makes sure that a member writes no more (by
IPMI, by the host's own fencing) and says how it knows.

It gets ``group``, ``member``, ``servers`` (ids) and ``because`` (what is known so far, a sentence).
Its proof is its success together with a text as its output ``proof``; whatever else comes of it is
none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from mistral_failover.actions.errors import masked
from mistral_failover.actions.operations import Document, Tools
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.guard import LeaseLost
from mistral_failover.cloud.mistral_api import ENDED, Mistral, Outcome
from mistral_failover.cloud.servers import Evidence
from mistral_failover.cloud.waits import Look
from mistral_failover.fault_points import reach
from mistral_failover.model.ids import derived_id

RUNG = "workflow"
_LENGTH = 500  # characters of what a workflow says that are kept


def prove(
    tools: Tools, operation: Document, workflow: str, facts: Mapping[str, Any], limit: float
) -> Evidence:
    """Run the workflow with ``facts`` as its input, at most ``limit`` seconds, and judge it.

    Its execution's id follows from the operation's key, so a repeat meets the same execution; but
    what ended longer ago than ``limit`` says nothing of now, since somebody may have switched the
    member on again. One that has not ended within the limit is stopped, as long as this process
    lives. Raises CloudError where Mistral can not be asked or does not take the workflow;
    LeaseLost.
    """
    mistral = tools.mistral()
    if mistral is None:
        return Evidence(False, RUNG, "where Mistral is, neither a token nor the configuration says")
    execution = derived_id(operation["key"], "rung", workflow)
    why = f"a rung of the fence of {facts['member']} in {facts['group']}"
    state = ""

    def step() -> Look:
        nonlocal state, execution
        found = mistral.outcome(execution)
        if not state and found and found.state in ENDED and found.ago > limit:
            execution = derived_id(execution, str(operation["ticket"]["lock"]["token"]))
            found = mistral.outcome(execution)
        state = state or "not started"
        if found is None:
            reach("rung.before")
            mistral.start(execution, workflow, facts, why)
            reach("rung.after")
            return Look(state)
        state = found.state
        return Look(state, done=state in ENDED, result=found)

    deadline = time.monotonic() + limit
    try:
        ended: Outcome = tools.cloud.wait(step, what=f"the end of {workflow}", limit=limit)
    except CloudError as error:
        if error.transient or error.code != "TIMEOUT" or time.monotonic() < deadline:
            raise
        stopped = _stop(mistral, execution, limit)
        words = f"{workflow} (execution {execution}) is {state} after {limit:g} s, and {stopped}"
        return Evidence(False, RUNG, words)
    return _judged(workflow, execution, ended)


def _stop(mistral: Mistral, execution: str, limit: float) -> str:
    """Stop an execution that takes too long, if that can be; what came of that."""
    try:
        mistral.end(execution, "CANCELLED", f"TIMEOUT: no proof within {limit:g} s")
    except LeaseLost:
        raise
    except CloudError as error:
        return f"could not be stopped: {error.message.rstrip('.')}"
    return "was stopped"


def _judged(workflow: str, execution: str, ended: Outcome) -> Evidence:
    what = f"{workflow} (execution {execution})"
    if ended.workflow != workflow:
        return Evidence(False, RUNG, f"{what} is an execution of {ended.workflow}")
    if ended.state != "SUCCESS":
        said = _words(ended.output.get("error")) or _words(ended.said) or "it did not say why"
        return Evidence(False, RUNG, f"{what} is {ended.state}: {said}")
    proof = ended.output.get("proof")
    if not isinstance(proof, str) or not proof.strip():
        return Evidence(False, RUNG, f"{what} is SUCCESS, but its output has no text proof")
    return Evidence(True, RUNG, f"{workflow}: {_words(proof)}")


def _words(said: Any) -> str:
    """What a workflow said, in one line and without what looks like a secret."""
    if isinstance(said, Mapping):
        said = said.get("message") or said.get("code") or ""
    return masked(" ".join(str(said or "").split()))[:_LENGTH]
