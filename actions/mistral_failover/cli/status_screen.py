# SPDX-License-Identifier: Apache-2.0
"""The status of a group for an operator: does it serve, what is it waiting for, what to type next;
then the details.

This module sends no requests.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from mistral_failover.cli import stopped
from mistral_failover.cli.base import clock, lasted, moment, when
from mistral_failover.convergence.records import Action, OperationStatus, Status, TraversalStatus
from mistral_failover.model.observation import Presence, Service
from mistral_failover.model.remedies import Advice
from mistral_failover.model.text import counted
from mistral_failover.reports.advice import advice, in_service

if TYPE_CHECKING:  # a command starts without the code of the actions
    from mistral_failover.orders.held_alarms import HeldAlarmRow
    from mistral_failover.orders.suspensions import CurrentSuspensions
    from mistral_failover.reports.documents import (
        GroupOverview,
        GroupReport,
        ReadyStep,
        RehearsedMember,
        ResourceOfGroup,
        StatusReport,
    )

Facts = dict[str, str]
LONGEST = 3600
"""Seconds; a longer limit of a step is not shown. A fence may take a day, since each of its rungs
has a limit."""
_ATTACHMENT = "volume_attachment"
_SHOWN = 12  # digits of a goal's version
_MANY = 10  # rows of one answer
_YOUNG = 5.0  # seconds: what a younger look found is as good as new
_NARROWEST = 20  # characters: a narrower terminal is not wrapped for
STOPPED = frozenset({TraversalStatus.BLOCKED, TraversalStatus.FAILED})
"""The states in which a traversal waits for a person."""
_IN_SUMMARY = frozenset({"service", "waiting for"})
NOT_IN_FORCE = "The latest definition is not in force: a failover moves what was reached before it."


def suspended(row: CurrentSuspensions) -> list[str]:
    """Return the reasons for which a group's alarms are held, one sentence each."""
    found = []
    if pause := row["pause"]:
        found.append(f"paused since {when(pause['since'])} by {pause['by']}: {pause['because']}")
    if work := row["maintenance"]:
        of = f" of {', '.join(work['members'])}" if work["members"] else ""
        found.append(
            f"maintenance{of} until {when(work['until'])} by {work['by']}: {work['because']}"
        )
    return found


def screen(status: StatusReport, held: Iterable[HeldAlarmRow], width: int) -> str:
    """Return the whole screen. Text is wrapped at ``width`` characters; commands stay whole, since
    they are copied."""
    found = {k: v for k, v in facts(status, held).items() if k not in _IN_SUMMARY}
    return "".join(f"{line}\n" for line in (*summary(status, width), "")) + aligned(found, width)


def summary(status: StatusReport, width: int) -> list[str]:
    """Return the lines that matter at night: the headline, why, what it waits for, what to type."""
    lines = _wrapped(headline(status), width)
    for reason in status["service"]["reasons"]:
        lines += _wrapped(f"- {reason}", width, indent="  ")
    lines += (
        [f"  (seen {age} ago; to look again: {_sweep(status)})"] if (age := _age(status)) else []
    )
    if state := _engine(status):
        lines += _wrapped(state, width)
        for tried in stopped.beneath(status) if status["status"] in STOPPED else ():
            lines += _wrapped(f"- {tried}", width, indent="  ")
    if status["in_force"]["differs"]:
        lines += _wrapped(NOT_IN_FORCE, width)
    waits = list(awaited(status))
    if len(waits) == 1:
        lines += _wrapped(f"Waiting for: {waits[0]}", width)
    elif waits:
        lines.append("Waiting for:")
        lines += [line for each in waits for line in _wrapped(f"- {each}", width, indent="  ")]
    if found := advice(status):
        lines.append("Next:")
    for number, each in enumerate(found, 1):
        lines += _numbered(f"{number}.", each, width)
    return lines


def _age(status: StatusReport) -> str:
    """Return how old the look is that found the reasons, if what it found may be over; else
    empty."""
    service = status["service"]
    if not service["reasons"] or service["seen_at"] is None:
        return ""
    age = status["now"] - service["seen_at"]
    return lasted(age) if age >= _YOUNG else ""


