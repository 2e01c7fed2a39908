# SPDX-License-Identifier: Apache-2.0
"""Whether an alarm may start a failover. Pure rules, in order; the first that speaks decides.

Each decision comes with a sentence, which is recorded: an alarm that is held back is not lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mistral_failover.alarms.payloads import Alarm
from mistral_failover.model.group import Limits

HOUR = 3600.0


@dataclass(frozen=True)
class Situation:
    """What is known when an alarm arrives; times in seconds.

    ``member``: the one that the alarm is about, or None. ``in_service``: whether the group's goal
    gives any role to anybody; a group that was removed, or never activated, is not. ``strangers``:
    servers that it names and nobody knows. ``known``: whether this very incident was heard of
    before and decided for good (one that was HELD is judged again). ``lost``: the members that the
    current goal declares lost. ``admitted``: when alarms were admitted within the last hour,
    oldest first.
    """

    group: str
    member: str | None
    in_service: bool
    strangers: tuple[str, ...]
    known: bool
    lost: frozenset[str]
    admitted: Sequence[float]
    limits: Limits
    now: float


@dataclass(frozen=True)
class Verdict:
    """``decision`` is ADMITTED, IGNORED (nothing to do), DUPLICATE (counted) or HELD (listed,
    an operator can admit it)."""

    decision: str
    sentence: str


def admit(alarm: Alarm, situation: Situation) -> Verdict:
    """Decide on an alarm."""
    for rule in RULES:
        verdict = rule(alarm, situation)
        if verdict is not None:
            return verdict
    return Verdict(
        "ADMITTED", f"{alarm.sentence}: {situation.member} of {situation.group} is declared lost"
    )


def _not_firing(alarm: Alarm, situation: Situation) -> Verdict | None:
    if alarm.firing:
        return None
    return Verdict("IGNORED", f"{alarm.sentence}: this is not a transition into alarm")


def _strangers(alarm: Alarm, situation: Situation) -> Verdict | None:
    """Not the active member's fault: to declare that one lost would take the application down."""
    if not situation.strangers:
        return None
    named = ", ".join(situation.strangers)
    return Verdict(
        "HELD", f"{alarm.sentence}: {named} is not known as a member of {situation.group}"
    )


def _not_in_service(alarm: Alarm, situation: Situation) -> Verdict | None:
    """What somebody took out of service no alarm brings up again."""
    if situation.in_service:
        return None
    return Verdict("IGNORED", f"{alarm.sentence}: {situation.group} is not in service")


def _heard_before(alarm: Alarm, situation: Situation) -> Verdict | None:
    if not situation.known:
        return None
    return Verdict("DUPLICATE", f"{alarm.sentence}: heard before")


def _known_fact(alarm: Alarm, situation: Situation) -> Verdict | None:
    if situation.member not in situation.lost:
        return None
    return Verdict("DUPLICATE", f"{alarm.sentence}: {situation.member} is declared lost already")


def _cooldown(alarm: Alarm, situation: Situation) -> Verdict | None:
    if not situation.admitted:
        return None
    since = situation.now - situation.admitted[-1]
    if since >= situation.limits.cooldown:
        return None
    return Verdict(
        "HELD",
        f"{alarm.sentence}: the last alarm was admitted {since:.0f} s ago, and the cooldown is "
        f"{situation.limits.cooldown:.0f} s",
    )


def _per_hour(alarm: Alarm, situation: Situation) -> Verdict | None:
    count = sum(1 for at in situation.admitted if at > situation.now - HOUR)
    if count < situation.limits.per_hour:
        return None
    return Verdict(
        "HELD",
        f"{alarm.sentence}: {count} alarms were admitted within an hour, and the limit is "
        f"{situation.limits.per_hour}",
    )


RULES: Sequence[Callable[[Alarm, Situation], Verdict | None]] = (
    _not_firing,
    _not_in_service,
    _strangers,
    _heard_before,
    _known_fact,
    _cooldown,
    _per_hour,
)
