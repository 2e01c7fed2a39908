# SPDX-License-Identifier: Apache-2.0
"""``failover start``: a failover, or exactly what a plan shows. ``failover recover``: lost members
are healthy again."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mistral_failover.cli import base, connection, order
from mistral_failover.cli.arguments import BECAUSE, GROUP, YES, argument
from mistral_failover.cli.base import lasted
from mistral_failover.cli.plan import add_facts, given_facts
from mistral_failover.cli.status_screen import help_lines
from mistral_failover.convergence.records import TraversalStatus
from mistral_failover.model.observation import Service
from mistral_failover.model.text import clean
from mistral_failover.reports.advice import in_service

if TYPE_CHECKING:  # a command starts without the code of the actions
    from mistral_failover.orders.evidence import Evidence
    from mistral_failover.reports.documents import StatusReport

_SERVES = frozenset({Service.SERVING, Service.DEGRADED})
_UNFINISHED = frozenset({"IN_PROGRESS", "BLOCKED", "FAILED"})
_OF_HEALTH = frozenset({"server", "agent"})
"""What the signs are about that tell whether a member is well."""


class Start(order.Order):
    """Start a failover, or exactly what a plan shows, and follow it to its end.

    With --plan it starts only the planned goal, and only if nothing has changed since (PLAN_STALE
    names the change). Without --plan the goal follows from your options: the lost members, the
    recovered ones, the target. Members count as lost only if you name them. With a group alone it
    continues to the goal that was not reached (FAILED, BLOCKED); it is refused if the goal was
    reached.

    Ctrl-C stops following, not the failover.
    """

    workflow = "failover.failover"

    arguments = (
        argument("group", nargs="?", help="the group's name; not needed with --plan"),
        argument(
            "--plan",
            metavar="ID",
            help="a plan's id, as 'failover plan' shows it, or its first 8 digits",
        ),
        add_facts,
        argument(
            "--yes",
            action="store_true",
            help="do not ask if a lost member looks healthy, or a recovered one does not; needed "
            "without a terminal",
        ),
        BECAUSE,
    )

    def inputs(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """For a plan, only its id."""
        if parsed_args.plan:
            return {"plan": parsed_args.plan, "group": None}
        return given_facts(parsed_args)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Find the plan's group, then start and follow."""
        facts = given_facts(parsed_args)
        said = any(value is not None for value in facts.values())
        if parsed_args.plan and (parsed_args.group or said):
            raise connection.CommandLineWrong("A plan is complete: give --plan alone. [USAGE]")
        if parsed_args.plan:
            self.workflow = "failover.start_plan"
            # Its group, to show the steps of; the start reports its status.
            parsed_args.group = self.run_action("failover.plan", plan=parsed_args.plan)["group"]
        elif not parsed_args.group:
            raise connection.CommandLineWrong("Give a group, or --plan with a plan's id. [USAGE]")
        else:
            if not said:
                self._goes_on(parsed_args.group)
            if facts["lost"] is None:
                parsed_args.lost = [""]  # no new member is lost, whatever the group's present goal
            elif facts["lost"] and not parsed_args.yes:
                self._ask_for_the_healthy(parsed_args.group, facts["lost"])
            if facts["recovered"] and not parsed_args.yes:
                status = self.run_action("failover.status", group=parsed_args.group)
                unwell = not_seen_well(self, status, facts["recovered"])
                if unwell:
                    base.confirm(f"Is {', '.join(unwell)} certainly healthy", yes=False)
        return super().take_action(parsed_args)

    def _ask_for_the_healthy(self, group: str, lost: Iterable[str]) -> None:
        """Ask whether members are lost that served when they were seen last, or of which nothing
        is known now. What was not running when it was seen last is looked at again. Raises
        CommandFailed."""
        status = self.run_action("failover.status", group=group)
        if set(lost) & set(status["service"]["gone"]):  # it may have been started since
            with suppress(connection.CommandFailed):
                self.run_action("failover.observe", group=group)
            status = self.run_action("failover.status", group=group)
        service = status["service"]
        seen = service["seen_at"] or service["since"]
        if service["status"] not in (*_SERVES, Service.UNKNOWN) or seen is None:
            return
        ago = lasted(status["now"] - seen)
        for member in sorted(set(lost) & set(status["roles"].values()) - set(service["gone"])):
            looked = (
                f"{member} looked healthy {ago} ago, and {group} serves there"
                if service["status"] in _SERVES
                else f"Whether {group} serves on {member} is not known for {ago}"
            )
            sys.stderr.write(
                f"{looked}. It will be fenced, and what it does is lost.\nTo move the role without "
                f"a fence: failover switchover {shlex.quote(group)}\n"
            )
            base.confirm(f"Fence {member}", yes=False)

    def _goes_on(self, group: str) -> None:
        """Check that there is a goal to continue to. Raises CommandFailed."""
        status = self.run_action("failover.status", group=group)
        name = shlex.quote(group)
        if status["traversal"] is not None and not in_service(status):
            raise connection.CommandFailed(
                f"{group} is out of service, or on its way there. To bring it up: failover group "
                f"activate {name}. To continue and delete it: failover group delete {name} "
                "[BAD_INPUT]"
            )
        service = status["service"]
        if service["stack_gone"] or service["another_stack"]:
            raise connection.CommandFailed(
                f"{'; '.join(service['reasons'])}. {'; '.join(help_lines(status))} "
                f"[{'NOT_FOUND' if service['stack_gone'] else 'STACK_REPLACED'}]"
            )
        if status["status"] == TraversalStatus.COMPLETE:
            raise connection.CommandFailed(
                f"{group} has reached its goal, and no member is lost unless you name it. Use "
                "--lost MEMBER or --fact \"MEMBER is down\" (--lost '' for no member). To move a "
                f"role while all members are healthy: failover switchover {name} [BAD_INPUT]"
            )


