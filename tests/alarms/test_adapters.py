# SPDX-License-Identifier: Apache-2.0
"""What the bodies of Alertmanager, Nova, Masakari and a signal say; and which is which."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistral_failover.alarms import alarm as adapters
from mistral_failover.alarms.alarm import Alarm
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.text import parse_time, plain
from support.alarm_bodies import (
    ALERT,
    AODH,
    BODIES,
    EIGHT,
    HOST,
    MASAKARI,
    SIGNAL,
    UNVERSIONED,
    VERSIONED,
    WEBHOOK,
)


def one(body: Any, kind: str | None = None) -> Alarm:
    (alarm,) = adapters.read(body, kind)
    return alarm


def changed(body: dict[str, Any], value: Any, *path: Any) -> dict[str, Any]:
    """A copy with one thing put in another's place."""
    result = copy.deepcopy(body)
    place: Any = result
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return result


# -- which kind it is


@pytest.mark.parametrize("kind", adapters.sources())
@pytest.mark.parametrize("wrapped", [False, True])
def test_each_kind_is_told_by_its_shape_also_in_heat_s_wrapping(kind: str, wrapped: bool) -> None:
    body = {"input": BODIES[kind], "params": {}} if wrapped else BODIES[kind]

    assert one(body).source == kind
    assert one(body) == one(BODIES[kind], kind)


@pytest.mark.parametrize("body", [{}, {"status": "bad"}, {"input": {}}, {"payload": {}}])
def test_a_body_of_no_kind_is_refused_and_says_what_tells_the_kinds(body: Any) -> None:
    with pytest.raises(InvalidDocument, match="kind of alarm") as caught:
        adapters.read(body)

    assert all(kind in caught.value.remedy for kind in adapters.sources())


@pytest.mark.parametrize("body", [None, "text", [WEBHOOK], 7])
def test_a_body_that_is_no_mapping_is_refused(body: Any) -> None:
    with pytest.raises(InvalidDocument, match="not a mapping"):
        adapters.read(body)


def test_a_kind_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidDocument, match="no kind pagerduty"):
        adapters.read(AODH, "pagerduty")