def _sweep(status: StatusReport) -> str:
    return f"failover sweep {shlex.quote(status['group'])}"


def headline(status: StatusReport) -> str:
    """Return in one line whether the group serves, where, and since when."""
    found, group, now = status["service"], status["group"], status["now"]
    begun = found["since"]
    since = f" since {moment(begun, now)} ({lasted(now - begun)})" if begun is not None else ""
    word = str(found["status"]).replace("_", " ")
    if found["status"] == Service.SERVING:
        return f"{group} is {word}{_served_on(status)}{since}"
    said = meaning(status)
    return f"{group} is {word}{f': {said}' if said else ''}{since}"


def meaning(status: StatusReport) -> str:
    """Return what the state of a group means, in a clause; empty if it is not to serve."""
    on = _served_on(status)
    match status["service"]["status"]:
        case Service.DOWN:
            return "nothing serves"
        case Service.DEGRADED:
            return (
                f"it serves{on}, but {'is not protected' if alone(status) else 'needs attention'}"
            )
        case Service.UNKNOWN:
            return "cannot determine whether it serves"
        case Service.SERVING:
            return f"it serves{on}"
    return ""


def _served_on(status: StatusReport) -> str:
    """Return on which members the group serves; empty if it does not."""
    holders = ", ".join(sorted(set(status["serves_on"].values())))
    return f" on {holders}" if holders else ""


def awaited(status: StatusReport) -> Iterable[str]:
    """Return what the group waits for: failovers that have not started, steps in progress,
    services, locks, a person."""
    yield from awaited_starts(status)
    yield from _awaited(status)
    if status["status"] == TraversalStatus.BLOCKED:
        for member in sorted({row["member"] for row in status["remedies"]}):
            yield f"the proof that {member} is off"
    failure = status["failure"]
    if failure and failure["resource"] not in {row["resource"] for row in status["remedies"]}:
        yield (
            f"the cause of this to be repaired, since {clock(failure['since'])}: {failure['what']} "
            f"({next_try(failure['again_at'], status['now'])}; at once: "
            f"{_sweep(status)})"
        )


def next_try(at: float, now: float) -> str:
    """Return when a sweep tries a stopped step again, which is not before ``at``."""
    return f"next try after {clock(at)}" if at > now else "next try with the next sweep"


def awaited_starts(status: StatusReport) -> Iterable[str]:
    """Return which failovers of admitted alarms have not started."""
    for row in status["unstarted"]:
        refusal = row["refusal"]
        why = f"; the last attempt failed: {refusal}" if refusal else ""
        yield f"the start of a failover, since {clock(row['at'])}: {row['sentence']}{why}"


def _awaited(status: GroupReport) -> Iterable[str]:
    """Return what the group waits for, except for a person."""
    if status["status"] in (TraversalStatus.IN_PROGRESS, TraversalStatus.BLOCKED):
        yield from _under_way(status)
    yield from _waiting(status)
    yield from _locked(status)
    for row in status["ready"]:
        yield f"{its_turn(row)}, for {ready_step(row)}"


def _locked(status: GroupReport) -> Iterable[str]:
    """Return what is waited for because it is locked, as by an operation of an earlier goal; such
    an operation is in the list already."""
    busy = {row["resource"] for row in status["under_way"]}
    for name in dict.fromkeys(row["resource"] for row in status["deferred"]):
        if name not in busy:
            yield f"the worker that has locked {name}"


def ready_step(row: ReadyStep) -> str:
    """Return which step it is that may start, and has not."""
    return f"{row['resource']} on {row['member']}" if row["member"] else str(row["resource"])


def its_turn(row: ReadyStep) -> str:
    """Return what a step that may start, and has not, waits for."""
    if not row["services"]:
        return "a free worker"
    return f"a free worker, or room in the budget of {' and '.join(row['services'])}"


def awaited_in_overview(row: GroupOverview) -> list[str]:
    """Return as :func:`awaited` what a group waits for, from its row in the answer about all
    groups."""
    return list(_awaited(row))


