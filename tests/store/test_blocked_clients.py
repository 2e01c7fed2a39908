# SPDX-License-Identifier: Apache-2.0
"""Which blocks of the storage count for a failover: those since its incident began."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from mistral_failover.convergence.records import Traversal
from mistral_failover.model.alarm_fact import AlarmFact
from mistral_failover.model.decisions import Decision
from mistral_failover.store import host_fences, incidents
from mistral_failover.store.database import Database
from mistral_failover.store.incidents import Incident
from support.samples import no_nodes


def begin(database: Database, traversal: Traversal) -> None:
    database.atomically(lambda tx: tx.open_traversal(traversal, no_nodes()))


def block(database: Database, *clients: str) -> None:
    for client in clients:
        database.atomically(partial(host_fences.record_blocked, client=client, volume_id="v"))


def counted(database: Database, traversal: str) -> list[str]:
    found = database.reading(lambda tx: host_fences.blocked_since(tx, traversal))
    return [each.client for each in found]


def test_only_what_was_blocked_after_a_traversal_began_counts_for_it(
    database: Database, traversal: Traversal
) -> None:
    block(database, "before", "again")
    begin(database, traversal)
    block(database, "again", "since")

    assert counted(database, traversal.id) == ["again", "since"]
    assert counted(database, "gone") == [], "of an unknown one nothing counts"


def test_what_was_blocked_since_the_report_about_a_host_counts_for_a_traversal_that_it_starts(
    database: Database, traversal: Traversal
) -> None:
    fact = AlarmFact(host="compute-1")
    report = Incident("report", "elsewhere", None, "nova", fact, {}, Decision.ADMITTED, "")
    child = replace(report, id="child", group_id="g", parent="report")
    own = database.for_project("elsewhere")

    block(database, "before")
    own.atomically(lambda tx: incidents.add(tx, report))
    block(database, "since")
    own.atomically(lambda tx: incidents.add(tx, child))
    begin(database, replace(traversal, incident_id="child"))

    assert counted(database, traversal.id) == ["since"]
