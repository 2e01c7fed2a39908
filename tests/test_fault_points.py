# SPDX-License-Identifier: Apache-2.0
"""Fault points: registered, reached, drilled, and without effect unless a test arms them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.child import Faults
from faults.plays import DRILLS, INSIDE, KILLED_INSIDE, MODES, scenarios
from mistral_failover.fault_points import BROKER_POINTS, POINTS, arm, disarm, reach
from support.injected_faults import Fault, FaultPlan
from support.pages import MODULES


def calls(name: str) -> Iterator[tuple[str, ast.Call]]:
    """Every call of a function by that name in the package, with the file it is in."""
    for file, path in MODULES.items():
        text = path.read_text(encoding="utf-8")
        if f"{name}(" not in text:  # parsing takes long
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                if called == name:
                    yield file, node


@pytest.fixture
def armed() -> Iterator[list[str]]:
    seen: list[str] = []
    arm(seen.append)
    yield seen
    disarm()


def test_every_point_stands_somewhere_and_every_place_is_registered() -> None:
    placed = [ast.literal_eval(call.args[0]) for _, call in calls("reach")]
    assert set(placed) == set(POINTS) | set(BROKER_POINTS)


def test_every_point_has_a_drill() -> None:
    assert {point for point, _, _ in DRILLS} == set(POINTS)


def test_every_point_is_played_in_every_mode_but_for_kills_that_are_undone() -> None:
    for mode in MODES:
        played = {point for point, _, _, _ in scenarios(mode)}
        assert set(POINTS) - played == (set(INSIDE) - {KILLED_INSIDE} if mode == "kill" else set())


def test_what_a_kill_inside_a_transaction_leaves_is_tried_before_it() -> None:
    killed = {point for point, _, _, _ in scenarios("kill")}

    assert KILLED_INSIDE in killed & set(INSIDE)
    assert set(INSIDE.values()) <= killed - set(INSIDE)


def test_every_point_says_what_is_true_there() -> None:
    for name, sentence in POINTS.items():
        place, _, when = name.partition(".")
        assert place.isalpha()
        assert when.isalpha()
        assert len(sentence.split()) > 3


def test_nothing_in_the_package_arms_a_hook() -> None:
    assert list(calls("arm")) == []


def test_an_armed_hook_hears_of_each_point_until_it_is_disarmed(armed: list[str]) -> None:
    reach("attach.before")
    disarm()
    reach("attach.after")
    assert armed == ["attach.before"]


def test_what_the_hook_raises_goes_through() -> None:
    def fail(name: str) -> None:
        raise ConnectionError(name)

    arm(fail)
    try:
        with pytest.raises(ConnectionError, match="attach.before"):
            reach("attach.before")
    finally:
        disarm()


class Killed(Faults):
    """A process that is killed while a duplicate of its work is under way."""

    def duplicate(self, point: str, mark: Path) -> None:
        del point, mark


def test_a_duplicate_is_over_when_its_process_is(tmp_path: Path) -> None:
    plan = FaultPlan(tmp_path)
    plan.set(Fault("attach.after", "duplicate"))

    Killed(tmp_path)("attach.after")
    assert plan.fired(0)
    assert not plan.ended(0)

    Faults(tmp_path)
    assert plan.ended(0)
