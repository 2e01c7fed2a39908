# SPDX-License-Identifier: Apache-2.0
"""``failover rehearse`` and ``failover rehearsals``: a failover that is tried on copies."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cliff.lister import Lister

from mistral_failover.cli import base
from mistral_failover.cli.arguments import Declared, argument
from mistral_failover.cli.base import for_people, lasted, when
from mistral_failover.cli.plain import PlainFacts
from mistral_failover.cli.verbs import VerbCommand
from mistral_failover.model.verbs import verb_kind

if TYPE_CHECKING:  # a command starts without the code of the actions
    from mistral_failover.orders.rehearsal.life import Rehearsal
    from mistral_failover.orders.rehearsal.planning import PlannedRehearsal


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
            facts = dict(lines(self.facts))  # type: ignore[arg-type]
        return list(facts), list(facts.values())


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
        _takers(found["roles"]),
        lasted(report["to_service"]) if report else "",
        found["reason"],
        "yes" if found["clean"] else "not yet",
    ]


def _takers(roles: Any) -> str:
    return " and ".join(sorted(set(roles.values())))


def planned_lines(planned: PlannedRehearsal) -> Iterator[tuple[str, str]]:
    """Yield what a rehearsal would do as lines for people."""
    yield "group", planned["group"]
    yield "loss of", planned["lost"]
    yield "on", ", ".join(f"{role}: {member}" for role, member in planned["roles"].items())
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
    if planned["left_out"]:
        yield (
            "left out",
            ", ".join(f"{name} ({kind})" for name, kind in planned["left_out"].items()),
        )


def lines(found: Rehearsal) -> Iterator[tuple[str, str]]:
    """Yield a rehearsal and its report as lines for people."""
    report = found["report"]
    yield "rehearsal", ": ".join(filter(None, (found["status"], found["reason"])))
    yield "group", f"{found['group']}: loss of {found['lost']}, on {_takers(found['roles'])}"
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
        more = f"; not consistent across volumes ({spread:.1f} s apart)" if several else ""
        yield "data of", f"{when(report['data_at'])} UTC{more}"
    yield (
        "steps",
        "\n".join(
            f"{each['what']}: {each['error'] or lasted(each['seconds'])}"
            for each in report["steps"]
        ),
    )
    for each in report["checks"]:
        verdict = "passed" if each["passed"] else "FAILED"
        yield f"check {each['command']}", f"{verdict}: {each['output']}"
    remedies = dict.fromkeys(each["remedy"] for each in report["steps"] if each["remedy"])
    if remedies:
        yield "next", "\n".join(remedies)
    yield "cleaned up", "yes" if found["clean"] else "not yet: a sweep continues"
