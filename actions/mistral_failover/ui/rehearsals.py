# SPDX-License-Identifier: Apache-2.0
"""The view of a group's rehearsals: one with its steps and checks, compared with the one before it
and with the last failover; and all of them in a list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mistral_failover.cli.base import lasted, when
from mistral_failover.cli.connection import with_full_stop
from mistral_failover.cli.rehearsals import change, last_failover, passed_before, takers
from mistral_failover.model.rehearsals import Place, RehearsalOutcome, judged_roles
from mistral_failover.model.remedies import Advice, commands, need
from mistral_failover.ui.group import Finding, in_short
from mistral_failover.ui.levels import Level
from mistral_failover.ui.timeline import Outcome, StageBar, Step, Timeline

if TYPE_CHECKING:  # the page starts without the code of the actions
    from mistral_failover.orders.rehearsal.life import Rehearsal
    from mistral_failover.orders.rehearsal_report import RehearsalReport, RehearsedStep
    from mistral_failover.reports.moves import Move

_LEVELS = {
    RehearsalOutcome.RUNNING: Level.WORKING,
    RehearsalOutcome.PASSED: Level.GOOD,
    RehearsalOutcome.FAILED: Level.TROUBLE,
    RehearsalOutcome.ENDED: Level.NEUTRAL,
}


@dataclass(frozen=True)
class ComparedTime:
    """How long something took in this rehearsal, in the one ``before``, and in the last
    ``failover``, in words; ``-`` where it is not known. ``change``: since the one before."""

    what: str
    here: str
    before: str
    change: str
    failover: str = "-"


@dataclass(frozen=True)
class ShownStep:
    """A step: how long it took here and in the one ``before``. ``error``: why it failed, else
    empty."""

    what: str
    lasted: str
    before: str
    change: str
    error: str


@dataclass(frozen=True)
class ShownCheck:
    """A check that was run, with the end of what it wrote."""

    command: str
    level: Level
    verdict: str
    output: str


@dataclass(frozen=True)
class RehearsalRow:
    """A rehearsal in the list. ``current``: whether it is the one that is shown."""

    id: str
    began: str
    status: str
    level: Level
    on: str
    to_service: str
    reason: str
    current: bool


@dataclass(frozen=True)
class RehearsalView:
    """A rehearsal. ``sentence``: what it came to, in at most 15 words; ``findings``: why, and what
    helps, if it did not pass; ``advice``: the command. ``before``: when the one began with which it
    is compared, empty if there is none; ``failover`` and ``failover_id``: the same of the last
    failover. ``chart``: its steps over time, None if it has none. ``facts``: names and texts."""

    id: str
    status: str
    level: Level
    sentence: str
    began: str
    findings: tuple[Finding, ...]
    advice: tuple[Advice, ...]
    before: str
    failover: str
    failover_id: str
    times: tuple[ComparedTime, ...]
    chart: Timeline | None
    steps: tuple[ShownStep, ...]
    checks: tuple[ShownCheck, ...]
    facts: tuple[tuple[str, str], ...]


def rehearsal_rows(found: Sequence[Rehearsal], shown: str) -> tuple[RehearsalRow, ...]:
    """Return the list of an answer of failover.rehearsals; ``shown``: the id of the one that the
    page shows in full."""
    return tuple(
        RehearsalRow(
            id=each["rehearsal"],
            began=when(each["began_at"]),
            status=each["status"],
            level=_LEVELS[RehearsalOutcome(each["status"])],
            on=takers(each["roles"]),
            to_service=lasted(each["report"]["to_service"]) if each["report"] else "",
            reason=each["reason"],
            current=each["rehearsal"] == shown,
        )
        for each in found
    )


def rehearsal_view(
    found: Rehearsal, earlier: Sequence[Rehearsal], moves: Sequence[Move]
) -> RehearsalView:
    """Return a rehearsal in full. ``earlier``: those before it, the latest first; ``moves``: those
    of the group, the latest first."""
    report = found["report"]
    status = RehearsalOutcome(found["status"])
    before, failover = passed_before(earlier), last_failover(moves)
    return RehearsalView(
        id=found["rehearsal"],
        status=status,
        level=_LEVELS[status],
        sentence=with_full_stop(in_short(_sentence(found))),
        began=when(found["began_at"]),
        findings=tuple(_findings(found)),
        advice=tuple(_advice(found)),
        before=when(before["began_at"]) if before else "",
        failover=when(failover["began_at"]) if failover else "",
        failover_id=failover["traversal"] if failover else "",
        times=tuple(_times(found, before, failover)) if report else (),
        chart=_chart(found, before) if report and report["steps"] else None,
        steps=tuple(_steps(report, before["report"] if before else None)) if report else (),
        checks=tuple(_checks(report)) if report else (),
        facts=tuple(_facts(found)),
    )


def _sentence(found: Rehearsal) -> str:
    report, on = found["report"], takers(found["roles"])
    match RehearsalOutcome(found["status"]):
        case RehearsalOutcome.RUNNING:
            return f"It runs on {on}, and touches nothing that serves"
        case RehearsalOutcome.PASSED:
            if report is None or report["to_service"] is None:
                return f"{on} can take over"
            seconds = lasted(report["to_service"])
            return f"{on} can take over: a failover would take {seconds}"
        case RehearsalOutcome.FAILED:
            what = "".join(f"; failed step: {each['what']}" for each in _failed(found)[:1])
            return f"{on} could not take over{what}"
    return "It was ended, and says nothing about the standby"


def _failed(found: Rehearsal) -> list[RehearsedStep]:
    """Return the steps that failed."""
    steps = found["report"]["steps"] if found["report"] else []
    return [each for each in steps if each["error"]]


def _advice(found: Rehearsal) -> list[Advice]:
    """Return the commands that repeat a rehearsal that failed, for the roles for which it did."""
    outcome = RehearsalOutcome(found["status"])
    if outcome is not RehearsalOutcome.FAILED:
        return []
    places = [Place(each["member"], each["role"]) for each in _failed(found)]
    roles = judged_roles(outcome, found["roles"], places)
    needed = [need("REHEARSE", member=member, role=role) for role, member in sorted(roles.items())]
    return commands(needed, found["group"])


def _findings(found: Rehearsal) -> Iterator[Finding]:
    """Yield why it did not pass, and what helps."""
    failed = _failed(found)
    for each in failed:
        yield Finding(each["what"], each["error"])
    if not failed and found["reason"]:
        yield Finding("", found["reason"])
    for remedy in dict.fromkeys(each["remedy"] for each in failed if each["remedy"]):
        yield Finding("next", remedy)


def _times(
    found: Rehearsal, before: Rehearsal | None, failover: Move | None
) -> Iterator[ComparedTime]:
    here, then = found["report"], before["report"] if before else None
    assert here is not None
    service = here["to_service"], then["to_service"] if then else None
    took = failover["to_service"] if failover else None
    yield ComparedTime("Time to service", *_compared(*service), lasted(took) or "-")
    measured = here["measured"], then["measured"] if then else None
    yield ComparedTime("Of it measured in the rehearsal", *_compared(*measured))
    whole = _whole(found), _whole(before) if before else None
    yield ComparedTime("The whole rehearsal, before its cleanup", *_compared(*whole))


def _whole(found: Rehearsal) -> float | None:
    ended = found["ended_at"]
    return None if ended is None else max(0.0, ended - found["began_at"])


def _compared(here: float | None, before: float | None) -> tuple[str, str, str]:
    """Return a time, the one before, and how they differ, in words."""
    return lasted(here) or "-", lasted(before) or "-", change(here, before) or "-"


def _steps(here: RehearsalReport, before: RehearsalReport | None) -> Iterator[ShownStep]:
    then: Mapping[str, float | None] = {
        each["what"]: each["seconds"] for each in (before["steps"] if before else ())
    }
    for each in here["steps"]:
        yield ShownStep(
            each["what"],
            *_compared(each["seconds"], then.get(each["what"])),
            each["error"],
        )


def _checks(report: RehearsalReport) -> Iterator[ShownCheck]:
    for each in report["checks"]:
        passed = each["passed"]
        level, verdict = (Level.GOOD, "passed") if passed else (Level.TROUBLE, "FAILED")
        yield ShownCheck(each["command"], level, verdict, each["output"])


def _chart(found: Rehearsal, before: Rehearsal | None) -> Timeline:
    """Return the steps over time, with the end of the rehearsal before as the time to compare."""
    report = found["report"]
    assert report is not None
    steps = tuple(_bar(each, _whole(found) or 0.0) for each in report["steps"])
    earlier = before["report"]["steps"] if before and before["report"] else []
    ends = [each["began"] + (each["seconds"] or 0.0) for each in earlier]
    return Timeline(
        id=found["rehearsal"],
        group=found["group"],
        cause=found["because"],
        status=found["status"],
        level=_LEVELS[RehearsalOutcome(found["status"])],
        reason=found["reason"],
        began=when(found["began_at"]),
        lasted=lasted(_whole(found)),
        running=False,
        seconds=max(each.end for each in steps),
        last=max(ends, default=None),
        critical="",
        stages=(StageBar("", 0.0, max(each.end for each in steps), False, steps, ()),),
        entries=(),
        shown=None,
    )


def _bar(step: RehearsedStep, whole: float) -> Step:
    seconds = step["seconds"]
    end = max(step["began"], whole) if seconds is None else step["began"] + seconds
    outcome = Outcome.FAILED if step["error"] else Outcome.DONE
    return Step(
        key=step["what"],
        label=step["what"],
        start=step["began"],
        end=end,
        outcome=Outcome.UNKNOWN if seconds is None and not step["error"] else outcome,
        critical=False,
        attempts=1,
        result=step["error"] or "done",
        lock_wait=0.0,
        marks=(),
    )


def _facts(found: Rehearsal) -> Iterator[tuple[str, str]]:
    report = found["report"]
    yield "Rehearsed", f"the loss of {found['lost']}"
    yield "Because", found["because"]
    if report is not None and report["data_at"] is not None:
        several = len(found["planned"]["volumes"]) > 1
        spread = f"within {report['spread'] or 0.0:.1f} s"
        more = f"; not consistent across volumes ({spread})" if several else ""
        yield "Data of", f"{when(report['data_at'])}{more}"
    if report is not None and report["not_known"]:
        yield "Not in the time", f"{' and '.join(report['not_known'])}, which never happened yet"
    for each in found["planned"]["passed_over"]:
        yield "Passed over", f"{each['member']} as {each['role']}: {each['why']}"
    if found["planned"]["left_out"]:
        left = (f"{name} ({kind})" for name, kind in found["planned"]["left_out"].items())
        yield "Left out", ", ".join(left)
    if found["status"] != RehearsalOutcome.RUNNING:
        yield "Cleaned up", "yes" if found["clean"] else "not yet: a sweep continues"
