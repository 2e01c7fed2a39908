# SPDX-License-Identifier: Apache-2.0
"""An executor that is stopped gives its work back; a small pool; two executors on one traversal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.drill import Drill, Play
from faults.plays import APPLICATION, CRASH, TOGETHER, WIDE
from faults.slot import Fault, Slot

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

LONG = 60.0  # a lease for which no drill has the time to wait


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slot]:
    """A slot whose leases are long."""
    with Slot(tmp_path_factory.mktemp("patient") / "slot", lease=LONG, lease_margin=2.0) as slot:
        yield slot


@pytest.mark.parametrize(
    ("point", "nth", "play"),
    [
        ("check.after", 1, CRASH),
        ("stop.after", 1, CRASH),
        ("detach.after", 1, CRASH),
        ("attach.before", 1, WIDE),
        ("attach.after", 2, WIDE),
        ("command.before", 3, APPLICATION),
        ("patch.after", 1, CRASH),
    ],
)
def test_a_stopped_executor_s_work_goes_on_without_waiting_for_a_lease(
    point: str, nth: int, play: Play, patient: Slot
) -> None:
    drill = Drill(patient, play)

    drill.perform(Fault(point, "stop", nth))

    kinds = {row["kind"] for row in drill.told()}
    assert "handed_back" in kinds
    assert "steal" not in kinds, "a lease was waited for"
    assert drill.repeats == 0


@pytest.mark.parametrize("mode", ["kill", "exception"])
def test_a_pool_of_one_worker_delays_work_and_loses_none(mode: str, tmp_path: Path) -> None:
    with Slot(tmp_path / "slot", parallel_operations=1) as slot:
        drill = Drill(slot, WIDE)

        drill.perform(Fault("attach.after", mode, 2))

        assert drill.repeats == 0


@pytest.mark.parametrize("mode", ["kill", "freeze", "exception", "duplicate"])
@pytest.mark.parametrize(
    ("point", "nth"),
    # The other executor may be the quicker one, and attach all volumes but one.
    [("check.locked", 2), ("attach.after", 1), ("conclude.before", 2)],
)
def test_two_executors_advance_one_traversal(point: str, nth: int, mode: str, slot: Slot) -> None:
    drill = Drill(slot, TOGETHER)

    drill.perform(Fault(point, mode, nth), patience=20)

    assert drill.repeats == 0
