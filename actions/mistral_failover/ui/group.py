# SPDX-License-Identifier: Apache-2.0
"""The view of one group: first what is wrong, since when, and which commands help."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mistral_failover.cli import status_screen, stopped
from mistral_failover.cli.base import lasted, moment, when
from mistral_failover.cli.connection import with_full_stop
from mistral_failover.cli.status_screen import place
from mistral_failover.cli.stopped import Finding, in_short, named
from mistral_failover.convergence.records import TraversalStatus
from mistral_failover.model.observation import Condition, Service
from mistral_failover.model.remedies import Advice
from mistral_failover.model.text import counted
from mistral_failover.reports.advice import advice, in_service
from mistral_failover.ui.levels import Level, of_decision, of_service, serves

if TYPE_CHECKING:  # the page starts without the code of the actions
    from mistral_failover.orders.held_alarms import HeldAlarmRow
    from mistral_failover.reports.documents import MemberOfGroup, ReportedIncident, StatusReport

_ABOVE = frozenset({"service", "active", "rehearsed", "volumes", "members", "held"})
"""Answers of the status screen that the page shows elsewhere."""
_FOUND = {
    Service.DOWN: "Nothing serves",
    Service.UNKNOWN: "Not known",
    Service.DEGRADED: "Needs attention",
}


@dataclass(frozen=True)
class Verdict:
    """Why a group is as it is: one ``sentence`` of at most `cli.stopped.MOST` words, since when
    (empty: not known), when it is tried ``again`` by itself (empty: it is not), the ``heading`` of
    the findings, and the commands that help, the most useful one first."""

    level: Level
    sentence: str
    since: str
    lasting: str
    again: str
    heading: str
    findings: tuple[Finding, ...]
    commands: tuple[Advice, ...]


@dataclass(frozen=True)
class MemberRow:
    """A member, in words."""

    name: str
    server: str
    roles: str
    epoch: int
    lost: bool


@dataclass(frozen=True)
class AlarmToDecide:
    """An alarm that waits for a decision, with the commands for both. ``guard``: why the storm
    guard still holds it, may be empty."""

    incident: str
    sentence: str
    heard: str
    admit: str
    dismiss: str
    lost: tuple[str, ...]
    guard: str


@dataclass(frozen=True)
class RecentIncident:
    """An alarm or an order about a group, and what was decided."""

    incident: str
    at: str
    decision: str
    level: Level
    sentence: str


@dataclass(frozen=True)
class GroupView:
    """A group, in words. ``serves``: the word of its state, which has this ``level``; ``meaning``:
    what that means, and ``since`` when it is so, for ``lasting`` (empty: not known).
    ``rehearsed``: when and how its failover was rehearsed last, empty if that does not matter now.
    ``incidents``: the latest alarms and orders. ``traversal``: the id of the present one, empty if
    there is none."""

    name: str
    level: Level
    serves: str
    meaning: str
    since: str
    lasting: str
    rehearsed: str
    verdict: Verdict
    facts: tuple[tuple[str, tuple[str, ...]], ...]
    members: tuple[MemberRow, ...]
    holders: tuple[str, ...]
    held: tuple[AlarmToDecide, ...]
    incidents: tuple[RecentIncident, ...]
    paused: bool
    maintained: bool
    lost: tuple[str, ...]
    blocked: tuple[str, ...]
    traversal: str
    goal: str


def group_view(status: StatusReport, held: Iterable[HeldAlarmRow] = ()) -> GroupView:
    """Return the view of a group; ``held``: its held alarms."""
    facts = status_screen.facts(status)
    traversal = status["traversal"]
    meaning = status_screen.meaning(status)
    since, lasting = _since(status["service"]["since"], status["now"])
    return GroupView(
        name=status["group"],
        level=of_service(status["service"]["status"]),
        serves=serves(status, status["service"]["status"]),
        meaning=meaning[:1].upper() + meaning[1:],
        since=since,
        lasting=lasting,
        rehearsed=_rehearsed(status),
        verdict=verdict(status),
        facts=tuple(
            (name, tuple(text.splitlines())) for name, text in facts.items() if name not in _ABOVE
        ),
        members=tuple(_member(status, row) for row in status["members"]),
        holders=tuple(dict.fromkeys(status["roles"].values())),
        held=tuple(held_alarm(row) for row in held),
        incidents=tuple(_recent_incident(row) for row in status["incidents"]),
        paused=bool(status["pause"]),
        maintained=bool(status["maintenance"]),
        lost=tuple(status["lost"]),
        blocked=tuple(sorted({row["member"] for row in status["remedies"]})),
        traversal=traversal["id"] if traversal else "",
        goal=status["goal"] or "",
    )


def _rehearsed(status: StatusReport) -> str:
    """Return when and how the failover of a group was rehearsed, while it serves: empty if that was
    on a member that holds a role now, because then no other one was tried."""
    serves = status["service"]["status"] in (Service.SERVING, Service.DEGRADED)
    holders = set(status["roles"].values())
    tried = not status["rehearsal"]["on"] or set(status["rehearsal"]["on"]) - holders
    return status_screen.rehearsed(status) if serves and tried else ""


def verdict(status: StatusReport) -> Verdict:
    """Return why a group is as it is, and what helps."""
    why = _why(status)
    since, lasting = _since(why.since, status["now"])
    failure = status["failure"]
    return Verdict(
        level=why.level,
        sentence=with_full_stop(in_short(why.sentence)),
        since=since,
        lasting=lasting,
        again=status_screen.next_try(failure["again_at"], status["now"]) if failure else "",
        heading=why.heading,
        findings=why.findings,
        commands=tuple(advice(status)),
    )


_TRIED = "What was tried"


@dataclass(frozen=True)
class _Why:
    level: Level
    sentence: str
    since: float | None = None
    findings: tuple[Finding, ...] = ()
    heading: str = "What was seen"


def _since(at: float | None, now: float) -> tuple[str, str]:
    return ("", "") if at is None else (moment(at, now), lasted(max(0.0, now - at)))


def _why(status: StatusReport) -> _Why:
    """Return the first thing that is wrong."""
    since = status["since"]
    match status["status"]:
        case "BLOCKED":
            return _Why(Level.TROUBLE, _needed(status), since, stopped.findings(status), _TRIED)
        case "FAILED":
            failure = status["failure"]
            said = f"Failed: {failure['what']}" if failure else "What was asked for last failed"
            return _Why(Level.TROUBLE, said, since, stopped.findings(status), _TRIED)
        case "IN_PROGRESS":
            return _moving(status, since)
        case "DEFINED":
            return _Why(Level.NEUTRAL, "The group was never activated")
    if not in_service(status):
        return _Why(Level.NEUTRAL, "No member is to hold a role", since)
    return _at_rest(status)


def _at_rest(status: StatusReport) -> _Why:
    """Return the first thing that is wrong with a group that reached its goal."""
    service, now = status["service"], status["now"]
    if service["status"] == Service.DOWN:
        gone = f"The server of {named(service['gone'])} does not run" if service["gone"] else ""
        return _seen(status, Level.TROUBLE, gone)
    if unstarted := status["unstarted"]:
        said = "An alarm was admitted, but its failover has not started"
        rows = (
            Finding("alarm", text, moment(each["at"], now))
            for each in unstarted
            for text in (each["sentence"], each["refusal"])
            if text
        )
        return _Why(Level.TROUBLE, said, unstarted[0]["at"], tuple(rows))
    if status["held"]:
        waits = "alarm waits" if status["held"] == 1 else "alarms wait"
        said = f"{status['held']} {waits} for you: admit or dismiss"
        return _Why(Level.ATTENTION, said, None, _reasons(status))
    if service["status"] == Service.UNKNOWN:
        away = [
            row["name"]
            for row in status["members"]
            if row["condition"] == Condition.UNREACHABLE and row["name"] in status["roles"].values()
        ]
        said = f"Not known: the host of {named(away)} is down" if away else ""
        return _seen(status, Level.ATTENTION, said)
    if service["status"] == Service.DEGRADED:
        return _seen(status, Level.ATTENTION, "")
    if paused := status_screen.suspended(status):
        what = "in maintenance" if not status["pause"] else "paused"
        rows = (Finding("", each) for each in paused)
        return _Why(Level.ATTENTION, f"It is {what}: alarms are held", None, tuple(rows))
    if status["lost"]:
        verb = "is" if len(status["lost"]) == 1 else "are"
        said = f"{named(status['lost'])} {verb} still declared lost"
        return _Why(Level.ATTENTION, said)
    if status["in_force"]["differs"]:
        rows = (Finding("", line) for line in status["in_force"]["lines"])
        said = "The latest definition of the group is not in force"
        return _Why(Level.ATTENTION, said, None, tuple(rows))
    alone = service["cold"] and not service["standbys"]
    cold = "; cold, without a standby" if alone else ""
    return _Why(Level.GOOD, f"All is well: {status_screen.role_holders(status)}{cold}")


def _seen(status: StatusReport, level: Level, said: str) -> _Why:
    """Return why a group does not serve as it should, by what was seen; ``said``: the sentence, if
    it is known without that."""
    rows, service = _reasons(status), Service(status["service"]["status"])
    first = rows[0].found if rows else status_screen.meaning(status)
    alone = service == Service.DEGRADED and status_screen.alone(status)
    sentence = said or f"{'Not protected' if alone else _FOUND[service]}: {first}"
    told = not said and len(rows) < 2 and in_short(sentence) == sentence
    return _Why(level, sentence, None, () if told else rows)


def _reasons(status: StatusReport) -> tuple[Finding, ...]:
    service = status["service"]
    at, _ = _since(service["seen_at"], status["now"])
    return tuple(Finding("", each, at) for each in service["reasons"])


def _needed(status: StatusReport) -> str:
    """Return what a blocked group needs of an operator."""
    if open_fences := stopped.unproven(status):
        return f"Waiting for you: {open_fences}"
    failure = status["failure"]
    return f"Waiting for you: {failure['what']}" if failure else "Waiting for you"


def _moving(status: StatusReport, since: float | None) -> _Why:
    chain, now = status["chain"], status["now"]
    if chain:
        rows = (Finding(f"chain {chain['workflow']}", chain["sentence"]),)
        if chain["remedy"]:
            return _Why(Level.TROUBLE, "Waiting for you: its chain ended too early", since, rows)
        said = f"Waiting for its chain to open the stage {chain['stage']}"
        return _Why(Level.WORKING, said, since, rows)
    if status["reason"]:
        return _Why(
            Level.TROUBLE, "Waiting for new credentials", since, (Finding("", status["reason"]),)
        )
    if status["waiting"]:
        waits = tuple(
            Finding(
                row["what"],
                f"{row['waiting_for']}, {counted(row['tries'], 'attempt')}",
                moment(row["since"], now),
            )
            for row in status["waiting"]
        )
        first = status["waiting"][0]
        return _Why(Level.ATTENTION, f"Waiting for {first['waiting_for']}", first["since"], waits)
    traversal = status["traversal"]
    at = place(traversal["nodes"]) if traversal else ""
    doing = next((row["sentence"] for row in status["under_way"]), status_screen.cause(status))
    return _Why(Level.WORKING, f"At work, {at}: {doing}", since)


def _member(status: StatusReport, row: MemberOfGroup) -> MemberRow:
    name = row["name"]
    roles = ", ".join(role for role, member in status["roles"].items() if member == name)
    return MemberRow(
        name=name,
        server=row["server"] or "not known",
        roles=roles
        if status["status"] == TraversalStatus.COMPLETE or not roles
        else f"to be {roles}",
        epoch=row["epoch"],
        lost=name in status["lost"],
    )


def _recent_incident(row: ReportedIncident) -> RecentIncident:
    decision = row["decision"]
    return RecentIncident(
        row["id"], when(row["at"]), decision, of_decision(decision), row["sentence"]
    )


def held_alarm(row: HeldAlarmRow) -> AlarmToDecide:
    """Return the view of a row of failover.held."""
    children = row["children"]
    verb = "waits" if children == 1 else "wait"
    waiting = f": {counted(children, 'group')} {verb}" if children else ""
    return AlarmToDecide(
        incident=row["incident"],
        sentence=f"{row['sentence']}{waiting}",
        heard=f"heard {counted(row['heard'], 'time')}, last {when(row['last_at'])}",
        admit=row["admit"],
        dismiss=row["dismiss"],
        lost=tuple(row["lost"] or ()),
        guard=row["evidence"] or "",
    )
