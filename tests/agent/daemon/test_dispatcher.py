# SPDX-License-Identifier: Apache-2.0
"""What the agent does with what it can not do now, and how it says what it has to say."""

from __future__ import annotations

import sqlite3
import threading
import time

import pytest

from mistral_failover import fault_points
from mistral_failover.agent.daemon import dispatcher as agent_dispatcher
from mistral_failover.agent.daemon.backoff import Backoff
from mistral_failover.agent.daemon.messages import Refused
from mistral_failover.agent.daemon.outbox import LONGEST, Message, Outbox
from support.agent_dispatcher import Delivery, DispatcherRig, document, notice, sealed


@pytest.fixture
def rig(tmp_path, request):
    one = DispatcherRig(tmp_path, **getattr(request, "param", {}))
    yield one
    one.journal.close()


def full(journal):
    """As a disk without space: what is written fails."""
    journal._db.execute("PRAGMA query_only = ON")


def test_a_command_is_written_down_before_the_broker_forgets_it(rig):
    known = []
    delivery = Delivery(*sealed(document()))
    delivery.ack = lambda: known.append(rig.journal.find(3, "key-1").state)
    rig.dispatcher.take_command(delivery)
    assert known == []
    rig.dispatcher.begin(rig.begun.append)
    assert known == ["started"]


def test_one_that_can_not_be_written_down_is_refused_and_does_not_begin(rig):
    full(rig.journal)
    assert rig.command(*sealed(document())).acked == 1
    assert rig.begun == []
    assert [(a["state"], a["code"]) for a in rig.said()] == [("refused", "REFUSED")]


# -- what may have run


def began_before(rig, state, **changes):
    """A command that a former agent began; what is sent again."""
    sent = document(**changes)
    key = (sent["epoch"], sent["id"])
    rig.journal.start(*key, sent["name"], sent["arguments"], "reply")
    if state == "unknown":
        rig.journal.leave(*key, "unknown", "the agent died while it ran")
    return sent


def failed_to_stop(rig):
    rig.dispatcher.deposed(3, done=False, message="stop ended with 1")


def a_later_epoch(rig):
    rig.dispatcher.take_notice(Delivery(*sealed(notice(), kind="notice")))


@pytest.mark.parametrize("state", ["started", "unknown"])
@pytest.mark.parametrize(
    ("before", "again", "meanwhile"),
    [
        ({"name": "not-listed-any-more"}, {}, None),
        ({"arguments": {"word": "NO LONGER ALLOWED"}}, {}, None),
        ({}, {"arguments": {"word": "other"}}, None),
        ({}, {"sent_at": 0.0}, None),
        ({}, {"limit": "long"}, None),
        ({}, {}, failed_to_stop),
        ({}, {}, a_later_epoch),
    ],
    ids=["not listed", "not allowed", "another", "late", "no limit", "not quiet", "old epoch"],
)
def test_what_may_have_run_is_unknown_and_never_refused(rig, state, before, again, meanwhile):
    sent = {**began_before(rig, state, **before), **again}
    if meanwhile:
        meanwhile(rig)
        rig.said()
    assert rig.command(*sealed(sent)).acked == 1
    assert rig.begun == []
    answers = [a for a in rig.said() if "state" in a]
    assert [(a["state"], a["code"]) for a in answers] == [("unknown", "UNKNOWN_OUTCOME")]
    assert "unknown" in answers[0]["message"]


def test_what_may_have_run_is_unknown_if_it_waited_too_long_to_be_looked_into(rig, monkeypatch):
    rig.command(*sealed(document(id="first")))
    waiting = rig.command(
        *sealed(began_before(rig, "unknown", id="second", limit=5.0, longest=5.0))
    )
    rig.said()
    now = agent_dispatcher.elapsed()
    monkeypatch.setattr("mistral_failover.agent.daemon.dispatcher.elapsed", lambda: now + 6)
    rig.dispatcher.begin(rig.begun.append)
    assert (len(rig.begun), waiting.acked) == (1, 1)
    assert [(a["id"], a["code"]) for a in rig.said()] == [("second", "UNKNOWN_OUTCOME")]


