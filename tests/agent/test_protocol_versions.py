# SPDX-License-Identifier: Apache-2.0
"""An executor and an agent whose versions of the protocol differ: one apart they work, two apart
they refuse each other, and say which of them to upgrade."""

from __future__ import annotations

from pathlib import Path

import pytest

from mistral_failover.agent import wire
from mistral_failover.agent.channel.interface import ChannelError, Heartbeat
from support.agent_dispatcher import Delivery, DispatcherRig, document, notice, sealed
from support.agents import Node, killed_at_the_end
from support.waiting import until


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "node", f"filesystem://{tmp_path}/broker")


def heard(node: Node) -> Heartbeat:
    found: list[Heartbeat | None] = []

    def comes() -> bool:
        found.append(node.channel.heard(node.address))
        return found[-1] is not None

    until(comes, 60)
    assert found[-1] is not None
    return found[-1]


@pytest.mark.parametrize("version", [wire.PROTOCOL - 1, wire.PROTOCOL, wire.PROTOCOL + 1])
def test_an_agent_one_version_older_or_newer_works(node: Node, version: int) -> None:
    with killed_at_the_end(node.process(protocol=version)):
        assert node.run(limit=60.0).exit_code == 0
        beat = heard(node)

    assert node.count() == 1
    assert (beat.not_ready, beat.commands) == (None, frozenset(node.commands))


@pytest.mark.parametrize(
    ("agent", "executor", "upgrade"),
    [(0, 2, "Upgrade the agent"), (3, 1, "Upgrade the executor of Mistral")],
)
def test_two_versions_apart_nothing_runs_and_the_older_side_is_named(
    node: Node, monkeypatch: pytest.MonkeyPatch, agent: int, executor: int, upgrade: str
) -> None:
    monkeypatch.setattr(wire, "PROTOCOL", executor)
    with killed_at_the_end(node.process(protocol=agent)):
        with pytest.raises(ChannelError) as raised:
            node.run(limit=60.0)
        beat = heard(node)

    assert raised.value.code == "REFUSED"
    assert upgrade in raised.value.message
    assert beat.not_ready is not None
    assert upgrade in beat.not_ready
    assert beat.stopping, "what it runs is not known"
    assert node.count() == 0


def test_an_agent_obeys_the_notice_of_an_executor_of_any_version(tmp_path: Path) -> None:
    rig = DispatcherRig(tmp_path)

    far = notice(epoch=4, protocol=wire.PROTOCOL + 2)
    rig.dispatcher.take_notice(Delivery(*sealed(far, kind="notice")))

    assert rig.dispatcher.epoch == 4


def test_a_command_that_may_have_run_before_is_unknown_whatever_the_version(tmp_path: Path) -> None:
    """An executor may be upgraded too far while it waits for a command."""
    rig = DispatcherRig(tmp_path)
    rig.command(*sealed(document()))
    assert len(rig.begun) == 1

    rig.command(*sealed(document(protocol=wire.PROTOCOL + 2, reply_to="another")))

    (answer,) = (each for each in rig.said() if each["state"] not in ("accepted", "running"))
    assert answer["state"] == "unknown"


@pytest.mark.parametrize("version", [True, "1", -1, 1.5, None])
def test_a_version_that_is_none_is_refused(tmp_path: Path, version: object) -> None:
    rig = DispatcherRig(tmp_path)

    rig.command(*sealed(document(protocol=version)))

    assert rig.begun == []
    (answer,) = rig.said()
    assert answer["code"] == "REFUSED"