def not_seen_well(
    command: base.ActionCommand, status: StatusReport, members: Iterable[str]
) -> list[str]:
    """Return those of these lost members whose server is not seen to run, or whose agent is not
    heard, after writing what is known of each. Raises CommandFailed."""
    group, unwell = status["group"], []
    for member in sorted(set(members) & set(status["lost"])):
        found: Evidence = command.run_action("failover.evidence", group=group, member=member)
        if all(sign["alive"] for sign in found["signs"] if sign["about"] in _OF_HEALTH):
            continue
        words = f"{shlex.quote(group)} {shlex.quote(member)}"
        sys.stderr.write(clean(order.signs(found)))
        sys.stderr.write(f"To give it a new server instead: failover replace {words}\n")
        unwell.append(member)
    return unwell


class Recover(order.Order):
    """Confirm that lost members are healthy again, so that they may take over.

    No role moves. It asks if a member's server is not seen to run or its agent is not heard, and
    shows what is known; and if a failover that treats a member as lost has not reached its goal,
    because the order takes that failover back. To move the roles home, see failover failback, which
    takes --recovered as well. A member that was replaced needs no confirmation.
    """

    workflow = "failover.failover"

    arguments = (
        GROUP,
        argument("member", nargs="+", help="a lost member that you found healthy"),
        YES,
        BECAUSE,
    )

    def inputs(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """No further member is lost, and these are lost no more."""
        return {"lost": [], "recovered": parsed_args.member}

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Ask if that is in doubt, then start and follow."""
        if not parsed_args.yes:
            self._ask(parsed_args.group, parsed_args.member)
        if parsed_args.because is None:
            parsed_args.because = f"declared healthy: {', '.join(parsed_args.member)}"
        return super().take_action(parsed_args)

    def _ask(self, group: str, members: Iterable[str]) -> None:
        """Ask if a failover would be taken back, or a member is not seen well. Raises
        CommandFailed."""
        status: StatusReport = self.run_action("failover.status", group=group)
        unwell = not_seen_well(self, status, members)
        unfinished = status["status"] in _UNFINISHED
        going = sorted(set(members) & set(status["lost"])) if unfinished else []
        if going:
            sys.stderr.write(
                f"{group} is {status['status']}: a failover that treats {', '.join(going)} as lost "
                "has not reached its goal. This order takes it back.\n"
            )
        if doubtful := sorted({*going, *unwell}):
            base.confirm(f"Is {', '.join(doubtful)} certainly healthy", yes=False)