def step(status: StatusReport) -> str:
    """Return the step that a traversal has reached, and its oldest operation; empty at rest."""
    traversal = status["traversal"]
    if traversal is None or traversal["ended_at"] is not None:
        return ""
    words = place(traversal["nodes"])
    doing = next(iter(_under_way(status)), None)
    return f"{words}: {doing}" if doing else words


def place(nodes: Mapping[str, int]) -> str:
    """Return how far a traversal is; ``nodes``: how many it has, by status."""
    done, all_of_them = _progress(nodes)
    return f"step {min(done + 1, all_of_them)} of {all_of_them}"


def aligned(facts: Mapping[str, str], width: int) -> str:
    """Format facts as lines, each answer beside its name."""
    wide = max(map(len, facts), default=0) + 2
    lines = []
    for name, answer in facts.items():
        first = name
        for line in answer.splitlines() or [""]:
            whole = line.lstrip().startswith("failover ")  # a command, which is copied
            for part in [line] if whole else _wrapped(line, width - wide):
                lines.append(f"{first:{wide}}{part}".rstrip())
                first = ""
    return "".join(f"{line}\n" for line in lines)


def facts(status: StatusReport, held: Iterable[HeldAlarmRow] = ()) -> Facts:
    """Return everything but the commands by name; what has no answer is left out."""
    seen = status["service"]["seen_at"]
    looked = f"{lasted(status['now'] - seen)} ago" if seen is not None else "not since it changed"
    found = {
        "service": "\n".join((headline(status), *status["service"]["reasons"])),
        "waiting for": _listed(awaited(status)),
        "stack": status["stack"] or "none",
        "status": _status_words(status),
        "cause": cause(status),
        "observed": looked,
        "active": _holders(status),
        "protected by": _protection(status),
        "rehearsed": rehearsed(status),
        "lost": ", ".join(status["lost"]),
        "brought back": _listed(_restarts(status)),
        "not in force": "\n".join(status["in_force"]["lines"]),
        "volumes": "\n".join(_volumes(status)),
        "failed": _listed(_trouble(status)),
        "defects": _listed(status["defects"]),
        "members": "\n".join(_members(status)),
        "alarms": "\n".join(suspended(status)),
        "held": _listed(
            f"{row['sentence']} (heard {counted(row['heard'], 'time')}, "
            f"last {when(row['last_at'])}){_guarded(row)}\n  {row['admit']}\n  {row['dismiss']}"
            for row in held
        ),
        "goal": (status["goal"] or "")[:_SHOWN],
        "traversal": status["traversal"]["id"] if status["traversal"] else "",
        "times": f"in UTC; now {when(status['now'])}",
    }
    return {name: text for name, text in found.items() if text}


def rehearsed(status: StatusReport) -> str:
    """Return when and how the failover of a group was rehearsed last, and whether the next one is
    late; empty if it never was, and does not begin by itself. A line for each member follows if
    there are several, or if one is left out so far."""
    last, now = status["rehearsal"], status["now"]
    running = "a rehearsal is running" if last["running"] else ""
    if stopped := last["failure"]:
        running = f"its cleanup stopped: {stopped['what']} [{stopped['code']}]"
    several = len(status["roles"]) > 1
    each = [_rehearsed_member(row, now, several) for row in last["members"]]
    left_out = any(row["at"] is None or row["passed_over"] for row in last["members"])
    lines = each if len(each) > 1 or left_out else []
    if last["at"] is None:
        first = running or (f"never yet; {last['schedule']}" if last["schedule"] else "")
        return "\n".join(filter(None, (first, *lines)))
    said = _rehearsed_so(last["at"], last["status"], last["to_service"], last["on"], now)
    missed = last["missed_since"]
    late = f"{last['schedule']}: the next one is {lasted(now - missed)} late" if missed else ""
    return "\n".join(("; ".join(filter(None, (said, late, running))), *lines))


def _rehearsed_member(row: RehearsedMember, now: float, several: bool) -> str:
    where = f"{row['member']} as {row['role']}" if several else row["member"]
    said = ["never"]
    if row["at"] is not None:
        said = [_rehearsed_so(row["at"], row["status"], row["to_service"], (), now)]
    if row["missed_since"] is not None:
        said.append(f"its turn is {lasted(now - row['missed_since'])} late")
    if row["passed_over"]:
        said.append(f"passed over by the last rehearsal: {row['passed_over']}")
    return f"{where}: {'; '.join(said)}"


