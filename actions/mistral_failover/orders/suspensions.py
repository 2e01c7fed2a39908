# SPDX-License-Identifier: Apache-2.0
"""Pauses and maintenances: they hold a group's alarms for a while. Operators' orders continue to
work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

from mistral_failover.convergence.records import JournalKind
from mistral_failover.groups.snapshot import locked
from mistral_failover.model.text import format_time, parse_time, plain
from mistral_failover.model.validation import did_you_mean
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, suspensions
from mistral_failover.store.suspensions import KINDS, Kind, Maintenance, Pause
from mistral_failover.store.transaction import ProjectTransaction

LONGEST = 28 * 86400.0
"""Seconds that a maintenance may last at most: a forgotten one must end by itself."""


def pause(request: Request, group: str, because: str) -> Suspended:
    """Hold every alarm of a group until an operator resumes it. Raises UnknownGroup."""

    def suspend(tx: ProjectTransaction) -> Suspended:
        state = locked(request, tx, group)
        said: Pause = {"by": request.caller, "because": plain(because), "since": tx.now()}
        return _suspended(tx, state.id, group, "pause", said, f"paused by {said['by']}")

    return request.store.atomically(suspend)


def maintain(
    request: Request,
    group: str,
    because: str,
    *,
    until: str | None,
    minutes: float | None,
    members: tuple[str, ...],
) -> Suspended:
    """Hold a group's alarms until a time; only those about ``members`` if any are named. An earlier
    maintenance is replaced.

    Give either ``until``, a time in ISO 8601, or ``minutes`` from now. Raises UnknownGroup,
    ActionError BAD_INPUT, UNKNOWN_MEMBER.
    """
    if (until is None) == (minutes is None):
        raise _bad("until: give either until or minutes")
    end = parse_time(until)
    if until is not None and end is None:
        raise _bad(f"until: {plain(until)} is not a time in ISO 8601")

    def suspend(tx: ProjectTransaction) -> Suspended:
        state = locked(request, tx, group)
        _check_members(group, members, groups.members_of(tx, state.id))
        now = tx.now()
        over = end if end is not None else now + (minutes or 0.0) * 60
        if not now < over <= now + LONGEST:
            days = f"{LONGEST / 86400:.0f} days"
            raise _bad(f"until: {format_time(over)} is not within the next {days}")
        said: Maintenance = {
            "by": request.caller,
            "because": plain(because),
            "since": now,
            "until": over,
            "members": list(members),
        }
        of = f" of {', '.join(members)}" if members else ""
        sentence = f"maintenance{of} until {format_time(over)} by {said['by']}"
        return _suspended(tx, state.id, group, "maintenance", said, sentence)

    return request.store.atomically(suspend)


def resume(
    request: Request,
    group: str,
    because: str,
    *,
    only: str | None = None,
    members: tuple[str, ...] = (),
) -> Suspended:
    """End the pause and the maintenance of a group, if it has any. This starts nothing.

    ``only``: pause or maintenance, to end just that. ``members``: only these leave the maintenance;
    the others stay in it until its end. Raises UnknownGroup, ActionError BAD_INPUT,
    UNKNOWN_MEMBER.
    """
    if only not in (None, *KINDS):
        raise ActionError(
            "BAD_INPUT",
            f"only: {plain(str(only))} is not a suspension that can be ended",
            f"Give {' or '.join(KINDS)}, or leave it out.",
        )
    if members and only == "pause":
        raise ActionError(
            "BAD_INPUT", "members: a pause holds for the whole group", "Leave members out."
        )

    def end(tx: ProjectTransaction) -> Suspended:
        state = locked(request, tx, group)
        known = groups.members_of(tx, state.id)
        _check_members(group, members, known)
        found = suspensions.of_group(tx, state.id)
        work = found.get("maintenance")
        sentence = f"there was nothing to resume: {plain(because)}"
        if not members:
            ended = [kind for kind in KINDS if kind in found and only in (None, kind)]
            suspensions.resume(tx, state.id, ended)
            how = "resumed" if only is None else f"{only} ended"
        else:
            inside = set(work["members"] or known) if work else set()
            leaving = sorted(inside & set(members))
            ended = ["maintenance"] if leaving else []
            how = f"maintenance of {', '.join(leaving)} ended"
            if work and inside - set(members):
                staying: Maintenance = {**work, "members": sorted(inside - set(members))}
                suspensions.suspend(tx, state.id, "maintenance", staying)
            elif work:
                suspensions.resume(tx, state.id, ["maintenance"])
        if ended:
            sentence = f"{how} by {request.caller}: {plain(because)}"
            tx.journal(state.id, sentence, kind=JournalKind.RESUMED)
        return {"group": group, "sentence": sentence, **current_suspensions(tx, state.id)}

    return request.store.atomically(end)


class CurrentSuspensions(TypedDict):
    """What holds the alarms of a group now."""

    pause: Pause | None
    maintenance: Maintenance | None


class Suspended(CurrentSuspensions):
    """The answer to an order about a group's suspensions."""

    group: str
    sentence: str


def current_suspensions(tx: ProjectTransaction, group_id: str) -> CurrentSuspensions:
    """Return what holds the alarms of a group now."""
    found = suspensions.of_group(tx, group_id)
    return {
        "pause": found.get("pause"),
        "maintenance": unless_ended(found.get("maintenance"), tx.now()),
    }


def unless_ended(work: Maintenance | None, now: float) -> Maintenance | None:
    """Return a maintenance, or None if it has ended (or there is none)."""
    return None if work is None or now >= work["until"] else work


def _suspended(
    tx: ProjectTransaction,
    group_id: str,
    group: str,
    kind: Kind,
    said: Pause | Maintenance,
    how: str,
) -> Suspended:
    suspensions.suspend(tx, group_id, kind, said)
    sentence = f"{how}: {said['because']}"
    tx.journal(group_id, sentence, kind=JournalKind(kind))
    return {"group": group, "sentence": sentence, **current_suspensions(tx, group_id)}


def _check_members(group: str, named: tuple[str, ...], known: Iterable[str]) -> None:
    for name in named:
        if name not in known:
            raise ActionError(
                "UNKNOWN_MEMBER",
                f"members: {plain(name)} is not a member of {group}",
                did_you_mean(name, known)
                if known
                else "Its members are not known yet: no failover or plan of the group has looked "
                "at them.",
            )


def _bad(message: str) -> ActionError:
    return ActionError(
        "BAD_INPUT", message, "Give, for example, minutes: 90, or until with a time zone."
    )
