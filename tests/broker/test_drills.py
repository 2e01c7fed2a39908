# SPDX-License-Identifier: Apache-2.0
"""The real Mistral dies, sleeps or loses the broker around a command: it runs once."""

from __future__ import annotations

import pytest

from broker.drills import AgentDrill, Stage
from broker.plays import DRILLED
from faults.drill import Drill, Play
from faults.plays import move
from support.injected_faults import Fault

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]

MODES = {"kill": "kill", "freeze": "freeze", "broker": "hold"}


def activate(drill: Drill) -> None:
    """A person brings the group up for the first time."""
    drill.start("failover.activate_first", group=drill.group)


FIRST = Play("first", activate, active="db_a")
MOVED = Play("moved", move)


def once(drill: AgentDrill, *, moved: bool) -> None:
    """Every command of the drill ran once."""
    assert drill.starts("db_a") == [1]
    assert drill.stops("db_a") == ([1] if moved else [])
    assert drill.starts("db_b") == ([1] if moved else [])
    assert drill.stops("db_b") == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("point", [*DRILLED, "command.published"])
def test_the_first_activation_starts_the_application_once(
    point: str, mode: str, stage: Stage
) -> None:
    drill = stage.play(FIRST, active=False)

    drill.perform(Fault(point, MODES[mode]))

    once(drill, moved=False)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("nth", [1, 2], ids=["stop", "start"])
@pytest.mark.parametrize("point", DRILLED)
def test_a_switchover_stops_and_starts_the_application_once(
    point: str, nth: int, mode: str, stage: Stage
) -> None:
    drill = stage.play(MOVED)

    drill.perform(Fault(point, MODES[mode], nth))

    once(drill, moved=True)
