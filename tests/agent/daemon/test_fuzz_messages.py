# SPDX-License-Identifier: Apache-2.0
"""Whatever comes over the broker that is no valid command: nothing runs, nothing is revealed, and
the agent goes on."""

from __future__ import annotations

import json
import logging
import time
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mistral_failover.agent import wire
from support.agent_dispatcher import SENTINEL, Delivery, DispatcherRig, document, notice, sealed
from support.agents import GROUP_ID, GROUP_KEY, MEMBER_KEY, OTHER_SERVER, SERVER

FUZZ = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def rig(tmp_path):
    one = DispatcherRig(tmp_path)
    handler = logging.Handler()
    handler.emit = lambda record: one.logged.append(handler.format(record))
    logger = logging.getLogger("mistral_failover.agent")
    logger.addHandler(handler)
    yield one
    one.check_lives()
    logger.removeHandler(handler)
    one.journal.close()


@contextmanager
def nothing_is_answered(rig):
    yield
    assert rig.said() == []


TEXT = st.text().filter(lambda text: SENTINEL not in text)
"""Hypothesis draws constants of this module too; an argument's name that was refused is told."""

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | TEXT
    | st.sampled_from([SENTINEL, "", "\x00", "\ud800", "key-1", 10**400]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)


@FUZZ
@given(
    body=st.binary() | st.text() | JSON | st.just(SENTINEL.encode()),
    headers=JSON
    | st.dictionaries(
        st.sampled_from([wire.KIND, wire.MEMBER, wire.EPOCH, wire.SIGNATURE, "more"]), JSON
    ),
)
def test_anything_at_all_is_refused(rig, body, headers):
    with nothing_is_answered(rig):
        rig.check_refused(rig.command(body, headers))


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_word(value):
    """Of one line. What Unicode leaves unassigned is no control character."""
    return isinstance(value, str) and value != "" and not any(c < " " or c == "\x7f" for c in value)


VALID = {
    "id": is_word,
    "reply_to": is_word,
    "name": lambda v: v in ("say", "stop", "increment", "checked"),
    "arguments": lambda v: isinstance(v, dict) and v.get("word", "").isalpha(),
    "limit": lambda v: is_number(v) and 0 < v < 1e15,
    "sent_at": lambda v: is_number(v) and v > time.time() - 1000,
    "group_id": lambda v: v == GROUP_ID,
    "server_id": lambda v: v == SERVER,
}


@FUZZ
@given(change=st.sampled_from(sorted(VALID)), value=JSON)
def test_a_signed_command_with_one_field_that_is_no_such_thing_is_refused(rig, change, value):
    if change == "arguments" and isinstance(value, dict):
        value = {**value, "word": [SENTINEL]}
    elif VALID[change](value) or (change == "name" and value == SENTINEL):
        value = [SENTINEL]  # the name of a command that was refused is told
    delivery = rig.command(*sealed(document(**{change: value})))
    rig.check_refused(delivery)
    for answer in rig.said():
        assert (answer["state"], answer["code"]) == ("refused", "REFUSED")
        assert SENTINEL not in answer["message"]


@FUZZ
@given(field=st.sampled_from(sorted({*VALID, "epoch", "member"})))
def test_a_signed_command_that_lacks_a_field_is_refused(rig, field):
    content = document()
    headers = sealed(content)[1]
    del content[field]
    body = json.dumps(content).encode()
    headers[wire.SIGNATURE] = wire._sign("command", body, wire.epoch_key(MEMBER_KEY, SERVER, 3))
    rig.check_refused(rig.command(body, headers))
    assert {answer["state"] for answer in rig.said()} <= {"refused"}


@FUZZ
@given(place=st.integers(min_value=0), change=st.integers(min_value=1, max_value=255))
def test_a_command_of_which_one_byte_was_changed_is_refused(rig, place, change):
    body, headers = sealed(document(arguments={"word": SENTINEL}))
    changed = bytearray(body)
    changed[place % len(changed)] ^= change
    with nothing_is_answered(rig):
        rig.check_refused(rig.command(bytes(changed), headers))


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_a_command_of_an_earlier_epoch_is_refused(rig, epoch):
    rig.check_refused(rig.command(*sealed(document(epoch=epoch))))
    assert [answer["code"] for answer in rig.said()] == ["OLD_EPOCH"]


@pytest.mark.parametrize("epoch", [4, 2**31 - 1])
def test_a_command_of_a_later_epoch_is_refused_and_raises_nothing(rig, epoch):
    rig.check_refused(rig.command(*sealed(document(epoch=epoch))))
    assert [answer["code"] for answer in rig.said()] == ["REFUSED"]


