# SPDX-License-Identifier: Apache-2.0
"""``failover doctor``: checks everything that a failover will need."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from cliff.lister import Lister

from mistral_failover.cli import connection
from mistral_failover.cli.arguments import argument
from mistral_failover.cli.base import COMPLETE, FAILED, ActionCommand, for_people, given
from mistral_failover.model.text import clean_value, counted

_COLUMNS = ("level", "check", "group", "sentence", "remedy")
_STYLES = {"ok": "green", "warn": "yellow", "error": "bold red"}
_ACTION = "failover.doctor"
_INSTALL = (
    "Install the package for Mistral's API, engine and executors (pip install mistral-failover), "
    "set [failover] database in mistral.conf, restart all three, then: failover workflows install"
)


class Doctor(ActionCommand, Lister):
    """Check everything that a failover will need, before it is needed.

    Mistral and its workflows, the state store, rights, stack, members, volumes, the fence, agents,
    broker, clocks, sweeps, alarms.

    Each finding comes with a remedy. Nothing is changed. Without a group the project's first 20 are
    checked. Run it after installing, after each change of a group, and from a timer.

    Exit code 0 if there are no errors (warnings may be there), 1 if there is an error.
    """

    arguments = (argument("group", nargs="?", help="check only this group"),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        """Check from here first, then ask the action for the rest."""
        findings = self._findings(parsed_args.group)
        failed = any(each["level"] == "error" for each in findings)
        self.exit_code = FAILED if failed else COMPLETE
        return _COLUMNS, [[each[name] for name in _COLUMNS] for each in findings]

    def _findings(self, group: str | None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        try:
            with connection.mistral(self.app) as client:
                rows = client.request("GET", "actions", params={"name": f"eq:{_ACTION}"})["actions"]
                found.append(_finding("ok", "connection", f"Mistral answers at {client.url}"))
                if not rows:
                    missing = "this Mistral does not have the package's actions"
                    return [*found, _finding("error", "package", missing, _INSTALL)]
                asked = given({"group": group})
                return [*found, *client.run_action(_ACTION, asked)["findings"]]
        except connection.CommandFailed as error:
            check = "doctor" if found else "connection"
            return [*found, _finding("error", check, error.wrong, error.remedy)]

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Iterable[Any]
    ) -> int:
        """For people a line for each finding and one for its remedy; all of it for machines."""
        if not for_people(parsed_args):
            return int(super().produce_output(parsed_args, column_names, data))
        from rich.console import Console
        from rich.text import Text

        console = Console(file=self.app.stdout, highlight=False, soft_wrap=True)
        rows = clean_value(list(data))
        for level, check, group, sentence, remedy in rows:
            line = Text(f"{level:<6}", style=_STYLES[level])
            line.append(f"{check:<11}", style="default")
            line.append(f"{group}: {sentence}" if group else sentence, style="default")
            console.print(line)
            if remedy:
                console.print(Text(f"{'':17}> {remedy}", style="dim"))
        errors, warnings = (sum(row[0] == level for row in rows) for level in ("error", "warn"))
        found = counted(len(rows), "finding")
        console.print(f"{found}: {counted(errors, 'error')}, {counted(warnings, 'warning')}")
        return 0


def _finding(level: str, check: str, sentence: str, remedy: str = "") -> dict[str, Any]:
    return {"level": level, "check": check, "group": None, "sentence": sentence, "remedy": remedy}
