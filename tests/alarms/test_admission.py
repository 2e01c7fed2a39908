# SPDX-License-Identifier: Apache-2.0
"""Whether an alarm may start a failover: the rules, one by one and in their order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistral_failover.alarms.admission import RULES, Situation, admit
from mistral_failover.alarms.payloads import Alarm
from mistral_failover.model.group import Limits

NOW = 100_000.0
ALARM = Alarm("aodh", "k", True, True, "alarm x went from ok to alarm", ("s1",), {})
CALM = Situation("payments", "db_a", True, (), False, frozenset(), [], Limits(60, 3), NOW)


def test_a_calm_group_admits_and_says_who_is_lost() -> None:
    verdict = admit(ALARM, CALM)

    assert verdict.decision == "ADMITTED"
    assert verdict.sentence == "alarm x went from ok to alarm: db_a of payments is declared lost"


@pytest.mark.parametrize(
    ("firing", "changes", "decision", "words"),
    [
        (False, {}, "IGNORED", "not a transition into alarm"),
        (True, {"in_service": False}, "IGNORED", "payments is not in service"),
        (True, {"strangers": ("s9",)}, "HELD", "s9 is not known as a member of payments"),
        (True, {"known": True}, "DUPLICATE", "heard before"),
        (True, {"lost": frozenset({"db_a"})}, "DUPLICATE", "db_a is declared lost already"),
        (True, {"lost": frozenset({"db_b"})}, "ADMITTED", "db_a of payments is declared lost"),
        (True, {"admitted": [NOW - 59.9]}, "HELD", "60 s ago, and the cooldown is 60 s"),
        (True, {"admitted": [NOW - 60]}, "ADMITTED", "declared lost"),
        (True, {"admitted": [NOW - 900, NOW - 5]}, "HELD", "5 s ago"),
        (True, {"admitted": [NOW - 900] * 3}, "HELD", "3 alarms were admitted within an hour"),
        (True, {"admitted": [NOW - 900] * 2}, "ADMITTED", "declared lost"),
        (True, {"admitted": [NOW - 3600] * 3}, "ADMITTED", "declared lost"),
        (True, {"admitted": [NOW - 1], "limits": Limits(0, 3)}, "ADMITTED", "declared lost"),
    ],
)
def test_each_rule_speaks_with_its_own_sentence(
    firing: bool, changes: dict[str, Any], decision: str, words: str
) -> None:
    verdict = admit(replace(ALARM, firing=firing), replace(CALM, **changes))

    assert (verdict.decision, words in verdict.sentence) == (decision, True), verdict.sentence


# From the last rule to the first: each that is broken as well takes over from those after it.
BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"admitted": [NOW - 900] * 3}, "within an hour"),
    ({"admitted": [NOW - 900, NOW - 900, NOW - 1]}, "the cooldown is"),
    ({"lost": frozenset({"db_a"})}, "declared lost already"),
    ({"known": True}, "heard before"),
    ({"strangers": ("s9",)}, "is not known as a member"),
    ({"in_service": False}, "is not in service"),
]


@pytest.mark.parametrize("upto", range(1, len(BROKEN) + 1))
def test_the_first_rule_that_speaks_decides(upto: int) -> None:
    situation = CALM
    for changes, _ in BROKEN[:upto]:
        situation = replace(situation, **changes)

    assert BROKEN[upto - 1][1] in admit(ALARM, situation).sentence
    quiet = replace(ALARM, firing=False)
    assert "not a transition" in admit(quiet, situation).sentence


def test_a_rule_that_has_nothing_to_say_stays_silent() -> None:
    assert [rule(ALARM, CALM) for rule in RULES] == [None] * len(RULES)


_situations = st.builds(
    Situation,
    group=st.just("payments"),
    member=st.sampled_from([None, "db_a"]),
    in_service=st.booleans(),
    strangers=st.sampled_from([(), ("s9",)]),
    known=st.booleans(),
    lost=st.frozensets(st.sampled_from(["db_a", "db_b"])),
    admitted=st.lists(st.floats(NOW - 4000, NOW)).map(sorted),
    limits=st.builds(Limits, st.floats(0, 3600), st.integers(1, 5)),
    now=st.just(NOW),
)


@given(_situations, st.booleans())
def test_a_verdict_is_one_of_four_and_begins_with_the_alarm(
    situation: Situation, firing: bool
) -> None:
    verdict = admit(replace(ALARM, firing=firing), situation)

    assert verdict.decision in ("ADMITTED", "IGNORED", "DUPLICATE", "HELD")
    assert verdict.sentence.startswith(ALARM.sentence)


@given(_situations)
def test_never_more_are_admitted_within_an_hour_than_the_limit_allows(situation: Situation) -> None:
    if admit(ALARM, situation).decision == "ADMITTED":
        recent = [at for at in situation.admitted if at > NOW - 3600]
        assert len(recent) < situation.limits.per_hour
