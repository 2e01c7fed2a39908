# SPDX-License-Identifier: Apache-2.0
"""The rung ``workflow: name``: a workflow of the user makes sure that a member no longer writes (by
IPMI, by the host's own fencing) and says how it knows.

It gets ``group``, ``member``, ``servers`` (ids) and ``because`` (what is known so far, a sentence).
The proof is its success together with a text as its output ``proof``; any other result is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.group import PRIVATE_WORKFLOWS
from mistral_failover.model.ids import derived_id
from mistral_failover.model.rungs import Rung
from mistral_failover.model.schemas import WORKFLOW_NAME
from mistral_failover.resources.fence.rung import Examined, FenceAttempt, FenceRung, Missing

if TYPE_CHECKING:
    from mistral_failover.cloud.servers import Evidence
    from mistral_failover.mistral.api import Outcome

_LENGTH = 500  # characters of what a workflow says that are kept


class Workflow(FenceRung):
    """``workflow`` is its name. Its execution's id is derived from the operation's key, so a repeat
    finds the same execution. An execution that ended longer ago than ``limit`` proves nothing about
    the present, because the member may have been switched on again."""

    proof = "the workflow {workflow} proves it"
    limit = 300.0
    fields = {"workflow": {"type": "string", "pattern": WORKFLOW_NAME}}
    required = ("workflow",)
    for_dead_host = True

    def name(self, rung: Rung) -> str:
        """Return the workflow's name: several workflows may be on one ladder."""
        return str(rung["workflow"])

    def read(self, stated: Mapping[str, Any], path: str) -> Rung:
        """Refuse the engine's own workflows."""
        if stated["workflow"].startswith(PRIVATE_WORKFLOWS):
            raise InvalidDocument(
                f"{path}.workflow",
                f'"{stated["workflow"]}" is private',
                "Name a workflow of your own.",
            )
        return super().read(stated, path)

    def missing(self, rung: Rung, examined: Examined) -> Iterator[Missing]:
        """Require that Mistral shows the workflow."""
        name = self.name(rung)
        if examined.lacks_workflow(name):
            yield Missing(
                f"Mistral does not show the workflow of the rung {name} to this project",
                f"openstack workflow create FILE, or remove {name} from the ladder",
            )

    def prove(self, attempt: FenceAttempt, rung: Rung) -> Evidence:
        """Run the workflow for at most ``limit`` seconds, and judge it. If it has not ended by
        then, it is stopped, as long as this process lives."""
        from mistral_failover.cloud.servers import Evidence
        from mistral_failover.cloud.waits import slept
        from mistral_failover.mistral.user_workflows import WorkflowStart, run_to_its_end
        from mistral_failover.runtime.errors import in_words

        workflow, limit, target = self.name(rung), float(rung["limit"]), attempt.target
        operation, member = attempt.operation, target.member.name
        facts = {
            "group": operation["group"],
            "member": member,
            "servers": list(target.servers),
            "because": "; ".join([f"{member} is declared lost", *map(in_words, attempt.tried)]),
        }
        mistral = attempt.tools.mistral()
        if mistral is None:
            said = "neither the token nor the configuration has the URL of Mistral's API"
            return Evidence(False, self.kind, said)
        pauses = run_to_its_end(
            mistral,
            attempt.tools.cloud.pauses,
            WorkflowStart(
                workflow,
                facts,
                derived_id(operation["key"], "rung", workflow),
                f"a rung of the fence of {member} in {operation['group']}",
            ),
            limit,
            stale=lambda found: found.ago > limit,
        )
        ended = slept(pauses)
        if ended.found is None:
            words = (
                f"{workflow} (execution {ended.execution}) is {ended.state} after {limit:g} s, "
                f"and {ended.stopped}"
            )
            return Evidence(False, self.kind, words)
        proven, said = _judged(workflow, ended.execution, ended.found)
        return Evidence(proven, self.kind, said)


def _judged(workflow: str, execution: str, ended: Outcome) -> tuple[bool, str]:
    """Return whether an ended execution proves it, and its message."""
    what = f"{workflow} (execution {execution})"
    if ended.workflow != workflow:
        return False, f"{what} is an execution of {ended.workflow}"
    if ended.state != "SUCCESS":
        said = _words(ended.output.get("error")) or _words(ended.said) or "it gave no reason"
        return False, f"{what} is {ended.state}: {said}"
    proof = ended.output.get("proof")
    if not isinstance(proof, str) or not proof.strip():
        return False, f"{what} is SUCCESS, but its output has no text named proof"
    return True, f"{workflow}: {_words(proof)}"


def _words(said: Any) -> str:
    """Return a workflow's message in one line, without anything that looks like a secret."""
    from mistral_failover.runtime.errors import masked

    if isinstance(said, Mapping):
        said = said.get("message") or said.get("code") or ""
    return masked(" ".join(str(said or "").split()))[:_LENGTH]
