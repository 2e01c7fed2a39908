# SPDX-License-Identifier: Apache-2.0
"""A lane, and a deposed agent, go on whatever the journal and people do meanwhile."""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import replace

import pytest

from mistral_failover.agent.broker import Broker
from mistral_failover.agent.daemon import intake
from mistral_failover.agent.daemon.deposed import DeposedCleanup
from mistral_failover.agent.daemon.intake import Intake
from mistral_failover.agent.daemon.messages import OWN
from mistral_failover.agent.daemon.worker import Lanes, Worker, drive, find_outcome
from support.agent_dispatcher import Delivery, DispatcherRig, document, sealed
from support.agents import shell
from support.waiting import until


@pytest.fixture
def rig(tmp_path):
    one = DispatcherRig(tmp_path)
    yield one
    one.journal.close()


@pytest.fixture
def work(rig):
    return Worker(rig.config, rig.journal, rig.dispatcher, lambda _queue: True)


def full(*_args, **_more):
    raise sqlite3.OperationalError("database or disk is full")


def unknown(rig, command_id="key-1", name="increment"):
    rig.journal.start(3, command_id, name, {}, "reply")
    rig.journal.leave(3, command_id, "unknown", "the agent died while it ran")


def test_what_a_person_settled_while_it_waited_does_not_run(rig, work, tmp_path):
    unknown(rig)
    rig.command(*sealed(document(name="increment", arguments={})))
    (job,) = rig.begun
    assert rig.journal.settle("key-1", done=True).state == "done"
    rig.said()
    drive(work.carry_out(job))
    assert not (tmp_path / "counter").exists()
    assert [(a["state"], a["exit_code"], a["replayed"]) for a in rig.said()] == [("done", 0, True)]
    assert "an operator stated" in rig.journal.find(3, "key-1").message


@pytest.mark.parametrize("check", [None, ["/bin/sh", "-c", "exit 2"]])
def test_what_is_said_of_an_unknown_command_does_not_grow(rig, check):
    unknown(rig)
    spec = replace(rig.config.commands["increment"], check=check and tuple(check))
    said = set()
    for _ in range(3):
        state, finding = drive(find_outcome(spec, rig.journal.find(3, "key-1"), threading.Event()))
        rig.journal.found(3, "key-1", state, finding)
        said.add(rig.journal.find(3, "key-1").said)
    (once,) = said
    assert once.startswith("the agent died while it ran; it")


def test_a_lane_goes_on_after_what_could_not_be_ended(rig, work, monkeypatch):
    ended = []
    end = rig.dispatcher.end

    def fails_once(job, document):
        ended.append(job.request.id)
        if len(ended) == 1:
            raise RuntimeError("the result can not be signed")
        end(job, document)

    monkeypatch.setattr(rig.dispatcher, "end", fails_once)
    for name in ("first", "second"):
        rig.dispatcher.take_command(_delivery(name))
    lanes = Lanes(work.carry_out)
    rig.dispatcher.begin(lanes.hand_over)
    assert rig.dispatcher.wait_until_quiet(10)
    rig.dispatcher.begin(lanes.hand_over)
    assert rig.dispatcher.wait_until_quiet(10)
    until(lambda: "second" in ended)
    assert rig.journal.find(3, "second").state == "done"


def _delivery(name):
    return Delivery(*sealed(document(id=name, name="increment", arguments={})))


def test_a_lane_goes_on_after_a_command_that_the_journal_lost(rig, work, monkeypatch):
    rig.dispatcher.take_command(_delivery("first"))
    with monkeypatch.context() as lost:
        rig.dispatcher.begin(rig.begun.append)
        lost.setattr(rig.journal, "find", lambda *_: None)
        drive(work.carry_out(rig.begun[0]))
    assert rig.dispatcher.running() == []
    assert {a["state"] for a in rig.said()} <= {"accepted"}, "it may have run"


def test_what_could_not_be_begun_again_is_not_told_as_done(rig, work, monkeypatch):
    unknown(rig)
    rig.command(*sealed(document(name="increment", arguments={})))
    rig.journal.settle("key-1", done=False)
    rig.said()
    monkeypatch.setattr(rig.journal, "start", full)
    drive(work.carry_out(rig.begun[0]))
    assert [a["state"] for a in rig.said()] == ["refused"]
    assert rig.journal.find(3, "key-1").state == "received"


def test_a_full_disk_keeps_no_deposed_agent_from_stopping(rig, monkeypatch, tmp_path):
    slow = replace(
        rig.config.commands["stop"],
        argv=tuple(shell(f"sleep 0.2; echo stop >> {tmp_path}/stops")),
    )
    config = replace(
        rig.config, commands={**rig.config.commands, "stop": slow}, on_deposed=("stop",)
    )
    cleanup = DeposedCleanup(config, rig.journal, rig.dispatcher)
    for method in ("start", "running", "done"):
        monkeypatch.setattr(rig.journal, method, full)
    assert drive(cleanup._stop_by(9, f"{OWN}9:1", "stop")) is None
    assert (tmp_path / "stops").read_text() == "stop\n"
    assert rig.dispatcher._own is None


def test_a_stop_command_that_fails_is_no_success_on_a_full_disk(rig, monkeypatch):
    failing = replace(rig.config.commands["stop"], argv=("/bin/false",))
    config = replace(rig.config, commands={"stop": failing}, on_deposed=("stop",))
    monkeypatch.setattr(rig.journal, "done", full)
    cleanup = DeposedCleanup(config, rig.journal, rig.dispatcher)
    assert drive(cleanup._stop_all(9)) == "stop ended with 1"


def test_a_broker_that_is_away_does_not_look_like_a_dead_agent(rig, monkeypatch):
    monkeypatch.setattr(intake, "_SLICE", 0.01)
    monkeypatch.setattr("mistral_failover.agent.daemon.backoff.Backoff.next", lambda _: 20.0)
    stop, heard = threading.Event(), []

    def alive():
        heard.append(1)
        if len(heard) == 5:
            stop.set()

    address = rig.config.identity.address
    broker = Broker("amqp://a:b@127.0.0.1:1/f")
    reading = Intake(broker, address, rig.dispatcher, lambda: False, alive)
    thread = threading.Thread(target=reading.run, args=(stop,), daemon=True)
    thread.start()
    thread.join(10)
    assert len(heard) == 5
    stop.set()
