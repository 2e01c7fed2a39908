# SPDX-License-Identifier: Apache-2.0
"""The step whose failure is the reason of a traversal's status."""

from __future__ import annotations

from typing import TypedDict

from mistral_failover.convergence.sentences import operation_words_of
from mistral_failover.model.group import Group
from mistral_failover.model.remedies import NeedDocument
from mistral_failover.runtime.errors import Tried
from mistral_failover.store import views
from mistral_failover.store.transaction import ProjectTransaction


class FailedStep(TypedDict):
    """The step whose failure is the reason of a traversal's status: ``what`` was done, the error,
    what a person does about it (``needs``), and what was ``tried`` before it, in order; ``since``
    when it has failed, and when a sweep tries it again at the earliest (``again_at``), in seconds
    of the database's clock."""

    resource: str
    what: str
    code: str
    message: str
    remedy: str
    needs: list[NeedDocument]
    tried: list[Tried]
    since: float
    again_at: float


def failed_step(tx: ProjectTransaction, group: Group, traversal_id: str) -> FailedStep | None:
    """Return the failed step of a traversal that is FAILED or BLOCKED. None if no operation
    failed."""
    found = views.failed_step(tx, traversal_id)
    record = tx.record(found["resource_id"]) if found else None
    if found is None or record is None:
        return None
    error = found["error"]
    return {
        "resource": record.name,
        "what": operation_words_of(found["verb"], record, group.types.get(record.type)),
        "code": str(error.get("code", "FAILED")),
        "message": str(error.get("message", "")),
        "remedy": str(error.get("remedy", "")),
        "needs": list(error.get("needs", ())),
        "tried": list(error.get("tried", ())),
        "since": found["since"],
        "again_at": found["again_at"],
    }
