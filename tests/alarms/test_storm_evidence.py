# SPDX-License-Identifier: Apache-2.0
"""What the evidence says about held alarms: the control plane failed, or servers died. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistral_failover.alarms.storm import (
    LONGEST_WAIT,
    SETTLED,
    UNRELATED,
    Evidence,
    HeldAlarm,
    HeldAlarmStep,
    MemberEvidence,
    Queued,
    ServerCondition,
    allowance,
    in_order,
    judge,
    per_minute,
)
from mistral_failover.model.decisions import AdmissionRule
from mistral_failover.model.heartbeats import SILENT

AGE = 120.0
ALARM = HeldAlarm("a", "g1", ("db_a",), AdmissionRule.STORM, AGE, of_server=True)
ENDED = MemberEvidence("h1", ServerCondition.ENDED, "its server is gone", silent_for=AGE + 5)
HEARD = MemberEvidence("h2", ServerCondition.RUNNING, silent_for=3.0)
SILENT_ONE = MemberEvidence("h1", silent_for=AGE + 5)


LATE = {"rule": AdmissionRule.TOO_LATE}
DOUBTED = {"rule": AdmissionRule.DOUBTED}
AWAY = ("Nova does not answer",)
QUIET = replace(SILENT_ONE, host="h3")
OLD = replace(QUIET, silent_for=AGE + UNRELATED + 1)  # its member was stopped last week
AGAIN = {"age": 5.0, "first": AGE}
DOWN = MemberEvidence("h1", ServerCondition.HOST_DOWN, "its compute service is DOWN")
CASES: list[tuple[str, dict[str, Any], tuple[str, ...], list[MemberEvidence], str, str]] = [
    # Servers died.
    ("Nova says that its server ended", {}, (), [ENDED], "release", "its server is gone"),
    ("Nova says that its host is down", {}, (), [DOWN], "release", "compute service is DOWN"),
    ("only its host is silent", {}, (), [SILENT_ONE, HEARD], "release", "other hosts are heard"),
    ("it could not start in time, and died", LATE, (), [ENDED], "release", ""),
    ("it could not start in time", LATE, (), [MemberEvidence("h1")], "hold", "not known"),
    # The control plane failed.
    ("a service does not answer", {}, AWAY, [ENDED], "hold", "Nova does not answer"),
    ("doubted, and died", DOUBTED, (), [ENDED], "release", ""),
    ("doubted, and nothing is known", DOUBTED, (), [MemberEvidence("h1")], "hold", "not known"),
    ("too late, and no answer", LATE, AWAY, [ENDED], "hold", "Nova does not answer"),
    ("its agent is heard", {}, (), [replace(ENDED, silent_for=3.0)], "hold", ""),
    ("silence everywhere", {}, (), [SILENT_ONE, replace(SILENT_ONE, host="h2")], "hold", ""),
    ("a host without an alarm is silent", {}, (), [SILENT_ONE, HEARD, QUIET], "hold", "channel"),
    (
        "that host's member is lost already",
        {},
        (),
        [SILENT_ONE, HEARD, replace(QUIET, lost=True)],
        "release",
        "",
    ),
    (
        "a host whose alarms have all started, with a standby",
        {},
        (),
        [SILENT_ONE, HEARD, replace(QUIET, lost=True), QUIET],
        "release",
        "",
    ),
    ("it was silent long before the alarm", AGAIN, (), [SILENT_ONE, HEARD, OLD], "release", ""),
    (
        "it became silent shortly before the alarm",
        AGAIN,
        (),
        [SILENT_ONE, HEARD, replace(QUIET, silent_for=AGE + UNRELATED - 1)],
        "hold",
        "no alarm reports",
    ),
    # A rack lost the agents' broker hours ago, and its servers run.
    (
        "its own silence is old, too",
        {"first": AGE},
        (),
        [replace(OLD, host="h1"), HEARD, OLD],
        "hold",
        "",
    ),
    ("a neighbour is heard", {}, (), [SILENT_ONE, replace(HEARD, host="h1"), HEARD], "hold", ""),
    # The cause has cleared.
    ("its server runs", {}, (), [HEARD], "dismiss", "heard since the alarm"),
    ("it runs, and a pause holds it", {"rule": "paused"}, (), [HEARD], "dismiss", ""),
    ("it runs, and the cooldown holds it", {"rule": "cooldown"}, (), [HEARD], "dismiss", ""),
    ("it ended, and a pause holds it", {"rule": "paused"}, (), [ENDED], "hold", "another rule"),
    ("it ended, and the limit holds it", {"rule": "per_hour"}, (), [ENDED], "hold", "another"),
    ("it ended, and the cooldown holds it", {"rule": "cooldown"}, (), [ENDED], "release", ""),
    ("the heartbeat may have been under way", {"age": SETTLED}, (), [HEARD], "hold", ""),
    ("the heartbeat was sent after it", {"age": SETTLED + 4}, (), [HEARD], "dismiss", ""),
    ("it is about an application", {"of_server": False}, (), [HEARD], "hold", ""),
]


@pytest.mark.parametrize(
    ("alarm", "unreachable", "members", "step", "why"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_what_becomes_of_an_alarm(
    alarm: dict[str, Any],
    unreachable: tuple[str, ...],
    members: list[MemberEvidence],
    step: str,
    why: str,
) -> None:
    """The first of the members is the one that it reports; each is of a group of its own."""
    known = {(f"g{n}", "db_a"): each for n, each in enumerate(members, start=1)}

    found = judge([replace(ALARM, **alarm)], Evidence(known, unreachable))["a"]

    assert (found.step, why in found.why) == (step, True), found.why


def test_several_lost_members_must_all_have_died() -> None:
    both = replace(ALARM, lost=("db_a", "db_b"))
    known = {("g1", "db_a"): ENDED, ("g1", "db_b"): MemberEvidence("h1")}

    assert judge([both], Evidence(known))["a"].step is HeldAlarmStep.HOLD
    died = Evidence({**known, ("g1", "db_b"): ENDED})
    assert judge([both], died)["a"].step is HeldAlarmStep.RELEASE


@pytest.mark.parametrize("by_operator", [False, True])
def test_agents_on_several_hosts_that_are_heard_make_the_control_plane_suspect(
    by_operator: bool,
) -> None:
    """Unless an operator reports their members: no heartbeat is evidence against one."""
    alarms = [replace(ALARM, id=f"a{n}", group_id=f"g{n}", of_server=by_operator) for n in range(3)]
    alarms[1:] = [replace(each, by_operator=by_operator) for each in alarms[1:]]
    known = {("g0", "db_a"): ENDED}
    known |= {(f"g{n}", "db_a"): replace(HEARD, host=f"h{n}") for n in (1, 2)}

    found = judge(alarms, Evidence(known))

    assert found["a0"].step == ("release" if by_operator else "hold")
    assert ("agents on several hosts are heard" in found["a0"].why) is not by_operator
    assert {found["a1"].step, found["a2"].step} == {HeldAlarmStep.HOLD}


def test_an_alarm_that_a_pause_holds_for_weeks_does_not_make_old_silence_new() -> None:
    paused = replace(ALARM, id="p", group_id="g2", rule=AdmissionRule.PAUSED, first=1e6)
    old = replace(QUIET, silent_for=1e5)
    known = {("g1", "db_a"): SILENT_ONE, ("g2", "db_a"): HEARD, ("g3", "db_a"): old}

    found = judge([replace(ALARM, first=AGE), paused], Evidence(known))

    assert found["a"].step is HeldAlarmStep.RELEASE


# -- whatever the evidence

conditions = st.sampled_from(ServerCondition)
silences = st.none() | st.floats(0, 1000)
hosts = st.none() | st.sampled_from(["h1", "h2", "h3"])
evidences = st.builds(
    MemberEvidence, hosts, conditions, st.just("why"), silent_for=silences, lost=st.booleans()
)
keys = st.tuples(st.sampled_from(["g1", "g2", "g3"]), st.sampled_from(["db_a", "db_b"]))
projects = st.builds(
    Evidence,
    st.dictionaries(keys, evidences),
    st.lists(st.just("no answer"), max_size=1).map(tuple),
)
alarms = st.builds(
    HeldAlarm,
    st.uuids().map(str),
    st.sampled_from(["g1", "g2", "g3"]),
    st.lists(st.sampled_from(["db_a", "db_b"]), min_size=1, max_size=2, unique=True).map(tuple),
    st.sampled_from([AdmissionRule.STORM, AdmissionRule.TOO_LATE, "paused"]),
    st.floats(0, 1000),
    st.booleans(),
)


@given(st.lists(alarms, max_size=6), projects)
def test_nothing_is_let_go_without_a_death_or_dismissed_without_a_life(
    held: list[HeldAlarm], evidence: Evidence
) -> None:
    found = judge(held, evidence)

    assert found.keys() == {each.id for each in held}
    for each in held:
        known = [evidence.of(key) for key in each.keys]
        heard = [one.silent_for is not None and one.silent_for < SILENT for one in known]
        step = found[each.id].step
        assert found[each.id].why
        if step is HeldAlarmStep.RELEASE:
            assert each.rule in (AdmissionRule.STORM, AdmissionRule.TOO_LATE)
            assert not evidence.unreachable
            assert all(
                one.condition is not ServerCondition.RUNNING or one.silent_for for one in known
            )
            assert not any(
                h and one.silent_for < each.age for h, one in zip(heard, known, strict=True)
            )
        if step is HeldAlarmStep.DISMISS:
            assert each.of_server
            assert all(heard)
            assert {one.condition for one in known} == {ServerCondition.RUNNING}


@given(st.lists(alarms, max_size=6), projects, keys)
def test_more_life_never_lets_more_go(
    held: list[HeldAlarm], evidence: Evidence, key: tuple[str, str]
) -> None:
    """An agent that is heard in place of one that is silent, or of one that is unknown."""
    alive = replace(evidence.of(key), silent_for=0.0)
    concerned = {each.id for each in held if key in each.keys and each.age > 0}

    after = judge(held, Evidence({**evidence.members, key: alive}, evidence.unreachable))

    assert all(after[each].step is not HeldAlarmStep.RELEASE for each in concerned)


# -- the order


def test_a_higher_priority_goes_first_and_of_equals_the_older_one() -> None:
    waiting = [
        Queued("young", 0, 1),
        Queued("old", 0, 9),
        Queued("high", 5, 1),
        Queued("low", -1, 99),
    ]

    assert in_order(waiting) == ["high", "old", "young", "low"]


def test_what_has_waited_too_long_goes_before_everything_else() -> None:
    waiting = [
        Queued("high", 9, 5),
        Queued("late", -9, LONGEST_WAIT),
        Queued("later", 0, LONGEST_WAIT + 1),
    ]

    assert in_order(waiting) == ["later", "late", "high"]


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=8), st.integers(1, 3))
def test_nothing_starves_however_many_with_a_higher_priority_arrive(
    priorities: list[int], rate: int
) -> None:
    """In each round ``rate`` start, and as many of the highest priority arrive anew."""
    step = LONGEST_WAIT / 4
    waiting = [Queued(f"old{n}", priority, 0.0) for n, priority in enumerate(priorities)]
    for number in range(4 + len(priorities) * 4 + 4):
        started = set(in_order(waiting)[:rate])
        waiting = [replace(t, waited=t.waited + step) for t in waiting if t.item not in started]
        waiting += [Queued(f"new{number}-{n}", 9, 0.0) for n in range(rate)]

    assert not [each.item for each in waiting if each.item.startswith("old")]


@pytest.mark.parametrize(
    ("alarms", "rate"), [(3, 10), (100, 10), (400, 40), (1000, 100), (5000, 100)]
)
def test_the_rate_follows_from_the_number_of_alarms_as_far_as_one_server_can(
    alarms: int, rate: int
) -> None:
    assert per_minute(alarms) == rate


def test_only_so_many_are_let_go_within_a_minute() -> None:
    assert [allowance(released, 6) for released in (0, 5, 6, 9)] == [6, 1, 0, 0]
