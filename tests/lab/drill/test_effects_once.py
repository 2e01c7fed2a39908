# SPDX-License-Identifier: Apache-2.0
"""The audit of invariant 4: no operation takes effect twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

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


ATTACHMENT = {"id": "r", "type": "volume_attachment", "physical_id": "v"}


@pytest.mark.parametrize(("verb", "does"), [("create", "attach"), ("delete", "detach")])
def test_what_nova_begins_and_gives_up_has_no_effect(verb: str, does: str) -> None:
    state = replace(
        NOTHING, resources=[ATTACHMENT], operations=[{"resource_id": "r", "verb": verb}]
    )
    begun = {"kind": f"{does}_begin", "volume": "v", "server": "s"}
    failed = {**begun, "kind": f"{does}_failed"}

    assert list(effects_once([begun, failed, begun], state)) == []
    assert len(list(effects_once([begun, begun], state))) == 1
