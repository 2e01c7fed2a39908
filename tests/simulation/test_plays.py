# SPDX-License-Identifier: Apache-2.0
"""``make test-simulation``: plays of the whole system in virtual time."""

from __future__ import annotations

import re

import pytest

from simulation.mutants import BY_NAME
from support.plays import FIRST, simulate

pytestmark = pytest.mark.simulated

PLAYS = 40
FOUND = {
    4: "guest_fails frozen stack_by_hand troubled troubled rehearsed troubled rehearsed "
    "delivered_twice",
    1033: "ordered frozen_with_an_outcome delivered_twice troubled api_fault guest_fails "
    "commit_unanswered killed guest_fails commit_unanswered",
    2055: "ordered api_fault api_fault frozen_with_an_outcome delivered_twice "
    "frozen_with_an_outcome troubled api_fault killed",
    11076: "host_fails api_fault",
    40231: "false_alarm delivered_twice frozen_with_an_outcome ambushed api_fault",
    60199: "host_fails delivered_twice commit_unanswered ambushed ambushed guest_fails troubled "
    "neighbour_moves",
    300042: "false_alarm host_fails rehearsed neighbour_moves delivered_twice by_hand rehearsed "
    "troubled clock_steps",
    60000794: "false_alarm ambushed killed ambushed guest_fails neighbour_moves by_hand "
    "false_alarm",
    60000976: "ordered killed troubled frozen ambushed guest_fails",
    70001984: "guest_fails troubled clock_steps stranger_answers late_and_overtaken troubled "
    "late_and_overtaken lost_in_mid_move ambushed_at_a_request frozen",
    70002681: "false_alarm host_fails guest_fails ambushed api_fault ambushed by_hand ordered "
    "frozen",
    70002047: "late_and_overtaken killed rehearsed ambushed late_and_overtaken left_alone "
    "ambushed_at_a_request frozen_with_an_outcome frozen guest_fails",
    80000163: "ordered ambushed suspended confirmed_and_lost_again api_fault ambushed",
    80000206: "false_alarm delivered_twice rehearsed left_alone commit_unanswered detach_torn "
    "ambushed started_at_its_stop by_hand",
    80000220: "false_alarm neighbour_moves false_alarm deleted_out_of_reach detach_torn "
    "stranger_answers stopped rehearsed stack_by_hand",
    90000209: "false_alarm left_alone delivered_twice deleted_out_of_reach neighbour_moves "
    "guest_fails",
}
"""Plays that once broke a promise, or showed a fault of the simulation: seeds, with their moves."""


@pytest.mark.timeout(0)
def test_the_same_seed_plays_the_same_line_by_line() -> None:
    first, second = (simulate("--seed", "7", "--verbose") for _ in range(2))
    journal = [line for line in first.stdout.splitlines() if re.match(r" +\d+\.\d{3} ", line)]
    assert len(journal) > 50
    again = [line for line in second.stdout.splitlines() if re.match(r" +\d+\.\d{3} ", line)]
    assert journal == again


@pytest.mark.timeout(0)
def test_plays_that_once_failed_keep_the_promises() -> None:
    plans = [f"{seed}:{moves.replace(' ', '/')}" for seed, moves in FOUND.items()]
    ended = simulate("--seeds", ",".join(plans), "--quick")
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.timeout(0)
def test_plays_keep_the_promises() -> None:
    ended = simulate("--seed", str(FIRST), "--count", str(PLAYS))
    print(ended.stdout)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.timeout(0)
@pytest.mark.parametrize("mutant", BY_NAME)
def test_a_deliberate_fault_is_found(mutant: str) -> None:
    ended = simulate(mutant, module="simulation.mutants")
    print(ended.stdout)
    assert ended.returncode == 0, ended.stdout + ended.stderr
