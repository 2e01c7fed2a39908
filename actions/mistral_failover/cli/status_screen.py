# SPDX-License-Identifier: Apache-2.0
"""The status of a group for an operator: each question, and its answer.

``status`` is the answer of failover.status, ``held`` are the rows of failover.held. This module
sends no requests.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mistral_failover.cli.base import clock, counted, lasted, when
from mistral_failover.model.observation import Service

Facts = dict[str, str]
_ATTACHMENT = "volume_attachment"
_SHOWN = 12  # digits of a goal's version
_MANY = 10  # rows of one answer
_CODE = re.compile(r" \[[A-Z_]+\]$")
_CORRECTED = "correct the cause, then"


@dataclass(frozen=True)
class Advice:
    """A command that helps: ``condition``, when to run it, and ``note``, what it does; both may be
    empty."""

    command: str
    condition: str = ""
    note: str = ""

    def __str__(self) -> str:
        before = f"{self.condition}: " if self.condition else ""
        return f"{before}{self.command}" + (f"   ({self.note})" if self.note else "")


def suspended(row: Mapping[str, Any]) -> list[str]:
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


def facts(status: Mapping[str, Any], held: Iterable[Mapping[str, Any]] = ()) -> Facts:
    """Return question by question; those without an answer are left out."""
    found = {
        "group": f"{status['group']} (stack {status['stack']})",
        "service": "\n".join(service(status)),
        "status": _stands(status),
        "why": why(status) or str((status["traversal"] or {}).get("cause", "")),
        "next": "\n".join(helps(status)),
        "active": _holders(status),
        "lost": ", ".join(status["lost"]),
        "volumes": "\n".join(_volumes(status)),
        "running": _listed(_under_way(status)),
        "waits for a service": _listed(_waiting(status)),
        "waits for a lock": _listed(
            f"{row['node']} for {row['deferred_to']}" for row in status["deferred"]
        ),
        "failed": _listed(_trouble(status)),
        "members": "\n".join(_members(status)),
        "alarms": "\n".join(suspended(status)),
        "held": _listed(
            f"{row['sentence']} (heard {counted(row['heard'], 'time')}, "
            f"last {when(row['last_at'])}){_guarded(row)}\n  {row['admit']}\n  {row['dismiss']}"
            for row in held
        ),
        "goal": (status["goal"] or "")[:_SHOWN],
        "traversal": str((status["traversal"] or {}).get("id", "")),
        "times": f"in UTC; now {when(status['now'])}",
    }
    return {name: text for name, text in found.items() if text}


def _guarded(row: Mapping[str, Any]) -> str:
    """Return why the storm guard still holds an alarm, as a line of its own."""
    why = row.get("evidence")
    return f"\n  The storm guard still holds it: {why}." if why else ""


def service(status: Mapping[str, Any]) -> Iterable[str]:
    """Whether the group serves, since when, and when anybody last looked; then why it does not."""
    found, now = status["service"], status["now"]
    word = str(found["status"]).replace("_", " ")
    since = found["since"]
    begun = f" since {when(since)} ({lasted(now - since)})" if since is not None else ""
    seen = found["seen_at"]
    looked = f", seen {lasted(now - seen)} ago" if seen is not None else ", not looked at since"
    yield f"{word}{begun}{looked}"
    yield from found["reasons"]


def text(facts: Mapping[str, str]) -> str:
    """Format the facts as lines, each answer beside its question."""
    wide = max(map(len, facts), default=0)
    lines = []
    for name, answer in facts.items():
        first, *more = answer.splitlines() or [""]
        lines.append(f"{name:{wide}}  {first}".rstrip())
        lines += [f"{'':{wide}}  {line}".rstrip() for line in more]
    return "".join(f"{line}\n" for line in lines)


def why(status: Mapping[str, Any]) -> str:
    """Return the reason for its status, without the remedy whose command is among :func:`helps`."""
    if status["status"] == "IN_PROGRESS" and status["chain"]:
        return str(status["chain"]["sentence"])
    return _without_remedy(status["reason"], status)


def short(reason: str) -> str:
    """Shorten the reason of a failed step to the step and the code, if the whole was shown before;
    return any other reason unchanged."""
    *what, _ = reason.split(": ", 2)
    code = _CODE.search(reason)
    return f"{': '.join(what)}{code.group()}" if code and what[1:] else reason


def helps(status: Mapping[str, Any]) -> list[str]:
    """Return the commands that help as lines of text, the most useful one first."""
    return [str(each) for each in advice(status)]


def advice(status: Mapping[str, Any]) -> list[Advice]:
    """Return the commands that help, the most useful one first."""
    group = shlex.quote(status["group"])
    match status["status"]:
        case "BLOCKED":
            return _unblocking(status) or [Advice(f"failover sweep {group}", _CORRECTED)]
        case "FAILED" if not status["roles"]:
            return [
                Advice(f"failover group delete {group}", _CORRECTED),
                Advice(f"failover group activate {group}", "or, to bring it up"),
            ]
        case "FAILED":
            # Whether an earlier goal needs a member that is lost now, only the rollback finds out.
            back = status["last_complete_goal"] and not status["lost"]
            return [
                Advice(f"failover start {group}", _CORRECTED),
                *([Advice(f"failover rollback {group}", "or, to go back")] if back else []),
            ]
        case "IN_PROGRESS":
            chain = status["chain"]
            needed = chain["remedy"] if chain else status["reason"]
            again = [Advice(f"failover sweep {group}")] if needed else []
            return [*again, Advice(f"failover watch {group}")]
        case "DEFINED":
            return [Advice(f"failover group activate {group}")]
    if not status["roles"]:
        return [Advice(f"failover group activate {group}")]
    return [*_serving_again(status, group), *_undoing(status, group)]


def _serving_again(status: Mapping[str, Any], group: str) -> list[Advice]:
    """Return the commands for a group that reached its goal, and does not serve as it should."""
    service = status["service"]
    if service["status"] == Service.DOWN and service["gone"]:
        lost = " ".join(f"--lost {shlex.quote(member)}" for member in service["gone"])
        return [
            Advice(f"failover start {group} {lost}", note="moves its roles"),
            Advice(f"failover plan {group} {lost}", "or, to see first what that does"),
        ]
    if service["status"] in (Service.DOWN, Service.UNKNOWN) or (
        service["status"] == Service.DEGRADED and not status["lost"]
    ):
        return [Advice(f"failover doctor {group}", note="looks, and names what helps")]
    return []


def _undoing(status: Mapping[str, Any], group: str) -> list[Advice]:
    """Return the commands that end what keeps members or alarms away."""
    healthy = [
        Advice(
            f"failover start {group} --lost '' --recovered {shlex.quote(member)}",
            note=f"once {member} is healthy; then failover failback {group}",
        )
        for member in status["lost"]
    ]
    paused = [Advice(f"failover resume {group}", note="alarms count again")]
    work = [Advice(f"failover maintenance off {group}")]
    held = [Advice(f"failover alarms {group}", note="lists the held ones, to admit or dismiss")]
    return [
        *healthy,
        *(paused if status["pause"] else []),
        *(work if status["maintenance"] else []),
        *(held if status.get("held") else []),
    ]


def where(status: Mapping[str, Any]) -> str:
    """Return the holder of each role; until the goal is reached, the future holder."""
    stands = _on(status)
    return ", ".join(f"{role} {stands} {member}" for role, member in status["roles"].items())


def _unblocking(status: Mapping[str, Any]) -> list[Advice]:
    """Return what an operator can do about fences without a proof: first what needs no
    confirmation."""
    rows = status["remedies"]
    if not rows:
        return []
    group = shlex.quote(status["group"])
    members = sorted({row["member"] for row in rows})
    verb = "start" if status["roles"] else "group delete"
    lost = " ".join(f"--lost {shlex.quote(member)}" for member in members)
    are = "is" if len(members) == 1 else "are"
    return [
        Advice(
            f"failover {verb} {group} {lost}",
            f"if {' and '.join(members)} {are} back",
            "tries the proof again",
        ),
        *(Advice(row["command"], f"once you are sure that {row['member']} is off") for row in rows),
    ]


def _without_remedy(reason: str, status: Mapping[str, Any]) -> str:
    """A reason has the form ``what: message. Remedy [CODE]``; a remedy that is shown nowhere else
    stays."""
    for row in status["remedies"]:
        command = reason.find(row["command"])
        end = reason.rfind(". ", 0, max(command, 0))
        if end > 0:
            code = _CODE.search(reason)
            return f"{reason[: end + 1]}{code.group() if code else ''}"
    return reason


def _on(status: Mapping[str, Any]) -> str:
    return "on" if status["status"] == "COMPLETE" else "will be on"


def _stands(status: Mapping[str, Any]) -> str:
    word = str(status["status"])
    if (traversal := status["traversal"]) is None:
        return word
    ended = traversal["ended_at"]
    if ended is None:
        began = traversal["started_at"]
        done, all_of_them = _progress(traversal["nodes"])
        return f"{word} for {lasted(status['now'] - began)}, {done} of {all_of_them} steps"
    out = "" if status["roles"] else ", out of service"
    return f"{word}{out} since {when(ended)} ({lasted(status['now'] - ended)})"


def _progress(nodes: Mapping[str, int]) -> tuple[int, int]:
    return nodes.get("DONE", 0), sum(nodes.values())


def _holders(status: Mapping[str, Any]) -> str:
    """Until the goal is reached, show where a role should be, not where it is."""
    servers = {member["name"]: member["server"] for member in status["members"]}
    return "\n".join(
        f"{role} {_on(status)} {member} (server {servers.get(member) or 'not known'})"
        for role, member in status["roles"].items()
    )


def _volumes(status: Mapping[str, Any]) -> Iterable[str]:
    for row in status["resources"]:
        if row["type"] == _ATTACHMENT:
            device = row["attributes"].get("device")
            at = f" as {device}" if device else ""
            yield f"{row['name']} on {row['member']}{at} ({_word(row['status'])})"


def _word(state: str) -> str:
    """Return CREATE_COMPLETE and the like in words."""
    action, _, how = state.partition("_")
    if action == "INIT":
        return "does not exist yet"
    if how == "COMPLETE":
        return "gone" if action == "DELETE" else "there"
    return f"{action.lower()} {how.lower().replace('_', ' ')}"


def _waiting(status: Mapping[str, Any]) -> Iterable[str]:
    for row in status["waiting"]:
        on = f" on {row['member']}" if row["member"] else ""
        soon = f"next try in {row['next_try']:.0f} s" if row["next_try"] > 0 else "trying again"
        yield (
            f"{row['verb']} {row['resource']}{on}: waiting for {row['waiting_for']} "
            f"since {clock(row['since'])}, {soon}"
        )


def _waits(status: Mapping[str, Any]) -> set[str]:
    """The names of the resources that wait for a service: they are neither running nor failed."""
    return {row["resource"] for row in status["waiting"]}


def _under_way(status: Mapping[str, Any]) -> Iterable[str]:
    for row in status["under_way"]:
        if row["status"] == "unknown" and row["resource"] in _waits(status):
            continue
        on = f" on {row['member']}" if row["member"] else ""
        doubt = ", its outcome is unknown" if row["status"] == "unknown" else ""
        times = f", attempt {row['attempts']}" if row["attempts"] > 1 else ""
        yield f"{row['verb']} {row['resource']}{on} for {lasted(row['seconds'])}{times}{doubt}"


def _trouble(status: Mapping[str, Any]) -> Iterable[str]:
    for row in status["resources"]:
        if row["status"].endswith("FAILED") and row["name"] not in _waits(status):
            if row["reason"] in status["reason"]:  # shown already
                yield f"{row['name']} ({_word(row['status'])})"
            else:
                yield f"{row['name']}: {_without_remedy(row['reason'], status)}"


def _members(status: Mapping[str, Any]) -> Iterable[str]:
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
