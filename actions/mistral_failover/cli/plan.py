# SPDX-License-Identifier: Apache-2.0
"""``failover plan`` and ``failover start``: see what would happen before it does."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from cliff.show import ShowOne

from mistral_failover.cli import base, connection, order
from mistral_failover.cli.base import for_people, lasted, when
from mistral_failover.convergence.records import TraversalStatus
from mistral_failover.model.decisions import OrderVerb

if TYPE_CHECKING:  # a command starts without the code of the actions
    from mistral_failover.orders.plan.documents import PlanDocument, PlanStep, Risk

VERBS = tuple(each.value for each in OrderVerb)
_LOST = ("down", "lost", "dead", "gone", "failed", "broken", "unreachable", "not responding")
_RECOVERED = ("recovered", "well", "back", "up", "repaired", "healthy")
_SERVES = frozenset({"SERVING", "DEGRADED"})
_UNFINISHED = frozenset({"IN_PROGRESS", "BLOCKED", "FAILED"})
_FILLING = frozenset({"is", "has", "was", "been", "again"})
_BEFORE = frozenset({"member", "server"})


def show_plan(app: Any, parsed_args: argparse.Namespace, **inputs: Any) -> tuple[Any, Any]:
    """Plan a verb instead of carrying it out: the answer of a ``take_action`` of cliff's ShowOne,
    formatted for people or complete for machines.

    ``inputs`` are those of the action ``failover.plan`` (group, verb, to, lost, ...); None for
    those not given. Raises CommandFailed.
    """
    with connection.mistral(app) as client:
        plan: PlanDocument = client.run_action("failover.plan", base.given(inputs))
    shown = _readable(plan) if for_people(parsed_args) else plan
    return list(shown), list(shown.values())


def facts_said(sentences: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the lost and the recovered members from sentences such as ``db_a is down``.

    Raises CommandLineWrong for an unknown sentence, with the known forms.
    """
    lost: list[str] = []
    recovered: list[str] = []
    for sentence in sentences:
        words = sentence.strip(" .!").split()
        if words and words[0].lower() in _BEFORE:
            words = words[1:]
        member = words[0].strip("\"'") if words else ""
        said = " ".join(word for word in (w.lower() for w in words[1:]) if word not in _FILLING)
        if said not in (*_LOST, *_RECOVERED):
            raise connection.CommandLineWrong(
                f'--fact "{sentence}" is not understood. Use "MEMBER is WORD" with one of '
                f"{', '.join(_LOST)} for a member that is lost, or {', '.join(_RECOVERED)} for one "
                "that serves again. [USAGE]"
            )
        (lost if said in _LOST else recovered).append(member)
    return lost, recovered


def _readable(plan: PlanDocument) -> dict[str, Any]:
    """Format a plan for people: a few lines per question."""
    if not plan["plan"]:
        return {"group": plan["group"], "what": plan["sentence"]}
    shown = {
        "plan": plan["plan"],
        "what": plan["sentence"],
        "steps": "\n".join(_steps(plan["steps"])) or "none: everything is as the goal wants it",
        "in all": lasted(plan["seconds"]) or _unknown(plan["steps"]),
        "fences": "\n".join(fence["sentence"] for fence in plan["fences"]) or "no member is fenced",
        "risks": "\n".join(_risk(risk) for risk in plan["risks"]) or "none found",
        "holds until": f"{when(plan['expires_at'])} UTC, if nothing changes before",
        "start it": f"failover start --plan {plan['plan']}",
    }
    if plan["changed"]:
        shown = {"no longer so": "\n".join(plan["changed"]), **shown}
    return shown


def steps_of(plan: PlanDocument) -> str:
    """Return what a plan would do, and its risks, in lines."""
    risks = [f"risk: {_risk(risk)}" for risk in plan["risks"]]
    lines = [plan["sentence"], *_steps(plan["steps"] if plan["plan"] else []), *risks]
    return "".join(f"{line}\n" for line in lines)


