# SPDX-License-Identifier: Apache-2.0
"""What drills and simulated plays recorded is a behaviour of the specification, and what they
cannot have done is none. One role, as the specification has it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from spec import tlc, trace
from support.drills import (
    at_once,
    drill,
    killed_cloud_afterwards,
    slow_down,
    start_drill,
    wait_for_sentence,
)
from support.plays import FIRST, simulate

pytestmark = [
    pytest.mark.spec,
    pytest.mark.skipif(bool(tlc.missing()), reason=tlc.missing() or "-"),
]
OPTIONS = ("--latency", "zero", "--state-dir")


def recorded(state_dir: Path, fault: str) -> trace.Recorded:
    code, outcome, told = drill(*OPTIONS, str(state_dir), "--fault", fault)
    assert code == 0, (told, outcome)
    return trace.read(state_dir)


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder for TLC; a drill wants one of its own."""
    return tmp_path_factory.mktemp("tlc")


@pytest.mark.parametrize("fault", ["crash", "hang", "slow", "host", "confirmed", "returns"])
def test_a_drill_is_a_behaviour_of_the_specification(
    fault: str, tmp_path: Path, folder: Path
) -> None:
    with killed_cloud_afterwards(tmp_path):
        run = recorded(tmp_path, fault)
    assert run.kinds["traversal"] >= 2
    assert not trace.unfit([run], folder), "\n".join(run.records)


def test_a_drill_whose_process_was_killed_is_one_as_well(tmp_path: Path, folder: Path) -> None:
    options = (*OPTIONS, str(tmp_path), "--fault", "app", "--volumes", "2")
    with killed_cloud_afterwards(tmp_path):
        killed = start_drill(*options)
        slow_down(tmp_path, "detach")
        wait_for_sentence(tmp_path / "failover.sqlite", "Detach data_2 from db_a: started")
        killed.kill()
        killed.wait()
        at_once(tmp_path)
        code, outcome, told = drill(*options)
    assert code == 0, (told, outcome)
    run = trace.read(tmp_path)
    assert run.kinds["steal"] > 0
    assert not trace.unfit([run], folder), "\n".join(run.records)


def test_what_no_drill_can_have_done_is_no_behaviour(tmp_path: Path, folder: Path) -> None:
    """The volume moves before the proof; a step has no beginning; a lock is broken that no process
    left; the fence has no end."""
    with killed_cloud_afterwards(tmp_path):
        run = recorded(tmp_path, "app")
    whole = list(run.records)
    fenced = next(n for n, each in enumerate(whole) if '"done", k |-> "fence"' in each)
    began = max(n for n, each in enumerate(whole) if '"started", k |-> "app"' in each)
    early = [each for n, each in enumerate(whole) if n != fenced]
    early.insert(began, whole[fenced])
    stolen = whole[began].replace("started", "steal")
    wrong = {
        "early": early,
        "sudden": whole[:began] + whole[began + 1 :],
        "stolen": [*whole[: began + 1], stolen, *whole[began + 1 :]],
        "unproven": whole[:fenced] + whole[fenced + 1 :],
    }
    altered = [replace(run, records=tuple(each)) for each in (whole, *wrong.values())]
    assert set(trace.unfit(altered, folder)) == {1, 2, 3, 4}, list(wrong)


def played(folder: Path, *options: str) -> Mapping[str, trace.Recorded]:
    """What the specification has of the plays of some seeds, by their seeds."""
    state = folder / "plays"
    ended = simulate("--seed", str(FIRST), "--quick", "--save", str(state), *options)
    runs = {}
    for each in sorted(state.iterdir()):
        with suppress(trace.LeftOut):
            runs[each.name] = trace.read(each)
    assert len(runs) >= 0.8 * len(list(state.iterdir())), ended.stdout + ended.stderr
    return runs


@pytest.mark.timeout(0)
def test_simulated_plays_are_behaviours_of_the_specification(tmp_path: Path, folder: Path) -> None:
    runs = played(tmp_path, "--count", "40")
    wrong = trace.unfit(list(runs.values()), folder)
    for place, told in wrong.items():
        print(list(runs)[place], told, *list(runs.values())[place].records, sep="\n")
    assert not wrong


@pytest.mark.timeout(0)
def test_plays_with_a_deliberate_fault_are_not_all_behaviours(tmp_path: Path, folder: Path) -> None:
    """What is not looked at is said to be done too early. The cloud, which refuses to attach a
    volume twice, hides that."""
    runs = played(tmp_path, "--count", "4", "--mutant", "detached-unseen")
    assert trace.unfit(list(runs.values()), folder)
