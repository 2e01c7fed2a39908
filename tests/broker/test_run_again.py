# SPDX-License-Identifier: Apache-2.0
"""Murano's lesson: whole workflows again from their beginning, after Mistral died in the middle.

With the same node, and with a new one behind the same name: what is meant once, happens once.
"""

from __future__ import annotations

import pytest

from broker.drills import AgentDrill, Stage
from broker.rig import PATIENCE, Node, read
from broker.test_drills import FIRST, MOVED
from faults.slot import until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]

CRASHES = ("command.published", "command.after", "conclude.before")


@pytest.mark.parametrize("point", CRASHES)
def test_a_first_activation_again_with_the_same_node(point: str, stage: Stage) -> None:
    drill = stage.play(FIRST, active=False)
    with drill.staged():
        drill.crash_at(point, "failover.activate_first", group=drill.group)

        drill.again("db_a", "failover.activate_first", group=drill.group)

        assert drill.starts("db_a") == [1]
        assert drill.starts("db_b") == []


@pytest.mark.parametrize("point", CRASHES)
def test_a_failover_again_with_the_same_nodes(point: str, stage: Stage) -> None:
    drill = stage.play(MOVED)
    with drill.staged():
        order = {"group": drill.group, "to": "db_b", "lost": []}
        drill.crash_at(point, "failover.failover", **order)

        drill.again("db_b", "failover.failover", **order)

        assert (drill.starts("db_a"), drill.stops("db_a")) == ([1], [1])
        assert (drill.starts("db_b"), drill.stops("db_b")) == ([1], [])


def test_a_first_activation_again_with_a_new_node_behind_the_name(stage: Stage) -> None:
    drill = stage.play(FIRST, active=False)
    with drill.staged():
        asleep(drill, "db_a")
        drill.crash_at("command.published", "failover.activate_first", group=drill.group)
        old = drill.replace("db_a")

        drill.again("db_a", "failover.activate_first", group=drill.group)

        assert drill.starts("db_a") == [1]
        comes_back_and_runs_nothing(drill, old)
        assert drill.starts("db_a") == [1]


def test_a_failover_again_with_a_new_node_behind_the_name(stage: Stage) -> None:
    drill = stage.play(MOVED)
    with drill.staged():
        asleep(drill, "db_b")
        order = {"group": drill.group, "to": "db_b", "lost": []}
        drill.slot.victim.client.start("failover.failover", order)
        queue = drill.nodes["db_b"].address.commands(1)
        until(lambda: drill.stage.broker.depth(queue), PATIENCE, lambda: "a command for db_b")
        drill.slot.victim.kill()
        drill.slot.victim.start()
        old = drill.replace("db_b")

        drill.again("db_b", "failover.failover", **order)

        assert (drill.starts("db_a"), drill.stops("db_a")) == ([1], [1])
        assert (drill.starts("db_b"), drill.stops("db_b")) == ([1], [])
        comes_back_and_runs_nothing(drill, old)


def asleep(drill: AgentDrill, member: str) -> None:
    """A member's node hangs: what it is told stays in its queue."""
    node = drill.nodes[member]
    until(lambda: (node.journal / "journal.sqlite").exists(), PATIENCE, lambda: "an agent")
    node.freeze()


def comes_back_and_runs_nothing(drill: AgentDrill, old: Node) -> None:
    """The old node of a name wakes up, learns that it is deposed, and stops what it must."""
    old.wake()

    until(lambda: old.counts()["stopped"], PATIENCE, lambda: "deposed")
    assert not read(old.starts)
    assert drill.stage.broker.depth(old.address.commands(1)) is None
