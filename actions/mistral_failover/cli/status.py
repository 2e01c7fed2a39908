# SPDX-License-Identifier: Apache-2.0
"""``failover status``, ``failover watch`` and ``failover history``: what operators look at."""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cliff.command import Command
from cliff.lister import Lister
from cliff.show import ShowOne

from mistral_failover.cli import base, status_screen
from mistral_failover.cli.arguments import GROUPS, argument
from mistral_failover.cli.base import ActionCommand, GroupCommand, for_people, lasted, when, wrapped
from mistral_failover.cli.connection import CommandFailed, CommandLineWrong
from mistral_failover.cli.follow import PATIENCE, Journal, WatchUpdate, watch_updates
from mistral_failover.cli.plain import PlainFacts
from mistral_failover.convergence.records import TraversalStatus
from mistral_failover.model.text import clean, counted

if TYPE_CHECKING:  # a command starts without the code of the actions
    from mistral_failover.orders.held_alarms import HeldAlarmRow, HeldAlarms
    from mistral_failover.reports.documents import GroupOverview, ProjectReport, StatusReport
    from mistral_failover.reports.moves import Move, Waited
    from mistral_failover.store.views import JournalRow

ENDS = {
    "COMPLETE": base.COMPLETE,
    "DEFINED": base.COMPLETE,
    "BLOCKED": base.BLOCKED,
    "IN_PROGRESS": base.UNDER_WAY,
}
"""The exit code for a group's status; every other status is a failure."""
SERVICES = {"DEGRADED": base.DEGRADED, "DOWN": base.DOWN, "UNKNOWN": base.NOT_KNOWN}
"""The exit code of ``failover status --exit-code``."""
MOVE_KEYS = (
    *("group", "traversal", "incident", "cause", "by", "outcome", "reason", "roles", "before"),
    *("moved", "began_at", "ended_at", "to_service", "seconds", "waited"),
)
"""What machines get of a move: what failover.moves answers."""
_HELD = 100
_CAUSE = 40  # characters of a line of a cause