def _steps(steps: list[PlanStep]) -> list[str]:
    """Return a line for each step: number, what, expected seconds, what it waits for."""
    width = max((len(step["what"]) for step in steps), default=0)
    return [
        f"{step['number']:>2}  {step['what']:<{width}}  {_expected(step):>8}  {_waits(step)}"
        for step in steps
    ]


def _unknown(steps: list[PlanStep]) -> str:
    count = sum(1 for step in steps if step["certain"] and step["expected"] is None)
    return f"not known: {count} of {len(steps)} steps were never done before in this project"


def _expected(step: PlanStep) -> str:
    return "?" if step["expected"] is None else lasted(step["expected"])


def _waits(step: PlanStep) -> str:
    if not step["after"]:
        return "at once"
    return f"after {', '.join(str(number) for number in step['after'])}"


def _risk(risk: Risk) -> str:
    return f"{risk['sentence']}. {risk['remedy']} [{risk['code']}]"


class PlannableOrder(order.Order):
    """An order whose plan can be shown first: its ``verb`` is that of ``failover plan``."""

    verb = ""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the options of every order, and --dry-run."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="only show what would happen, step by step; change nothing",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Show the plan, or start, follow and show."""
        if parsed_args.dry_run:
            inputs = self.inputs(parsed_args)
            return show_plan(
                self.app, parsed_args, group=parsed_args.group, verb=self.verb, **inputs
            )
        return super().take_action(parsed_args)


