# SPDX-License-Identifier: Apache-2.0
"""A slot for each process of the tests; one in which something went wrong is thrown away."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.slot import Slot
from mistral_failover.fault_points import POINTS

LANES = 2  # random schedules that are played beside each other


def pytest_configure() -> None:
    # Here, so that the processes of xdist have the same one.
    os.environ.setdefault("FAULT_SEED", str(int(time.time())))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the random schedules begin first, each in a process of its own: they last longest, and
    mostly wait. Each process gets a part of the list, from its beginning."""
    long = [item for item in items if "test_whatever_happens_the_group_comes_to" in item.nodeid]
    items[:] = [item for item in items if item not in long]
    for number, item in enumerate(long):
        items.insert(number * (len(items) // len(long)), item)


def pytest_report_header() -> str:
    seconds = os.environ.get("FAULT_SECONDS", "30")
    return f"random schedules: FAULT_SECONDS={seconds} FAULT_SEED={os.environ['FAULT_SEED']}"


class Slots:
    """Makes a slot when it is needed first, and a new one after a failure."""

    def __init__(self, folder: Path, *, alone: bool = False) -> None:
        """``alone``: see `Slot`."""
        self._folder = folder
        self._alone = alone
        self._made = 0
        self._slot: Slot | None = None

    def get(self) -> Slot:
        """The slot."""
        if self._slot is None:
            self._made += 1
            self._slot = Slot(self._folder / str(self._made), alone=self._alone).__enter__()
        return self._slot

    def discard(self) -> None:
        """End the slot; its files stay, and tell what its processes were doing."""
        if self._slot is not None:
            self._slot.write_stacks_down()
            time.sleep(0.2)
            self._end()

    def _end(self) -> None:
        if self._slot is not None:
            slot, self._slot = self._slot, None
            slot.__exit__()

    def close(self) -> None:
        """End the slot, and see that it wrote no token anywhere."""
        found = self._slot.secrets() if self._slot else []
        self._end()
        assert not found, [str(violation) for violation in found]


@pytest.fixture(scope="session")
def slots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slots]:
    made = Slots(tmp_path_factory.mktemp("faults"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def lone_slots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slots]:
    made = Slots(tmp_path_factory.mktemp("alone"), alone=True)
    yield made
    made.close()


@pytest.fixture
def slot(slots: Slots, request: pytest.FixtureRequest) -> Iterator[Slot]:
    """Two processes."""
    yield from _kept_unless_it_fails(slots, request)


@pytest.fixture
def lone_slot(lone_slots: Slots, request: pytest.FixtureRequest) -> Iterator[Slot]:
    """One Mistral in this process."""
    yield from _kept_unless_it_fails(lone_slots, request)


def _kept_unless_it_fails(slots: Slots, request: pytest.FixtureRequest) -> Iterator[Slot]:
    failed = request.session.testsfailed
    yield slots.get()
    if request.session.testsfailed > failed:
        slots.discard()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if report.when == "call" and "tests/faults" in report.nodeid
    ]
    scenarios = sum("test_every_fault_point" in report.nodeid for report in reports)
    schedules = sum(dict(report.user_properties).get("schedules", 0) for report in reports)
    if reports:
        terminalreporter.write_line(
            f"fault points: {len(POINTS)}, scenarios: {scenarios}, random schedules: {schedules}"
        )