def _rehearsed_so(
    at: float, status: str | None, seconds: float | None, on: Iterable[str], now: float
) -> str:
    where = f" on {' and '.join(on)}" if on else ""
    how = (lasted(seconds) or "passed") if status == "PASSED" else "FAILED"
    return f"{lasted(now - at)} ago{where}: {how}"


def _guarded(row: HeldAlarmRow) -> str:
    """Return why the storm guard still holds an alarm, as a line of its own."""
    why = row.get("evidence")
    return f"\n  The storm guard still holds it: {why}." if why else ""


def _protection(status: StatusReport) -> str:
    """Return what happens to the roles of a member that is lost: nothing, if that is empty."""
    service = status["service"]
    if not in_service(status) or service["seen_at"] is None:
        return ""
    if others := [each for each in service["standbys"] if each not in status["roles"].values()]:
        return ", ".join(others)
    return "cold: a lost member is brought back" if service["cold"] else ""


def alone(status: StatusReport) -> bool:
    """Return whether a look found that no member could take over from one that is lost."""
    return status["service"]["seen_at"] is not None and not _protection(status)


def _engine(status: StatusReport) -> str:
    """Return what the engine does or failed to do; empty if it reached the goal, whose cause is
    among the details."""
    if status["status"] == TraversalStatus.COMPLETE:
        return ""
    words = why(status) or cause(status)
    return f"{_status_words(status)}: {words}" if words else _status_words(status)


def _numbered(number: str, each: Advice, width: int) -> list[str]:
    """Return the lines of one command: when to type it, and the command alone on its line."""
    indent = " " * (len(number) + 3)
    condition, note = each.condition, each.note
    words = f"{condition} ({note})" if condition and note else condition or note
    words = words[:1].upper() + words[1:]
    if not words:
        return [f"  {number} {each.command}"]
    said = _wrapped(f"{words}:", width - len(indent))
    head, *more = said
    return [f"  {number} {head}", *(f"{indent}{line}" for line in (*more, each.command))]


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Break a text into lines; those after the first are indented by two more."""
    return textwrap.wrap(
        text,
        max(width, _NARROWEST),
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    ) or [indent]


def why(status: StatusReport) -> str:
    """Return the reason for its status in one sentence; of what stopped it without what was tried
    and what helps."""
    if status["status"] in STOPPED:
        return stopped.sentence(status)
    if status["status"] == TraversalStatus.IN_PROGRESS and status["chain"]:
        return str(status["chain"]["sentence"])
    return str(status["reason"])


def cause(status: StatusReport) -> str:
    """Return what the group's traversal was started for; empty without one."""
    return status["traversal"]["cause"] if status["traversal"] else ""


def help_lines(status: StatusReport) -> list[str]:
    """Return the commands that help as lines of text, the most useful one first."""
    return [str(each) for each in advice(status)]


def role_holders(status: GroupReport) -> str:
    """Return the holder of each role, and the future one until the goal is reached."""
    held = [f"{role} {_whereabouts(status, role)}" for role in status["roles"]]
    return ", ".join([*held, *(f"{role} on no member" for role in status["vacant"])])


def _whereabouts(status: GroupReport, role: str, name: Callable[[str], str] = str) -> str:
    """Return where a role is, and where it will be. ``name``: names a member."""
    wanted, now = status["roles"][role], status["serves_on"].get(role)
    if now == wanted or status["status"] == TraversalStatus.COMPLETE:
        return f"on {name(wanted)}"
    return f"on {name(now)}, will be on {name(wanted)}" if now else f"will be on {name(wanted)}"


def _status_words(status: StatusReport) -> str:
    word = str(status["status"])
    if (traversal := status["traversal"]) is None:
        return word
    ended = traversal["ended_at"]
    if ended is None:
        began = traversal["started_at"]
        done, all_of_them = _progress(traversal["nodes"])
        return f"{word} for {lasted(status['now'] - began)}, {done} of {all_of_them} steps"
    out = "" if in_service(status) else ", out of service"
    return f"{word}{out} since {when(ended)} ({lasted(status['now'] - ended)})"


