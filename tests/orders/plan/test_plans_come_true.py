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

from mistral_failover.actions import orders, recovery
from support import plan_forecasts
from support.driving import ready_nodes

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
    "failover": orders.Begin,
    "switchover": orders.Switchover,
    "failback": orders.Failback,
    "replace": orders.ReplaceMember,
    "rollback": orders.Rollback,
    "remove": orders.Remove,
}


def brought_about(protect: Callable[..., Any], situation: dict[str, Any]) -> Any:
    """A group in this situation. Orders that are refused change nothing; one may be worked on for
    so many actions only."""
    group = protect(situation["servers"], situation["volumes"], situation["roles"])
    group.choose = random.Random(situation["seed"])  # noqa: S311
    if situation["up"]:
        group.order(orders.Begin(group.name, lost=[]))
    for kind, what, *more in situation["before"]:
        if kind == "order":
            verb, inputs = what
            answer = group.ask(VERBS[verb](group.name, **inputs))
            if not isinstance(answer, Result):
                group.carry(answer, *more)
        elif what in situation["servers"] and kind == "crash":
            group.cloud.fault("server", group.server(what), "crash")
        elif what in situation["servers"]:
            group.replace(what)
    return group


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
    compare(group, verb, inputs)


def compare(group: Any, verb: str, inputs: dict[str, Any]) -> None:
    """Plan this, start it, and hold what happens against what the plan said."""
    written, seen, last = group.written(), group.seen(), group.last()

    plan = group.ask(orders.Plan(group.name, verb=verb, **inputs))

    assert group.changes(seen) == []
    assert group.written() == written
    if isinstance(plan, Result):
        refused = group.ask(VERBS[verb](group.name, **inputs))
        if plan.error["code"] == "MOVE_FIRST":
            move_first(group, refused)
            return
        assert isinstance(refused, Result), refused
        assert (refused.error["code"], refused.error["message"]) == (
            plan.error["code"],
            plan.error["message"],
        )
        return
    if plan["plan"] is None:
        answer = group.done(VERBS[verb](group.name, **inputs))
        assert ready_nodes(group.state, answer["traversal"]) == []
        return
    assert group.plan(verb=verb, **inputs)["plan"] == plan["plan"]
    plan_forecasts.refuse_other_times(group, plan)
    plan_forecasts.refuse_other_waves(plan)
    fences = plan_forecasts.fences_of(group)

    begun = group.start(plan["plan"])

    assert (begun["goal"], begun["roles"]) == (plan["goal"], plan["roles"])
    certain = Counter(step["what"] for step in plan["steps"] if step["certain"])
    possible = Counter(
        step["what"].partition(" (if needed")[0] for step in plan["steps"] if not step["certain"]
    )
    report = group.ask(recovery.Report(group.name, begun["traversal"]))
    arrived = not isinstance(report, Result)
    if arrived:
        started = group.started(last)
        assert not certain - Counter(started), (report, plan, started)
    else:  # it failed on the way, and nothing else was begun by then
        started = group.started(last, begun["traversal"])
    assert not Counter(started) - certain - possible, (report, plan, started)
    plan_forecasts.refuse_disorder(plan, started)
    plan_forecasts.refuse_order_within_waves(group, plan, begun["traversal"])
    after = plan_forecasts.fences_of(group)
    plan_forecasts.refuse_other_fences(plan, fences, after, started, arrived=arrived)


def move_first(group: Any, idle: dict[str, Any]) -> None:
    """Go on as ``failover.replace_member`` does with who holds roles and is well: the first role
    is moved as planned; where that arrived, the same replacement is ordered again."""
    member, role = idle["member"], idle["moves"][0]
    assert group.status()["roles"][role] == member

    compare(group, "switchover", {"role": role})

    if group.status()["roles"][role] != member:
        compare(group, "replace", {"member": member})


@pytest.mark.parametrize(
    ("verb", "inputs", "fences"),
    [
        ("failover", {"lost": ["db_b"]}, {"db_a": "stands", "db_b": "climbs"}),
        ("switchover", {"to": "db_c"}, {"db_a": "stands"}),
        ("failback", {"recovered": ["db_a"]}, {"db_a": "lifted"}),
    ],
)
def test_who_is_fenced_stays_so_or_is_freed_is_as_the_plan_said(
    protect: Callable[..., Any], verb: str, inputs: dict[str, Any], fences: dict[str, str]
) -> None:
    group = protect(MEMBERS)
    group.order(orders.Begin(group.name, lost=[]))
    group.order(orders.Begin(group.name, lost=["db_a"], to="db_b"))

    told = group.plan(verb=verb, **inputs)["fences"]

    assert {row["member"]: row["state"] for row in told} == fences
    compare(group, verb, inputs)
    assert group.status()["status"] == "COMPLETE"


def test_who_holds_roles_gives_them_up_one_by_one_as_planned_and_is_replaced_then(
    protect: Callable[..., Any],
) -> None:
    group = protect(roles=("active", "files"))
    group.order(orders.Begin(group.name, lost=[], to={"active": "db_a", "files": "db_a"}))
    server = group.server("db_a")

    compare(group, "replace", {"member": "db_a"})

    assert group.status()["roles"] == {"active": "db_b", "files": "db_b"}
    assert group.server("db_a") != server
