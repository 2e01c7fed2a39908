# SPDX-License-Identifier: Apache-2.0
"""``failover alarms``, ``failover admit``, ``failover dismiss``: alarms that wait for an operator;
``failover host-lost`` and ``zone-lost``: the alarms that an operator gives; ``failover alarm
sign``: those that a program sends to the webhook of ``failover server``."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cliff.command import Command
from cliff.lister import Lister

from mistral_failover.alarms.storm import LEAST, MOST, per_minute
from mistral_failover.cli import connection
from mistral_failover.cli.arguments import GROUPS, REASON, Adding, Arguments, argument, as_written
from mistral_failover.cli.base import FAILED, ActionCommand, for_people, given, when, worded
from mistral_failover.cli.connection import CommandFailed, CommandLineWrong
from mistral_failover.cli.order import Order
from mistral_failover.cli.progress import Progress
from mistral_failover.model.decisions import Decision
from mistral_failover.model.text import counted

_AT_ONCE = 100  # alarms that one request dismisses
_MINUTE = 60.0


class List(ActionCommand, Lister):
    """List the alarms that are held, with the commands that admit them.

    The latest comes first. Each can be admitted or dismissed.

    An alarm is held when its group is paused or in maintenance, when too many came or many groups
    fail at once, when it is too old, or when it is unknown which member it is about. A held alarm
    starts nothing. Admit it to start its failover; dismiss it to remove it from the list.
    """

    arguments = (
        GROUPS,
        argument(
            "--limit",
            type=int,
            default=100,
            metavar="N",
            help="maximum number of alarms to list, the latest (default 100, at most 1000)",
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[Any]]]:
        """Query and format."""
        answer = self.run_action("failover.held", group=parsed_args.group, limit=parsed_args.limit)
        rows, total = answer["held"], answer["total"]
        if total > len(rows):
            self.app.stderr.write(f"These are {len(rows)} of {total}.\n")
        if answer.get("unlisted"):
            self.app.stderr.write(
                f"{counted(answer['unlisted'], 'alarm')} so far had no room on the list, the last "
                f"at {when(answer['unlisted_at'])}. Admit or dismiss some of those that are held.\n"
            )
        if not rows:
            self.app.stderr.write("No alarm is held.\n")
        self._commands = []
        if for_people(parsed_args):
            self._commands = [row[what] for row in rows for what in ("admit", "dismiss")]
            columns = ["group", "lost", "heard", "last", "alarm"]
            return columns, [
                [
                    _concerned(row),
                    _lost(row),
                    row["heard"],
                    when(row["last_at"]),
                    row["sentence"],
                ]
                for row in rows
            ]
        columns = ["incident", "group", "lost", "sentence", "rule", "source", "heard"]
        columns += ["first_at", "last_at", "host", "zone"]
        columns += ["children", "evidence", "admit", "dismiss"]
        return columns, [[row.get(column) for column in columns] for row in rows]

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Any, data: Any) -> int:
        """The table, and below it the commands in full, to copy."""
        code = int(super().produce_output(parsed_args, column_names, data))
        for command in self._commands:
            self.app.stdout.write(f"{command}\n")
        return code


def _concerned(row: Mapping[str, Any]) -> str:
    """Return the group that an alarm concerns, or the number of groups of a host event."""
    return counted(row["children"], "group") if row["children"] else row["group"] or "?"


def _lost(row: Mapping[str, Any]) -> str:
    """Return what an alarm reports as lost: members, or where a host event happened."""
    if not row["children"]:
        return ", ".join(row["lost"] or ["?"])
    return f"host {row['host']}" if row["host"] else f"zone {row['zone']}"


def _selection(every: str) -> tuple[Adding, ...]:
    """Several alarms, instead of those that are named."""
    return (
        argument("--all", action="store_true", help=every),
        argument(
            "--host",
            metavar="HOST",
            help="the held alarms of the groups that this host's failure hit",
        ),
        argument(
            "--zone", metavar="ZONE", help="the held alarms about members in this availability zone"
        ),
    )


def _check_selection(parsed_args: argparse.Namespace, named: Any) -> None:
    """Exactly one of ids, --all, --host and --zone."""
    several = (parsed_args.host is not None, parsed_args.zone is not None)
    if sum((bool(named), parsed_args.all, *several)) != 1:
        raise CommandLineWrong(
            "Give either the id of an alarm, or --all, or --host HOST, or --zone ZONE."
        )


def _passed_over(answer: Mapping[str, Any]) -> dict[str, str]:
    """Return why alarms that may be about a zone were left out, by group."""
    unsure = f" ({answer['unsure']})" if answer.get("unsure") else ""
    return {row["group"]: row["why"] + unsure for row in answer.get("passed_over", ())}


def _start_chains(app: Any, started: Iterable[Mapping[str, Any]], left: Sequence[str] = ()) -> None:
    """Start the chains of traversals that have begun, and the failovers of the incidents that are
    left. If this is interrupted, a sweep does it."""
    with connection.mistral(app) as client:
        if left:
            client.start(
                "failover.start_admitted",
                {"incidents": list(left)},
                description="by the command line",
                namespace=connection.namespace(app),
            )
        for row in started:
            client.start(
                row["workflow"],
                {"traversal": row["traversal"]},
                description="by the command line",
                namespace=connection.namespace(app),
            )


class Admit(Order):
    """Admit an alarm that is held, or several.

    Its failover starts, regardless of the rules of admission, and is followed to its end. The alarm
    of a host or a zone, --all, --host and --zone admit several: their failovers start at a limited
    rate, groups with a higher priority first, and are not followed. Ctrl-C stops that; what was not
    admitted stays held.

    The id is in 'failover alarms'. 'failover plan' shows what would happen.
    """

    workflow = "failover.failover"

    arguments = (
        argument(
            "incident",
            nargs="?",
            help="the alarm's id from 'failover alarms', or its first 8 digits",
        ),
        *_selection("every held alarm of the project whose group and member are known"),
        argument("--group", help="the group, if the alarm does not name it"),
        argument(
            "--lost",
            action="append",
            metavar="MEMBER",
            help="a lost member, if the alarm does not name it or is wrong; may be repeated",
        ),
        argument(
            "--to",
            metavar="MEMBER",
            help=("the member that takes over (default: as the group file says)"),
        ),
        argument(
            "--rate",
            type=float,
            metavar="N",
            help=(
                "of several alarms, how many to admit in a minute (default: a tenth of them, from "
                f"{LEAST} to {MOST})"
            ),
        ),
        REASON,  # it bypasses the rules
    )

    def inputs(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """What the alarm and the operator say."""
        return {
            "incident": parsed_args.incident,
            "lost": parsed_args.lost,
            "to": parsed_args.to,
        }

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Find the group and the member, then start and follow; or start several."""
        _check_selection(parsed_args, parsed_args.incident)
        if parsed_args.rate is not None and parsed_args.rate <= 0:
            raise CommandLineWrong("--rate must be more than 0.")
        if parsed_args.incident is None:
            return self._several(parsed_args, host=parsed_args.host, zone=parsed_args.zone)
        if parsed_args.group is None:
            found = self.run_action("failover.show", id=parsed_args.incident)
            if found["kind"] == "incident" and found["children"]:
                return self._several(parsed_args, incident=found["id"])
            parsed_args.group = self._group(parsed_args.incident, found)
        return super().take_action(parsed_args)

    def _several(
        self, parsed_args: argparse.Namespace, **selection: str | None
    ) -> tuple[list[str], list[Any]]:
        """Admit one alarm after the other, so that the rate holds and each is shown at once."""
        if parsed_args.lost or parsed_args.to or parsed_args.group:
            raise CommandLineWrong("--group, --lost and --to are about a single alarm.")
        admitted: list[str] = []
        refused: dict[str, str] = {}
        tried: set[str] = set()
        rate: float | None = parsed_args.rate
        with Progress(sys.stderr, "asking Mistral") as tell:
            while True:
                began = time.monotonic()
                answer = self.run_action(
                    "failover.admit_held", because=parsed_args.because, limit=1, **given(selection)
                )
                _start_chains(self.app, answer["admitted"])
                left = counted(answer["left"], "alarm")
                for row in answer["admitted"]:
                    admitted.append(row["group"])
                    tell(None, "admitted", f"{row['group']}: its failover started; {left} left")
                # A refused alarm is admitted, and a sweep starts it. If it is the next one again,
                # it stayed held.
                again = [row for row in answer["refused"] if row["incident"] in tried]
                tried |= {row["incident"] for row in answer["refused"]}
                for row in answer["refused"]:
                    refused[row["group"]] = row["error"]["message"]
                    tell(None, "failed", f"{row['group']}: {row['error']['message']}; {left} left")
                if not answer["left"] or again or not (answer["admitted"] or answer["refused"]):
                    break
                rate = rate or per_minute(answer["left"] + 1)
                time.sleep(max(0.0, began + _MINUTE / rate - time.monotonic()))
        if refused:
            self.exit_code = FAILED
        facts = {
            "admitted": admitted,
            "refused": refused,
            "passed_over": _passed_over(answer),
            "left": answer["left"],
        }
        shown = worded(facts) if for_people(parsed_args) else facts
        return list(shown), list(shown.values())

    def _group(self, incident: str, found: Mapping[str, Any]) -> str:
        if found["kind"] != "incident" or found["decision"] != Decision.HELD:
            what = f"{found['kind']} {found['id']}"
            stands = f", which is {found['decision']}" if "decision" in found else ""
            raise CommandFailed(
                f"Alarm {incident} is not held: it is the {what}{stands}. 'failover alarms' lists "
                f"the held ones, 'failover show {found['id']}' shows what happened to it. "
                "[NOT_HELD]"
            )
        if found["group"] is None:
            lost = " --lost ".join(map(shlex.quote, found["fact"].get("lost", ["MEMBER"])))
            raise CommandFailed(
                f"The alarm does not name its group. Name it: failover admit {found['id']} --group "
                f"GROUP --lost {lost} --because WHY [UNKNOWN_GROUP]"
            )
        return str(found["group"])


