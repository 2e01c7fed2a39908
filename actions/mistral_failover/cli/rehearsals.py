# SPDX-License-Identifier: Apache-2.0
"""``failover rehearse`` and ``failover rehearsals``: a failover that is tried on copies."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cliff.lister import Lister

from mistral_failover.cli import base
from mistral_failover.cli.arguments import Declared, argument
from mistral_failover.cli.base import for_people, lasted, when
from mistral_failover.cli.plain import PlainFacts
from mistral_failover.cli.verbs import VerbCommand
from mistral_failover.model.rehearsals import RehearsalOutcome
from mistral_failover.model.verbs import verb_kind

if TYPE_CHECKING:  # a command starts without the code of the actions
    from mistral_failover.orders.rehearsal.life import Rehearsal
    from mistral_failover.orders.rehearsal.planning import PlannedRehearsal
    from mistral_failover.orders.rehearsal_report import CheckResult, RehearsedStep
    from mistral_failover.reports.moves import Move

_SAME = 0.05  # seconds
_MOVES = 100  # traversals among which the last failover is looked for


class Rehearse(PlainFacts, VerbCommand):
    """The command of ``rehearse``."""

    verb = verb_kind("rehearse")
    __doc__ = verb.__doc__

    arguments: Declared = (
        argument(
            "--dry-run",
            action="store_true",
            help="only show what would be made, and how many GiB it takes; change nothing",
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Show what it would do; or start, follow and show the report."""
        people = for_people(parsed_args)
        if parsed_args.dry_run:
            planned: PlannedRehearsal = self.run_action(
                "failover.preview_rehearsal", group=parsed_args.group, **self.inputs(parsed_args)
            )
            found: dict[str, Any] = dict(planned_lines(planned)) if people else dict(planned)
            return list(found), list(found.values())
        names, values = super().take_action(parsed_args)
        facts = dict(zip(names, values, strict=True))
        if people and "report" in self.facts:
            found_now: Rehearsal = self.facts  # type: ignore[assignment]
            facts = dict([*lines(found_now), *self._compared(found_now)])
        return list(facts), list(facts.values())

    def _compared(self, found: Rehearsal) -> Iterator[tuple[str, str]]:
        """Yield what earlier times it is to be compared with."""
        group = found["group"]
        rows: list[Rehearsal] = self.run_action("failover.rehearsals", group=group)
        earlier = [each for each in rows if each["began_at"] < found["began_at"]]
        moves = self.run_action("failover.moves", group=group, limit=_MOVES)
        yield from compared(found, earlier, moves)


