# SPDX-License-Identifier: Apache-2.0
"""The audit of invariant 2: no volume reaches a new member while somebody may write on it."""

from __future__ import annotations

from typing import Any

import pytest

from mistral_failover.lab.drill.audit import safe_attachment

AB = [
    {"kind": "attached", "volume": "v", "server": "a"},
    {"kind": "attach_begin", "volume": "v", "server": "b"},
]


def started(server: str = "a", **more: Any) -> dict[str, Any]:
    return {"kind": "application_started", "application": "pg", "server": server, **more}


def found(running: dict[str, Any]) -> list[str]:
    attached, begun = AB
    return [violation.seen for violation in safe_attachment([attached, running, begun])]


@pytest.mark.parametrize(
    "running", [started(), started(volumes=["v"]), started(volumes=["w", "v"])]
)
def test_who_may_write_on_a_volume_when_it_moves_is_found(running: dict[str, Any]) -> None:
    assert found(running) == ["volume v goes to b while ['pg'] still runs on a"]


@pytest.mark.parametrize("running", [started("b"), started(volumes=["w"])])
def test_who_runs_elsewhere_or_on_other_volumes_alone_is_no_violation(
    running: dict[str, Any],
) -> None:
    assert found(running) == []
