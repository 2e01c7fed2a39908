# SPDX-License-Identifier: Apache-2.0
"""The audit of invariant 4: no operation takes effect twice."""

from __future__ import annotations

from typing import Any

from mistral_failover.lab.drill.audit import State, effects_once

STARTED = {"kind": "command_started", "id": "key-1", "server": "s"}
DIED = {"kind": "command_died", "id": "key-1", "server": "s"}
NOTHING = State(*[()] * 7)


def found(*events: dict[str, Any]) -> list[str]:
    return [str(each) for each in effects_once(events, NOTHING)]


def test_a_command_that_ran_twice_is_found() -> None:
    assert found(STARTED, STARTED) == ["invariant 4: command key-1 ran 2 times"]


def test_a_command_that_died_may_run_again() -> None:
    """Its guest crashed, or its agent killed it when it learned of a newer epoch."""
    assert found(STARTED, DIED, STARTED) == []
