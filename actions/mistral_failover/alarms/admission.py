# SPDX-License-Identifier: Apache-2.0
"""Decide whether an alarm may start a failover: pure rules, in order; the first that applies
decides.

Each decision has a sentence, which is recorded: a held alarm is not lost. The rules for alarms that
ask for nothing, or for nothing new, come first: such an alarm is never held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mistral_failover.alarms.alarm import Alarm
from mistral_failover.alarms.storm import Storm
from mistral_failover.model.decisions import AdmissionRule, Decision
from mistral_failover.model.group import Limits
from mistral_failover.model.text import format_time, plain

HOUR = 3600.0


@dataclass(frozen=True)
class Suspension:
    """An operator's suspension of a group's alarms. ``until`` None: until an operator ends it.
    ``members`` empty: all."""

    by: str
    because: str
    since: float
    until: float | None = None
    members: Sequence[str] = ()

    def covers(self, member: str | None, now: float) -> bool:
        """Return whether it applies now to an alarm about this member (None: unknown which)."""
        ended = self.until is not None and now >= self.until
        return not ended and (not self.members or member is None or member in self.members)


@dataclass(frozen=True)
class AdmissionContext:
    """What is known when an alarm arrives; times in seconds by the database's clock.

    ``restored``: what the store has of the group is older than what happened in the cloud.
    ``member``: the one that the alarm is about; None if the alarm does not say and several members
    hold roles. ``in_service``: whether the group's goal assigns any role; a group that was removed
    or never activated is not in service. ``strangers``: servers (or hosts) that the alarm names and
    that are unknown. ``known``: whether this incident is a repeat with a final decision (a HELD one
    is judged again). ``lost``: the members that the current goal declares lost, ``replacing``:
    those whose server it replaces. ``old_news``: whether the member was declared lost after the
    event, and recovered. ``admitted``: when alarms were admitted within the last hour, oldest
    first. ``storm`` is called last, because it takes a lock.
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
    restored: bool = False
    pause: Suspension | None = None
    maintenance: Suspension | None = None
    replacing: frozenset[str] = frozenset()
    old_news: Callable[[], bool] = field(default=lambda: False)
    storm: Callable[[], Storm | None] = field(default=lambda: None)


@dataclass(frozen=True)
class Verdict:
    """``decision`` is ADMITTED, IGNORED (nothing to do), DUPLICATE (counted) or HELD (listed, an
    operator can admit it); ``rule`` names the rule that decided."""

    decision: Decision
    sentence: str
    rule: AdmissionRule = AdmissionRule.NONE


def admit(alarm: Alarm, situation: AdmissionContext) -> Verdict:
    """Decide on an alarm."""
    for name, rule in RULES.items():
        found = rule(alarm, situation)
        if found is not None:
            decision, why = found
            return Verdict(decision, f"{alarm.sentence}: {why}", name)
    lost = " and ".join((situation.member or "", *alarm.also))
    are = "are" if alarm.also else "is"
    sentence = f"{alarm.sentence}: {lost} of {situation.group} {are} declared lost"
    return Verdict(Decision.ADMITTED, sentence)


def without_group(alarm: Alarm, group: str | None) -> Verdict:
    """Decide on an alarm that belongs to no known group of the project.

    It may be about a group that is defined later, or about a server that a group got recently: so
    it is held, not dropped.
    """
    if not alarm.firing:
        return Verdict(
            Decision.IGNORED, f"{alarm.sentence}: {_NOTHING_NEW}", AdmissionRule.NOT_FIRING
        )
    named = plain(", ".join((*alarm.servers, *alarm.others)))
    if group is not None:
        why = f"this project has no group {plain(group)}"
    elif named:
        why = f"no group of this project is known to have {named}"
    else:
        why = "it names neither a group nor a server"
    return Verdict(Decision.HELD, f"{alarm.sentence}: {why}", AdmissionRule.UNKNOWN)


def of_host_event(alarm: Alarm, groups: int, unsure: str) -> Verdict:
    """Decide on the failure of a host or a zone, on which so many groups of the project have
    members. ``unsure``: why some members may be missing, or empty. Each group's loss is judged as
    an alarm of its own."""
    where = plain(f"on {alarm.host}" if alarm.host else f"in zone {alarm.zone}")
    unsure = f"; {unsure}" if unsure else ""
    if not groups:
        why = f"no group of this project is known to have a member {where}{unsure}"
        return Verdict(Decision.HELD, f"{alarm.sentence}: {why}", AdmissionRule.NOWHERE)
    have = "1 group has" if groups == 1 else f"{groups} groups have"
    sentence = f"{alarm.sentence}: {have} members {where}{unsure}"
    return Verdict(Decision.ADMITTED, sentence, AdmissionRule.HOST)


Found = tuple[Decision, str] | None
_NOTHING_NEW = "it reports no new failure, nothing to do"


def _not_firing(alarm: Alarm, situation: AdmissionContext) -> Found:
    return None if alarm.firing else (Decision.IGNORED, _NOTHING_NEW)


def _restored(alarm: Alarm, situation: AdmissionContext) -> Found:
    """Who serves is not known, so nothing may be taken from any member."""
    if not situation.restored:
        return None
    return Decision.HELD, (
        f"what the state store has of {situation.group} is older than what happened since"
    )


def _not_in_service(alarm: Alarm, situation: AdmissionContext) -> Found:
    """An alarm does not activate a group that an operator took out of service."""
    if situation.in_service or situation.restored:
        return None
    return Decision.IGNORED, f"{situation.group} is not in service"


