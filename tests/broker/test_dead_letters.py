# SPDX-License-Identifier: Apache-2.0
"""A command that no agent took is kept where operators find it, and is not run later."""

from __future__ import annotations

import json
from typing import Any

import kombu
import pytest

from broker.rig import PATIENCE, Rig
from faults.slot import until
from mistral_failover.agent import wire

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]


def letters(rig: Rig) -> list[dict[str, Any]]:
    """The commands among the dead letters; they stay there."""
    with kombu.Connection(rig.broker.url) as connection:
        channel = connection.default_channel
        found = []
        while (message := channel.basic_get(wire.DEAD)) is not None:
            found.append(json.loads(message.body))
    return found


def test_a_command_that_no_agent_took_becomes_a_dead_letter(rig: Rig) -> None:
    node = rig.node()
    executor = rig.increment(node, limit=1.0, longest=1.0)

    word = rig.carry_out(executor)

    command = executor.order["id"]
    assert word.code == "NO_ANSWER"
    until(
        lambda: command in [letter["id"] for letter in letters(rig)],
        PATIENCE,
        lambda: "among the dead letters",
    )
    assert rig.broker.depth(node.address.commands(1)) == 0


def test_an_agent_that_comes_back_does_not_run_what_was_given_up(rig: Rig) -> None:
    node = rig.node()
    late = rig.increment(node, limit=1.0, longest=1.0)
    assert rig.carry_out(late).code == "NO_ANSWER"

    node.start()
    now = rig.increment(node)
    found = rig.carry_out(now)

    assert found.code == ""
    assert node.counts() == {now.order["id"]: 1}


def test_the_commands_of_a_void_epoch_are_no_dead_letters(rig: Rig) -> None:
    node = rig.node()
    executor = rig.increment(node, limit=16.0)
    executor.start()
    queue = node.address.commands(1)
    until(lambda: rig.broker.depth(queue), PATIENCE, lambda: "a command in its queue")
    executor.kill()

    assert rig.carry_out(rig.deposition(node, 2)).code == ""

    assert rig.broker.depth(queue) is None
    assert executor.order["id"] not in [letter["id"] for letter in letters(rig)]
