# SPDX-License-Identifier: Apache-2.0
"""``failover fence`` and ``failover unfence``: what they ask their actions for, and how they show
the answer.

What the actions do: tests/orders/test_fence_host.py, tests/orders/test_unfence_host.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from mistral_failover.cli.fence import Fence, Unfence
from support.commands import failover

FOUND = {
    "host": "cmp1",
    "rung": "host_power",
    "compute_service": "down",
    "levels": [
        [{"agent": "fence_ipmilan", "power": "on"}],
        [{"agent": "fence_apc", "power": "on"}, {"agent": "fence_apc", "power": "unknown"}],
    ],
    "clients": [{"client": "10.0.0.1:0/1", "volume": "v-1", "server": "s-1"}],
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
    assert "10.0.0.1:0/1 of volume v-1 of server s-1" in done.stdout
    assert "{'" not in done.stdout
    assert asked == [{"host": "cmp1", "dry_run": True, "even_if_up": False}]


def test_machines_get_the_answer_as_it_is(asked: list[dict[str, Any]]) -> None:
    done = failover("fence", "cmp1", "--because", "it burns", "--even-if-up", "-f", "json")

    assert json.loads(done.stdout) == FOUND
    assert asked == [{"host": "cmp1", "because": "it burns", "dry_run": False, "even_if_up": True}]


def test_the_storage_can_be_chosen(asked: list[dict[str, Any]]) -> None:
    failover("fence", "cmp1", "--dry-run", "--rung", "storage")

    assert asked[0]["rung"] == "storage"
    assert failover("fence", "cmp1", "--dry-run", "--rung", "quiesce").returncode == 2


def test_a_member_of_a_group_stands_for_its_host(asked: list[dict[str, Any]]) -> None:
    failover("fence", "db_a", "--group", "payments", "--dry-run")

    assert asked[0].items() >= {"group": "payments", "member": "db_a"}.items()


@pytest.mark.parametrize("words", [(), ("--dry-run", "--because", "it burns")])
def test_either_a_reason_or_a_dry_run_is_required(
    asked: list[dict[str, Any]], words: tuple[str, ...]
) -> None:
    assert failover("fence", "cmp1", *words).returncode == 2
    assert asked == []


LEFT = {
    "host": "cmp1",
    "compute_service": "up",
    "clients": [
        {"client": "10.0.0.1:0/1", "volume": "v-1", "blocked_at": 1.5, "safe": True},
    ],
    "lifted": 1,
    "down_in_nova": False,
    "sentence": "cmp1: Ceph accepts 1 client again",
}


def test_what_is_lifted_is_shown_in_words_and_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []

    def ask(self: Unfence, action: str, **inputs: Any) -> Any:
        assert action == "failover.unfence_host"
        calls.append(inputs)
        return json.loads(json.dumps(LEFT))

    monkeypatch.setattr(Unfence, "run_action", ask)

    done = failover("unfence", "cmp1", "--because", "it is on again", "--power-cycled")
    assert done.returncode == 0, done.stderr
    assert "10.0.0.1:0/1 of volume v-1" in done.stdout
    assert "{'" not in done.stdout
    done = failover("unfence", "db_a", "--group", "payments", "--dry-run", "-f", "json")
    assert json.loads(done.stdout) == LEFT
    assert calls == [
        {"host": "cmp1", "because": "it is on again", "dry_run": False, "power_cycled": True},
        {"group": "payments", "member": "db_a", "dry_run": True, "power_cycled": False},
    ]
    assert failover("unfence", "cmp1").returncode == 2