class Status(PlainFacts, ShowOne):
    """Show a group's status on one screen; without a group, that of all groups.

    It shows the active members and their servers, the volumes, what is running, what it waits for,
    and the command that helps.

    Times are in UTC. Begin here when something has happened; 'failover watch' shows it live,
    'failover history' the steps that led to it. -f json gives everything.
    """

    arguments = (
        GROUPS,
        argument(
            "--exit-code",
            action="store_true",
            help="end with 0 if the group serves or is out of service, 5 if it is DEGRADED, 6 if "
            "it is DOWN, 7 if that is not known",
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Query and format."""
        facts = (
            self._group(parsed_args)
            if parsed_args.group
            else self._project(people=for_people(parsed_args))
        )
        return list(facts), list(facts.values())

    def _group(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        group = parsed_args.group
        # Asking the agents takes a while, so the engine must not wait for it.
        status: StatusReport = self.run_action("failover.status", group=group, agents=True)
        if parsed_args.exit_code:
            self.exit_code = SERVICES.get(status["service"]["status"], base.COMPLETE)
        alarms: list[HeldAlarmRow] = []
        if status["held"]:
            alarms = self.run_action("failover.held", group=group, limit=_HELD)["held"]
        self.screen = status_screen.screen(status, alarms, base.width())
        return {**status, "alarms": alarms}

    def _project(self, *, people: bool) -> dict[str, Any]:
        answer: ProjectReport = self.run_action("failover.status")
        held: HeldAlarms = self.run_action("failover.held", limit=_HELD)
        if not people:
            return {**answer, "held": held["total"], "alarms": held["held"]}
        facts = {row["name"]: _row(row) for row in answer["overview"]}
        if (more := answer["total"] - len(answer["overview"])) > 0:
            facts["..."] = f"and {more} more groups"
        if held["total"]:
            facts["alarms"] = f"{counted(held['total'], 'alarm')} held: failover alarms"
        return facts or {"groups": "there is none: failover group create --help"}


def _row(row: GroupOverview) -> str:
    words = [
        row["service"],
        f"{row['status']} since {when(row['since'])}",
        status_screen.role_holders(row) or "out of service",
    ]
    if row["lost"]:
        words.append(f"lost: {', '.join(row['lost'])}")
    words += status_screen.suspended(row)
    lines = ["; ".join(words)]
    lines += [f"waits for {each}" for each in status_screen.awaited_in_overview(row)]
    if row["status"] in (TraversalStatus.BLOCKED, TraversalStatus.FAILED):
        lines.append(f"failover status {shlex.quote(row['name'])}")
    return "\n".join(lines)


class Watch(GroupCommand, Command):
    """Watch a group: live on a terminal, elsewhere a line for each step.

    Elsewhere each change of its status has a line, too. Ctrl-C only ends the watching.

    If Mistral is down, it is asked again until it is back. The exit code tells the group's last
    status: 0 COMPLETE (or no goal yet), 1 FAILED, 3 waits for an operator (BLOCKED, or an alarm is
    held or its failover has not started), 4 still running.
    """

    arguments = (
        argument(
            "--until-rest",
            action="store_true",
            help="end as soon as nothing is running, and no failover waits for its start, or one "
            f"waits for more than {PATIENCE:.0f} s",
        ),
        argument(
            "--interval",
            type=float,
            default=2.0,
            metavar="SECONDS",
            help="seconds between two looks (default 2)",
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Look repeatedly; return the exit code."""
        looks = watch_updates(
            self.app, parsed_args.group, max(0.1, parsed_args.interval), parsed_args.until_rest
        )
        code = base.FAILED
        try:
            if self.app.stdout.isatty():
                from mistral_failover.cli.live import live

                looks = live(looks, self.app.stdout)
            else:
                looks = _told(looks, self.app.stdout)
            for look in looks:
                if look.status:
                    code = _end(look.status)
        except KeyboardInterrupt:
            self.app.stdout.write("\n")
        return code


def _end(status: StatusReport) -> int:
    """Return the exit code for a group's status."""
    code = ENDS.get(status["status"], base.FAILED)
    return base.BLOCKED if code == base.COMPLETE and _alarms_wait(status) else code


def _alarms_wait(status: StatusReport) -> bool:
    """Return whether alarms are held, or their failovers have not started."""
    return bool(status["held"] or status["unstarted"])


def _told(looks: Iterator[WatchUpdate], stream: Any) -> Iterator[WatchUpdate]:
    """Write a line for each step, and for each change of the status."""
    before = ""
    for look in looks:
        lines = [f"{when(row['at'])}  {row['sentence']}" for row in look.steps]
        if look.away:
            lines.append(f"{look.away}: retrying")
        if look.status and (now := _status_line(look.status)) != before:
            lines.append(f"{when(look.status['now'])}  -- {now}")
            before = now
        for line in lines:
            stream.write(f"{line}\n")
        stream.flush()
        yield look


def _status_line(status: StatusReport) -> str:
    """Return the status of a group in one line."""
    words = [
        f"{status['group']} is {status['status']}",
        status_screen.role_holders(status),
        *(f"waits for {each}" for each in status_screen.awaited_starts(status)),
        *([f"{counted(status['held'], 'alarm')} held"] if status["held"] else []),
    ]
    if status["status"] in status_screen.STOPPED:
        words += [status_screen.why(status), *status_screen.help_lines(status)]
    elif status["status"] != TraversalStatus.IN_PROGRESS and _alarms_wait(status):
        words += status_screen.help_lines(status)
    return "; ".join(filter(None, words))


class History(ActionCommand, Lister):
    """Show the history of a group or of all, one sentence per step, oldest first.

    With a group it also shows people how long each stage of the last traversal took.

    With --summary it has a line for each alarm and order, the latest first: who or what it came
    from, its outcome, the time until the service was back, the whole time, and how much of that it
    waited for a person, for the start after the alarm, or for a lock. Further orders that a single
    outage needed are part of its line.

    With --follow it continues with new steps until Ctrl-C: a line for each step, with -f json one
    object per line.
    """

    arguments = (
        GROUPS,
        argument("--summary", action="store_true", help="a line for each alarm and order"),
        argument(
            "--traversal",
            metavar="ID",
            help="only the steps of this traversal, given by at least 8 digits",
        ),
        argument(
            "--limit",
            type=int,
            default=100,
            metavar="N",
            help=(
                "maximum number of steps, the latest (default 100, at most 1000); with --after "
                "the first"
            ),
        ),
        argument(
            "--after", type=int, metavar="N", help="only the steps after the one with this id"
        ),
        argument("--follow", action="store_true", help="continue with new steps"),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[Any]]]:
        """Query and format."""
        people, group = for_people(parsed_args), parsed_args.group
        self._streamed = parsed_args.follow
        if parsed_args.summary:
            _refuse_options_of_steps(parsed_args)
            return self._summary(parsed_args, people=people)
        if parsed_args.follow and not group:
            raise CommandLineWrong("--follow needs a group. Name it, or use: failover ui [USAGE]")
        columns = ["at", "sentence"] if people else ["id", "at", "kind", "sentence", "traversal_id"]
        columns = columns if group else ["group", *columns]
        rows: list[JournalRow] = self.run_action(
            "failover.history",
            group=group,
            traversal=parsed_args.traversal,
            limit=parsed_args.limit,
            after=parsed_args.after,
        )
        if parsed_args.follow:
            self._follow(parsed_args, rows)
            return columns, []
        if people and rows and group:
            self._stages(_latest(rows))
        return columns, [
            [when(row["at"]) if people and name == "at" else row.get(name) for name in columns]
            for row in rows
        ]

    def _summary(
        self, parsed_args: argparse.Namespace, *, people: bool
    ) -> tuple[list[str], list[list[Any]]]:
        moves: list[Move] = self.run_action(
            "failover.moves", group=parsed_args.group, limit=parsed_args.limit
        )
        if not people:
            return list(MOVE_KEYS), [list(map(move.get, MOVE_KEYS)) for move in moves]
        columns = ["began", "group", "by", "cause", "outcome", "service", "in all", "waited"]
        return columns, [
            [
                when(move["began_at"]),
                move["group"],
                move["by"],
                wrapped(move["cause"], _CAUSE),
                move["outcome"] + ("" if move["ended_at"] is not None else " (not ended)"),
                lasted(move["to_service"]) or "-",
                lasted(move["seconds"]),
                "\n".join(waits(move["waited"])) or "-",
            ]
            for move in moves
        ]

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Any, data: Any) -> int:
        """Show nothing more if every step was written as it came."""
        if self._streamed:
            return 0
        return int(super().produce_output(parsed_args, column_names, data))

    def _follow(self, parsed_args: argparse.Namespace, rows: list[JournalRow]) -> None:
        journal = Journal(self.app, parsed_args.group, parsed_args.traversal)
        journal.after = max((row["id"] for row in rows), default=parsed_args.after or 0)
        try:
            while True:
                for row in rows:
                    self.app.stdout.write(f"{_line(row, parsed_args.formatter)}\n")
                self.app.stdout.flush()
                time.sleep(1.0)
                rows = journal.new()
        except KeyboardInterrupt:
            return

    def _stages(self, traversal: str | None) -> None:
        """Show how long each stage took, to people alone."""
        if traversal is None:
            return
        try:
            found = self.run_action("failover.show", id=traversal)
        except CommandFailed:  # the policy has deleted it since
            return
        for stage in found["stages"]:
            how = lasted(stage["seconds"])
            many = f", {stage['operations']} operations" if stage["operations"] > 1 else ""
            going = " so far" if stage["ended_at"] is None else ""
            self.app.stderr.write(f"{stage['stage']:12} {how}{going}{many}\n")
        if found["stages"]:
            self.app.stderr.write(f"{'in all':12} {lasted(found['seconds'])}\n")


def _refuse_options_of_steps(parsed_args: argparse.Namespace) -> None:
    """Refuse with --summary what chooses among steps. Raises CommandLineWrong."""
    given = {
        "--follow": parsed_args.follow,
        "--traversal": parsed_args.traversal is not None,
        "--after": parsed_args.after is not None,
    }
    if said := " and ".join(name for name, is_given in given.items() if is_given):
        raise CommandLineWrong(
            f"--summary shows no steps, so {said} does not apply: omit it, or --summary. [USAGE]"
        )


def waits(waited: Waited) -> list[str]:
    """Return what a move waited for, a clause each."""
    seconds = {
        "a person": waited["person"],
        "the start": waited["alarm"],
        "a lock": waited["lock"],
    }
    return [f"{lasted(each)} for {what}" for what, each in seconds.items() if each >= 1.0]


def _latest(rows: list[JournalRow]) -> str | None:
    """Return the traversal of the last step."""
    return next((r["traversal_id"] for r in reversed(rows) if r["traversal_id"]), None)


def _line(row: JournalRow, formatter: str) -> str:
    if formatter == "json":
        import json

        return json.dumps(row)
    return f"{when(row['at'])}  {clean(row['sentence'])}"
