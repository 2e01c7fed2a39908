# SPDX-License-Identifier: Apache-2.0
"""In random situations: what happens when a plan is started is what the plan said, in an order that
it allows; what can not be planned the verb itself refuses, with the same code."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mistral_lib.actions import Result

from mistral_failover.actions import converge, plans, replacing

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
MEMBERS = ("db_a", "db_b", "db_c")
FACTS = st.fixed_dictionaries(
    {},
    optional={
        "to": st.sampled_from(MEMBERS),
        "lost": st.lists(st.sampled_from(MEMBERS), unique=True, max_size=2),
        "recovered": st.lists(st.sampled_from(MEMBERS), unique=True, max_size=2),
    },
)
ORDERS = st.one_of(
    st.tuples(st.just("failover"), FACTS),
    st.tuples(
        st.just("switchover"),
        st.fixed_dictionaries({}, optional={"to": st.sampled_from(MEMBERS)}),
    ),
    st.tuples(
        st.just("failback"),
        st.fixed_dictionaries(
            {}, optional={"recovered": st.lists(st.sampled_from(MEMBERS), unique=True)}
        ),
    ),
    st.tuples(
        st.just("replace"),
        st.fixed_dictionaries({}, optional={"member": st.sampled_from(MEMBERS)}),
    ),
    st.tuples(
        st.just("rollback"),
        st.fixed_dictionaries(
            {}, optional={"recovered": st.lists(st.sampled_from(MEMBERS), unique=True)}
        ),
    ),
    st.tuples(
        st.just("remove"),
        st.fixed_dictionaries(
            {}, optional={"lost": st.lists(st.sampled_from(MEMBERS), max_size=1)}
        ),
    ),
)
BEFORE = st.lists(
    st.one_of(
        st.tuples(st.just("order"), ORDERS, st.sampled_from([None, None, 0, 1, 2])),
        st.tuples(st.just("crash"), st.sampled_from(MEMBERS)),
        st.tuples(st.just("replace"), st.sampled_from(MEMBERS)),
    ),
    max_size=3,
)
SITUATIONS = st.fixed_dictionaries(
    {
        "servers": st.sampled_from([MEMBERS[:2], MEMBERS]),
        "volumes": st.integers(1, 3),
        "roles": st.sampled_from([("active",), ("active", "files")]),
        "up": st.booleans(),
        "before": BEFORE,
        "order": ORDERS,
        "seed": st.integers(0, 2**16),
    }
)
VERBS = {
    "failover": converge.Begin,
    "switchover": converge.Switchover,
    "failback": converge.Failback,
    "replace": replacing.ReplaceMember,
    "rollback": converge.Rollback,
    "remove": converge.Remove,
}


def brought_about(protect: Callable[..., Any], situation: dict[str, Any]) -> Any:
    """A group in this situation. Orders that are refused change nothing; one may be worked on for
    so many actions only."""
    group = protect(situation["servers"], situation["volumes"], situation["roles"])
    group.choose = random.Random(situation["seed"])  # noqa: S311
    if situation["up"]:
        group.order(converge.Begin(group.name, lost=[]))
    for kind, what, *more in situation["before"]:
        if kind == "order":
            verb, inputs = what
            answer = group.ask(VERBS[verb](group.name, **inputs))
            if not isinstance(answer, Result):
                group.carry(answer["ready"], *more)
        elif what in situation["servers"] and kind == "crash":
            group.cloud.fault("server", group.server(what), "crash")
        elif what in situation["servers"]:
            group.replace(what)
    return group


def refuse_disorder(plan: dict[str, Any], started: list[str]) -> None:
    """What began did so behind all that it waits for."""
    places = {what: place for place, what in enumerate(started)}
    by_number = {step["number"]: step for step in plan["steps"]}
    for step in plan["steps"]:
        for number in step["after"]:
            before, after = by_number[number]["what"], step["what"]
            if before in places and after in places:
                assert places[before] < places[after], (before, after, started)


@pytest.mark.timeout(900)
@settings(
    max_examples=200 if THOROUGH else 8,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(situation=SITUATIONS)
def test_what_happens_is_what_the_plan_said(
    protect: Callable[..., Any], situation: dict[str, Any]
) -> None:
    group = brought_about(protect, situation)
    verb, inputs = situation["order"]
    written, seen, last = group.written(), group.seen(), group.last()

    plan = group.ask(plans.Plan(group.name, verb=verb, **inputs))

    assert group.changes(seen) == []
    assert group.written() == written
    if isinstance(plan, Result):
        refused = group.ask(VERBS[verb](group.name, **inputs))
        if plan.error["code"] == "MOVE_FIRST":  # the verb moves the roles by a plan of its own
            assert refused["moves"]
            return
        assert isinstance(refused, Result), refused
        assert (refused.error["code"], refused.error["message"]) == (
            plan.error["code"],
            plan.error["message"],
        )
        return
    if plan["plan"] is None:
        assert group.done(VERBS[verb](group.name, **inputs))["ready"] == []
        return
    assert group.plan(verb=verb, **inputs)["plan"] == plan["plan"]

    begun = group.start(plan["plan"])

    assert (begun["goal"], begun["roles"]) == (plan["goal"], plan["roles"])
    certain = Counter(step["what"] for step in plan["steps"] if step["certain"])
    possible = Counter(
        step["what"].removeprefix("if need be ") for step in plan["steps"] if not step["certain"]
    )
    report = group.ask(converge.Report(group.name, begun["traversal"]))
    if isinstance(report, Result):  # it failed on the way, and nothing else was begun by then
        started = group.started(last, begun["traversal"])
    else:
        started = group.started(last)
        assert not certain - Counter(started), (report, plan, started)
    assert not Counter(started) - certain - possible, (report, plan, started)
    refuse_disorder(plan, started)
