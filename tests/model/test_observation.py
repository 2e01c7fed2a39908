# SPDX-License-Identifier: Apache-2.0
"""From what was seen of members and resources to whether a group serves."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistral_failover.model.observation import (
    AS_RECORDED,
    EngineView,
    Observation,
    ObservationMemory,
    ObservedMember,
    ObservedPresence,
    ObservedResource,
    Presence,
    Service,
    judged,
    service_state,
)

ROLES = {"active": "db_a"}
GONE = ObservedPresence(Presence.GONE, "its server is gone")
HIDDEN = ObservedPresence(Presence.UNKNOWN, "no service answers")


def member(
    name: str, look: ObservedPresence = AS_RECORDED, why_not: str | None = None
) -> ObservedMember:
    roles = tuple(role for role, holder in ROLES.items() if holder == name)
    return ObservedMember(name, roles, look, why_not or look.why or None)


def resource(look: ObservedPresence, *, serves: bool = True) -> ObservedResource:
    return ObservedResource("data", "volume_attachment", "db_a", serves, look)


WELL = [member("db_a"), member("db_b")]


@pytest.mark.parametrize(
    ("members", "resources", "service"),
    [
        (WELL, [], Service.SERVING),
        (WELL, [resource(ObservedPresence(Presence.PRESENT, "busy"))], Service.DEGRADED),
        (WELL, [resource(AS_RECORDED)], Service.SERVING),
        ([member("db_a", GONE), member("db_b")], [], Service.DOWN),
        ([member("db_b")], [], Service.DOWN),
        (WELL, [resource(GONE)], Service.DOWN),
        (WELL, [resource(ObservedPresence(Presence.CHANGED, "it is elsewhere"))], Service.DOWN),
        ([member("db_a", HIDDEN), member("db_b")], [], Service.UNKNOWN),
        (WELL, [resource(HIDDEN)], Service.UNKNOWN),
        ([member("db_a", HIDDEN), member("db_b")], [resource(GONE)], Service.DOWN),
        (WELL, [resource(GONE, serves=False)], Service.DEGRADED),
        ([member("db_a"), member("db_b", GONE)], [], Service.DEGRADED),
        ([member("db_a"), member("db_b", why_not="it was declared lost")], [], Service.DEGRADED),
        ([member("db_a")], [], Service.DEGRADED),
    ],
)
def test_the_worst_finding_decides(
    members: list[ObservedMember], resources: list[ObservedResource], service: Service
) -> None:
    found = judged(ROLES, members, resources)

    assert found.service is service
    assert bool(found.reasons) == (service is not Service.SERVING)


def test_a_silent_agent_of_the_active_member_degrades_the_group() -> None:
    quiet = ObservedPresence(Presence.PRESENT, "its agent has said nothing for 90 s")
    assert judged(ROLES, [member("db_a", quiet), member("db_b")], []).service is Service.DEGRADED


def test_one_standby_that_is_well_is_enough() -> None:
    members = [member("db_a"), member("db_b", GONE), member("db_c")]
    assert judged(ROLES, members, []).service is Service.SERVING


def test_without_roles_a_group_is_out_of_service_whatever_was_seen() -> None:
    assert judged({}, [member("db_a", GONE)], [resource(GONE)]).service is Service.OUT_OF_SERVICE


def test_what_was_seen_and_what_the_next_look_needs_are_kept_whole() -> None:
    found = judged(
        ROLES, [member("db_a", GONE), member("db_b", why_not="it is new")], [resource(GONE)]
    )
    memory = ObservationMemory(
        {"record": "version"}, {"server": ["host"]}, told=Service.DOWN, repair_after=1.5
    )

    assert Observation.read(json.loads(json.dumps(found.document()))) == found
    assert ObservationMemory.read(json.loads(json.dumps(memory.document()))) == memory


# -- together with what the engine knows

LOST = [member("db_a"), member("db_b", why_not="it was declared lost")]
AT_REST = EngineView(ROLES, tuple(WELL), started_at=90.0, ended_at=100.0, reached=True)


def seen(service: str) -> Observation:
    return Observation(Service(service), () if service == "SERVING" else ("because",))


def test_a_later_observation_counts() -> None:
    found = service_state(AT_REST, seen("DOWN"), 150.0, 140.0)
    assert (found.service, found.since, found.seen_at) == (Service.DOWN, 140.0, 150.0)


def test_an_observation_from_before_the_last_traversal_does_not() -> None:
    found = service_state(AT_REST, seen("DOWN"), 95.0, 80.0)
    assert (found.service, found.since, found.seen_at) == (Service.SERVING, 100.0, None)


def test_after_a_failover_that_leaves_no_standby_the_group_is_degraded_before_it_is_seen() -> None:
    engine = replace(AT_REST, members=tuple(LOST))

    for before in ("SERVING", "DOWN"):
        found = service_state(engine, seen(before), 95.0, 10.0)
        assert (found.service, found.since, found.seen_at) == (Service.DEGRADED, 100.0, None)
        assert "db_b: it was declared lost" in found.reasons[0]


@pytest.mark.parametrize(
    ("word", "reached", "since"),
    [
        ("SERVING", True, 100.0),
        ("DEGRADED", True, 100.0),
        ("SERVING", False, 100.0),
        ("DOWN", True, 100.0),
        ("DOWN", False, 10.0),  # it was never up between
    ],
)
def test_a_state_is_not_older_than_the_traversal_that_led_to_it(
    word: str, reached: bool, since: float
) -> None:
    engine = replace(AT_REST, reached=reached)
    assert service_state(engine, seen(word), 150.0, 10.0).since == since


@pytest.mark.parametrize("word", ["SERVING", "DEGRADED", "DOWN", "UNKNOWN"])
@pytest.mark.parametrize(("made_at", "since"), [(5.0, 10.0), (95.0, 100.0)])
def test_a_state_lasts_through_a_traversal_that_made_nothing_of_what_serves(
    word: str, made_at: float, since: float
) -> None:
    """A start of a group that is down, and in which all is as recorded, ends no outage."""
    engine = replace(AT_REST, made_at=made_at)
    assert service_state(engine, seen(word), 150.0, 10.0).since == since


@pytest.mark.parametrize("before", ["SERVING", "DOWN"])
def test_once_a_running_failover_has_made_what_serves_an_earlier_look_says_nothing(
    before: str,
) -> None:
    engine = EngineView(ROLES, tuple(LOST), started_at=90.0, made_at=98.0)

    found = service_state(engine, seen(before), 85.0, 10.0)

    assert (found.service, found.since, found.seen_at) == (Service.DEGRADED, 98.0, None)


def test_what_the_engine_knows_to_be_missing_counts_first() -> None:
    engine = EngineView(ROLES, started_at=90.0, missing=("database is not there",))
    found = service_state(engine, seen("SERVING"), 95.0, 10.0)
    assert (found.service, found.since) == (Service.DOWN, 90.0)


def test_a_group_that_was_seen_down_before_its_failover_is_down_since_then() -> None:
    engine = EngineView(ROLES, started_at=90.0, missing=("database is not there",))
    assert service_state(engine, seen("DOWN"), 85.0, 60.0).since == 60.0


def test_during_a_planned_move_the_old_holder_serves_until_it_is_stopped() -> None:
    engine = EngineView(ROLES, tuple(WELL), started_at=90.0, made_at=5.0)
    assert service_state(engine, seen("SERVING"), 85.0, 10.0).service is Service.SERVING


LOOKS = st.sampled_from(
    [AS_RECORDED, GONE, HIDDEN, ObservedPresence(Presence.CHANGED, "it changed")]
)


@given(LOOKS, LOOKS, LOOKS)
def test_a_group_never_serves_by_what_was_not_seen(
    a: ObservedPresence, b: ObservedPresence, data: ObservedPresence
) -> None:
    found = judged(ROLES, [member("db_a", a), member("db_b", b)], [resource(data)])
    if a is not AS_RECORDED or data is not AS_RECORDED:
        assert found.service is not Service.SERVING
    assert found.document()["service"] == found.service