class Dismiss(ActionCommand, Lister):
    """Remove held alarms from the list; your name and reason are recorded.

    Of the alarm of a host or a zone, the alarms of its groups are removed.
    """

    arguments = (
        argument(
            "incidents",
            nargs="*",
            metavar="incident",
            help="ids from 'failover alarms', or their first 8 digits",
        ),
        *_selection("every held alarm of the project"),
        REASON,
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[Any]]]:
        """Dismiss them one after the other."""
        _check_selection(parsed_args, parsed_args.incidents)
        because = parsed_args.because
        if parsed_args.incidents:
            answer = self.run_action(
                "failover.dismiss", incident=parsed_args.incidents, because=because
            )
            rows = answer["dismissed"]
        else:
            rows = self._several(because, host=parsed_args.host, zone=parsed_args.zone)
        columns = ["incident", "sentence"]
        return columns, [[row[column] for column in columns] for row in rows]

    def _several(self, because: str, **selection: str | None) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        with Progress(sys.stderr, "asking Mistral") as tell:
            while True:
                answer = self.run_action(
                    "failover.dismiss_held",
                    because=because,
                    limit=_AT_ONCE,
                    **given(selection),
                )
                rows += answer["dismissed"]
                left = counted(answer["left"], "alarm")
                tell(None, "started", f"{counted(len(rows), 'alarm')} dismissed, {left} left")
                if not answer["left"] or not answer["dismissed"]:
                    break
        for group, why in _passed_over(answer).items():
            self.app.stderr.write(f"{group}: passed over, because {why}.\n")
        return rows