@pytest.mark.parametrize(
    ("body", "kind", "field"),
    [
        (changed(WEBHOOK, "3", "version"), None, "version"),
        (changed(WEBHOOK, [], "alerts"), None, "alerts"),
        (changed(WEBHOOK, {"a": 1}, "alerts"), None, "alerts"),
        (changed(WEBHOOK, "down", "alerts", 0), None, "alerts[0]"),
        (changed(WEBHOOK, "silent", "alerts", 0, "status"), None, "alerts[0].status"),
        (changed(WEBHOOK, None, "alerts", 0, "startsAt"), None, "alerts[0].startsAt"),
        (changed(WEBHOOK, [1], "alerts", 0, "labels"), None, "alerts[0].labels"),
        (changed(WEBHOOK, 7, "alerts", 0, "labels", "instance_id"), None, "instance_id"),
        (changed(VERSIONED, 7, "event_type"), None, "event_type"),
        (changed(VERSIONED, "x", "payload"), None, "payload"),
        (changed(VERSIONED, "", "payload", "nova_object.data", "uuid"), None, "uuid"),
        (changed(UNVERSIONED, None, "payload", "instance_id"), None, "payload.instance_id"),
        (changed(MASAKARI, "DISK", "notification", "type"), None, "notification.type"),
        (
            changed(MASAKARI, None, "notification", "payload", "instance_uuid"),
            None,
            "instance_uuid",
        ),
        (changed(SIGNAL, "gone", "state"), None, "state"),
        (changed(SIGNAL, ["db_a"], "member"), None, "member"),
        ({"reason": "?"}, "signal", "neither a server nor a group"),
        (SIGNAL, "alertmanager", "alerts"),
        (AODH, "nova", "event_type"),
        (AODH, "masakari", "type"),
    ],
)
def test_a_field_that_is_wrong_is_named(body: Any, kind: str | None, field: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        adapters.read(body, kind)

    assert field in str(caught.value)
    assert caught.value.remedy


# -- hosts


def test_an_alert_about_a_group_is_not_about_the_host_in_its_label() -> None:
    labels = {"alertname": "down", "failover_group": "payments", "host": "cmp1"}

    assert one(changed(WEBHOOK, labels, "alerts", 0, "labels")).host is None


@pytest.mark.parametrize("label", ["host", "hypervisor"])
def test_an_alert_that_names_no_server_is_about_the_host_in_its_label(label: str) -> None:
    labels = {"alertname": "HostDown", label: "cmp1"}

    alarm = one(changed(WEBHOOK, labels, "alerts", 0, "labels"))

    assert (alarm.host, alarm.servers, alarm.member, alarm.firing) == ("cmp1", (), None, True)


@pytest.mark.parametrize("label", ["instance_id", "failover_member"])
def test_an_alert_about_a_server_on_a_host_is_about_the_server(label: str) -> None:
    labels = {"alertname": "down", label: "s-a", "host": "cmp1"}

    assert one(changed(WEBHOOK, labels, "alerts", 0, "labels")).host is None


def service(**more: Any) -> dict[str, Any]:
    """A notification about a service of Nova."""
    data = {"host": "cmp1", "binary": "nova-compute", "forced_down": True, **more}
    payload = {"nova_object.name": "ServiceStatusPayload", "nova_object.data": data}
    return {"event_type": "service.update", "message_id": "m1", "payload": payload}


def test_a_compute_service_that_was_forced_down_is_a_lost_host() -> None:
    alarm = one(service())

    assert (alarm.host, alarm.firing, alarm.unique) == ("cmp1", True, True)
    assert alarm.key != one(service() | {"message_id": "m2"}).key


@pytest.mark.parametrize("more", [{"forced_down": False}, {"binary": "nova-conductor"}])
def test_any_other_news_of_a_service_is_routine(more: dict[str, Any]) -> None:
    alarm = one(service(**more))

    assert (alarm.firing, alarm.routine) == (False, True)


def test_a_signal_may_name_a_host() -> None:
    alarm = one({"host": "cmp1", "id": "o1", "reason": "it burned"})

    assert (alarm.host, alarm.unique, alarm.firing) == ("cmp1", True, True)
    assert alarm.sentence == "a signal reports host cmp1 as lost (it burned)"
    assert alarm.key != one({"host": "cmp2", "id": "o1"}).key
    assert one({"host": "cmp1", "member": "db_a", "group": "g"}).host is None


# -- Alertmanager


def test_an_alert_says_whom_it_is_about_and_since_when() -> None:
    alarm = one(WEBHOOK)

    assert alarm.firing
    assert alarm.unique
    assert (alarm.group, alarm.member, alarm.servers) == ("payments", "db_a", ("s-a",))
    assert alarm.at == pytest.approx(EIGHT + 0.123456)
    assert "InstanceDown" in alarm.sentence
    assert "generatorURL" not in alarm.payload


@pytest.mark.parametrize("label", ["instance_id", "server_id", "openstack_instance_id"])
def test_the_server_is_named_by_any_of_three_labels(label: str) -> None:
    assert one(changed(WEBHOOK, {label: "s-9"}, "alerts", 0, "labels")).servers == ("s-9",)


def test_every_alert_of_a_webhook_is_an_alarm_of_its_own() -> None:
    other = {**ALERT, "fingerprint": "f2", "status": "resolved"}

    alarms = adapters.read({**WEBHOOK, "alerts": [ALERT, other]})

    assert [alarm.firing for alarm in alarms] == [True, False]
    assert len({alarm.key for alarm in alarms}) == 2


def test_an_alert_is_the_same_however_often_and_in_whichever_group_it_is_told() -> None:
    again = {**WEBHOOK, "groupKey": "another", "receiver": "other", "externalURL": "there"}
    longer = changed(again, "2026-11-22T08:00:00Z", "alerts", 0, "endsAt")

    assert one(longer).key == one(WEBHOOK).key


@pytest.mark.parametrize(
    ("value", "field"),
    [("2026-11-22T08:00:00Z", "startsAt"), ("f2", "fingerprint"), ("resolved", "status")],
)
def test_another_beginning_alert_or_state_is_another_occasion(value: str, field: str) -> None:
    assert one(changed(WEBHOOK, value, "alerts", 0, field)).key != one(WEBHOOK).key


def test_an_alert_without_a_fingerprint_is_known_by_its_labels() -> None:
    bare = changed(WEBHOOK, None, "alerts", 0, "fingerprint")

    assert one(bare).key == one(changed(bare, {}, "alerts", 0, "annotations")).key
    assert one(bare).key != one(changed(bare, {"a": "b"}, "alerts", 0, "labels")).key


# -- Nova


@pytest.mark.parametrize(
    ("state", "before", "power", "task", "firing"),
    [
        ("error", "active", "running", None, True),
        ("error", "stopped", "shutdown", None, True),
        ("error", "error", "running", None, False),
        ("active", "active", "crashed", None, True),
        ("active", "active", "shutdown", None, True),
        ("active", "active", "running", None, False),
        ("active", "active", "paused", None, False),
        ("active", "active", "shutdown", "powering-off", False),
        ("active", "active", "shutdown", "deleting", False),
        ("active", "active", "shutdown", "rebooting_hard", False),
        ("stopped", "active", "shutdown", None, False),
        ("stopped", "active", "crashed", None, False),
        ("deleted", "active", "shutdown", None, False),
        ("deleted", "active", "pending", None, False),
        ("paused", "active", "paused", None, False),
        ("rescued", "active", "shutdown", None, False),
        ("building", None, "pending", "spawning", False),
    ],
)
def test_a_server_is_lost_when_it_fails_and_not_when_somebody_asked_for_it(
    state: str, before: str | None, power: str, task: str | None, firing: bool
) -> None:
    data = VERSIONED["payload"]["nova_object.data"]
    update = {"nova_object.data": {"old_state": before, "state": state}}
    told = {**data, "state": state, "power_state": power, "task_state": task}
    body = changed(VERSIONED, {**told, "state_update": update}, "payload", "nova_object.data")

    alarm = one(body)

    assert alarm.firing is firing
    assert alarm.routine is not firing
    assert alarm.servers == ("s-a",)


@pytest.mark.parametrize(
    ("event_type", "state", "power"),
    [
        ("instance.power_off.end", "stopped", "shutdown"),
        ("instance.delete.end", "deleted", "pending"),
        ("instance.soft_delete.end", "soft-delete", "shutdown"),
        ("instance.shutdown.end", "deleted", "running"),
    ],
)
def test_the_end_of_what_somebody_asked_for_is_no_alarm(
    event_type: str, state: str, power: str
) -> None:
    data = {"uuid": "s-a", "state": state, "power_state": power, "task_state": None}
    body = {**VERSIONED, "event_type": event_type, "payload": {"nova_object.data": data}}

    assert not one(body).firing


@pytest.mark.parametrize(
    ("changes", "firing"),
    [
        ({}, True),
        ({"old_state": "error"}, False),
        ({"state": "active"}, False),
        ({"state": "stopped"}, False),
        ({"state": "deleted"}, False),
    ],
)
def test_an_unversioned_notification_fires_when_the_state_becomes_error(
    changes: dict[str, str], firing: bool
) -> None:
    alarm = one({**UNVERSIONED, "payload": {**UNVERSIONED["payload"], **changes}})

    assert alarm.firing is firing
    assert alarm.at == pytest.approx(EIGHT + 0.123456)


def test_a_notification_is_known_by_its_message_id() -> None:
    assert one({**VERSIONED, "timestamp": ""}).key == one(VERSIONED).key
    assert one({**VERSIONED, "message_id": "m9"}).key != one(VERSIONED).key
    assert not one({**VERSIONED, "message_id": None}).unique


def test_of_a_notification_only_what_was_read_is_kept() -> None:
    secret = changed(VERSIONED, {"a": "s3cret"}, "payload", "nova_object.data", "metadata")

    assert "s3cret" not in str(one(secret).payload)


# -- Masakari


@pytest.mark.parametrize(
    ("event", "firing"),
    [
        ("STOPPED_FAILED", True),
        ("SUSPENDED_IOERROR", True),
        ("SUSPENDED_WATCHDOG", True),
        ("STOPPED_DESTROYED", False),
        ("STOPPED_SHUTDOWN", False),
        ("SHUTDOWN_FINISHED", False),
        ("UNKNOWN", False),
    ],
)
def test_which_events_of_a_server_are_alarms(event: str, firing: bool) -> None:
    body = changed(MASAKARI, event, "notification", "payload", "vir_domain_event")

    assert one(body).firing is firing
    assert one(body).servers == ("s-a",)


def test_a_host_that_stopped_names_itself_and_no_server() -> None:
    alarm = one(HOST)

    assert alarm.firing
    assert (alarm.servers, alarm.others, alarm.host) == ((), (), "cmp1")
    assert not one(changed(HOST, "STARTED", "notification", "payload", "event")).firing


def test_a_process_of_a_host_is_no_alarm() -> None:
    process = {"event": "STOPPED", "process_name": "nova-compute"}
    body = changed(
        changed(HOST, "PROCESS", "notification", "type"), process, "notification", "payload"
    )

    assert not one(body).firing


def test_a_notification_as_masakari_s_api_shows_it_is_known_by_its_id() -> None:
    shown = {**MASAKARI["notification"], "notification_uuid": "n1", "status": "new"}

    assert one(shown).key == one({**shown, "status": "finished"}).key


# -- a signal


def test_a_signal_says_whom_it_is_about_in_our_words() -> None:
    alarm = one({**SIGNAL, "server": "s-a", "at": "2026-11-21T08:00:00+00:00", "token": "s3cret"})

    assert alarm.firing
    assert alarm.unique
    assert (alarm.group, alarm.member, alarm.servers) == ("payments", "db_a", ("s-a",))
    assert alarm.at == EIGHT
    assert alarm.sentence == "a signal reports db_a as lost (watchdog)"
    assert "token" not in alarm.payload


@pytest.mark.parametrize("key", ["server", "server_id", "instance_id"])
def test_a_signal_may_name_the_server_alone(key: str) -> None:
    alarm = one({key: "s-a"})

    assert alarm.servers == ("s-a",)
    assert not alarm.unique


@pytest.mark.parametrize("key", ["reason", "because"])
def test_a_signal_s_reason_is_its_sender_s_and_no_operator_s(key: str) -> None:
    alarm = one({"host": "cmp1", key: "it burned", "operator": "ann", "confirmed": True})

    assert alarm.sentence == "a signal reports host cmp1 as lost (it burned)"
    assert alarm.because == ""


def test_a_signal_that_all_is_well_does_not_fire() -> None:
    assert not one({**SIGNAL, "state": "ok"}).firing


# -- whatever comes

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            found += _places(value[key], (*path, key))
    return found


_PLACES = [(body, path) for body in [*BODIES.values(), UNVERSIONED, HOST] for path in _places(body)]


@settings(max_examples=300)
@given(st.sampled_from(_PLACES), _values, st.sampled_from([None, *adapters.sources()]))
def test_whatever_comes_is_read_or_refused_as_invalid(
    place: tuple[dict[str, Any], tuple[Any, ...]], value: Any, kind: str | None
) -> None:
    body, path = place
    try:
        alarms = adapters.read(changed(body, value, *path), kind)
    except InvalidDocument:
        return
    for alarm in alarms:
        assert alarm.source in adapters.sources()
        assert all(isinstance(server, str) for server in alarm.servers)
        assert len(alarm.key) == 64
        assert "\n" not in alarm.sentence


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-13-01", None, 7, "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]
)
def test_what_is_no_time_does_not_refuse_the_alarm(text: Any) -> None:
    assert parse_time(text) is None or parse_time(text) > EIGHT  # type: ignore[operator]


def test_what_stands_in_a_sentence_is_one_line_of_bearable_length() -> None:
    assert plain("a\nb\x00c") == "a b c"
    assert len(plain("x" * 10_000)) < 300


def test_of_a_body_only_halves_of_characters_are_replaced() -> None:
    given = json.loads(
        r'{"a": "x \ud800 y", "\udfff": [1.5, null, "\ud83d\ude00", {"b": "\\ud800"}]}'
    )

    assert adapters.writable(given) == {
        "a": "x \N{REPLACEMENT CHARACTER} y",
        "\N{REPLACEMENT CHARACTER}": [1.5, None, "\N{GRINNING FACE}", {"b": r"\ud800"}],
    }
    assert adapters.writable(untouched := {"a": "\N{GRINNING FACE}"}) is untouched
