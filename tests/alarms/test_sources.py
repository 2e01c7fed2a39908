# SPDX-License-Identifier: Apache-2.0
"""What the bodies of each kind say, which kind is which, and which deliveries are of one
occurrence."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistral_failover.alarms.alarm import Alarm, read, sources, writable
from mistral_failover.alarms.aodh import AODH_KEYS
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

NOVA_EVENT = {
    "message_id": "m1",
    "event_type": "compute.instance.update",
    "traits": [["instance_id", 1, "s1"], ["state", 1, "error"], ["resource_id", 1, "s2"]],
}
EVENT: dict[str, Any] = {
    "alarm_name": "server_lost",
    "alarm_id": "a1",
    "severity": "critical",
    "previous": "ok",
    "current": "alarm",
    "reason": "an event",
    "reason_data": {"type": "event", "event": NOVA_EVENT},
}
THRESHOLD = {**EVENT, "reason_data": {"type": "threshold", "most_recent": 3.5}}
SERVICE: dict[str, Any] = {
    "event_type": "service.update",
    "message_id": "m1",
    "payload": {
        "nova_object.name": "ServiceStatusPayload",
        "nova_object.data": {"host": "cmp1", "binary": "nova-compute", "forced_down": True},
    },
}
SHOWN = {**MASAKARI["notification"], "notification_uuid": "n1", "status": "new"}


def one(body: Any, kind: str | None = None, **beside: str) -> Alarm:
    (alarm,) = read(body, kind, **beside)
    return alarm


def changed(body: dict[str, Any], value: Any, *path: Any) -> dict[str, Any]:
    """A copy with one thing put in another's place."""
    result = copy.deepcopy(body)
    place: Any = result
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return result


def event(**changes: Any) -> dict[str, Any]:
    """An event alarm of Aodh with another event."""
    return {**EVENT, "reason_data": {"type": "event", "event": {**NOVA_EVENT, **changes}}}


def labelled(**labels: str) -> dict[str, Any]:
    return changed(WEBHOOK, {"alertname": "down", **labels}, "alerts", 0, "labels")


def service(**more: Any) -> dict[str, Any]:
    data = SERVICE["payload"]["nova_object.data"]
    return changed(SERVICE, {**data, **more}, "payload", "nova_object.data")


# -- which kind it is


@pytest.mark.parametrize("kind", sources())
@pytest.mark.parametrize("wrapped", [False, True])
def test_each_kind_is_told_by_its_shape_also_in_heat_s_wrapping(kind: str, wrapped: bool) -> None:
    body = {"input": BODIES[kind], "params": {}} if wrapped else BODIES[kind]

    assert one(body).source == kind
    assert one(body) == one(BODIES[kind], kind)


@pytest.mark.parametrize("body", [{}, {"status": "bad"}, {"input": {}}, {"payload": {}}])
def test_a_body_of_no_kind_is_refused_and_says_what_tells_the_kinds(body: Any) -> None:
    with pytest.raises(InvalidDocument, match="kind of alarm") as caught:
        read(body)

    assert all(kind in caught.value.remedy for kind in sources())


@pytest.mark.parametrize(
    ("body", "kind", "field"),
    [
        (None, None, "not a mapping"),
        ("text", "aodh", "not a mapping"),
        ([WEBHOOK], None, "not a mapping"),
        (7, None, "not a mapping"),
        (AODH, "pagerduty", "no kind pagerduty"),
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
        # A sender's variable without a value; without a member it would be about the active one.
        (changed(SIGNAL, "", "member"), None, "member: it is empty"),
        (changed(SIGNAL, " ", "group"), None, "group: it is empty"),
        ({"server": "", "group": "payments"}, None, "server: it is empty"),
        ({"reason": "?"}, "signal", "neither a server nor a group"),
        (SIGNAL, "alertmanager", "alerts"),
        (AODH, "nova", "event_type"),
        (AODH, "masakari", "type"),
        ({**EVENT, "alarm_name": 5}, None, "alarm_name"),
        ({**EVENT, "alarm_id": ["alarm"]}, None, "alarm_id"),
        ({**EVENT, "previous": {"a": 1}}, None, "previous"),
        ({**EVENT, "current": True}, None, "current"),
        ({**EVENT, "reason_data": ["list"]}, None, "reason_data"),
    ],
)
def test_a_body_that_is_wrong_is_refused_by_the_name_of_its_field(
    body: Any, kind: str | None, field: str
) -> None:
    with pytest.raises(InvalidDocument) as caught:
        read(body, kind)

    assert field in str(caught.value)
    assert caught.value.remedy


