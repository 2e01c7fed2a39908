# SPDX-License-Identifier: Apache-2.0
"""One alarm that is delivered again and again, mixed with others: each starts one traversal.

``tests/bench/admission.py`` does the same by the ten thousand, over HTTP."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mistral_failover.store import incidents

DELIVERIES = 10
GROUPS = 3
THREADS = 4
PARAMETERS = {"parameters": {"active": {"get_param": "active"}}}
ROUTING = {"routing": {"type": "stack_parameters", "properties": PARAMETERS}}


@pytest.mark.timeout(300)
def test_of_many_deliveries_each_alarm_starts_one_traversal_and_every_repeat_is_counted(
    protect: Callable[..., Any],
) -> None:
    groups = [protect(ROUTING, fence=["stop"]) for _ in range(GROUPS)]
    for group in groups:
        group.activate()
    bodies = [group.fails("app") for group in groups]
    todo = [*[bodies[0]] * DELIVERIES, *bodies[1:]]
    random.Random(1).shuffle(todo)

    def deliver(share: list[dict[str, Any]]) -> list[str]:
        return [groups[0].start("on_alarm", **body) for body in share]

    with ThreadPoolExecutor(THREADS) as pool:
        started = pool.map(deliver, [todo[n::THREADS] for n in range(THREADS)])
        ended = [groups[0].workflows.wait(e, timeout=120) for share in started for e in share]

    assert {run.state for run in ended} == {"SUCCESS"}
    decided = [run.output["admission"]["decision"] for run in ended]
    assert decided.count("ADMITTED") == GROUPS
    assert decided.count("DUPLICATE") == DELIVERIES - 1
    assert [len(group.traversals()) for group in groups] == [2] * GROUPS
    assert {group.status()["status"] for group in groups} == {"COMPLETE"}
    counted = [group.status()["incidents"][0]["duplicates"] for group in groups]
    assert counted == [DELIVERIES - 1, *[0] * (GROUPS - 1)]
    held = groups[0].state.database.for_project("<default-project>").reading(incidents.unstarted)
    assert [i for i in held if i.fact.group in {group.name for group in groups}] == []
