# SPDX-License-Identifier: Apache-2.0
"""From what was seen of members and resources to whether a group serves."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistral_failover.model.observation import (
    AS_RECORDED,
    SLACK,
    Condition,
    EngineView,
    Look,
    Observation,
    ObservationMemory,
    ObservedMember,
    ObservedPresence,
    ObservedResource,
    Presence,
    Service,
    ServiceState,
    WaitingAlarm,
    judged,
    service_state,
)
from mistral_failover.model.remedies import commands, need, sentence

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


@pytest.mark.parametrize("standby", [True, False])
def test_of_a_guest_that_may_be_dead_a_move_comes_before_a_reboot(standby: bool) -> None:
    reboot = need("REBOOT_SERVER", server="s-a")
    silent = ObservedPresence(Presence.PRESENT, "its agent is silent")
    holder = ObservedMember("db_a", ("active",), silent, "silent", Condition.HUNG, (reboot,))

    found = judged(ROLES, [holder, *([member("db_b")] if standby else [])], [])

    (flaw, *_) = found.flaws
    moved = (need("MOVE_SILENT", lost=["db_a"], silent="db_a"), need("DIAGNOSE"))
    assert flaw.needs == (moved if standby else (reboot,))


@pytest.mark.parametrize("cold", [True, False])
def test_a_move_is_another_way_than_what_makes_the_server_run(cold: bool) -> None:
    unpause = need("UNPAUSE_SERVER", server="s-a")
    paused = ObservedPresence(Presence.GONE, "its server is PAUSED", (unpause,))
    holder = ObservedMember("db_a", ("active",), paused, "it is PAUSED", Condition.STOPPED)
    standbys = [] if cold else [member("db_b")]

    needs = judged(ROLES, [holder, *standbys], [], cold=cold).needs

    first, *others = commands(needs, "payments")
    assert (first.command, first.optional) == ("openstack server unpause s-a", False)
    assert [each.condition[:2] for each in others] == ["or", "or"]
    assert all(each.optional for each in others)
    assert "; or instead: failover start payments --lost db_a" in sentence(needs, "payments")


def test_a_move_alone_is_not_another_way() -> None:
    needs = judged(ROLES, [member("db_a", GONE), member("db_b")], []).needs

    move, plan = commands(needs, "payments")
    assert (move.condition, move.optional, plan.optional) == ("", False, True)


def test_a_silent_agent_of_the_active_member_degrades_the_group() -> None:
    quiet = ObservedPresence(Presence.PRESENT, "its agent has said nothing for 90 s")
    assert judged(ROLES, [member("db_a", quiet), member("db_b")], []).service is Service.DEGRADED


def test_one_standby_that_is_well_is_enough() -> None:
    members = [member("db_a"), member("db_b", GONE), member("db_c")]
    assert judged(ROLES, members, []).service is Service.SERVING


@pytest.mark.parametrize(
    ("others", "cold", "service"),
    [
        ([], False, Service.DEGRADED),
        ([], True, Service.SERVING),
        ([member("db_b", why_not="it is new")], True, Service.DEGRADED),
    ],
)
def test_only_a_group_whose_lost_member_comes_back_needs_no_standby(
    others: list[ObservedMember], cold: bool, service: Service
) -> None:
    assert judged(ROLES, [member("db_a"), *others], [], cold=cold).service is service


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


# -- together with what the engine knows, and the alarms that wait

LOST = [member("db_a"), member("db_b", why_not="it was declared lost")]
MADE = {"db_a": {"data": 98.0}}
AT_REST = EngineView(ROLES, tuple(WELL), started_at=90.0, ended_at=100.0, reached=True, made=MADE)
INTERVAL = 60.0
PAGE = Path(__file__).parents[2] / "docs" / "states.md"


def look(service: str, at: float, since: float = 10.0, found: Observation | None = None) -> Look:
    return Look(Service(service), () if service == "SERVING" else ("because",), at, since, found)


def looked(at: float, *seen: ObservedResource, a: ObservedPresence = AS_RECORDED) -> Look:
    """A look that found this of ``db_a`` and of what serves there."""
    found = judged(ROLES, [member("db_a", a), member("db_b")], seen)
    return Look(found.service, found.reasons, at, 10.0, found)


def state(
    engine: EngineView, seen: Look | None, *alarms: WaitingAlarm, now: float = 160.0
) -> ServiceState:
    return service_state(engine, seen, alarms, now, INTERVAL)


def rows() -> list[tuple[str, ...]]:
    """The truth table of the page."""
    lines = PAGE.read_text().partition("## Truth table")[2].splitlines()
    cells = [
        tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines if "|" in line
    ]
    return cells[2:]


NOW = 1_000.0
"""The ages of the table: fresh is 30 s, old 160 s, an alarm 10 s or 60 s."""
ENGINES: dict[tuple[str, str], EngineView] = {
    ("none", "-"): EngineView(),
    ("held", "missing"): EngineView(ROLES, missing=("data is not in service",)),
    ("held", "there"): EngineView(ROLES, tuple(WELL), 500.0, 600.0, reached=True),
}
ALARMS: dict[str, list[WaitingAlarm]] = {
    "none": [],
    "admitted, not begun": [WaitingAlarm(("db_a",), admitted=True, at=NOW - 10.0)],
    "held, younger than the evidence": [WaitingAlarm(("db_a",), admitted=False, at=NOW - 10.0)],
    "held, older than the evidence": [WaitingAlarm((), admitted=False, at=NOW - 60.0)],
}
EVIDENCE = {"none": None, "old": NOW - 160.0, "fresh": NOW - 30.0}
TRAVERSALS = {"": "", "FAILED or BLOCKED": "FAILED"}


def any_of(cell: str, every: Iterable[str]) -> list[str]:
    return list(every) if cell == "-" else [cell]


@pytest.mark.parametrize("number", range(len(rows())))
def test_the_page_tells_the_service_of_every_state(number: int) -> None:
    """Of each row every state is tried that no row above it decides."""
    roles, records, alarm, found, evidence, traversal, service = rows()[number]
    tried = 0
    for each in itertools.product(
        any_of(alarm, ALARMS),
        any_of(found, ("SERVING", "DEGRADED", "DOWN", "UNKNOWN")),
        any_of(evidence, EVIDENCE),
        any_of(traversal, TRAVERSALS),
    ):
        if any(decides(row, (roles, records, *each)) for row in rows()[:number]):
            continue
        at = EVIDENCE[each[2]]
        seen = look(each[1], at) if at is not None else None
        engine = ENGINES[roles, records]
        if engine.roles and not engine.missing:
            stopped = TRAVERSALS[each[3]]
            engine = replace(engine, stopped=stopped, reached=not stopped)
        if seen is None and each[1] != "SERVING":
            continue  # without a look it found nothing
        got = state(engine, seen, *ALARMS[each[0]], now=NOW)
        assert got.service == service, each
        tried += 1
    assert tried


def decides(row: tuple[str, ...], case: tuple[str, ...]) -> bool:
    return all(cell in ("-", value) for cell, value in zip(row, case, strict=False))


@given(
    looked=st.one_of(
        st.none(),
        st.builds(
            look, st.sampled_from(["SERVING", "DEGRADED", "DOWN", "UNKNOWN"]), st.floats(0.0, NOW)
        ),
    ),
    made=st.dictionaries(
        st.sampled_from(["db_a", "db_b", None]),
        st.dictionaries(st.sampled_from(["data", "ip", "database"]), st.floats(0.0, NOW)),
    ),
    ended=st.one_of(st.none(), st.floats(0.0, NOW)),
    stopped=st.sampled_from(["", "FAILED", "BLOCKED"]),
    alarms=st.lists(
        st.builds(
            WaitingAlarm,
            st.sampled_from([(), ("db_a",), ("db_b",), ("db_c",)]),
            st.booleans(),
            st.floats(0.0, NOW),
        )
    ),
    missing=st.sampled_from([(), ("data is not in service",)]),
)
def test_nothing_makes_a_group_serve_whose_holders_were_not_all_seen_to_serve_lately(
    looked: Look | None,
    made: dict[str | None, dict[str, float]],
    ended: float | None,
    stopped: str,
    alarms: list[WaitingAlarm],
    missing: tuple[str, ...],
) -> None:
    roles = {"active": "db_a", "other": "db_b"}
    engine = EngineView(roles, tuple(WELL), 0.0, ended, stopped == "", stopped, made, missing)

    found = service_state(engine, looked, alarms, NOW, INTERVAL)

    if found.service not in (Service.SERVING, Service.DEGRADED):
        return
    by_look = looked.at if looked and looked.service in ("SERVING", "DEGRADED") else 0.0
    for holder in roles.values():
        for at in (made.get(holder) or {"": 0.0}).values():
            assert NOW - max(by_look, at) <= 2 * INTERVAL + SLACK
    about = [each for each in alarms if not each.lost or set(each.lost) & set(roles.values())]
    assert not missing
    assert not [each for each in about if each.admitted and each.lost]
    if found.service is Service.SERVING:
        assert not about
        assert not stopped


def test_a_later_observation_counts() -> None:
    found = state(AT_REST, look("DOWN", 150.0, 140.0))
    assert (found.service, found.since, found.seen_at) == (Service.DOWN, 140.0, 150.0)


def test_a_look_from_before_what_serves_was_made_does_not() -> None:
    found = state(AT_REST, look("DOWN", 95.0, 80.0))
    assert (found.service, found.since, found.seen_at) == (Service.SERVING, 100.0, None)


DATA_GONE = ObservedResource("data", "volume_attachment", "db_a", serves=True, observed=GONE)
IP_GONE = ObservedResource("ip", "virtual_ip", "db_a", serves=True, observed=GONE)
IP_WELL = replace(IP_GONE, observed=AS_RECORDED)
DATA_WELL = replace(DATA_GONE, observed=AS_RECORDED)


@pytest.mark.parametrize(
    ("seen", "made", "service", "left"),
    [
        # nothing was made since
        ((DATA_GONE, IP_GONE), {"data": 5.0, "ip": 5.0}, "DOWN", ["data", "ip"]),
        # all of it was
        ((DATA_GONE, IP_GONE), {"data": 98.0, "ip": 98.0}, "SERVING", []),
        # what was gone was made anew, and the rest was seen well
        ((DATA_WELL, IP_GONE), {"data": 5.0, "ip": 98.0}, "SERVING", []),
        # an address was given anew; the volume, which was gone too, was not attached again
        ((DATA_GONE, IP_GONE), {"data": 5.0, "ip": 98.0}, "DOWN", ["data"]),
        # what is not known stays so
        (
            (replace(DATA_GONE, observed=HIDDEN), IP_GONE),
            {"data": 5.0, "ip": 98.0},
            "UNKNOWN",
            ["data"],
        ),
        ((replace(DATA_GONE, observed=HIDDEN), IP_WELL), {"data": 98.0, "ip": 5.0}, "SERVING", []),
    ],
)
def test_what_a_look_saw_well_and_what_was_made_since_count_together(
    seen: tuple[ObservedResource, ...], made: dict[str, float], service: str, left: list[str]
) -> None:
    found = state(replace(AT_REST, made={"db_a": made}), looked(95.0, *seen))

    assert found.service == service
    assert [reason.split()[0] for reason in found.reasons] == left


@pytest.mark.parametrize(
    ("made", "service"),
    [({"data": 5.0, "ip": 98.0}, "DOWN"), ({"data": 97.0, "ip": 98.0}, "SERVING")],
)
def test_a_server_that_was_off_counts_until_all_that_it_serves_with_was_made_there(
    made: dict[str, float], service: str
) -> None:
    """A volume can be attached to a server that is off, so one thing alone shows nothing."""
    engine = replace(AT_REST, made={"db_a": made})
    assert state(engine, looked(95.0, DATA_WELL, IP_GONE, a=GONE)).service == service


def test_what_a_look_missed_where_the_role_was_then_says_nothing_of_where_it_is_now() -> None:
    moved = (replace(member("db_a"), roles=()), replace(member("db_b"), roles=("active",)))
    made = {"db_b": {"data": 98.0, "ip": 98.0}}
    engine = replace(AT_REST, roles={"active": "db_b"}, members=moved, made=made)
    found = state(engine, looked(95.0, DATA_GONE, IP_GONE, a=GONE))
    assert (found.service, found.since, found.seen_at) == (Service.DEGRADED, 100.0, None)
    assert found.reasons == ("no member can take over (db_a: its server is gone)",)


@pytest.mark.parametrize(
    ("change", "service"),
    [
        ({}, "SERVING"),
        ({"lost_until": {"db_b": 97.0}}, "DEGRADED"),  # "healthy", says an operator
        ({"lost_until": {"db_b": 94.0}}, "SERVING"),  # the look saw it since
        ({"lost_until": {"db_b": 97.0}, "renewed": {"db_b": 96.0}}, "SERVING"),
        # who has a role, and all that serves there, was proven by that
        ({"lost_until": {"db_a": 97.0}}, "SERVING"),
    ],
)
@pytest.mark.parametrize("before", ["SERVING", "DEGRADED"])
def test_a_member_that_was_declared_lost_is_no_standby_until_it_is_seen_or_brought_back(
    before: str, change: dict[str, Any], service: str
) -> None:
    assert state(replace(AT_REST, **change), look(before, 95.0)).service == service


@pytest.mark.parametrize(("renewed", "service"), [(90.0, "DEGRADED"), (97.0, "SERVING")])
def test_a_standby_that_was_off_is_so_until_it_is_seen_or_brought_back(
    renewed: float, service: str
) -> None:
    found = judged(ROLES, [member("db_a"), member("db_b", GONE)], [])
    before = Look(found.service, found.reasons, 95.0, 10.0, found)
    engine = replace(AT_REST, renewed={"db_b": renewed})
    assert state(engine, before).service == service


def test_what_was_seen_well_counts_only_as_long_as_the_look_that_saw_it() -> None:
    engine = replace(AT_REST, ended_at=290.0, made={"db_a": {"data": 5.0, "ip": 280.0}})
    assert state(engine, looked(95.0, DATA_WELL, IP_GONE), now=300.0).service is Service.UNKNOWN


def test_a_look_says_nothing_of_a_member_that_got_its_role_since() -> None:
    engine = replace(AT_REST, roles={"active": "db_b"}, made={})
    assert state(engine, look("SERVING", 85.0)).service is Service.UNKNOWN


def test_a_look_that_has_become_old_is_not_known_since_it_did() -> None:
    found = state(AT_REST, look("SERVING", 150.0), now=310.0)
    assert (found.service, found.since, found.seen_at) == (Service.UNKNOWN, 300.0, 150.0)
    assert "db_a" in found.reasons[0]


def test_a_group_is_down_from_the_admission_on() -> None:
    alarm = WaitingAlarm(("db_a",), admitted=True, at=155.0)
    found = state(AT_REST, look("SERVING", 150.0), alarm)
    assert (found.service, found.since) == (Service.DOWN, 155.0)


@pytest.mark.parametrize(
    ("seen", "since"),
    [
        (("DOWN", 158.0, 158.0), 155.0),  # the look came later
        (("DOWN", 150.0, 140.0), 140.0),  # it was down before
        (("DOWN", 95.0, 10.0), 155.0),  # it served in between
    ],
)
def test_a_group_is_down_since_the_first_that_says_so(
    seen: tuple[str, float, float], since: float
) -> None:
    alarm = WaitingAlarm(("db_a",), admitted=True, at=155.0)
    assert state(AT_REST, look(*seen), alarm).since == since


def test_a_held_alarm_degrades_a_group_since_it_was_heard() -> None:
    alarm = WaitingAlarm(("db_a",), admitted=False, at=140.0)
    found = state(AT_REST, look("SERVING", 150.0), alarm)
    assert (found.service, found.since) == (Service.DEGRADED, 140.0)


def test_after_a_failover_that_leaves_no_standby_the_group_is_degraded_before_it_is_seen() -> None:
    engine = replace(AT_REST, members=tuple(LOST))

    for before in ("SERVING", "DOWN"):
        found = state(engine, look(before, 95.0))
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
    assert state(engine, look(word, 150.0)).since == since


@pytest.mark.parametrize("word", ["SERVING", "DEGRADED", "DOWN", "UNKNOWN"])
@pytest.mark.parametrize(("made_at", "since"), [(5.0, 10.0), (95.0, 100.0)])
def test_a_state_lasts_through_a_traversal_that_made_nothing_of_what_serves(
    word: str, made_at: float, since: float
) -> None:
    """A start of a group that is down, and in which all is as recorded, ends no outage."""
    engine = replace(AT_REST, made={"db_a": {"data": made_at}})
    assert state(engine, look(word, 150.0)).since == since


@pytest.mark.parametrize("before", ["SERVING", "DOWN"])
def test_once_a_running_failover_has_made_what_serves_an_earlier_look_says_nothing(
    before: str,
) -> None:
    engine = EngineView(ROLES, tuple(LOST), started_at=90.0, made=MADE)

    found = state(engine, look(before, 85.0), now=110.0)

    assert (found.service, found.since, found.seen_at) == (Service.DEGRADED, 98.0, None)


def test_what_the_engine_knows_to_be_missing_counts_first() -> None:
    engine = EngineView(ROLES, started_at=90.0, missing=("database is not there",))
    found = state(engine, look("SERVING", 95.0))
    assert (found.service, found.since) == (Service.DOWN, 90.0)


def test_a_group_that_was_seen_down_before_its_failover_is_down_since_then() -> None:
    engine = EngineView(ROLES, started_at=90.0, missing=("database is not there",))
    assert state(engine, look("DOWN", 85.0, 60.0)).since == 60.0


def test_during_a_planned_move_the_old_holder_serves_until_it_is_stopped() -> None:
    engine = EngineView(ROLES, tuple(WELL), started_at=90.0, made={"db_a": {"data": 5.0}})
    assert state(engine, look("SERVING", 85.0)).service is Service.SERVING


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
