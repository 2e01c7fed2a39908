# SPDX-License-Identifier: Apache-2.0
"""``failover confirm-fenced``: a person's word that a lost member no longer writes."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import Any

from cliff.show import ShowOne

from mistral_failover.cli import connection

WORKFLOW = "failover.confirm_fenced"
IN_PROGRESS = "IN_PROGRESS"
_WAIT = 3600.0  # seconds that a failover is followed at most
_PAUSE = 1.0  # seconds between two looks at it


class ConfirmFenced(ShowOne):
    """Vouch that a lost member no longer writes; the failover that was BLOCKED for want of a proof
    goes on, and is followed to its end.

    Be sure: its power is off, or its host is gone. What you say goes into the record.

    Exit code 1 when the failover does not become COMPLETE.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The options."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("group", help="the group's name")
        parser.add_argument("member", help="the lost member")
        parser.add_argument(
            "--because", required=True, metavar="TEXT", help="what makes you sure of it"
        )
        parser.add_argument(
            "--no-wait", action="store_true", help="only start it: do not follow it to its end"
        )
        connection.add_options(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Start the workflow, follow it, and show what came of it."""
        execution = connection.run_workflow(
            parsed_args,
            WORKFLOW,
            wait=0.0 if parsed_args.no_wait else _WAIT,
            group=parsed_args.group,
            member=parsed_args.member,
            because=parsed_args.because,
        )
        facts = {"execution": execution["id"], "state": execution["state"], **_said(execution)}
        if not parsed_args.no_wait and facts.get("status") == IN_PROGRESS:
            facts |= _followed(parsed_args)
        self._exit_code = 0 if parsed_args.no_wait or facts.get("status") == "COMPLETE" else 1
        return list(facts), list(facts.values())

    def run(self, parsed_args: argparse.Namespace) -> int:
        """The exit code tells whether the goal was reached."""
        self._exit_code = 0
        return int(super().run(parsed_args)) or self._exit_code


def _followed(parsed_args: argparse.Namespace) -> dict[str, Any]:
    """What becomes of a failover that others carry on: a fence that was being climbed hears of the
    word by itself."""
    end = time.monotonic() + _WAIT
    while True:
        status = connection.run_action(parsed_args, "failover.status", group=parsed_args.group)
        if status["status"] != IN_PROGRESS or time.monotonic() > end:
            return {"status": status["status"], "reason": status["reason"]}
        time.sleep(_PAUSE)


def _said(execution: Mapping[str, Any]) -> dict[str, Any]:
    """The outcome that the workflow ended with, and the error, if there is one."""
    output = execution.get("output")
    if not isinstance(output, Mapping):
        return {}
    error = output.get("error")
    error = error if isinstance(error, Mapping) else {"message": error} if error else {}
    report = output.get("outcome") or error.get("report")
    facts = dict(report) if isinstance(report, Mapping) else {}
    for key in ("code", "message", "remedy"):
        if error.get(key) and error[key] != facts.get("reason"):
            facts[key] = error[key]
    return facts