def _progress(nodes: Mapping[str, int]) -> tuple[int, int]:
    return nodes.get("DONE", 0), sum(nodes.values())


def _holders(status: StatusReport) -> str:
    servers = {member["name"]: member["server"] for member in status["members"]}

    def name(member: str) -> str:
        return f"{member} (server {servers.get(member) or 'not known'})"

    return "\n".join(f"{role} {_whereabouts(status, role, name)}" for role in status["roles"])


def _restarts(status: StatusReport) -> Iterable[str]:
    for row in status["restarts"]:
        yield f"{clock(row['at'])} {row['member']}: {row['found']}"


def _volumes(status: StatusReport) -> Iterable[str]:
    for row in status["resources"]:
        if row["type"] == _ATTACHMENT:
            device = row["attributes"].get("device")
            at = f" as {device}" if device else ""
            yield f"{row['name']} on {row['member']}{at} ({_found(row)})"


def _found(row: ResourceOfGroup) -> str:
    """Return the state of a resource in words: as the last look found it, if it should be there."""
    recorded = _word(row["status"])
    if recorded != "there" or row["presence"] in (None, Presence.PRESENT):
        return recorded
    if row["presence"] == Presence.UNKNOWN:
        return f"not known: {row['why']}" if row["why"] else "not known"
    return f"not there: {row['why']}" if row["why"] else "not there"


def _word(state: str) -> str:
    """Return CREATE_COMPLETE and the like in words."""
    action, _, how = state.partition("_")
    if action == Action.INIT:
        return "does not exist yet"
    if how == Status.COMPLETE:
        return "gone" if action == Action.DELETE else "there"
    return f"{action.lower()} {how.lower().replace('_', ' ')}"


def _waiting(status: GroupReport) -> Iterable[str]:
    for row in status["waiting"]:
        soon = f"next try in {row['next_try']:.0f} s" if row["next_try"] > 0 else "trying again"
        yield f"{row['waiting_for']}, since {clock(row['since'])}: {row['what']} ({soon})"


def _waits(status: GroupReport) -> set[str]:
    """Return the names of the resources that wait for a service: they are neither running nor
    failed."""
    return {row["resource"] for row in status["waiting"]}


def _under_way(status: GroupReport) -> Iterable[str]:
    blocked = status["status"] == TraversalStatus.BLOCKED
    for row in status["under_way"]:
        # Its last try has ended. What is tried again is shown as that, and what is blocked waits
        # for a person.
        if row["status"] == OperationStatus.UNKNOWN and (
            blocked or row["resource"] in _waits(status)
        ):
            continue
        known = row["limit"] is not None and row["limit"] <= LONGEST
        limit = f" of at most {row['limit']:.0f} s" if known else ""
        doubt = "; its outcome is unknown" if row["status"] == OperationStatus.UNKNOWN else ""
        times = f", attempt {row['attempts']}" if row["attempts"] > 1 else ""
        waits = ""
        service, since = row["waiting_for"], row["waiting_since"]
        if service and since is not None:
            waits = f": waiting for {service}, since {clock(since)}"
        yield f"{row['sentence']} ({lasted(row['seconds'])}{limit}{times}{doubt}){waits}"


def _trouble(status: StatusReport) -> Iterable[str]:
    failure = status["failure"]
    for row in status["resources"]:
        if row["status"].endswith("FAILED") and row["name"] not in _waits(status):
            if failure and row["name"] == failure["resource"]:  # shown already
                yield f"{row['name']} ({_word(row['status'])})"
            else:
                yield f"{row['name']}: {row['reason']}"


def _members(status: StatusReport) -> Iterable[str]:
    said = status["agents"]
    for member in status["members"]:
        name = member["name"]
        words = [f"epoch {member['epoch']}"]
        if name in status["lost"]:
            words.append("LOST")
        if name in said:
            words.append(f"agent: {said[name]}")
        yield f"{name}: {', '.join(words)}"


def _listed(lines: Iterable[str]) -> str:
    found = list(lines)
    more = [f"... and {len(found) - _MANY} more"] if len(found) > _MANY else []
    return "\n".join([*found[:_MANY], *more])