def test_what_is_said_beside_a_body_counts_more_than_what_it_says() -> None:
    alarm = one(SIGNAL, group="ledger", member="db_b", because="it burned")

    assert (alarm.group, alarm.member, alarm.because) == ("ledger", "db_b", "it burned")
    assert alarm.sentence == "a signal reports db_a as lost (watchdog) (it burned)"
    host = {"host": "cmp1"}
    assert (one(host).is_host_event, one(host, member="db_b").is_host_event) == (True, False)


def test_a_secret_in_what_is_said_beside_an_alarm_is_masked() -> None:
    alarm = one(SIGNAL, because="see password='hunter2'")

    assert "hunter2" not in f"{alarm.because} {alarm.sentence}"
    assert alarm.because.startswith("see password=")


# -- what fires


NOVA_STATES = [
    # state, before, power, task, firing
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
]


@pytest.mark.parametrize(("state", "before", "power", "task", "firing"), NOVA_STATES)
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


def ended(event_type: str, state: str, power: str) -> dict[str, Any]:
    data = {"uuid": "s-a", "state": state, "power_state": power, "task_state": None}
    return {**VERSIONED, "event_type": event_type, "payload": {"nova_object.data": data}}


def unversioned(**changes: str) -> dict[str, Any]:
    return {**UNVERSIONED, "payload": {**UNVERSIONED["payload"], **changes}}


def of_masakari(name: str) -> dict[str, Any]:
    return changed(MASAKARI, name, "notification", "payload", "vir_domain_event")


@pytest.mark.parametrize(
    ("body", "firing"),
    [
        # Aodh: a transition into alarm, or an event, also where its alarm never went back to ok.
        (THRESHOLD, True),
        ({**THRESHOLD, "previous": "insufficient data"}, True),
        ({**THRESHOLD, "previous": ""}, True),
        ({**THRESHOLD, "previous": "alarm"}, True),  # it continues
        ({**THRESHOLD, "previous": "alarm", "current": "ok"}, False),
        ({**THRESHOLD, "current": "insufficient data"}, False),
        ({**THRESHOLD, "current": ""}, False),
        ({**THRESHOLD, "reason_data": {"most_recent": float("nan")}}, True),
        ({**event(message_id="m2"), "previous": "alarm"}, True),
        ({**event(message_id="m2"), "previous": "alarm", "current": "ok"}, False),
        # Nova: the end of what a client asked for, and a state that becomes error.
        (ended("instance.power_off.end", "stopped", "shutdown"), False),
        (ended("instance.delete.end", "deleted", "pending"), False),
        (ended("instance.soft_delete.end", "soft-delete", "shutdown"), False),
        (ended("instance.shutdown.end", "deleted", "running"), False),
        (unversioned(), True),
        (unversioned(old_state="error"), False),
        (unversioned(state="active"), False),
        (unversioned(state="stopped"), False),
        (unversioned(state="deleted"), False),
        (service(), True),
        (service(forced_down=False), False),
        (service(binary="nova-conductor"), False),
        # Masakari
        (of_masakari("STOPPED_FAILED"), True),
        (of_masakari("SUSPENDED_IOERROR"), True),
        (of_masakari("SUSPENDED_WATCHDOG"), True),
        (of_masakari("STOPPED_DESTROYED"), False),
        (of_masakari("STOPPED_SHUTDOWN"), False),
        (of_masakari("SHUTDOWN_FINISHED"), False),
        (of_masakari("UNKNOWN"), False),
        (HOST, True),
        (changed(HOST, "STARTED", "notification", "payload", "event"), False),
        (changed(HOST, "PROCESS", "notification", "type"), False),
        # Alertmanager and a signal
        (WEBHOOK, True),
        (changed(WEBHOOK, "resolved", "alerts", 0, "status"), False),
        (SIGNAL, True),
        ({**SIGNAL, "state": "ok"}, False),
    ],
)
def test_what_fires(body: dict[str, Any], firing: bool) -> None:
    alarm = one(body)

    assert alarm.firing is firing
    assert alarm.routine is (not firing and alarm.source in ("nova", "masakari"))


# -- what it is about


