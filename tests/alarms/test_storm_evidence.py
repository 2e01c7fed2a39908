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


def judged(alarm: HeldAlarm = ALARM, *unreachable: str, **members: MemberEvidence) -> Any:
    """The judgement of one alarm; members by group."""
    known = {(group, "db_a"): evidence for group, evidence in members.items()}
    return judge([alarm], Evidence(known, unreachable))[alarm.id]


# -- servers died


def test_an_alarm_is_let_go_when_nova_says_that_its_server_ended() -> None:
    found = judged(g1=ENDED)

    assert (found.step, found.why) == (HeldAlarmStep.RELEASE, "its server is gone")


def test_an_alarm_is_let_go_when_nova_says_that_its_host_is_down() -> None:
    down = MemberEvidence("h1", ServerCondition.HOST_DOWN, "its compute service is DOWN")

    assert judged(g1=down).step is HeldAlarmStep.RELEASE


def test_an_alarm_is_let_go_when_only_the_agents_of_its_host_are_silent() -> None:
    found = judged(g1=SILENT_ONE, g2=HEARD)

    assert found.step is HeldAlarmStep.RELEASE
    assert "other hosts are heard" in found.why


def test_several_lost_members_must_all_have_died() -> None:
    both = replace(ALARM, lost=("db_a", "db_b"))
    known = {("g1", "db_a"): ENDED, ("g1", "db_b"): MemberEvidence("h1")}

    assert judge([both], Evidence(known))["a"].step is HeldAlarmStep.HOLD
    assert (
        judge([both], Evidence({**known, ("g1", "db_b"): ENDED}))["a"].step is HeldAlarmStep.RELEASE
    )


def test_an_alarm_that_could_not_start_in_time_is_let_go_when_its_server_died() -> None:
    late = replace(ALARM, rule=AdmissionRule.TOO_LATE)

    assert judged(late, g1=ENDED).step is HeldAlarmStep.RELEASE
    assert judged(late, g1=MemberEvidence("h1")).step is HeldAlarmStep.HOLD
    assert judged(late, "Nova does not answer", g1=ENDED).step is HeldAlarmStep.HOLD


# -- the control plane failed


def test_nothing_is_let_go_while_a_service_does_not_answer() -> None:
    found = judged(ALARM, "Nova does not answer", g1=ENDED)

    assert (found.step, found.why) == (HeldAlarmStep.HOLD, "Nova does not answer")


def test_nothing_is_let_go_while_agents_on_several_hosts_are_heard_that_are_reported_as_lost() -> (
    None
):
    alarms = [replace(ALARM, id=f"a{n}", group_id=f"g{n}", of_server=False) for n in range(3)]
    known = {("g0", "db_a"): ENDED}
    known |= {(f"g{n}", "db_a"): replace(HEARD, host=f"h{n}") for n in (1, 2)}

    found = judge(alarms, Evidence(known))

    assert {each.step for each in found.values()} == {HeldAlarmStep.HOLD}
    assert "agents on several hosts are heard" in found["a0"].why


def test_no_heartbeat_is_evidence_against_an_operator() -> None:
    said = [replace(ALARM, id=f"a{n}", group_id=f"g{n}", by_operator=n > 0) for n in range(3)]
    known = {("g0", "db_a"): ENDED}
    known |= {(f"g{n}", "db_a"): replace(HEARD, host=f"h{n}") for n in (1, 2)}

    found = judge(said, Evidence(known))

    assert found["a0"].step is HeldAlarmStep.RELEASE, "they do not make the control plane suspect"
    assert {found["a1"].step, found["a2"].step} == {HeldAlarmStep.HOLD}


def test_a_server_whose_agent_is_heard_has_not_died_whatever_nova_says() -> None:
    assert judged(g1=replace(ENDED, silent_for=3.0)).step is HeldAlarmStep.HOLD


def test_silence_everywhere_is_the_channel_and_no_death() -> None:
    assert judged(g1=SILENT_ONE, g2=replace(SILENT_ONE, host="h2")).step is HeldAlarmStep.HOLD


