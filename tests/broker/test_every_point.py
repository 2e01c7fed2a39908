# SPDX-License-Identifier: Apache-2.0
"""At every point a process dies, sleeps too long, or loses the broker: the increment runs once.

Or else its outcome is reported as unknown, and settled; never twice, never lost in silence.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.doctor import ASKED_AGAIN, MODES, Doctor, strike
from broker.plays import DEPOSITION, DRILLED, INCREMENT, NOT_BEGUN, UNDECIDED
from broker.processes import Executor, Outcome
from broker.rig import PATIENCE, Rig
from faults.slot import until
from mistral_failover.fault_points import BROKER_POINTS, POINTS
from support.injected_faults import Fault

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

LONG = 30.0  # seconds: longer than a test takes
DEPOSED = ("OLD_EPOCH", "UNKNOWN_OUTCOME", *ASKED_AGAIN)

Record = Callable[[str, object], None]


def kinds(point: str, mode: str) -> tuple[str, ...]:
    """The commands that are played. A check is asked only about an outcome that an agent has lost;
    an agent that lives on has it, and without a check nothing would hide that it had not."""
    if point not in UNDECIDED:
        return ("checked",)
    return ("checked", "plain") if mode in ("kill", "exception") else ("plain",)


def test_every_point_has_a_play() -> None:
    commands = {point for point in POINTS if point.startswith("command.")}

    assert {*INCREMENT, *DEPOSITION} == set(BROKER_POINTS)
    assert set(DRILLED) == commands


@pytest.mark.parametrize(
    ("point", "kind", "mode"),
    [
        (point, kind, mode)
        for mode in (*MODES, "exception")
        for point in INCREMENT
        for kind in kinds(point, mode)
    ],
)
def test_the_increment_runs_once(
    point: str, kind: str, mode: str, rig: Rig, record_property: Record
) -> None:
    node = rig.node()
    executor = rig.increment(node, kind, after=0.3)
    victim = executor if INCREMENT[point] == "executor" else node
    strike(victim, point, mode)
    node.start()
    executor.start()
    doctor = Doctor(rig, node, executor)

    doctor.treat(victim, point, mode)
    found = doctor.bring_to_an_end()

    command = executor.order["id"]
    assert found.code == "", str(found)
    assert found.document["exit_code"] == 0
    assert node.counts() == {command: 1}
    undecided = (kind, mode) in (
        ("plain", "kill"),
        ("plain", "exception"),
        ("checked", "exception"),
    )
    assert doctor.unknown <= (undecided and point in UNDECIDED), "it could have been known"
    record_property("reported as unknown", doctor.unknown)
    repeat = rig.again(executor)
    repeat.start()
    again = Doctor(rig, node, repeat).bring_to_an_end()
    assert (again.code, again.document.get("replayed")) == ("", True), str(again)
    assert node.counts() == {command: 1}
    assert node.contradictions() == []
    if mode == "freeze" and victim is executor:
        woken = until(lambda: executor.outcome, PATIENCE, lambda: "an end of who woke up")
        # UNREACHABLE: it slept its time away before it had sent anything.
        assert woken.code in ("", "LEASE_LOST", "UNREACHABLE"), str(woken)


@pytest.mark.parametrize("when", ["early", "late"])
@pytest.mark.parametrize("kind", ["checked", "plain", "repeatable"])
def test_what_a_dead_agent_left_running_is_ended_before_anything_is_decided(
    kind: str, when: str, rig: Rig, record_property: Record
) -> None:
    node = rig.node()
    wait = {"before" if when == "late" else "after": 2.0}
    executor = rig.increment(node, kind, **wait)
    strike(node, "agent.running", "kill")
    node.start()
    executor.start()
    doctor = Doctor(rig, node, executor)
    if when == "early":
        rig.until_struck(node, executor)
        until(node.counts, PATIENCE, lambda: "the increment")

    doctor.treat(node, "agent.running", "kill")
    found = doctor.bring_to_an_end()

    assert found.code == "", str(found)
    count = node.counts()[executor.order["id"]]
    # Repeatable: running it twice does no harm.
    assert node.contradictions() == []
    assert count == 1 or (kind == "repeatable" and count == 2)
    assert doctor.unknown == (kind == "plain")
    record_property("reported as unknown", doctor.unknown)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("point", DEPOSITION)
def test_a_deposed_agent_stops_what_runs_and_serves_its_new_epoch(
    point: str, mode: str, rig: Rig
) -> None:
    node = rig.node()
    deposition = rig.deposition(node, 2)
    victim = deposition if DEPOSITION[point] == "executor" else node
    before = rig.increment(node, before=LONG, longest=LONG)
    node.start()
    before.start()
    rig.until_it_runs(node, before)
    strike(victim, point, mode)
    deposition.start()
    doctor = Doctor(rig, node, deposition)

    rig.until_struck(victim, deposition)
    if mode == "freeze" and victim is node:
        node.freeze()
        rig.carry_out(rig.again(deposition))
        node.wake()
    else:
        doctor.treat(victim, point, mode)
    assert doctor.bring_to_an_end().code == ""

    until(lambda: node.counts()["stopped"], PATIENCE, lambda: "stopped")
    word = until(lambda: before.outcome, PATIENCE, lambda: "a word of the first epoch's command")
    assert word.code in DEPOSED, str(word)
    assert not node.counts()[before.order["id"]]
    assert node.contradictions() == []
    then = rig.increment(node, epoch=2)
    _served(rig, then)
    assert node.counts()[then.order["id"]] == 1
    assert not node.counts()[before.order["id"]]


@pytest.mark.parametrize("point", [point for point in INCREMENT if INCREMENT[point] == "agent"])
def test_who_is_deposed_while_it_sleeps_runs_nothing_when_it_wakes(point: str, rig: Rig) -> None:
    node = rig.node()
    executor = rig.increment(node, before=LONG if point == "agent.running" else 0.0)
    node.plan.set(Fault(point, "freeze"))
    node.start()
    executor.start()
    rig.until_struck(node, executor)
    until(lambda: node.frozen, PATIENCE, lambda: "frozen")
    node.freeze()
    executor.kill()
    counted = node.counts()[executor.order["id"]]

    assert rig.carry_out(rig.deposition(node, 2)).code == ""
    node.wake()

    until(lambda: node.counts()["stopped"], PATIENCE, lambda: "stopped")
    then = rig.increment(node, epoch=2)
    _served(rig, then)
    assert node.counts()[then.order["id"]] == 1
    assert node.counts()[executor.order["id"]] == counted
    assert not (counted and point in NOT_BEGUN)
    assert node.contradictions() == []


def test_who_sleeps_while_it_commands_revives_no_epoch(rig: Rig) -> None:
    """An executor that was frozen while the member was deposed brings no old queue back."""
    node = rig.node()
    executor = rig.increment(node)
    for point in ("notice.published", "command.published"):
        sleeper = rig.again(executor)
        sleeper.plan.set(Fault(point, "freeze"))
        sleeper.start()
        until(lambda s=sleeper: s.frozen, PATIENCE, lambda p=point: f"frozen at {p}")
    assert rig.carry_out(rig.deposition(node, 2)).code == ""
    rig.broker.kill()  # so that a process that wakes up has to connect again
    rig.broker.start()

    for sleeper in rig.executors:
        if sleeper.frozen:
            sleeper.wake()
            word = until(lambda s=sleeper: s.outcome, PATIENCE, lambda: "an end of who woke up")
            assert word.code in DEPOSED or word.code == "LEASE_LOST"

    node.start()
    until(lambda: node.counts()["stopped"], PATIENCE, lambda: "stopped")
    assert rig.broker.depth(node.address.commands(1)) is None
    assert not node.counts()[executor.order["id"]]


def test_a_command_of_an_earlier_epoch_never_runs(rig: Rig) -> None:
    node = rig.node()
    node.start()
    first = rig.increment(node)
    assert rig.carry_out(first).code == ""
    assert rig.carry_out(rig.deposition(node, 2)).code == ""
    until(lambda: node.counts()["stopped"], PATIENCE, lambda: "stopped")

    late = rig.increment(node, epoch=1, limit=1.0, longest=2.0)
    word = rig.carry_out(late)

    assert word.code in DEPOSED, str(word)
    assert not node.counts()[late.order["id"]]


def _served(rig: Rig, executor: Executor) -> Outcome:
    """What comes of a command of the new epoch, which the agent takes as soon as it is quiet."""
    found = rig.carry_out(executor)
    for _ in range(20):
        if found.code not in ASKED_AGAIN:
            break
        found = rig.carry_out(rig.again(executor))
    assert found.code == "", str(found)
    assert found.document["exit_code"] == 0
    return found
