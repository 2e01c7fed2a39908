# SPDX-License-Identifier: Apache-2.0
"""A request without an answer takes effect after its owner has stopped and the goal has changed:
the next owner does not decide before that can no longer happen."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from oslo_config import cfg

from mistral_failover import settings as configuration
from mistral_failover.runtime.request import DEFAULT_PROJECT
from mistral_failover.store import groups
from support.operators import Operator
from support.waiting import until

pytestmark = pytest.mark.faults

LATE = 2.0  # when the request takes effect
OPTIONS = {"http_timeout": 0.5, "repeat_after": 1.5 * LATE}


@pytest.fixture(scope="module", autouse=True)
def impatient(mistral: Any) -> Iterator[None]:
    """A service counts as silent after half a second; a request is lost after a few."""
    configuration.load(cfg.CONF)
    for name, value in OPTIONS.items():
        cfg.CONF.set_override(name, value, group=configuration.GROUP)
    yield
    for name in OPTIONS:
        cfg.CONF.clear_override(name, group=configuration.GROUP)


@pytest.fixture(autouse=True)
def latency(cloud: Any) -> Iterator[None]:
    """Nova waits longer for a compute service than the package for Nova."""
    before = cloud.status()["latency"]["rpc_timeout"]
    cloud.set_latency(rpc_timeout=60)
    yield
    cloud.set_latency(rpc_timeout=before)


@pytest.mark.parametrize(
    ("request_", "fault", "step", "then", "right"),
    [
        # The attach of the way back finds the volume where it was, and then the detach comes.
        ("detach", "hold", "Detach data from db_a: started", "rollback", ["db_a"]),
        # Nothing is attached that could be detached, and then the attach comes.
        ("attach", "queue", "Attach data to db_b: started", "rollback", ["db_a"]),
        ("attach", "queue", "Attach data to db_b: started", "remove", []),
        # The stack says what it should, and then the update comes.
        ("stack_patch", "hold", "Update the stack (routing): started", "rollback", ["db_a"]),
    ],
)
def test_what_a_stopped_owner_asked_for_changes_nothing_after_the_next_goal_is_reached(
    group: Any,
    state: Any,
    operator: Operator,
    request_: str,
    fault: str,
    step: str,
    then: str,
    right: list[str],
) -> None:
    group.activate()
    group.cloud.api_fault(request_, fault, seconds=LATE)
    first = group.start("failover", group=group.name, to="db_b", lost=[])
    group.wait_until_told(step)
    until(lambda: is_asked(group, state), "nothing was asked")
    asked_by = time.monotonic()
    state.workers.hand_back(5.0)  # its process stops
    following = group.start(then, group=group.name)
    until(lambda: len(group.traversals()) >= 3, "there is no new goal")

    state.workers.reopen()  # and another one starts
    run = group.ended(following)
    group.ended(first)

    assert run.state == "SUCCESS", run.output
    time.sleep(max(0.0, asked_by + LATE + 0.2 - time.monotonic()))  # it has taken effect by now
    assert (group.holders(), group.runs_on()) == (right, right)
    if then == "rollback":
        assert operator.stack(group.name)["parameters"]["active"] == "db_a"
    assert group.status()["status"] == "COMPLETE"


def is_asked(group: Any, state: Any) -> bool:
    """Whether a request may still take effect, by the state store."""
    identity = groups.group_id(DEFAULT_PROJECT, group.name)
    records = state.database.reading(lambda tx: tx.records(identity))
    return any(record.asked is not None for record in records)