def test_silence_of_a_host_without_an_alarm_points_to_the_channel() -> None:
    quiet = replace(SILENT_ONE, host="h3")

    assert judged(g1=SILENT_ONE, g2=HEARD, g3=quiet).step is HeldAlarmStep.HOLD
    assert (
        judged(g1=SILENT_ONE, g2=HEARD, g3=replace(quiet, lost=True)).step is HeldAlarmStep.RELEASE
    )


def test_an_agent_that_was_silent_long_before_the_alarms_holds_none_of_them() -> None:
    """Its member was stopped last week."""
    old = replace(SILENT_ONE, host="h3", silent_for=AGE + UNRELATED + 1)
    reported_again = replace(ALARM, age=5.0, first=AGE)

    assert judged(reported_again, g1=SILENT_ONE, g2=HEARD, g3=old).step is HeldAlarmStep.RELEASE
    recent = replace(old, silent_for=AGE + UNRELATED - 1)
    held = judged(reported_again, g1=SILENT_ONE, g2=HEARD, g3=recent)
    assert (held.step, "no alarm reports" in held.why) == (HeldAlarmStep.HOLD, True)


def test_what_was_silent_long_before_the_alarms_proves_no_death_either() -> None:
    """A rack lost the agents' broker hours ago, and its servers run."""
    cut_off = replace(SILENT_ONE, silent_for=AGE + UNRELATED + 1)
    alarm = replace(ALARM, first=AGE)

    found = judged(alarm, g1=cut_off, g2=HEARD, g3=replace(cut_off, host="h3"))

    assert found.step is HeldAlarmStep.HOLD


def test_an_alarm_that_a_pause_holds_for_weeks_does_not_make_old_silence_new() -> None:
    paused = replace(ALARM, id="p", group_id="g2", rule=AdmissionRule.PAUSED, first=1e6)
    old = replace(SILENT_ONE, host="h3", silent_for=1e5)
    known = {("g1", "db_a"): SILENT_ONE, ("g2", "db_a"): HEARD, ("g3", "db_a"): old}

    found = judge([replace(ALARM, first=AGE), paused], Evidence(known))

    assert found["a"].step is HeldAlarmStep.RELEASE


def test_a_host_whose_alarms_have_all_started_does_not_hold_those_of_the_next_one() -> None:
    """Its members are declared lost, and the standbys on it are silent."""
    started = replace(SILENT_ONE, host="h3", lost=True)
    standby = replace(SILENT_ONE, host="h3")

    assert judged(g1=SILENT_ONE, g2=HEARD, g3=started, g4=standby).step is HeldAlarmStep.RELEASE


def test_one_agent_that_is_heard_shows_that_its_host_is_up() -> None:
    neighbour = replace(HEARD, host="h1")

    assert judged(g1=SILENT_ONE, g2=neighbour, g3=HEARD).step is HeldAlarmStep.HOLD


# -- the cause has cleared


def test_an_alarm_is_dismissed_when_its_server_runs_and_its_agent_was_heard_since() -> None:
    found = judged(g1=replace(HEARD, host="h1"))

    assert found.step is HeldAlarmStep.DISMISS
    assert "heard since the alarm" in found.why


@pytest.mark.parametrize("rule", ["paused", "cooldown"])
def test_it_is_dismissed_whatever_rule_holds_it_and_released_only_from_the_storm(
    rule: str,
) -> None:
    other = replace(ALARM, rule=rule)

    assert judged(other, g1=HEARD).step is HeldAlarmStep.DISMISS
    assert judged(other, g1=ENDED).step is HeldAlarmStep.HOLD


def test_a_heartbeat_that_may_have_been_under_way_shows_nothing() -> None:
    fresh = replace(ALARM, age=SETTLED)

    assert judged(fresh, g1=HEARD).step is HeldAlarmStep.HOLD
    assert judged(replace(fresh, age=SETTLED + 4), g1=HEARD).step is HeldAlarmStep.DISMISS


def test_a_running_server_is_no_news_for_an_alarm_about_an_application() -> None:
    assert judged(replace(ALARM, of_server=False), g1=HEARD).step is HeldAlarmStep.HOLD


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
