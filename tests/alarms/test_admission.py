# SPDX-License-Identifier: Apache-2.0
"""Whether an alarm may start a failover: the rules, one by one and in their order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistral_failover.alarms.admission import (
    RULES,
    AdmissionContext,
    Storm,
    Suspension,
    admit,
    without_group,
)
from mistral_failover.alarms.alarm import Alarm
from mistral_failover.model.group import Limits

NOW = 100_000.0
ALARM = Alarm("aodh", "k", True, True, "alarm x went from ok to alarm", ("s1",), {}, at=NOW - 60)
PAUSE = Suspension("ann", "an upgrade", NOW)
WORK = Suspension("bob", "disk", NOW - 60, NOW + 60)
STORM = Storm(failing=3, groups=6, window=600, share=0.5, fewest=3)
CALM = AdmissionContext("payments", "db_a", True, (), False, frozenset(), [], Limits(60, 3), NOW)


def test_a_calm_group_admits_and_says_who_is_lost() -> None:
    verdict = admit(ALARM, CALM)

    assert (verdict.decision, verdict.rule) == ("ADMITTED", "")
    assert verdict.sentence == "alarm x went from ok to alarm: db_a of payments is declared lost"


@pytest.mark.parametrize(
    ("firing", "changes", "decision", "words"),
    [
        (False, {}, "IGNORED", "no new failure"),
        (True, {"in_service": False}, "IGNORED", "payments is not in service"),
        (True, {"strangers": ("s9",)}, "HELD", "s9 is not a known member of payments"),
        (
            True,
            {"member": None},
            "HELD",
            "several members of payments hold roles",
        ),
        (True, {"known": True}, "DUPLICATE", "a repeat"),
        (True, {"lost": frozenset({"db_a"})}, "DUPLICATE", "db_a is already declared lost"),
        (True, {"lost": frozenset({"db_b"})}, "ADMITTED", "db_a of payments is declared lost"),
        (True, {"admitted": [NOW - 59.9]}, "HELD", "cooldown of 60 s"),
        (True, {"admitted": [NOW - 60]}, "ADMITTED", "declared lost"),
        (True, {"admitted": [NOW - 900, NOW - 5]}, "HELD", "5 s ago"),
        (True, {"admitted": [NOW - 900] * 3}, "HELD", "3 alarms were admitted within an hour"),
        (True, {"admitted": [NOW - 900] * 2}, "ADMITTED", "declared lost"),
        (True, {"admitted": [NOW - 3600] * 3}, "ADMITTED", "declared lost"),
        (True, {"admitted": [NOW - 1], "limits": Limits(0, 3)}, "ADMITTED", "declared lost"),
        (True, {"pause": PAUSE}, "HELD", "since 1970-01-02 03:46:40 UTC by ann: an upgrade"),
        (
            True,
            {"maintenance": WORK},
            "HELD",
            "until 1970-01-02 03:47:40 UTC by bob: disk",
        ),
        (True, {"maintenance": replace(WORK, until=NOW)}, "ADMITTED", "declared lost"),
        (
            True,
            {"maintenance": replace(WORK, members=("db_a", "db_c"))},
            "HELD",
            "maintenance of db_a, db_c of payments until",
        ),
        (True, {"maintenance": replace(WORK, members=("db_b",))}, "ADMITTED", "declared lost"),
        (
            True,
            {"old_news": lambda: True},
            "HELD",
            "happened at 1970-01-02 03:45:40 UTC, but db_a",
        ),
        (
            True,
            {"storm": lambda: STORM},
            "HELD",
            "3 of 6 groups of the project failed within 600",
        ),
        (True, {"storm": lambda: replace(STORM, failing=2)}, "ADMITTED", "declared lost"),
        (True, {"storm": lambda: replace(STORM, groups=7)}, "ADMITTED", "declared lost"),
        (True, {"storm": lambda: replace(STORM, fewest=0)}, "ADMITTED", "declared lost"),
        (True, {"storm": lambda: replace(STORM, share=0.0)}, "HELD", "control plane"),
    ],
)
def test_each_rule_speaks_with_its_own_sentence(
    firing: bool, changes: dict[str, Any], decision: str, words: str
) -> None:
    verdict = admit(replace(ALARM, firing=firing), replace(CALM, **changes))

    assert (verdict.decision, words in verdict.sentence) == (decision, True), verdict.sentence


# From the last rule to the first: each that is broken as well takes over from those after it.
BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"storm": lambda: STORM}, "storm"),
    ({"admitted": [NOW - 900] * 3}, "per_hour"),
    ({"admitted": [NOW - 900, NOW - 900, NOW - 1]}, "cooldown"),
    ({"old_news": lambda: True}, "old_news"),
    ({"maintenance": WORK}, "maintenance"),
    ({"pause": PAUSE}, "paused"),
    ({"lost": frozenset({"db_a"})}, "known_fact"),
    ({"known": True}, "heard_before"),
    ({"member": None}, "unnamed"),
    ({"strangers": ("s9",)}, "stranger"),
    ({"in_service": False}, "not_in_service"),
]


@pytest.mark.parametrize("upto", range(1, len(BROKEN) + 1))
def test_the_first_rule_that_speaks_decides(upto: int) -> None:
    situation = CALM
    for changes, _ in BROKEN[:upto]:
        situation = replace(situation, **changes)

    assert admit(ALARM, situation).rule == BROKEN[upto - 1][1]
    quiet = replace(ALARM, firing=False)
    assert admit(quiet, situation).rule == "not_firing"


def test_what_an_alarm_without_a_time_tells_is_never_old() -> None:
    timeless = replace(ALARM, at=None)

    assert admit(timeless, replace(CALM, old_news=lambda: True)).decision == "ADMITTED"


def test_what_its_source_doubts_is_held_with_the_reason() -> None:
    verdict = admit(replace(ALARM, doubt="nothing is known of the host"), CALM)

    assert (verdict.decision, verdict.rule) == ("HELD", "doubted")
    assert "nothing is known of the host" in verdict.sentence


def test_a_storm_is_counted_only_where_nothing_else_speaks() -> None:
    """To count takes a lock of the project."""

    def count() -> Storm:
        raise AssertionError("it was counted")

    admit(ALARM, replace(CALM, storm=count, lost=frozenset({"db_a"})))


@pytest.mark.parametrize("member", ["db_a", None])
def test_a_maintenance_of_the_whole_group_holds_alarms_about_any_member(member: str | None) -> None:
    assert WORK.covers(member, NOW)
    assert not WORK.covers(member, NOW + 60)


def test_what_is_not_known_to_be_about_a_member_in_maintenance_is_held_with_it() -> None:
    assert replace(WORK, members=("db_b",)).covers(None, NOW)


@pytest.mark.parametrize(
    ("alarm", "group", "words"),
    [
        (ALARM, "ledger", "this project has no group ledger"),
        (ALARM, None, "no group of this project is known to have s1"),
        (replace(ALARM, servers=(), others=("cmp1",)), None, "is known to have cmp1"),
        (replace(ALARM, servers=()), None, "it names neither a group nor a server"),
    ],
)
def test_an_alarm_without_a_group_is_held_and_says_why(
    alarm: Alarm, group: str | None, words: str
) -> None:
    verdict = without_group(alarm, group)

    assert (verdict.decision, verdict.rule) == ("HELD", "unknown")
    assert words in verdict.sentence
    assert without_group(replace(alarm, firing=False), group).decision == "IGNORED"


def test_a_rule_that_has_nothing_to_say_stays_silent() -> None:
    assert [rule(ALARM, CALM) for rule in RULES.values()] == [None] * len(RULES)


_situations = st.builds(
    AdmissionContext,
    group=st.just("payments"),
    member=st.sampled_from([None, "db_a"]),
    in_service=st.booleans(),
    strangers=st.sampled_from([(), ("s9",)]),
    known=st.booleans(),
    lost=st.frozensets(st.sampled_from(["db_a", "db_b"])),
    admitted=st.lists(st.floats(NOW - 4000, NOW)).map(sorted),
    limits=st.builds(Limits, st.floats(0, 3600), st.integers(1, 5)),
    now=st.just(NOW),
    pause=st.sampled_from([None, PAUSE]),
    maintenance=st.sampled_from([None, WORK]),
    storm=st.sampled_from([lambda: None, lambda: STORM]),
)


@given(_situations, st.booleans())
def test_a_verdict_is_one_of_four_and_begins_with_the_alarm(
    situation: AdmissionContext, firing: bool
) -> None:
    verdict = admit(replace(ALARM, firing=firing), situation)

    assert verdict.decision in ("ADMITTED", "IGNORED", "DUPLICATE", "HELD")
    assert verdict.sentence.startswith(ALARM.sentence)


@given(_situations)
def test_never_more_are_admitted_within_an_hour_than_the_limit_allows(
    situation: AdmissionContext,
) -> None:
    if admit(ALARM, situation).decision == "ADMITTED":
        recent = [at for at in situation.admitted if at > NOW - 3600]
        assert len(recent) < situation.limits.per_hour