def test_what_may_have_run_is_unknown_if_its_epoch_ends_while_it_waits(rig):
    rig.command(*sealed(document(id="first")))
    rig.command(*sealed(began_before(rig, "unknown", id="second")))
    rig.said()
    a_later_epoch(rig)
    assert [(a["id"], a["code"]) for a in rig.said() if "id" in a] == [
        ("second", "UNKNOWN_OUTCOME")
    ]


def test_what_was_settled_while_it_waited_too_long_is_told(rig, monkeypatch):
    rig.command(*sealed(document(id="first")))
    rig.command(*sealed(began_before(rig, "unknown", id="second", limit=5.0, longest=5.0)))
    rig.said()
    rig.journal.settle("second", done=True)
    now = agent_dispatcher.elapsed()
    monkeypatch.setattr("mistral_failover.agent.daemon.dispatcher.elapsed", lambda: now + 6)
    rig.dispatcher.begin(rig.begun.append)
    assert [(a["id"], a["state"], a["exit_code"]) for a in rig.said()] == [("second", "done", 0)]


def test_nothing_is_answered_as_long_as_the_journal_can_not_be_read(rig, monkeypatch):
    def fails(*_):
        raise sqlite3.OperationalError("disk I/O error")

    sent = began_before(rig, "unknown")
    with monkeypatch.context() as broken:
        broken.setattr(rig.journal, "find", fails)
        assert rig.command(*sealed(sent)).acked == 1
        assert rig.command(*sealed({**sent, "limit": "long"})).acked == 1
    assert (rig.said(), rig.begun) == ([], [])
    rig.command(*sealed(sent))
    assert len(rig.begun) == 1


def test_what_may_have_run_is_not_refused_because_the_journal_can_not_be_written(rig):
    sent = began_before(rig, "started")
    full(rig.journal)
    assert rig.command(*sealed(sent)).acked == 1
    assert rig.begun == []
    assert {a["state"] for a in rig.said()} <= {"accepted"}
    assert not rig.dispatcher.begin(rig.begun.append)


def test_an_id_of_an_earlier_epoch_is_another_command(rig):
    rig.command(*sealed(document()))
    a_later_epoch(rig)
    again = rig.command(*sealed(document(epoch=9)))
    assert again.acked == 0, "it joined what is cut off"
    rig.dispatcher.end(rig.begun[0], None)
    rig.dispatcher.deposed(9, done=True, message="")
    rig.dispatcher.begin(rig.begun.append)
    assert [job.request.epoch for job in rig.begun] == [3, 9]


@pytest.mark.parametrize("rig", [{"on_deposed": ["stop"]}], indirect=True)
def test_who_is_only_told_to_stop_once_more_stays_deposed_until_it_serves_again(rig):
    a_later_epoch(rig)
    rig.dispatcher.deposed(9, done=True, message="stopped")

    def heard():
        rig.said()
        rig.dispatcher._heartbeat_due = 0.0
        rig.dispatcher.prompt()
        (beat,) = [said for said in rig.said() if "at" in said]
        return beat["deposed"]

    assert heard() == "stopped"
    for name, said in (("stop", "stopped"), ("increment", None)):
        rig.command(*sealed(document(id=name, name=name, arguments={}, epoch=9)))
        rig.dispatcher.end(rig.begun.pop(), None)
        assert heard() == said
        assert rig.journal.served(9, ("stop",)) == (said is None)


@pytest.mark.parametrize("rig", [{"on_deposed": ["stop"]}], indirect=True)
def test_a_heartbeat_says_whether_something_of_an_earlier_epoch_may_still_run(rig):
    def stopping():
        rig.said()
        rig.dispatcher._heartbeat_due = 0.0
        rig.dispatcher.prompt()
        (beat,) = [said for said in rig.said() if "at" in said]
        return beat["stopping"]

    a_later_epoch(rig)
    said = [stopping()]
    for done in (False, True):
        rig.dispatcher.deposed(9, done=done, message="the words do not matter")
        said.append(stopping())

    assert said == [True, True, False]


