# SPDX-License-Identifier: Apache-2.0
"""One process at a time fences a compute host, and the others find its proof."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mistral_failover.convergence.records import Traversal
from mistral_failover.model.alarm_fact import AlarmFact
from mistral_failover.model.decisions import Decision
from mistral_failover.store import host_fences, incidents
from mistral_failover.store.database import Database
from mistral_failover.store.host_fences import Claim, HostFence
from mistral_failover.store.incidents import Incident
from mistral_failover.store.tables import host_fences as table
from mistral_failover.store.transaction import SqlTransaction
from support.samples import no_nodes
from support.together import together

HOST = "compute-1"


def claim(database: Database, owner: str = "a", host: str = HOST) -> Claim | None:
    return database.atomically(lambda tx: host_fences.claim(tx, host, owner, 30.0))


def prove(database: Database, held: Claim, proof: str = "it is off") -> bool:
    return database.atomically(lambda tx: host_fences.prove(tx, held, proof))


def fence(database: Database, host: str = HOST) -> HostFence:
    return database.reading(lambda tx: host_fences.of_host(tx, host))


def expire(database: Database) -> None:
    """Let the lease of every owner end, as if its process was dead."""
    database.atomically(lambda tx: tx.execute(table.update().values(lease_until=tx.now() - 1)))


def begin(database: Database, traversal: Traversal) -> None:
    database.atomically(lambda tx: tx.open_traversal(traversal, no_nodes()))


def counts_since(database: Database, traversal: str) -> float:
    return database.reading(lambda tx: host_fences.proofs_valid_from(tx, traversal))


def test_a_host_that_no_process_fences_has_neither_owner_nor_proof(database: Database) -> None:
    assert fence(database) == HostFence(None, None, None)


def test_a_claimed_host_is_refused_to_others_until_its_owner_releases_it(
    database: Database,
) -> None:
    held = claim(database)
    assert held is not None

    assert claim(database, "b") is None
    assert fence(database).owner == "a"

    database.atomically(lambda tx: host_fences.release(tx, held))
    assert claim(database, "b") is not None


def test_two_hosts_are_fenced_side_by_side(database: Database) -> None:
    assert claim(database, "a", "compute-1") is not None
    assert claim(database, "b", "compute-2") is not None


def test_of_many_that_claim_a_host_at_once_one_gets_it(database: Database) -> None:
    claims = together(4, lambda number: claim(database, f"owner-{number}"))

    assert len([held for held in claims if held is not None]) == 1


def test_a_proof_releases_the_host_and_is_found_with_its_time(database: Database) -> None:
    before = database.reading(lambda tx: tx.now())
    held = claim(database)
    assert held is not None

    assert prove(database, held, "fence_redfish reports compute-1 off")

    found = fence(database)
    assert (found.owner, found.proof) == (None, "fence_redfish reports compute-1 off")
    assert found.proven_at is not None
    assert found.proven_at >= before


def test_a_new_claim_voids_the_proof_before_it(database: Database) -> None:
    first = claim(database)
    assert first is not None
    prove(database, first)

    claim(database, "b")

    found = fence(database)
    assert (found.owner, found.proof, found.proven_at) == ("b", None, None)


def test_an_owner_whose_lease_ended_changes_nothing_after_another_one_came(
    database: Database,
) -> None:
    first = claim(database)
    assert first is not None
    expire(database)
    assert fence(database).owner is None
    second = claim(database, "b")
    assert second is not None

    assert not database.atomically(lambda tx: host_fences.renew(tx, first, 30.0))
    assert not prove(database, first, "an old answer")
    assert not database.atomically(lambda tx: host_fences.release(tx, first))

    found = fence(database)
    assert (found.owner, found.proof, found.proven_at) == ("b", None, None)


def test_an_owner_that_slept_past_its_lease_proves_nothing_though_no_other_one_came(
    database: Database,
) -> None:
    """What its device said before is old: the host may be on again."""
    held = claim(database)
    assert held is not None
    expire(database)

    assert not prove(database, held, "an old answer")

    assert fence(database).proof is None


def test_a_renewed_claim_lasts_longer(database: Database) -> None:
    held = claim(database)
    assert held is not None
    expire(database)

    assert database.atomically(lambda tx: host_fences.renew(tx, held, 30.0))

    assert fence(database).owner == "a"
    assert claim(database, "b") is None


def test_an_owner_of_any_length_and_with_any_character_fits(database: Database) -> None:
    def claimed(tx: SqlTransaction) -> Claim | None:
        return host_fences.claim(tx, HOST, "\x1b" + "o" * 400, 30.0)

    assert database.atomically(claimed) is not None


def test_no_proof_from_before_a_traversal_counts_for_it(
    database: Database, traversal: Traversal
) -> None:
    earlier = database.reading(lambda tx: tx.now())
    begin(database, traversal)
    later = database.reading(lambda tx: tx.now())

    assert earlier <= counts_since(database, traversal.id) <= later
    assert counts_since(database, "gone") >= later, "of an unknown one no proof counts"


def test_a_proof_since_the_report_about_a_host_counts_for_every_traversal_that_it_starts(
    database: Database, traversal: Traversal
) -> None:
    fact = AlarmFact(host=HOST)
    report = Incident("report", "elsewhere", None, "nova", fact, {}, Decision.ADMITTED, "")
    child = replace(report, id="child", group_id="g", parent="report")
    own = database.for_project("elsewhere")
    own.atomically(lambda tx: incidents.add(tx, report))
    held = claim(database)
    assert held is not None
    prove(database, held)
    own.atomically(lambda tx: incidents.add(tx, child))
    begin(database, replace(traversal, incident_id="child"))

    proven_at = fence(database).proven_at

    assert proven_at is not None
    assert counts_since(database, traversal.id) <= proven_at


def test_what_nova_shows_is_recorded_by_the_look_that_knows_the_last_one(
    database: Database,
) -> None:
    held = claim(database)
    assert held is not None

    def look(before: str, seen: str | None) -> bool:
        return database.atomically(
            lambda tx: host_fences.record_nova_report(tx, HOST, before, seen)
        )

    assert not look("", "10:00")
    database.atomically(lambda tx: host_fences.record_forced_down(tx, HOST))
    assert database.reading(host_fences.not_back) == [HOST]
    assert look("", "10:00")
    assert not look("", "10:01")
    assert look("10:00", None)
    assert database.reading(host_fences.not_back) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, host_fences.NOT_TOLD),
        (host_fences.NOT_TOLD, host_fences.NOT_TOLD),
        (host_fences.BY_OPERATOR, host_fences.NOT_TOLD),
        ("", ""),
        ("10:00", ""),
    ],
)
def test_a_host_is_not_back_from_its_proof_on_whatever_nova_showed_before(
    database: Database, before: str | None, after: str
) -> None:
    """Its process may die before it tells Nova, and the host be switched on: that is no return."""
    held = claim(database)
    assert held is not None
    database.atomically(lambda tx: tx.execute(table.update().values(nova_seen=before)))

    prove(database, held)

    assert fence(database).nova_seen == after
    assert not fence(database).back