class List(base.GroupCommand, Lister):
    """Show a group's rehearsals, the latest first, and what came of them."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[Any]]]:
        """Query and format."""
        found: list[Rehearsal] = self.run_action("failover.rehearsals", group=parsed_args.group)
        if not for_people(parsed_args):
            names = list(found[0]) if found else ["rehearsal", "status", "began_at"]
            return names, [list(each.values()) for each in found]
        names = ["began", "status", "on", "to service", "reason", "cleaned up"]
        return names, [_row(each) for each in found]


def _row(found: Rehearsal) -> list[Any]:
    report = found["report"]
    return [
        when(found["began_at"]),
        found["status"],
        _by_role(found["roles"]),
        lasted(report["to_service"]) if report else "",
        found["reason"],
        "yes" if found["clean"] else "not yet",
    ]


def _by_role(roles: Mapping[str, str]) -> str:
    """Return which member takes which role, in words."""
    return ", ".join(f"{role}: {member}" for role, member in sorted(roles.items()))


def takers(roles: Any) -> str:
    """Return the members that take these roles, in words."""
    return " and ".join(sorted(set(roles.values())))


def passed_before(earlier: Iterable[Rehearsal]) -> Rehearsal | None:
    """Return the one with which a rehearsal is compared: the latest of the ``earlier`` ones, which
    begin with the latest, that passed."""
    return next((each for each in earlier if each["status"] == RehearsalOutcome.PASSED), None)


def last_failover(moves: Iterable[Move]) -> Move | None:
    """Return the failover with which a rehearsal is compared: of the group's ``moves``, the latest
    first, one that moved a role and served again."""
    return next((each for each in moves if each["moved"] and each["to_service"] is not None), None)


def change(here: float | None, before: float | None) -> str:
    """Return how a time in seconds differs from the one ``before``, as both are shown; empty if one
    is not known."""
    if here is None or before is None:
        return ""
    longer = round(here, 1) - round(before, 1)
    if abs(longer) < _SAME:
        return "the same"
    return f"{lasted(abs(longer))} {'longer' if longer > 0 else 'shorter'}"


def compared(
    found: Rehearsal, earlier: Iterable[Rehearsal], moves: Iterable[Move]
) -> Iterator[tuple[str, str]]:
    """Yield the times to service before this rehearsal as lines for people."""
    here = found["report"]["to_service"] if found["report"] else None
    before, failover = passed_before(earlier), last_failover(moves)
    if before is not None and before["report"] and before["report"]["to_service"] is not None:
        then = before["report"]["to_service"]
        differs = change(here, then)
        more = f"; now {differs}" if differs else ""
        yield "before", f"{lasted(then)} at {when(before['began_at'])}{more}"
    if failover is not None:
        yield "last failover", f"{lasted(failover['to_service'])} at {when(failover['began_at'])}"


def planned_lines(planned: PlannedRehearsal) -> Iterator[tuple[str, str]]:
    """Yield what a rehearsal would do as lines for people."""
    yield "group", planned["group"]
    yield "loss of", planned["lost"]
    yield "on", _by_role(planned["roles"])
    yield (
        "copies",
        "\n".join(
            f"{each['resource']}: volume {each['volume']}, {each['size']} GiB"
            for each in planned["volumes"]
        )
        or "none",
    )
    if not planned["consistent"]:
        yield "consistency", "the volumes are copied one after the other, not at one instant"
    yield (
        "room",
        f"{planned['gib']} GiB of snapshots and copies, for at most {lasted(planned['limit'])} and "
        "the cleanup",
    )
    yield "starts", ", ".join(planned["applications"])
    yield "checks", ", ".join(planned["checks"]) or "none (name some in the group file: rehearsal)"
    if planned["passed_over"]:
        yield "passed over", passed_over(planned)
    if planned["left_out"]:
        yield (
            "left out",
            ", ".join(f"{name} ({kind})" for name, kind in planned["left_out"].items()),
        )


def passed_over(planned: PlannedRehearsal) -> str:
    """Return whose turn came first, and why it is not rehearsed now, in words."""
    return "\n".join(
        f"{each['member']} as {each['role']}: {each['why']}" for each in planned["passed_over"]
    )


def _place(of: RehearsedStep | CheckResult, several: bool) -> str:
    """Return on which member something was done, if it could be on another one."""
    return f" on {of['member']}" if several and of["member"] else ""


def lines(found: Rehearsal) -> Iterator[tuple[str, str]]:
    """Yield a rehearsal and its report as lines for people."""
    report = found["report"]
    yield "rehearsal", ": ".join(filter(None, (found["status"], found["reason"])))
    yield "group", f"{found['group']}: loss of {found['lost']}"
    yield "on", _by_role(found["roles"])
    if found["planned"]["passed_over"]:
        yield "passed over", passed_over(found["planned"])
    if report is None:
        return
    if report["to_service"] is not None:
        said = lasted(report["to_service"])
        if report["not_known"]:
            said += f", and {' and '.join(report['not_known'])}, which never happened yet"
        yield "time to service", f"{said} ({lasted(report['measured'])} of it measured here)"
    if report["data_at"] is not None:
        spread = report["spread"] or 0.0
        several = len(found["planned"]["volumes"]) > 1
        more = f"; not consistent across volumes (within {spread:.1f} s)" if several else ""
        yield "data of", f"{when(report['data_at'])} UTC{more}"
    several = len(set(found["roles"].values())) > 1
    yield (
        "steps",
        "\n".join(
            f"{each['what']}{_place(each, several)}: {each['error'] or lasted(each['seconds'])}"
            for each in report["steps"]
        ),
    )
    for check in report["checks"]:
        verdict = f"{'passed' if check['passed'] else 'FAILED'}{_place(check, several)}"
        yield f"check {check['command']}", f"{verdict}: {check['output']}"
    remedies = dict.fromkeys(each["remedy"] for each in report["steps"] if each["remedy"])
    if remedies:
        yield "next", "\n".join(remedies)
    yield "cleaned up", "yes" if found["clean"] else "not yet: a sweep continues"
