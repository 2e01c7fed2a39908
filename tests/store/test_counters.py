# SPDX-License-Identifier: Apache-2.0
"""Counters: exact after what happened, and the same whatever is deleted afterwards."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mistral_failover.convergence.records import Operation, Outcome
from mistral_failover.model.alarm_fact import AlarmFact
from mistral_failover.model.decisions import AdmissionRule, Decision
from mistral_failover.store import counters as kept
from mistral_failover.store import goals, groups, incidents
from mistral_failover.store.counters import SWEEPS, Counts
from mistral_failover.store.incidents import Incident
from mistral_failover.store.transaction import ProjectTransaction
from support.databases import KINDS, beside
from support.samples import CHAIN, failing, sample_resource
from support.simulation import LEASE, PROJECT, Simulation, away, failure
from support.together import together

NEVER = 1e12


@pytest.fixture(params=KINDS)
def simulation(request: pytest.FixtureRequest) -> Simulation:
    return Simulation(request.param)


def counters(simulation: Simulation, project: str | None = PROJECT) -> Counts:
    whole = simulation.database
    return (whole.for_project(project) if project else whole).reading(kept.counters)


def values(simulation: Simulation, *names: str) -> dict[tuple[str, str], float]:
    """The counters of these names."""
    found = counters(simulation)
    return {key: count.value for key, count in sorted(found.items()) if key[0] in names}


def prune(simulation: Simulation, keep: int = 0) -> int:
    return simulation.store.atomically(
        lambda tx: goals.purge(tx, simulation.group_id, keep=keep, older_than=NEVER)
    )


def forget_the_group(simulation: Simulation) -> None:
    simulation.store.atomically(lambda tx: groups.forget(tx, simulation.group_id))


def alarm(simulation: Simulation, number: int, rule: AdmissionRule) -> str:
    """Write a held incident of the group down."""
    identity = f"incident-{number}"
    fact = AlarmFact("g", ("a",))
    group = simulation.group_id
    incident = Incident(identity, PROJECT, group, "aodh", fact, {}, Decision.HELD, "it", rule=rule)
    simulation.store.atomically(lambda tx: incidents.add(tx, incident))
    return identity


def test_walks_and_operations_are_counted_with_how_long_they_took(simulation: Simulation) -> None:
    simulation.define({"web": sample_resource(value=1)})
    started = simulation.start(simulation.goal())
    operation = simulation.operation(started.ready[0])
    simulation.clock.seconds += 7
    simulation.engine.conclude(operation.ticket, simulation.world.operate(operation))

    assert values(simulation, "traversals_started", "traversals", "operations") == {
        ("traversals_started", ""): 1,
        ("traversals", "COMPLETE"): 1,
        ("operations", "shared|create|done"): 1,
    }
    assert values(simulation, "traversal_seconds", "traversal_seconds_sum") == {
        ("traversal_seconds", "COMPLETE|3"): 1,
        ("traversal_seconds_sum", "COMPLETE"): 7,
    }
    assert values(simulation, "operation_seconds", "operation_seconds_sum") == {
        ("operation_seconds", "shared|create|3"): 1,
        ("operation_seconds_sum", "shared|create"): 7,
    }


def test_what_takes_longer_than_the_highest_bound_is_in_a_bucket_of_its_own(
    simulation: Simulation,
) -> None:
    simulation.define({"web": sample_resource(value=1)})
    operation = simulation.operation(simulation.start(simulation.goal()).ready[0])
    simulation.clock.seconds += 4000
    simulation.engine.conclude(operation.ticket, simulation.world.operate(operation))

    assert values(simulation, "traversal_seconds") == {("traversal_seconds", "COMPLETE|12"): 1}


def test_a_failure_beside_another_one_changes_neither_the_count_nor_the_time(
    simulation: Simulation,
) -> None:
    simulation.define({"one": sample_resource(), "two": sample_resource()})
    operations = [simulation.operation(r) for r in simulation.start(simulation.goal()).ready]
    simulation.clock.seconds += 3
    simulation.engine.conclude(operations[0].ticket, failure())
    before = values(simulation, "traversals", "traversal_seconds", "traversal_seconds_sum")
    simulation.clock.seconds += 100
    simulation.engine.conclude(operations[1].ticket, failure())

    after = values(simulation, "traversals", "traversal_seconds", "traversal_seconds_sum")
    assert before == after
    assert before["traversals", "FAILED"] == 1


def test_each_time_that_a_walk_comes_to_wait_for_a_person_counts(simulation: Simulation) -> None:
    simulation.define(CHAIN)
    simulation.converge(simulation.goal(), failing(simulation, "data", blocked=True))
    assert values(simulation, "traversals", "journal") == {("journal", "blocked"): 1}

    again = simulation.engine.resume(simulation.group_id)
    simulation.carry(again, failing(simulation, "data", blocked=True))

    assert values(simulation, "traversals", "journal") == {("journal", "blocked"): 2}


def test_a_way_back_that_arrives_counts_as_returned(simulation: Simulation) -> None:
    simulation.define(CHAIN, on_failure="rollback")
    simulation.converge(simulation.goal("a"))

    def routing_to_b_fails(operation: Operation) -> Outcome:
        wanted = operation.record.name, operation.properties.get("value")
        return failure() if wanted == ("routing", "b") else simulation.world.operate(operation)

    simulation.converge(simulation.goal("b"), routing_to_b_fails)

    assert values(simulation, "traversals") == {
        ("traversals", "COMPLETE"): 1,
        ("traversals", "FAILED"): 1,
        ("traversals", "RETURNED"): 1,
    }


def test_waits_for_locks_steals_and_unknown_outcomes_are_counted(simulation: Simulation) -> None:
    simulation.define({"web": sample_resource(value=1)})
    simulation.operation(simulation.start(simulation.goal()).ready[0], "dead")
    simulation.define({"web": sample_resource(value=2)})
    (ready,) = simulation.start(simulation.goal()).ready
    simulation.engine.check(ready, "second")
    simulation.engine.check(ready, "third")
    assert values(simulation, "deferrals") == {("deferrals", ""): 2}
    simulation.clock.seconds += LEASE + 1
    simulation.carry([ready])

    # The next goal takes the sync points away in which they were noted.
    simulation.define({"web": sample_resource(value=3)})
    simulation.converge(simulation.goal())
    assert values(simulation, "deferrals", "journal", "unknowns") == {
        ("deferrals", ""): 2,
        ("journal", "steal"): 1,
        ("unknowns", "shared|create"): 1,
    }


def test_a_try_that_a_service_made_vain_is_no_unknown_outcome(simulation: Simulation) -> None:
    """The alert on unknown outcomes says that processes die."""
    simulation.define({"web": sample_resource(value=1)})
    (ready,) = simulation.start(simulation.goal()).ready
    for _ in range(3):
        simulation.engine.conclude(simulation.operation(ready).ticket, away())
        simulation.clock.seconds += 30

    assert values(simulation, "unknowns") == {}


def test_each_decision_on_an_alarm_counts_and_the_same_once_more_does_not(
    simulation: Simulation,
) -> None:
    simulation.define({})
    first = alarm(simulation, 1, AdmissionRule.COOLDOWN)
    second = alarm(simulation, 2, AdmissionRule.STORM)

    def decide(tx: ProjectTransaction) -> None:
        incidents.decide(tx, first, Decision.HELD, "still", rule=AdmissionRule.COOLDOWN)
        incidents.decide(tx, first, Decision.ADMITTED, "now")
        incidents.dismiss(tx, second, "noise")
        incidents.count_duplicate(tx, first)

    simulation.store.atomically(decide)

    assert values(simulation, "incidents", "repeats") == {
        ("incidents", "ADMITTED||alarm"): 1,
        ("incidents", "DISMISSED|storm|alarm"): 1,
        ("incidents", "HELD|cooldown|alarm"): 1,
        ("incidents", "HELD|storm|alarm"): 1,
        ("repeats", ""): 1,
    }


def test_sweeps_are_counted_by_whether_they_found_something(simulation: Simulation) -> None:
    for found in (True, False, False):
        label = "yes" if found else "no"
        simulation.store.atomically(lambda tx: tx.count(None, SWEEPS, label))  # noqa: B023

    assert values(simulation, "sweeps") == {("sweeps", "no"): 2, ("sweeps", "yes"): 1}


def test_a_group_that_is_deleted_takes_nothing_from_the_counters(simulation: Simulation) -> None:
    simulation.define(CHAIN)
    simulation.converge(simulation.goal("a"))
    simulation.converge(
        simulation.goal("b", lost=("a",)), failing(simulation, "data", blocked=True)
    )
    alarm(simulation, 1, AdmissionRule.STORM)
    before = counters(simulation)

    forget_the_group(simulation)

    assert counters(simulation) == before
    assert simulation.store.reading(groups.names) == []


def test_what_is_rolled_back_is_not_counted(simulation: Simulation) -> None:
    def fail(tx: ProjectTransaction) -> None:
        tx.count(None, SWEEPS, "no")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        simulation.store.atomically(fail)

    assert counters(simulation) == {}


def test_events_of_many_threads_are_all_counted(simulation: Simulation) -> None:
    simulation.define({"web": sample_resource(value=1)})
    others = [beside(simulation.kind, f"other-{n}").for_project(PROJECT) for n in range(4)]

    def count(number: int) -> None:
        for _ in range(20):
            others[number].atomically(lambda tx: tx.count(None, SWEEPS, "no"))
            others[number].atomically(lambda tx: tx.count(simulation.group_id, SWEEPS, "no"))

    together(4, count)

    assert values(simulation, "sweeps") == {("sweeps", "no"): 160}


STEPS = st.lists(
    st.sampled_from(("there", "away", "fails", "blocks", "changes", "alarm", "judged", "waits")),
    min_size=4,
    max_size=10,
)


# Nothing is shrunk: to make a failure smaller took minutes, and the timeout came before the answer.
# The steps are short enough to be read as they are.
@settings(
    max_examples=12,
    phases=(Phase.explicit, Phase.generate),
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS, pruned=st.sets(st.integers(0, 9)), seconds=st.integers(0, 700))
def test_whatever_happens_and_is_forgotten_no_counter_falls(
    simulation: Simulation, steps: list[str], pruned: set[int], seconds: int
) -> None:
    simulation = Simulation(simulation.kind)
    simulation.define({"web": sample_resource(value=0)})
    last: Counts = {}
    for number, step in enumerate(steps):
        simulation.clock.seconds += seconds
        _take(simulation, step, number)
        if number in pruned:
            before = counters(simulation)
            prune(simulation)
            assert counters(simulation) == before
        now = counters(simulation)
        assert all(now[key].value >= count.value for key, count in last.items())
        assert all(now[key].first_at == count.first_at for key, count in last.items())
        last = now
    forget_the_group(simulation)
    assert counters(simulation) == last


def _take(simulation: Simulation, step: str, number: int) -> None:
    if step == "alarm":
        alarm(simulation, number, AdmissionRule.COOLDOWN)
    elif step == "judged":
        latest = alarm(simulation, number, AdmissionRule.PAUSED)
        simulation.store.atomically(lambda tx: incidents.dismiss(tx, latest, "noise"))
    else:
        simulation.define({"web": sample_resource(value=number)})
        goal = simulation.goal("b" if step == "away" else "a")
        started = simulation.start(goal)
        for ready in started.ready[: 1 if step == "waits" else 0]:
            simulation.operation(ready, "dead")
            simulation.engine.check(ready, "second")
            simulation.clock.seconds += LEASE + 1
        blocked = step == "blocks"
        broken = ("web",) if step in ("fails", "blocks") else ()
        simulation.carry(started.ready, failing(simulation, *broken, blocked=blocked))