class _PlaceLost(ActionCommand, Lister):
    """Report that a place failed: the one named by the argument ``what``."""

    what: str
    arguments = (REASON,)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[Any]]]:
        """Send the alarm, start the failovers, and show the decisions."""
        failed = {self.what: getattr(parsed_args, self.what)}
        body = {**failed, "id": str(uuid.uuid4())}
        answer = self.run_action(
            "failover.admit_event", body=body, kind="signal", because=parsed_args.because
        )
        _start_chains(self.app, answer["started"], answer.get("left", ()))
        if answer["refused"]:
            self.exit_code = FAILED
        columns = ["incident", "decision", "sentence"]
        return columns, [[row[column] for column in columns] for row in answer["admissions"]]


class HostLost(_PlaceLost):
    """Report that a compute host failed, with every server on it.

    Each group of the project with a member on the host has an alarm about it, which is judged as
    any other, but not dismissed if the servers seem well. The failovers that start are shown by
    'failover status'; alarms that are held, by 'failover alarms'.
    """

    what = "host"
    arguments = (argument("host", help="the compute host's name, as Nova knows it"),)


class ZoneLost(_PlaceLost):
    """Report that an availability zone failed, with every server in it.

    Each group of the project with a member in the zone has an alarm about it, as by 'failover
    host-lost'. No rights of an administrator are needed to know where members are.
    """

    what = "zone"
    arguments = (
        argument("zone", help="the availability zone's name, as 'openstack server show' prints it"),
    )


class Sign(Arguments, Command):
    """Print the two headers that sign an alarm for the webhook of 'failover server'.

    For a sender that is a script:

        failover alarm sign --secret-file FILE alarm.json |
          curl -sS "$WEBHOOK" -H @- --data-binary @alarm.json

    The secret stays in its file, so no list of processes shows it. The signature covers every byte
    of the body and the time. It is accepted once, within 300 s: sign each attempt again.

    Exit codes: 0 signed; 1 the secret or the body cannot be used; 2 wrong command line.
    """

    auth_required = False

    arguments = (
        as_written,
        argument(
            "body",
            nargs="?",
            default="-",
            metavar="FILE",
            help="the body of the request, exactly as it is sent (default: standard input)",
        ),
        argument(
            "--secret-file",
            type=Path,
            metavar="FILE",
            help="the webhook's secret, mode 0600; its first line signs (default: that of the "
            "'failover server' on this machine)",
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Sign. Raises CommandFailed."""
        from mistral_failover.errors import CodedError
        from mistral_failover.server import secret

        file = parsed_args.secret_file or Path(connection.server_facts(self.app)["secret_file"])
        try:
            known = secret.read(file)
        except CodedError as error:
            here = error.code == "SECRET_NOT_PRIVATE"
            remedy = error.remedy if here else "Copy the secret of the server's webhook into it."
            raise CommandFailed(f"{error.message}. {remedy} [{error.code}]") from None
        for name, value in known.headers(_body(parsed_args.body), int(time.time())).items():
            self.app.stdout.write(f"{name}: {value}\n")
        return 0


def _body(name: str) -> bytes:
    """Return the content of a file, or of standard input for "-". Raises CommandFailed."""
    try:
        found = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise CommandFailed(f"{name} cannot be read: {error.strerror}. [NO_FILE]") from None
    if not found:
        shown = "standard input" if name == "-" else name
        raise CommandFailed(
            f"There is nothing to sign: {shown} is empty. Write the request's body into it. "
            "[NO_FILE]"
        )
    return found