# -- notices


def test_a_later_epoch_holds_even_if_it_can_not_be_written_down(rig):
    full(rig.journal)
    delivery = Delivery(*sealed(notice(), kind="notice"))
    rig.dispatcher.take_notice(delivery)
    assert (rig.dispatcher.epoch, rig.dispatcher.deposing) == (9, "underway")
    assert delivery.acked == 0, "the next agent would not hear of it"


def notices(rig, *epochs):
    found = [Delivery(*sealed(notice(epoch=epoch), kind="notice")) for epoch in epochs]
    for each in found:
        rig.dispatcher.take_notice(each)
    return found


def test_of_notices_that_can_not_be_written_down_the_highest_is_kept_until_it_can(rig):
    full(rig.journal)
    found = notices(rig, 7, 9, 9, 8)
    assert [each.acked for each in found] == [1, 1, 0, 1]
    rig.dispatcher.begin(rig.begun.append)
    assert found[2].acked == 0
    rig.journal._db.execute("PRAGMA query_only = OFF")
    rig.journal.raise_epoch(9)
    for _ in range(2):
        rig.dispatcher.begin(rig.begun.append)
    assert [each.acked for each in found] == [1, 1, 1, 1]


def test_a_notice_that_is_kept_goes_with_its_connection(rig):
    full(rig.journal)
    (lost,) = notices(rig, 9)
    rig.dispatcher.drop_waiting()
    (again,) = notices(rig, 9)
    rig.journal._db.execute("PRAGMA query_only = OFF")
    rig.journal.raise_epoch(9)
    rig.dispatcher.begin(rig.begun.append)
    assert (lost.acked, again.acked) == (0, 1)


# -- lanes


def test_a_lane_begins_its_next_command_once_the_former_is_over(rig):
    rig.command(*sealed(document(id="first")))
    waiting = rig.command(*sealed(document(id="second")))
    assert ([job.request.id for job in rig.begun], waiting.acked) == (["first"], 0)
    rig.dispatcher.end(rig.begun[0], None)
    assert not rig.dispatcher.begin(rig.begun.append)
    assert ([job.request.id for job in rig.begun], waiting.acked) == (["first", "second"], 1)


def test_a_command_without_a_waiting_caller_does_not_begin(rig, monkeypatch):
    rig.command(*sealed(document(id="first")))
    waiting = rig.command(*sealed(document(id="second", limit=5.0, longest=5.0)))
    rig.said()
    now = agent_dispatcher.elapsed()
    monkeypatch.setattr("mistral_failover.agent.daemon.dispatcher.elapsed", lambda: now + 6)
    rig.dispatcher.begin(rig.begun.append)
    assert (len(rig.begun), waiting.acked) == (1, 1)
    (answer,) = rig.said()
    assert (answer["id"], answer["state"], answer["code"]) == ("second", "refused", "REFUSED")
    assert rig.journal.find(3, "second") is None


def test_one_that_is_waited_for_longer_than_for_a_word_may_still_begin(rig, monkeypatch):
    rig.command(*sealed(document(id="first")))
    rig.command(*sealed(document(id="second", limit=5.0, longest=60.0)))
    now = agent_dispatcher.elapsed()
    monkeypatch.setattr("mistral_failover.agent.daemon.dispatcher.elapsed", lambda: now + 59)
    rig.dispatcher.end(rig.begun[0], None)
    rig.dispatcher.begin(rig.begun.append)
    assert [job.request.id for job in rig.begun] == ["first", "second"]


def test_what_waits_for_a_lost_connection_comes_again_with_the_next(rig):
    rig.command(*sealed(document(id="first")))
    rig.command(*sealed(document(id="second")))
    rig.dispatcher.drop_waiting()
    again = [rig.command(*sealed(document(id=name))) for name in ("first", "second")]
    assert [delivery.acked for delivery in again] == [1, 0]
    assert len(rig.begun) == 1


