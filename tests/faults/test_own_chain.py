# SPDX-License-Identifier: Apache-2.0
"""A process dies or freezes while a group's own chain is at a task of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from faults.drill import LIMIT, Drill, Play
from faults.plays import alarm
from faults.slot import LEASE, Slot
from support.own_chain import CHAIN, CHECK, TICKETS, ExternalServices

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]


@pytest.fixture
def house(slot: Slot) -> Iterator[ExternalServices]:
    """The services of the chain, which both Mistrals know."""
    with ExternalServices() as services:
        for mistral in slot.mistrals:
            mistral.client.upload(services.chain)
        yield services


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGSTOP], ids=["kill", "freeze"])
@pytest.mark.parametrize("path", [TICKETS, CHECK])
def test_the_failover_continues_without_the_process_that_ran_the_chain(
    path: str, ending: signal.Signals, slot: Slot, house: ExternalServices
) -> None:
    ended: list[int] = []

    def end_the_victim(called: str) -> None:
        if called == path and not ended:
            ended.append(slot.victim.pid)
            os.kill(slot.victim.pid, ending)

    def act(drill: Drill) -> None:
        house.calls.clear()  # those of the first activation
        house.called = end_the_victim
        alarm("db_a", "crash")(drill)

    drill = Drill(slot, Play("own chain", act, more={"workflow": CHAIN}))

    drill.perform(patience=LIMIT if ending is signal.SIGSTOP else LEASE)

    assert ended, "the process ended at the task"
    assert drill.repeats == 0
    assert not drill.failures
    assert house.times(TICKETS) >= 1
    assert house.times(CHECK) >= 1, "the data was checked before the start"
    if ending is signal.SIGSTOP:
        assert drill.nurse.finished_without_it