@pytest.mark.parametrize("epoch", [-1, 2**31, 3.0, True, "3", None])
def test_what_is_no_epoch_is_refused(rig, epoch):
    with nothing_is_answered(rig):
        rig.check_refused(rig.command(*sealed(document(epoch=epoch), epoch=3)))


@pytest.mark.parametrize(
    "forged",
    [
        {"server": OTHER_SERVER},
        {"member_key": wire.member_key(GROUP_KEY, "db_b")},
        {"member_key": GROUP_KEY},
        {"epoch": 2},
        {"kind": "notice"},
        {"kind": "result"},
    ],
    ids=lambda forged: next(iter(forged)),
)
def test_what_was_signed_for_somebody_or_something_else_is_refused(rig, forged):
    with nothing_is_answered(rig):
        rig.check_refused(rig.command(*sealed(document(), **forged)))


def test_a_command_to_another_member_is_refused(rig):
    key = wire.member_key(GROUP_KEY, "db_b")
    with nothing_is_answered(rig):
        rig.check_refused(rig.command(*sealed(document(member="db_b"), member_key=key)))


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 60_000,
        b'{"a":' * 10_000,
        b" " * (wire.MAX_BYTES + 1),
        b"1" * 60_000,
        b"\xff\xfe",
        b"",
        b"null",
        b'"text"',
    ],
    ids=["nested", "nested mappings", "oversized", "digits", "no UTF-8", "empty", "null", "text"],
)
def test_a_signed_body_that_is_no_document_is_refused(rig, body):
    headers = sealed(document())[1]
    headers[wire.SIGNATURE] = wire._sign("command", body, wire.epoch_key(MEMBER_KEY, SERVER, 3))
    with nothing_is_answered(rig):
        rig.check_refused(rig.command(body, headers))


def test_arguments_that_are_nested_deeply_are_refused(rig):
    nested = SENTINEL
    for _ in range(100):
        nested = [nested]
    rig.check_refused(rig.command(*sealed(document(arguments={"word": nested}))))
    assert [answer["code"] for answer in rig.said()] == ["REFUSED"]


def test_a_command_that_was_recorded_and_sent_again_later_is_refused(rig):
    late = document(sent_at=time.time() - 331, limit=30.0)
    rig.check_refused(rig.command(*sealed(late)))
    assert "too late" in rig.said()[0]["message"]


def test_a_command_that_is_replayed_at_once_runs_once(rig):
    message = sealed(document())
    first, again = rig.command(*message), rig.command(*message)
    assert (first.acked, again.acked) == (1, 1)
    assert len(rig.begun) == 1
    job = rig.begun.pop()
    rig.journal.done(3, "key-1", exit_code=0)
    rig.dispatcher.end(job, None)
    rig.said()
    assert rig.command(*message).acked == 1
    assert rig.begun == []
    (answer,) = rig.said()
    assert (answer["state"], answer["replayed"]) == ("done", True)


@FUZZ
@given(
    body=st.binary() | JSON,
    headers=st.dictionaries(
        st.sampled_from([wire.KIND, wire.MEMBER, wire.EPOCH, wire.SIGNATURE]), JSON
    ),
)
def test_any_notice_at_all_changes_nothing(rig, body, headers):
    delivery = Delivery(body, headers)
    with nothing_is_answered(rig):
        rig.dispatcher.take_notice(delivery)
    rig.check_refused(delivery)


@pytest.mark.parametrize(
    ("changes", "forged"),
    [
        ({"server_id": OTHER_SERVER}, {}),
        ({"server_id": OTHER_SERVER}, {"server": OTHER_SERVER}),
        ({"group_id": "another"}, {}),
        ({"epoch": 2}, {}),
        ({"epoch": 3}, {}),
        ({"epoch": -1}, {}),
        ({"epoch": 2**31}, {}),
        ({"epoch": "9"}, {}),
        ({"member": "db_b"}, {}),
        ({}, {"kind": "command"}),
        ({}, {"member_key": GROUP_KEY}),
    ],
)
def test_a_notice_that_is_not_this_agents_or_not_later_changes_nothing(rig, changes, forged):
    content = notice(**changes)
    epoch = content["epoch"] if isinstance(content["epoch"], int) else 0
    delivery = Delivery(*sealed(content, **{"kind": "notice", "epoch": epoch, **forged}))
    with nothing_is_answered(rig):
        rig.dispatcher.take_notice(delivery)
    rig.check_refused(delivery)