def _strangers(alarm: Alarm, situation: AdmissionContext) -> Found:
    """A failure of an unknown server is not a failure of the active member: declaring that one lost
    would take down the application."""
    if not situation.strangers:
        return None
    named = plain(", ".join(situation.strangers))
    return Decision.HELD, f"{named} is not a known member of {situation.group}"


def _unnamed(alarm: Alarm, situation: AdmissionContext) -> Found:
    """Declaring all members lost would take down healthy ones."""
    if situation.member is not None:
        return None
    several = f"several members of {situation.group} hold roles"
    return Decision.HELD, f"it does not say which member is lost, but {several}"


def _heard_before(alarm: Alarm, situation: AdmissionContext) -> Found:
    return (Decision.DUPLICATE, "a repeat of a known incident") if situation.known else None


def _known_fact(alarm: Alarm, situation: AdmissionContext) -> Found:
    if situation.member in situation.lost:
        return Decision.DUPLICATE, f"{situation.member} is already declared lost"
    if situation.member in situation.replacing:
        return Decision.DUPLICATE, f"the server of {situation.member} is being replaced"
    return None


def _paused(alarm: Alarm, situation: AdmissionContext) -> Found:
    pause = situation.pause
    if pause is None or not pause.covers(situation.member, situation.now):
        return None
    since = f"{situation.group} has been paused since {format_time(pause.since)} by {pause.by}"
    return Decision.HELD, f"{since}: {pause.because}"


def _maintenance(alarm: Alarm, situation: AdmissionContext) -> Found:
    work = situation.maintenance
    members = (situation.member, *alarm.also)
    if work is None or work.until is None:
        return None
    if not any(work.covers(member, situation.now) for member in members):
        return None
    of = f"{', '.join(work.members)} of {situation.group}" if work.members else situation.group
    until = f"maintenance of {of} until {format_time(work.until)} by {work.by}"
    return Decision.HELD, f"{until}: {work.because}"


def _over(alarm: Alarm, situation: AdmissionContext) -> Found:
    """It arrives after the report that it has ended. That does not prove that the member is well: a
    source may have lost sight of it."""
    if not alarm.over:
        return None
    return Decision.HELD, "its source has already reported that it is over"


def _old_news(alarm: Alarm, situation: AdmissionContext) -> Found:
    """For example what our own fence did to a server, or a late repeat."""
    if alarm.at is None or alarm.level or not situation.old_news():
        return None
    return Decision.HELD, (
        f"it happened at {format_time(alarm.at)}, but {situation.member} has been declared lost "
        "and recovered since then"
    )


def _still_firing(alarm: Alarm, situation: AdmissionContext) -> Found:
    """It never stopped firing, so it cannot tell an old failure from a new one. Evidence can."""
    if alarm.at is None or not alarm.level or not situation.old_news():
        return None
    return Decision.HELD, (
        f"it has fired since {format_time(alarm.at)}, but {situation.member} has been declared "
        "lost and recovered since then: it starts when the server is seen to have died"
    )


def _doubted(alarm: Alarm, situation: AdmissionContext) -> Found:
    """It is a sign and no proof. Evidence, or an operator, decides."""
    return (Decision.HELD, alarm.doubt) if alarm.doubt else None


def _cooldown(alarm: Alarm, situation: AdmissionContext) -> Found:
    if not situation.admitted:
        return None
    since = situation.now - situation.admitted[-1]
    if since >= situation.limits.cooldown:
        return None
    return Decision.HELD, (
        f"the last alarm was admitted {since:.0f} s ago, within the cooldown of "
        f"{situation.limits.cooldown:.0f} s"
    )


def _per_hour(alarm: Alarm, situation: AdmissionContext) -> Found:
    count = sum(1 for at in situation.admitted if at > situation.now - HOUR)
    if count < situation.limits.per_hour:
        return None
    return Decision.HELD, (
        f"{count} alarms were admitted within an hour, which is the limit "
        f"({situation.limits.per_hour})"
    )


def _storm(alarm: Alarm, situation: AdmissionContext) -> Found:
    storm = situation.storm()
    if storm is None or not storm.rages:
        return None
    return Decision.HELD, (
        f"{storm.failing} of {storm.groups} groups of the project failed within "
        f"{storm.window:.0f} s: the control plane may be failing"
    )


RULES: Mapping[AdmissionRule, Callable[[Alarm, AdmissionContext], Found]] = {
    AdmissionRule.NOT_FIRING: _not_firing,
    AdmissionRule.NOT_IN_SERVICE: _not_in_service,
    AdmissionRule.STRANGER: _strangers,
    AdmissionRule.UNNAMED: _unnamed,
    AdmissionRule.HEARD_BEFORE: _heard_before,
    AdmissionRule.KNOWN_FACT: _known_fact,
    AdmissionRule.RESTORED: _restored,
    AdmissionRule.PAUSED: _paused,
    AdmissionRule.MAINTENANCE: _maintenance,
    AdmissionRule.OVER: _over,
    AdmissionRule.OLD_NEWS: _old_news,
    AdmissionRule.STILL_FIRING: _still_firing,
    AdmissionRule.DOUBTED: _doubted,
    AdmissionRule.COOLDOWN: _cooldown,
    AdmissionRule.PER_HOUR: _per_hour,
    AdmissionRule.STORM: _storm,
}
"""The rules; their names are recorded with the decisions."""

COUNTED = (AdmissionRule.COOLDOWN, AdmissionRule.PER_HOUR, AdmissionRule.STORM)
"""Rules whose held alarms count towards a storm, as admitted ones do, because their group is
failing now. Alarms held by a pause or a maintenance were expected."""
