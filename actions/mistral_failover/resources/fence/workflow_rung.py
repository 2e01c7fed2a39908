# SPDX-License-Identifier: Apache-2.0
"""The rung ``workflow: name``: a workflow of the user's makes sure that a member writes no more (by
IPMI, by the host's own fencing) and says how it knows.

It gets ``group``, ``member``, ``servers`` (ids) and ``because`` (what is known so far, a sentence).
Its proof is its success together with a text as its output ``proof``; whatever else comes of it is
none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mistral_failover.cloud.servers import Evidence
from mistral_failover.mistral.api import Outcome
from mistral_failover.mistral.user_workflows import Start, run_to_its_end
from mistral_failover.model.ids import derived_id
from mistral_failover.resources.operation_tools import Document, Tools
from mistral_failover.runtime.errors import masked

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
    ended = run_to_its_end(
        mistral,
        tools.cloud.wait,
        Start(
            workflow,
            facts,
            derived_id(operation["key"], "rung", workflow),
            f"a rung of the fence of {facts['member']} in {facts['group']}",
        ),
        limit,
        stale=lambda found: found.ago > limit,
        again=str(operation["ticket"]["lock"]["token"]),
    )
    if ended.found is None:
        words = (
            f"{workflow} (execution {ended.execution}) is {ended.state} after {limit:g} s, and "
            f"{ended.stopped}"
        )
        return Evidence(False, RUNG, words)
    return _judged(workflow, ended.execution, ended.found)


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
