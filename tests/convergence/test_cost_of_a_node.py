# SPDX-License-Identifier: Apache-2.0
"""What a node costs the database: a failover of 32 volumes has 68 nodes, and each statement takes
longer in this process than in the database."""

from __future__ import annotations

from mistral_failover.convergence.engine import Engine
from mistral_failover.convergence.records import Operation, Outcome, Ready
from support.rows import statements_of
from support.samples import CHAIN
from support.simulation import LEASE, Simulation

DONE = Outcome(physical_id="x", attributes={"echo": 1})
CHECK = 8
"""The group and its lock; traversal, sync point, record and epoch; inputs; requests that may still
take effect; the lock of the record; the ledger's entries and a new one; the journal."""
CONCLUSION = 10
"""The group and its lock; traversal, sync point, record and epoch; the record; the ledger; the
journal; the sync point; those of the dependents; which of them are ready."""


def checked(engine: Engine, ready: Ready) -> Operation:
    operation = engine.check(ready, "o").operation
    assert operation is not None
    return operation


def test_a_check_and_a_conclusion_take_few_statements(simulation: Simulation) -> None:
    simulation.define(CHAIN)
    (first,) = simulation.start(simulation.goal("a")).ready
    engine = Engine(simulation.database, lease=LEASE)
    (second,) = engine.conclude(checked(engine, first).ticket, DONE).ready  # the group is known

    with statements_of(simulation.database) as check:
        operation = checked(engine, second)
    with statements_of(simulation.database) as conclusion:
        engine.conclude(operation.ticket, DONE)

    assert len(check) == CHECK, check
    assert len(conclusion) == CONCLUSION, conclusion
