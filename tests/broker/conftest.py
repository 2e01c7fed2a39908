# SPDX-License-Identifier: Apache-2.0
"""A broker for each process of the tests; nodes and executors for each test."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker import drills
from broker.drills import Stage
from broker.rig import Rig
from mistral_failover.fault_points import BROKER_POINTS
from testbroker.broker import PrivateBroker


@pytest.fixture(scope="session")
def one_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateBroker]:
    with PrivateBroker(tmp_path_factory.mktemp("broker")) as made:
        yield made


@pytest.fixture
def broker(one_broker: PrivateBroker) -> PrivateBroker:
    """It runs, whatever an earlier test did to it."""
    one_broker.start()
    return one_broker


@pytest.fixture
def rig(broker: PrivateBroker, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(broker, tmp_path / "rig")
    yield made
    made.close()


@pytest.fixture(scope="session")
def stages(one_broker: PrivateBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    made = Stages(one_broker, tmp_path_factory.mktemp("stages"))
    yield made
    made.close()


@pytest.fixture
def stage(
    broker: PrivateBroker,  # noqa: ARG001 - it runs
    stages: Stages,
    request: pytest.FixtureRequest,
) -> Iterator[Stage]:
    failed = request.session.testsfailed
    yield stages.get()
    if request.session.testsfailed > failed:
        stages.close()


class Stages:
    """Sets a stage up when it is needed first, and a new one after a failure."""

    def __init__(self, broker: PrivateBroker, folder: Path) -> None:
        self._broker = broker
        self._folder = folder
        self._numbers = itertools.count(1)
        self._open = contextlib.ExitStack()
        self._stage: Stage | None = None

    def get(self) -> Stage:
        """The stage."""
        if self._stage is None:
            folder = self._folder / str(next(self._numbers))
            self._stage = self._open.enter_context(drills.stage(self._broker, folder))
        return self._stage

    def close(self) -> None:
        """End it, and see that Mistral wrote no secret anywhere."""
        if self._stage is not None:
            found = self._stage.secrets()
            self._stage = None
            self._open.close()
            assert not found, found


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if report.when == "call" and "tests/broker" in report.nodeid
    ]
    told: dict[str, int] = {}
    for report in reports:
        for name, count in report.user_properties:
            told[name] = told.get(name, 0) + count
    if reports:
        said = ", ".join(f"{name}: {count}" for name, count in sorted(told.items()))
        terminalreporter.write_line(
            f"points of broker and agent: {len(BROKER_POINTS)}, scenarios: {len(reports)}, {said}"
        )