def test_a_broker_that_is_lost_at_the_acknowledgement_does_not_lose_the_command(rig):
    delivery = Delivery(*sealed(document()))

    def lost():
        raise ConnectionResetError

    delivery.ack = lost
    rig.dispatcher.take_command(delivery)
    with pytest.raises(ConnectionResetError):
        rig.dispatcher.begin(rig.begun.append)
    assert len(rig.begun) == 1
    assert rig.command(*sealed(document())).acked == 1
    assert len(rig.begun) == 1


def test_the_end_of_a_command_is_said_to_everybody_who_asked(rig):
    rig.command(*sealed(document(reply_to="one")))
    rig.command(*sealed(document(reply_to="two")))
    rig.said()
    rig.dispatcher.end(rig.begun[0], Refused("REFUSED", "because"))
    found = [rig.outbox.first(0) for _ in range(1)]
    assert found[0][1].routing_key == "one"
    assert len(rig.said()) == 2


def test_waiting_commands_of_an_older_epoch_are_void(rig):
    rig.command(*sealed(document(id="first")))
    waiting = rig.command(*sealed(document(id="second")))
    rig.said()
    rig.dispatcher.take_notice(Delivery(*sealed(notice(), kind="notice")))
    assert waiting.acked == 1
    assert rig.begun[0].stop.is_set()
    assert [(a["id"], a["code"]) for a in rig.said() if "id" in a] == [("second", "OLD_EPOCH")]


def test_what_runs_is_cut_off_whatever_goes_wrong_while_the_agent_is_deposed(rig):
    rig.command(*sealed(document()))

    def fails(point):
        if point == "agent.deposed":
            raise RuntimeError

    fault_points.arm(fails)
    try:
        with pytest.raises(RuntimeError):
            rig.dispatcher.take_notice(Delivery(*sealed(notice(), kind="notice")))
    finally:
        fault_points.disarm()
    assert rig.begun[0].stop.is_set()
    assert rig.journal.epoch(3) == 9


# -- what is to be said


def message(final=True):
    return Message("exchange", "key", (b"", {}), final)


def test_a_later_word_takes_the_place_of_an_earlier_one():
    outbox = Outbox()
    first, later = message(), message()
    outbox.put(("word", "1"), first)
    outbox.put(("word", "1"), later)
    assert outbox.first(0) == (("word", "1"), later)
    outbox.sent(("word", "1"), first)
    assert outbox.first(0) == (("word", "1"), later)


def test_what_the_broker_did_not_take_waits_behind_the_others_if_it_matters():
    outbox = Outbox()
    first, word, last = message(), message(final=False), message()
    for number, each in enumerate((first, word, last)):
        outbox.put(("m", str(number)), each)
    outbox.failed(("m", "0"), first)
    outbox.failed(("m", "1"), word)
    assert outbox.first(0)[1] is last
    outbox.sent(("m", "2"), last)
    assert outbox.first(0)[1] is first
    outbox.sent(("m", "0"), first)
    assert outbox.first(0) is None


def test_the_outbox_does_not_grow_without_end():
    outbox = Outbox()
    for number in range(LONGEST + 5):
        outbox.put(("m", str(number)), message())
    assert outbox.first(0)[0] == ("m", "5")


def test_who_has_something_new_to_say_need_not_wait_for_the_next_attempt():
    outbox = Outbox()
    outbox.put(("m", "1"), message())
    outbox.first(0)
    threading.Timer(0.1, outbox.put, (("m", "2"), message())).start()
    begun = time.monotonic()
    outbox.rest(30)
    assert time.monotonic() - begun < 10


def test_pauses_grow_to_their_longest_and_begin_again():
    pauses = Backoff(0.5, 30.0)
    grown = [pauses.next() for _ in range(9)]
    assert 0.37 <= grown[0] <= 0.5
    assert 22 <= grown[-1] <= 30
    pauses.reset()
    assert pauses.next() <= 0.5
