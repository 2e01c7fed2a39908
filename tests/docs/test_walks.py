# SPDX-License-Identifier: Apache-2.0
"""The walks that the page on the architecture tells are those that the code takes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from support.pages import ROOT, page, section

ALARM, ORDER = "actions/alarms.py:Admit.answer", "actions/orders.py:read_order"
WALKS = {
    "How an alarm becomes a failover": ALARM,
    "How an order becomes a goal": ORDER,
    "How a node is carried out": ALARM,
    "How a volume moves": ALARM,
}
ELSEWHERE = ("server/", "orders/other_target.py", "model/order.py")
"""The drill has no webhook, and no target that goes down; a type is no step."""


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The functions that a drill calls from its alarm on, and from its order on."""
    folder = tmp_path_factory.mktemp("walk")
    file = folder / "calls.json"
    drill = ("drill", "--latency", "zero", "--active-active", "--state-dir", str(folder / "state"))
    done = subprocess.run(
        [sys.executable, "-m", "support.walk", str(file), f"{ALARM},{ORDER}", *drill],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, list[str]] = json.loads(file.read_text("utf-8"))
    return found


def steps(title: str) -> list[str]:
    """The functions that a section names, in its order."""
    named = re.findall(r"`([\w/]+\.py:\w+)`", section(page("architecture"), title))
    return [each for each in named if not each.startswith(ELSEWHERE)]


def is_of(call: str, step: str) -> bool:
    """Whether a call is of the function, the method or the class that a step names."""
    file, _, name = step.partition(":")
    return call.startswith(f"{file}:") and name in call.removeprefix(f"{file}:").split(".")


@pytest.mark.drills
@pytest.mark.timeout(600)
@pytest.mark.parametrize("title", WALKS)
def test_the_functions_are_called_in_the_order_of_the_page(
    title: str, calls: dict[str, list[str]]
) -> None:
    walk = calls[WALKS[title]]
    first = [
        next((at for at, call in enumerate(walk) if is_of(call, step)), None)
        for step in steps(title)
    ]
    told = list(zip(steps(title), first, strict=True))
    assert len(told) > 3
    assert [step for step, at in told if at is None] == []
    assert told == sorted(told, key=lambda each: each[1] or 0)