@pytest.mark.parametrize(
    ("body", "servers", "host", "group", "member"),
    [
        (EVENT, ("s1", "s2"), None, None, None),
        (WEBHOOK, ("s-a",), None, "payments", "db_a"),
        (labelled(instance_id="s-9"), ("s-9",), None, None, None),
        (labelled(server_id="s-9"), ("s-9",), None, None, None),
        (labelled(openstack_instance_id="s-9"), ("s-9",), None, None, None),
        (labelled(host="cmp1"), (), "cmp1", None, None),
        (labelled(hypervisor="cmp1"), (), "cmp1", None, None),
        (labelled(failover_group="payments", host="cmp1"), (), None, "payments", None),
        (labelled(failover_member="db_a", host="cmp1"), (), None, None, "db_a"),
        (labelled(instance_id="s-a", host="cmp1"), ("s-a",), None, None, None),
        (service(), (), "cmp1", None, None),
        (MASAKARI, ("s-a",), None, None, None),
        (HOST, (), "cmp1", None, None),
        ({"server": "s-a"}, ("s-a",), None, None, None),
        ({"server_id": "s-a"}, ("s-a",), None, None, None),
        ({"instance_id": "s-a"}, ("s-a",), None, None, None),
        ({**SIGNAL, "server": "s-a"}, ("s-a",), None, "payments", "db_a"),
        ({"host": "cmp1", "id": "o1"}, (), "cmp1", None, None),
        ({"host": "cmp1", "group": "g", "member": "db_a"}, (), None, "g", "db_a"),
    ],
)
def test_what_an_alarm_is_about(
    body: dict[str, Any],
    servers: tuple[str, ...],
    host: str | None,
    group: str | None,
    member: str | None,
) -> None:
    alarm = one(body)

    assert (alarm.servers, alarm.host) == (servers, host)
    assert (alarm.group, alarm.member) == (group, member)


@pytest.mark.parametrize(
    "traits",
    [None, {}, "s1", [], [None], [["instance_id"]], [["instance_id", 1, 5]], [["name", 1, "s1"]]],
)
def test_traits_that_name_no_server_are_passed_over(traits: Any) -> None:
    assert one(event(traits=traits)).servers == ()


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (EVENT, "alarm server_lost went from ok to alarm"),
        ({"alarm_id": None, "reason_data": None}, "alarm without a name went from unknown to "),
        ({**SIGNAL, "server": "s-a"}, "a signal reports db_a as lost (watchdog)"),
        ({"host": "cmp1", "reason": "it burned"}, "a signal reports host cmp1 as lost (it burned)"),
        ({"host": "cmp1", "because": "it burned"}, "a signal reports host cmp1 as lost (it burne"),
        (WEBHOOK, "alert InstanceDown, which began at "),
    ],
)
def test_its_sentence_says_so(body: dict[str, Any], sentence: str) -> None:
    assert one(body).sentence.startswith(sentence)


def test_a_sender_s_reason_is_no_operator_s() -> None:
    assert one({"host": "cmp1", "because": "it burned", "operator": "ann"}).because == ""


@pytest.mark.parametrize(
    ("body", "at"),
    [
        (WEBHOOK, EIGHT + 0.123456),
        (UNVERSIONED, EIGHT + 0.123456),
        ({**SIGNAL, "at": "2026-11-21T08:00:00+00:00"}, EIGHT),
    ],
)
def test_when_it_happened(body: dict[str, Any], at: float) -> None:
    assert one(body).at == pytest.approx(at)


@pytest.mark.parametrize(
    ("body", "secret"),
    [
        (WEBHOOK, "secret=1"),
        (changed(VERSIONED, {"a": "s3cret"}, "payload", "nova_object.data", "metadata"), "s3cret"),
        ({**SIGNAL, "token": "s3cret"}, "s3cret"),
    ],
)
def test_of_a_body_only_what_was_read_is_kept(body: dict[str, Any], secret: str) -> None:
    assert secret in str(body)
    assert secret not in str(one(body).payload)


# -- which deliveries are of one occurrence


BARE = changed(WEBHOOK, None, "alerts", 0, "fingerprint")


