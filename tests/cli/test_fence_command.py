# SPDX-License-Identifier: Apache-2.0
"""``failover fence``: what it asks the action for, and how it shows the answer.

What the action does: tests/orders/test_fence_host.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from mistral_failover.cli.fence import Fence
from support.commands import failover

FOUND = {
    "host": "cmp1",
    "compute_service": "down",
    "levels": [
        [{"agent": "fence_ipmilan", "power": "on"}],
        [{"agent": "fence_apc", "power": "on"}, {"agent": "fence_apc", "power": "unknown"}],
    ],
    "fenced": False,
    "proof": None,
    "sentence": "It would switch cmp1 off",
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The inputs of the action at each call."""
    calls: list[dict[str, Any]] = []

    def run_action(self: Fence, action: str, **inputs: Any) -> Any:
        assert action == "failover.fence_host"
        calls.append(inputs)
        return json.loads(json.dumps(FOUND))

    monkeypatch.setattr(Fence, "run_action", run_action)
    return calls


def test_people_get_the_devices_in_words(asked: list[dict[str, Any]]) -> None:
    done = failover("fence", "cmp1", "--dry-run")

    assert done.returncode == 0, done.stderr
    assert "fence_apc: on and fence_apc: unknown" in done.stdout
    assert "{'" not in done.stdout
    assert asked == [{"host": "cmp1", "dry_run": True, "even_if_up": False}]


def test_machines_get_the_answer_as_it_is(asked: list[dict[str, Any]]) -> None:
    done = failover("fence", "cmp1", "--because", "it burns", "--even-if-up", "-f", "json")

    assert json.loads(done.stdout) == FOUND
    assert asked == [{"host": "cmp1", "because": "it burns", "dry_run": False, "even_if_up": True}]


def test_a_member_of_a_group_stands_for_its_host(asked: list[dict[str, Any]]) -> None:
    failover("fence", "db_a", "--group", "payments", "--dry-run")

    assert asked[0].items() >= {"group": "payments", "member": "db_a"}.items()


@pytest.mark.parametrize("words", [(), ("--dry-run", "--because", "it burns")])
def test_either_a_reason_or_a_dry_run_is_required(
    asked: list[dict[str, Any]], words: tuple[str, ...]
) -> None:
    assert failover("fence", "cmp1", *words).returncode == 2
    assert asked == []
