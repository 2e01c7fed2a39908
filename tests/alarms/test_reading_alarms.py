# SPDX-License-Identifier: Apache-2.0
"""What an alarm's body says, and which deliveries are of one occasion."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistral_failover.alarms.alarm import Alarm
from mistral_failover.alarms.aodh import AODH_KEYS, from_aodh
from mistral_failover.model.errors import InvalidDocument

EVENT = {
    "message_id": "m1",
    "event_type": "compute.instance.update",
    "traits": [["instance_id", 1, "s1"], ["state", 1, "error"], ["resource_id", 1, "s2"]],
}
BODY: dict[str, Any] = {
    "alarm_name": "server_lost",
    "alarm_id": "a1",
    "severity": "critical",
    "previous": "ok",
    "current": "alarm",
    "reason": "an event",
    "reason_data": {"type": "event", "event": EVENT},
}
THRESHOLD = {**BODY, "reason_data": {"type": "threshold", "most_recent": 3.5}}


def body(**changes: Any) -> dict[str, Any]:
    return {**BODY, **changes}


def event(**changes: Any) -> dict[str, Any]:
    return body(reason_data={"type": "event", "event": {**EVENT, **changes}})


def test_an_event_alarm_fires_and_names_its_servers() -> None:
    alarm = from_aodh(BODY)

    assert alarm.firing
    assert alarm.source == "aodh"
    assert alarm.servers == ("s1", "s2")
    assert alarm.sentence == "alarm server_lost went from ok to alarm"
    assert alarm.payload == BODY


@pytest.mark.parametrize(
    ("previous", "current", "firing"),
    [
        ("ok", "alarm", True),
        ("insufficient data", "alarm", True),
        ("", "alarm", True),
        ("alarm", "alarm", False),
        ("alarm", "ok", False),
        ("ok", "insufficient data", False),
        ("ok", "", False),
    ],
)
def test_only_a_transition_into_alarm_fires(previous: str, current: str, firing: bool) -> None:
    told = {**THRESHOLD, "previous": previous, "current": current}

    assert from_aodh(told).firing is firing


def test_an_event_fires_also_where_its_alarm_has_never_gone_back_to_ok() -> None:
    later = {**event(message_id="m2"), "previous": "alarm"}

    assert from_aodh(later).firing
    assert not from_aodh({**later, "current": "ok"}).firing


@pytest.mark.parametrize(
    "again",
    [
        BODY,
        body(reason="said otherwise"),
        body(severity="low"),
        body(previous="insufficient data"),
        event(generated="later"),
        {**BODY, "unknown": 1},
    ],
    ids=["the same", "reason", "severity", "previous", "event details", "more keys"],
)
def test_deliveries_of_one_event_have_one_key(again: dict[str, Any]) -> None:
    assert from_aodh(again).key == from_aodh(BODY).key


@pytest.mark.parametrize(
    "other",
    [event(message_id="m2"), body(alarm_id="a2"), body(current="ok"), THRESHOLD],
    ids=["another event", "another alarm", "another state", "no event"],
)
def test_another_occasion_has_another_key(other: dict[str, Any]) -> None:
    assert from_aodh(other).key != from_aodh(BODY).key


def test_without_an_event_the_whole_body_is_the_occasion() -> None:
    later = {**THRESHOLD, "reason_data": {"type": "threshold", "most_recent": 4}}

    assert from_aodh(THRESHOLD).key == from_aodh(dict(THRESHOLD)).key
    assert from_aodh(THRESHOLD).key != from_aodh(later).key


@pytest.mark.parametrize(
    "traits",
    [None, {}, "s1", [], [None], [["instance_id"]], [["instance_id", 1, 5]], [["name", 1, "s1"]]],
)
def test_traits_that_name_no_server_are_passed_over(traits: Any) -> None:
    assert from_aodh(event(traits=traits)).servers == ()


@pytest.mark.parametrize("given_body", [{}, {"alarm_id": None, "reason_data": None}])
def test_an_empty_body_is_an_alarm_that_does_not_fire(given_body: dict[str, Any]) -> None:
    alarm = from_aodh(given_body)

    assert not alarm.firing
    assert alarm.sentence == "alarm without a name went from unknown to unknown"


@pytest.mark.parametrize("key", ["alarm_name", "alarm_id", "previous", "current"])
@pytest.mark.parametrize("value", [5, ["alarm"], {"a": 1}, True])
def test_a_key_that_must_be_text_is_refused_by_its_name(key: str, value: Any) -> None:
    with pytest.raises(InvalidDocument) as caught:
        from_aodh(body(**{key: value}))

    assert caught.value.path == key
    assert caught.value.remedy


@pytest.mark.parametrize("value", ["text", ["list"], 7])
def test_reason_data_that_is_no_mapping_is_refused(value: Any) -> None:
    with pytest.raises(InvalidDocument, match="reason_data"):
        from_aodh(body(reason_data=value))


@pytest.mark.parametrize("value", [None, "text", [BODY], 7])
def test_a_body_that_is_no_mapping_is_refused(value: Any) -> None:
    with pytest.raises(InvalidDocument, match="not a mapping"):
        from_aodh(value)


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
_traits = st.lists(st.lists(st.sampled_from(["instance_id", "s1"]) | _values, max_size=4))
_events = st.fixed_dictionaries({}, optional={"message_id": _values, "traits": _traits | _values})
_reasons = st.fixed_dictionaries({}, optional={"event": _events | _values}) | _values
_bodies = st.fixed_dictionaries(
    {},
    optional={key: st.text() | _values for key in AODH_KEYS if key != "reason_data"}
    | {"reason_data": _reasons},
)


@settings(max_examples=150)
@given(_bodies | _values)
def test_whatever_comes_is_read_or_refused_as_invalid(anything: Any) -> None:
    try:
        alarm = from_aodh(anything)
    except InvalidDocument:
        return
    assert isinstance(alarm, Alarm)
    assert all(isinstance(server, str) for server in alarm.servers)


def test_a_repeat_that_comes_first_does_not_hide_the_transition_itself() -> None:
    repeat, transition = from_aodh({**THRESHOLD, "previous": "alarm"}), from_aodh(THRESHOLD)

    assert not repeat.firing
    assert transition.firing
    assert repeat.key != transition.key


def test_an_alarm_is_not_refused_for_a_number_that_is_none() -> None:
    strange = {**THRESHOLD, "reason_data": {"most_recent": float("nan")}}

    assert from_aodh(strange).firing
    assert from_aodh(strange).key == from_aodh(strange).key
