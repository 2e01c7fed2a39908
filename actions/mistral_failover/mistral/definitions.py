# SPDX-License-Identifier: Apache-2.0
"""Which definition of a workflow is started, where other projects can publish one of its name.

Mistral looks a name up among all definitions that the caller can see, in no clear order. An id is
one definition. In this order a definition is trusted:

1. That of the caller's own project, whatever it says: another version's, or the project's own.
2. That of the cloud's operator: only ``mistral-db-manage populate`` installs without a project.
3. That of another project, only if it is public and says the same as the one that this version
   ships. By Mistral's default policy only administrators make one public; the owner of a private
   one, which administrators see, could change it between the look and the start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mistral_failover.errors import CodedError
from mistral_failover.model.text import plain

UNAUTHENTICATED = "<default-project>"
"""The project of everything in a Mistral without authentication, and of what its operator has
installed in the database."""
FIELDS = "id,name,namespace,project_id,scope,definition"
"""What a `Definition` needs of Mistral's list."""


@dataclass(frozen=True)
class Definition:
    """A workflow that Mistral shows the caller. ``own``: it belongs to the caller's project, or to
    no project."""

    id: str
    name: str
    namespace: str
    own: bool
    public: bool
    project: str
    text: str

    @classmethod
    def read(cls, row: Mapping[str, Any], project: str | None) -> Definition:
        """Read a row of Mistral's list. ``project``: the caller's."""
        return cls(
            row["id"],
            row["name"],
            row.get("namespace") or "",
            row["project_id"] in (UNAUTHENTICATED, project),
            row.get("scope") == "public",
            row["project_id"],
            row["definition"],
        )


def trusted(name: str, found: Sequence[Definition]) -> str | None:
    """Return the id of the definition to start; None: Mistral may decide by the name.

    ``found``: all definitions of this name that the caller can see in the namespace. None if there
    is none, or if no own one is there and this version ships none. Raises CodedError
    WORKFLOW_SHADOWED if only other projects have one, and it is not trusted.
    """
    own = [each for each in found if each.own]
    if own:
        return min(own, key=lambda each: each.project == UNAUTHENTICATED).id
    # Slow to import, and seldom needed.
    from mistral_failover.mistral import shipped_workflows

    text = shipped_workflows.workflows().get(name)
    if text is None or not found:
        return None
    for each in found:
        if each.public and shipped_workflows.same(text, each.text):
            return each.id
    theirs = ", ".join(map(plain, sorted({each.project for each in found})))
    raise CodedError(
        "WORKFLOW_SHADOWED",
        f"{name} was not started: this project has no such workflow, and that of another project "
        f"({theirs}) is not public, or differs from the one of this version",
        "Install the workflows in this project: failover workflows install. If the other project "
        "is the operator's, use the version that it has installed",
    )
