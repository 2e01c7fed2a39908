# SPDX-License-Identifier: Apache-2.0
"""The view of one group: first what is wrong, since when, and which commands help."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mistral_failover.cli import status_screen
from mistral_failover.cli.base import clock, lasted, when
from mistral_failover.cli.connection import with_full_stop
from mistral_failover.cli.status_screen import Advice
from mistral_failover.convergence.records import TraversalStatus
from mistral_failover.model.observation import Service
from mistral_failover.model.text import counted
from mistral_failover.ui.levels import Level, of_decision, of_group, serves

if TYPE_CHECKING:  # the page starts without the code of the actions
    from mistral_failover.orders.held_alarms import HeldAlarmRow
    from mistral_failover.reports.documents import MemberOfGroup, ReportedIncident, StatusReport

_ABOVE = frozenset({"held", "alarms", "members"})
"""Answers of the status screen that the page shows elsewhere."""


@dataclass(frozen=True)
class Verdict:
    """The answer to "Stuck?": one ``sentence``, since when (empty: not known), and the commands
    that help, the most useful one first."""

    level: Level
    sentence: str
    since: str
    lasting: str
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
    """A group, in words. ``incidents``: the latest alarms and orders. ``traversal``: the id of the
    present one, empty if there is none."""

    name: str
    stack: str
    level: Level
    serves: str
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
    return GroupView(
        name=status["group"],
        stack=status["stack"],
        level=of_group(status, status["service"]["status"]),
        serves=serves(status, status["service"]["status"]),
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


def verdict(status: StatusReport) -> Verdict:
    """Return what is wrong with a group in one sentence, and what helps."""
    level, sentence, since = _wrong(status)
    return Verdict(
        level=level,
        sentence=with_full_stop(sentence),
        since=when(since) if since is not None else "",
        lasting=lasted(max(0.0, status["now"] - since)) if since is not None else "",
        commands=tuple(status_screen.advice(status)),
    )


def _wrong(status: StatusReport) -> tuple[Level, str, float | None]:
    """Return the level, the sentence and the time for the first thing that is wrong."""
    since, service = status["since"], status["service"]
    match status["status"]:
        case "BLOCKED":
            reason = status_screen.why(status)
            return Level.TROUBLE, f"Stuck: it waits for an operator. {reason}", since
        case "FAILED":
            return Level.TROUBLE, f"Stopped: {status_screen.why(status)}", since
        case "IN_PROGRESS":
            return _moving(status, since)
        case "DEFINED":
            return Level.NEUTRAL, "Not stuck: the group was never activated", None
    if not status_screen.in_service(status):
        return Level.NEUTRAL, "Not stuck: the group is out of service", since
    word, reasons = service["status"], "; ".join(service["reasons"])
    if word == Service.DOWN:
        return (
            Level.TROUBLE,
            f"Not serving: {reasons or 'its server does not run'}",
            service["since"],
        )
    if unstarted := status["unstarted"]:
        first = unstarted[0]
        why = first.get("refusal") or first["sentence"]
        return Level.TROUBLE, f"A failover has not started: {why}", first["at"]
    if status["held"]:
        said = f"{counted(status['held'], 'alarm')} held: decide whether to admit or dismiss"
        return Level.ATTENTION, f"Waiting for you: {said}", None
    if word == Service.UNKNOWN:
        return Level.ATTENTION, f"Not known whether it serves: {reasons}", service["since"]
    if word == Service.DEGRADED:
        return Level.ATTENTION, f"Serving, but degraded: {reasons}", service["since"]
    if paused := status_screen.suspended(status):
        return Level.ATTENTION, f"Serving, but alarms are held: {'; '.join(paused)}", None
    if status["lost"]:
        lost = ", ".join(status["lost"])
        return Level.ATTENTION, f"Serving; still declared lost: {lost}", None
    if status["in_force"]["differs"]:
        return Level.ATTENTION, f"Serving. {status_screen.NOT_IN_FORCE}", None
    return Level.GOOD, f"Not stuck: {status_screen.role_holders(status)}", service["since"]


def _moving(status: StatusReport, since: float | None) -> tuple[Level, str, float | None]:
    chain = status["chain"]
    if chain and chain["remedy"]:
        return Level.TROUBLE, f"Stuck: {chain['sentence']}", since
    if chain:
        return Level.WORKING, f"Not stuck: it {chain['sentence']}", since
    if status["reason"]:
        return Level.TROUBLE, f"Stuck: {status['reason']}", since
    if status["waiting"]:
        row = status["waiting"][0]
        said = f"Waiting for {row['waiting_for']} since {clock(row['since'])}: {row['what']}"
        return Level.ATTENTION, said, row["since"]
    return Level.WORKING, f"Not stuck: at work ({status_screen.cause(status)})", since


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