@pytest.mark.parametrize(
    ("body", "again", "same"),
    [
        (EVENT, {**EVENT, "reason": "said otherwise"}, True),
        (EVENT, {**EVENT, "severity": "low"}, True),
        (EVENT, {**EVENT, "previous": "insufficient data"}, True),
        (EVENT, event(generated="later"), True),
        (EVENT, {**EVENT, "unknown": 1}, True),
        (EVENT, event(message_id="m2"), False),
        (EVENT, {**EVENT, "alarm_id": "a2"}, False),
        (EVENT, {**EVENT, "current": "ok"}, False),
        (EVENT, THRESHOLD, False),
        (THRESHOLD, dict(THRESHOLD), True),
        (THRESHOLD, {**THRESHOLD, "reason_data": {"most_recent": 4}}, False),
        # A repeat that comes first does not hide the transition itself.
        (THRESHOLD, {**THRESHOLD, "previous": "alarm"}, False),
        (WEBHOOK, {**WEBHOOK, "groupKey": "another", "externalURL": "there"}, True),
        (WEBHOOK, changed(WEBHOOK, "2026-11-22T08:00:00Z", "alerts", 0, "endsAt"), True),
        (WEBHOOK, changed(WEBHOOK, "2026-11-22T08:00:00Z", "alerts", 0, "startsAt"), False),
        (WEBHOOK, changed(WEBHOOK, "f2", "alerts", 0, "fingerprint"), False),
        (WEBHOOK, changed(WEBHOOK, "resolved", "alerts", 0, "status"), False),
        (BARE, changed(BARE, {}, "alerts", 0, "annotations"), True),
        (BARE, changed(BARE, {"a": "b"}, "alerts", 0, "labels"), False),
        (VERSIONED, {**VERSIONED, "timestamp": ""}, True),
        (VERSIONED, {**VERSIONED, "message_id": "m9"}, False),
        (SERVICE, {**SERVICE, "message_id": "m2"}, False),
        (SHOWN, {**SHOWN, "status": "finished"}, True),
        ({"host": "cmp1", "id": "o1"}, {"host": "cmp2", "id": "o1"}, False),
    ],
)
def test_deliveries_of_one_occurrence_have_one_key(
    body: dict[str, Any], again: dict[str, Any], same: bool
) -> None:
    assert (one(again).key == one(body).key) is same


@pytest.mark.parametrize(
    ("body", "unique"),
    [
        (EVENT, True),
        (THRESHOLD, False),
        (WEBHOOK, True),
        (VERSIONED, True),
        ({**VERSIONED, "message_id": None}, False),
        (SERVICE, True),
        (SIGNAL, True),
        ({"server": "s-a"}, False),
    ],
)
def test_an_occurrence_with_an_id_of_its_own_happens_once(
    body: dict[str, Any], unique: bool
) -> None:
    assert one(body).unique is unique


def test_every_alert_of_a_webhook_is_an_alarm_of_its_own() -> None:
    other = {**ALERT, "fingerprint": "f2", "status": "resolved"}

    alarms = read({**WEBHOOK, "alerts": [ALERT, other]})

    assert [alarm.firing for alarm in alarms] == [True, False]
    assert len({alarm.key for alarm in alarms}) == 2


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


_PLACES = [
    (body, path)
    for body in [*BODIES.values(), EVENT, UNVERSIONED, HOST, SERVICE]
    for path in _places(body)
]
_traits = st.lists(st.lists(st.sampled_from(["instance_id", "s1"]) | _values, max_size=4))
_reasons = st.fixed_dictionaries({}, optional={"message_id": _values, "traits": _traits | _values})
_of_aodh = st.fixed_dictionaries(
    {},
    optional={key: st.text() | _values for key in AODH_KEYS if key != "reason_data"}
    | {"reason_data": st.fixed_dictionaries({"event": _reasons}) | _values},
)
_changed = st.builds(
    lambda at, value: changed(at[0], value, *at[1]), st.sampled_from(_PLACES), _values
)


@settings(max_examples=450)
@given(_changed | _of_aodh | _values, st.sampled_from([None, *sources()]))
def test_whatever_comes_is_read_or_refused_as_invalid(body: Any, kind: str | None) -> None:
    try:
        alarms = read(body, kind)
    except InvalidDocument:
        return
    for alarm in alarms:
        assert alarm.source in sources()
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

    assert writable(given) == {
        "a": "x \N{REPLACEMENT CHARACTER} y",
        "\N{REPLACEMENT CHARACTER}": [1.5, None, "\N{GRINNING FACE}", {"b": r"\ud800"}],
    }
    assert writable(untouched := {"a": "\N{GRINNING FACE}"}) is untouched
