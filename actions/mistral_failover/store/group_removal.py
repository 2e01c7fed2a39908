# SPDX-License-Identifier: Apache-2.0
"""Delete a group for good. Each function runs in one transaction that has the group's lock."""

from __future__ import annotations

import sqlalchemy as sa

from mistral_failover.model.decisions import AdmissionRule, Decision
from mistral_failover.store.incidents import decide
from mistral_failover.store.session import ProjectSession
from mistral_failover.store.tables import groups, incidents, members, metadata, traversals


def orphan(tx: ProjectSession, incident_id: str, sentence: str) -> None:
    """Hold an alarm as one of an unknown group: it may be about a group that is defined later."""
    decide(tx, incident_id, Decision.HELD, sentence, rule=AdmissionRule.UNKNOWN)
    tx.execute(incidents.update().where(incidents.c.id == incident_id).values(group_id=None))


def forget(tx: ProjectSession, group_id: str) -> None:
    """Delete a group and everything that belongs to it: goals, traversals, records, operations,
    incidents, journal.

    Its members stay, because agents remember their last epoch. If a group is defined again under
    this name, it continues from there and never sends a command with an old epoch.
    """
    of_group = sa.select(traversals.c.id).where(traversals.c.group_id == group_id)
    for table in reversed(metadata.sorted_tables):
        if "traversal_id" in table.c and "group_id" not in table.c:
            tx.execute(table.delete().where(table.c.traversal_id.in_(of_group)))
    for table in reversed(metadata.sorted_tables):
        if "group_id" in table.c and table is not members:
            tx.execute(table.delete().where(table.c.group_id == group_id))
    tx.execute(groups.delete().where(groups.c.id == group_id))
