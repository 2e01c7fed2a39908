# SPDX-License-Identifier: Apache-2.0
"""A broker's user for the agents of one group: enough for them, and nothing of another group's.

The rights are those of docs/broker.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kombu
import pytest
from amqp import Message
from amqp.exceptions import AccessRefused

from broker.rig import Node, Rig
from mistral_failover.agent import wire

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]

Attempt = Callable[[Any, wire.Address], object]

PAGE = Path(__file__).parents[2] / "docs" / "broker.md"


def rights_of(role: str, group_id: str = "") -> dict[str, str]:
    """What docs/broker.md has rabbitmqctl set_permissions give to a role: the agents of a group,
    or the executors."""
    found = re.search(rf"set_permissions -p \S+ {role} '(.*)' '(.*)' '(.*)'", PAGE.read_text())
    assert found is not None, role
    names = ("configure", "write", "read")
    return {n: p.replace("GROUP_ID", group_id) for n, p in zip(names, found.groups(), strict=True)}


@pytest.fixture
def neighbour(rig: Rig, tmp_path: Path) -> Iterator[Rig]:
    """Another group on the same broker."""
    made = Rig(rig.broker, tmp_path / "neighbour")
    yield made
    made.close()


@pytest.fixture
def mine(rig: Rig) -> str:
    """The URL of the group's user."""
    rights = rights_of("payments", rig.group_id)
    return rig.broker.add_user(f"agents-{rig.group}", **rights)


def test_the_rights_are_enough_for_agents_and_executors(rig: Rig, mine: str) -> None:
    executors = rig.broker.add_user(f"executors-{rig.group}", **rights_of("mistral"))
    node = rig.node(url=mine)
    node.start()

    rig.url = executors
    counts = rig.play(node)

    assert node.counts() == counts


def test_who_belongs_to_one_group_can_do_nothing_to_another(neighbour: Rig, mine: str) -> None:
    node = neighbour.node()
    node.start()
    executor = neighbour.increment(node)
    assert neighbour.carry_out(executor).code == ""

    assert [what for what, attempt in ATTEMPTS.items() if allowed(mine, attempt, node)] == []

    assert node.counts() == {executor.order["id"]: 1}
    assert neighbour.carry_out(neighbour.increment(node)).code == ""


def test_a_member_can_not_command_its_own_group(rig: Rig, mine: str) -> None:
    node = rig.node()
    node.start()
    assert rig.carry_out(rig.increment(node)).code == ""

    assert not allowed(mine, ATTEMPTS["command"], node)


def allowed(url: str, attempt: Attempt, node: Node) -> bool:
    """Whether the broker lets a user do something."""
    with kombu.Connection(url) as connection:
        try:
            attempt(connection.default_channel, node.address)
        except AccessRefused:
            return False
    return True


def publish(channel: Any, exchange: str, key: str) -> None:
    """Publish something, and wait until the broker took or refused it."""
    channel.basic_publish(Message("{}"), exchange, key)
    channel.queue_declare("amq.rabbitmq.reply-to", passive=True)  # a round trip


ATTEMPTS: dict[str, Attempt] = {
    "take a command": lambda channel, to: channel.basic_get(to.commands(1)),
    "take a notice": lambda channel, to: channel.basic_get(to.notices),
    "take a heartbeat": lambda channel, to: channel.basic_get(to.heartbeats),
    "listen": lambda channel, to: channel.basic_consume(to.commands(1)),
    "purge": lambda channel, to: channel.queue_purge(to.commands(1)),
    "delete": lambda channel, to: channel.queue_delete(to.commands(1)),
    "delete the notices": lambda channel, to: channel.queue_delete(to.notices),
    "raise the epoch": lambda channel, to: channel.queue_declare(to.commands(2), durable=True),
    "bind": lambda channel, to: channel.queue_bind(to.commands(1), wire.RESULTS, to.commands(1)),
    "command": lambda channel, to: publish(channel, wire.COMMANDS, to.commands(1)),
    "command past the exchange": lambda channel, to: publish(channel, "", to.commands(1)),
    "read dead letters": lambda channel, to: channel.basic_get(wire.DEAD),
    "write dead letters": lambda channel, to: publish(channel, wire.DEAD, ""),
    "delete the exchange": lambda channel, to: channel.exchange_delete(wire.COMMANDS),
}