class Plan(base.ActionCommand, ShowOne):
    """Show what would happen now, without changing anything.

    It shows each step, what the step waits for (steps that wait for the same run in parallel) and
    how long it took before; which members are fenced, and how; and the risks. Nothing is written to
    the cloud or to the group, so plan as often as you like. Start exactly this plan with the
    command shown at the end; it is refused if anything that the plan depends on has changed.

    Examples: failover plan payments --fact "db_a is down"; failover plan payments --verb switchover
    --to db_b.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the options of the command."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("group", nargs="?", help="the group's name")
        parser.add_argument(
            "--plan",
            metavar="ID",
            help=(
                "show an earlier plan again, and whether it is still valid; its id, or the first "
                "8 digits"
            ),
        )
        parser.add_argument(
            "--verb", choices=VERBS, default=None, help="the order to plan (default failover)"
        )
        add_facts(parser)
        parser.add_argument(
            "--role", metavar="ROLE", help="for a switchover or failback: the role to move"
        )
        parser.add_argument(
            "--goal",
            metavar="VERSION",
            help=("for a rollback: the goal's version, or its first digits"),
        )
        parser.add_argument(
            "--member", metavar="MEMBER", help=("for a replacement: the member to replace")
        )
        parser.add_argument(
            "--resource",
            metavar="NAME",
            help="for a replacement: only this resource of the member's own stack",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Query and format."""
        if (parsed_args.group is None) == (parsed_args.plan is None):
            raise connection.CommandLineWrong("Give a group, or --plan with a plan's id. [USAGE]")
        inputs = {
            name: getattr(parsed_args, name)
            for name in ("group", "plan", "verb", "role", "goal", "member", "resource")
        }
        return show_plan(self.app, parsed_args, **inputs, **given_facts(parsed_args))


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

    def add_group(self, parser: argparse.ArgumentParser) -> None:
        """A plan contains its group."""
        parser.add_argument("group", nargs="?", help="the group's name; not needed with --plan")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the plan, or the facts."""
        parser.add_argument(
            "--plan",
            metavar="ID",
            help="a plan's id, as 'failover plan' shows it, or its first 8 digits",
        )
        add_facts(parser)
        parser.add_argument(
            "--yes",
            action="store_true",
            help="do not ask, even if a member that is named as lost looks healthy",
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
            elif sys.stdin.isatty() and not parsed_args.yes:
                self._ask_for_the_healthy(parsed_args.group, facts["lost"])
        return super().take_action(parsed_args)

    def _ask_for_the_healthy(self, group: str, lost: Iterable[str]) -> None:
        """Ask whether members are lost that served at the last look. Raises CommandFailed."""
        status = self.run_action("failover.status", group=group)
        service = status["service"]
        if service["status"] not in _SERVES or service["seen_at"] is None:
            return
        for member in sorted(set(lost) & set(status["roles"].values())):
            ago = lasted(status["now"] - service["seen_at"])
            sys.stderr.write(
                f"{member} looked healthy {ago} ago, and {group} serves there. It will be fenced, "
                "and what it does is lost.\nTo move the role without a fence: failover switchover "
                f"{shlex.quote(group)}\n"
            )
            base.confirm(f"Fence {member}", yes=False)

    def _goes_on(self, group: str) -> None:
        """Check that there is a goal to continue to. Raises CommandFailed."""
        status = self.run_action("failover.status", group=group)
        name = shlex.quote(group)
        if status["traversal"] is not None and not status["roles"]:
            raise connection.CommandFailed(
                f"{group} is out of service, or on its way there. To bring it up: failover group "
                f"activate {name}. To continue and delete it: failover group delete {name} "
                "[BAD_INPUT]"
            )
        if status["status"] == TraversalStatus.COMPLETE:
            raise connection.CommandFailed(
                f"{group} has reached its goal, and no member is lost unless you name it. Use "
                "--lost MEMBER or --fact \"MEMBER is down\" (--lost '' for no member). To move a "
                f"role while all members are healthy: failover switchover {name} [BAD_INPUT]"
            )


class Recover(order.Order):
    """Confirm that lost members are healthy again, so that they may take over.

    No role moves. If a failover that treats a member as lost has not reached its goal, it asks,
    because the order takes that failover back. To move the roles home, see failover failback, which
    takes --recovered as well. A member that was replaced needs no confirmation.
    """

    workflow = "failover.failover"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the members."""
        parser.add_argument("member", nargs="+", help="a lost member that you found healthy")
        base.add_yes(parser)

    def inputs(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """No further member is lost, and these are lost no more."""
        return {"lost": [], "recovered": parsed_args.member}

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Ask if a failover would be taken back, then start and follow."""
        group = parsed_args.group
        status = self.run_action("failover.status", group=group)
        going = status["status"] in _UNFINISHED and set(parsed_args.member) & set(status["lost"])
        if going and not parsed_args.yes:
            lost = ", ".join(sorted(going))
            sys.stderr.write(
                f"{group} is {status['status']}: a failover that treats {lost} as lost has not "
                "reached its goal. This order takes it back.\n"
            )
            base.confirm(f"Does {lost} certainly serve again", yes=False)
        if parsed_args.because is None:
            parsed_args.because = f"declared healthy: {', '.join(parsed_args.member)}"
        return super().take_action(parsed_args)


def add_facts(parser: argparse.ArgumentParser) -> None:
    """Add the options for the facts that an operator knows."""
    parser.add_argument(
        "--to", metavar="MEMBER", help="the member that takes over (default: the group's choice)"
    )
    parser.add_argument(
        "--lost",
        metavar="MEMBER",
        action="append",
        help=(
            "a lost member; may be repeated; '' for none (default: none; for a plan: the holder "
            "of a role)"
        ),
    )
    parser.add_argument(
        "--recovered",
        metavar="MEMBER",
        action="append",
        help="a lost member that you confirm as healthy; may be repeated",
    )
    parser.add_argument(
        "--fact",
        metavar="SENTENCE",
        action="append",
        help='the same as a sentence: "db_a is down", "db_b is well"; may be repeated',
    )


def given_facts(parsed_args: argparse.Namespace) -> dict[str, Any]:
    """Return the inputs ``to``, ``lost`` and ``recovered`` from the options of :func:`add_facts`;
    None for those not given. Raises CommandLineWrong."""
    lost, recovered = facts_said(parsed_args.fact or ())
    lost += [name for name in parsed_args.lost or () if name]
    recovered += parsed_args.recovered or ()
    none_lost = parsed_args.lost is not None or recovered
    return {
        "to": parsed_args.to,
        "lost": lost if lost or none_lost else None,
        "recovered": recovered or None,
    }
