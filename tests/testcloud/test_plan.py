# SPDX-License-Identifier: Apache-2.0
"""Steps wait only for one another."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from testcloud import cloud
from testcloud.plan import Step, carry_out, order
from testcloud.settings import Settings


def quiet(name: str, seconds: float) -> None:
    del name, seconds


def test_a_step_begins_when_all_it_waits_for_are_done() -> None:
    done: list[str] = []

    def note(name: str) -> Callable[[], object]:
        return lambda: done.append(name)

    carry_out(
        [Step("c", note("c"), ("a", "b")), Step("b", note("b"), ("a",)), Step("a", note("a"))],
        quiet,
    )

    assert done == ["a", "b", "c"]


def test_steps_that_do_not_wait_for_one_another_run_at_once() -> None:
    both = threading.Barrier(2, timeout=20)

    carry_out([Step("a", both.wait), Step("b", both.wait)], quiet)


def test_no_more_run_at_once_than_allowed() -> None:
    running, most = 0, 0

    def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        running -= 1

    carry_out([Step(str(i), work) for i in range(20)], quiet, at_once=1)

    assert most == 1


def test_after_a_failure_nothing_is_begun_and_the_failure_is_told() -> None:
    begun: list[str] = []

    def fail() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        carry_out([Step("a", fail), Step("b", lambda: begun.append("b"), ("a",))], quiet)

    assert begun == []


@pytest.mark.parametrize(
    ("steps", "what"),
    [
        ([Step("a", list), Step("a", list)], "same name"),
        ([Step("a", list, ("b",))], "is no step"),
        ([Step("a", list, ("b",)), Step("b", list, ("a",))], "one another"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(steps: list[Step], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        order(steps)


def everything_before(steps: list[Step], name: str) -> set[str]:
    after = {step.name: step.after for step in steps}
    found: set[str] = set()
    waiting = list(after[name])
    while waiting:
        before = waiting.pop()
        found.add(before)
        waiting += after[before]
    return found


def test_the_cloud_is_seeded_when_everything_else_is_done(settings: Settings) -> None:
    steps = cloud.steps(settings)
    order(steps)

    assert everything_before(steps, "seed") == {step.name for step in steps} - {"seed"}


def test_the_schemas_are_made_beside_each_other(settings: Settings) -> None:
    steps = cloud.schema_steps(settings)
    order(steps)

    assert everything_before(steps, "schema of nova_api") == {"mariadb", "databases"}


def test_accounts_are_made_when_keystone_serves(settings: Settings) -> None:
    steps = cloud.account_steps(settings)
    order(steps)

    assert {"keystone", "administrator"} <= everything_before(steps, "accounts and catalog")
