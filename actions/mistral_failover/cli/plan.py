# SPDX-License-Identifier: Apache-2.0
"""``failover plan`` and ``failover start``: see what would happen before it does.

:class:`Plannable` gives other orders their ``--dry-run``.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from cliff.show import ShowOne

from mistral_failover.cli import base, connection, order
from mistral_failover.cli.base import for_people, lasted, when

VERBS = ("failover", "switchover", "failback", "replace", "rollback", "remove")
_LOST = ("down", "lost", "dead", "gone", "failed", "broken", "unreachable", "not responding")
_RECOVERED = ("recovered", "well", "back", "up", "repaired", "healthy")
_FILLING = frozenset({"is", "has", "was", "been", "again"})
_BEFORE = frozenset({"member", "server"})


def show_plan(app: Any, parsed_args: argparse.Namespace, **inputs: Any) -> tuple[Any, Any]:
    """What a verb would do, in place of doing it: the answer of a ``take_action`` of cliff's
    ShowOne, laid out for people or whole for machines.

    ``inputs`` are those of the action ``failover.plan`` (group, verb, to, lost, ...); those that
    are None were not given. Raises CommandFailed.
    """
    with connection.mistral(app) as client:
        plan = client.run_action("failover.plan", base.given(inputs))
    shown = _readable(plan) if for_people(parsed_args) else plan
    return list(shown), list(shown.values())


def facts_said(sentences: Iterable[str]) -> tuple[list[str], list[str]]:
    """The members that are lost and those that recovered, by sentences such as ``db_a is down``.

    Raises CommandLineWrong for one that is not understood, with the forms that are.
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
                f'--fact "{sentence}" is not understood. Say "MEMBER is WORD", with one of '
                f"{', '.join(_LOST)} for a member that is lost, or {', '.join(_RECOVERED)} for one "
                "that serves again. [USAGE]"
            )
        (lost if said in _LOST else recovered).append(member)
    return lost, recovered


def _readable(plan: Mapping[str, Any]) -> dict[str, Any]:
    """A plan as people read it: a few lines for each question that they have."""
    if not plan["plan"]:
        return {"group": plan["group"], "what": plan["sentence"]}
    shown = {
        "plan": plan["plan"],
        "what": plan["sentence"],
        "steps": "\n".join(_steps(plan["steps"])) or "none: everything is as it shall be",
        "in all": lasted(plan["seconds"]) or _unknown(plan["steps"]),
        "fences": "\n".join(fence["sentence"] for fence in plan["fences"]) or "nobody is fenced",
        "risks": "\n".join(_risk(risk) for risk in plan["risks"]) or "none that can be seen now",
        "holds until": f"{when(plan['expires_at'])} UTC, if nothing changes before",
        "start it": f"failover start --plan {plan['plan']}",
    }
    if plan["changed"]:
        shown = {"no longer so": "\n".join(plan["changed"]), **shown}
    return {name: text if name == "steps" else base.wrapped(text) for name, text in shown.items()}


def _steps(steps: list[dict[str, Any]]) -> list[str]:
    """A line for each step: number, what, expected seconds, what it waits for."""
    width = max((len(step["what"]) for step in steps), default=0)
    return [
        f"{step['number']:>2}  {step['what']:<{width}}  {_expected(step):>8}  {_waits(step)}"
        for step in steps
    ]


def _unknown(steps: list[dict[str, Any]]) -> str:
    count = sum(1 for step in steps if step["certain"] and step["expected"] is None)
    return f"not known: {count} of {len(steps)} steps were never done before in this project"


def _expected(step: Mapping[str, Any]) -> str:
    return "?" if step["expected"] is None else lasted(step["expected"])


def _waits(step: Mapping[str, Any]) -> str:
    if not step["after"]:
        return "at once"
    return f"after {', '.join(str(number) for number in step['after'])}"


def _risk(risk: Mapping[str, Any]) -> str:
    return f"{risk['sentence']}. {risk['remedy']} [{risk['code']}]"


class Plannable(order.Order):
    """An order whose plan can be looked at before: its ``verb`` is that of ``failover plan``."""

    verb = ""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The options of every order, and --dry-run."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="only show what would happen, step by step, and touch nothing",
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


class Plan(base.Asking, ShowOne):
    """Show what would happen now, without touching anything.

    Each step with what it waits for (steps that wait for the same run in parallel) and how long it
    took before; who is fenced, and how; what could go wrong. Nothing is written to the cloud or
    about the group, so plan as often as you like. Then start exactly this with the command that is
    shown last; it is refused if anything that the plan rests on has changed.

    Examples: failover plan payments --fact "db_a is down"; failover plan payments --verb switchover
    --to db_b.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The options."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("group", nargs="?", help="the group's name")
        parser.add_argument(
            "--plan",
            metavar="ID",
            help="look at a plan again that was made before: does it still hold? The first 8 "
            "digits do",
        )
        parser.add_argument(
            "--verb", choices=VERBS, default=None, help="what would be done (default failover)"
        )
        add_facts(parser)
        parser.add_argument(
            "--role", metavar="ROLE", help="of a switchover or failback: which role moves"
        )
        parser.add_argument(
            "--goal", metavar="VERSION", help="of a rollback: to which goal, its first digits"
        )
        parser.add_argument("--member", metavar="MEMBER", help="of a replacement: who is replaced")
        parser.add_argument(
            "--resource",
            metavar="NAME",
            help="of a replacement: only this resource of the member's own stack",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Ask, and lay out."""
        if (parsed_args.group is None) == (parsed_args.plan is None):
            raise connection.CommandLineWrong("Give a group, or --plan with a plan's id. [USAGE]")
        inputs = {
            name: getattr(parsed_args, name)
            for name in ("group", "plan", "verb", "role", "goal", "member", "resource")
        }
        return show_plan(self.app, parsed_args, **inputs, **given_facts(parsed_args))


class Start(order.Order):
    """Start a failover, or exactly what a plan says, and follow it to its end.

    With --plan nothing but the planned goal is started, and only while the world is as it was when
    it was planned (PLAN_STALE says what has changed). Without it the goal follows from what you
    say: who is lost, who recovered, where to; nobody is lost of whom you do not say so. With a
    group alone it goes on to the goal that was not reached (FAILED, BLOCKED), and is refused where
    one was.

    Ctrl-C stops following, not the failover.
    """

    workflow = "failover.failover"

    def add_group(self, parser: argparse.ArgumentParser) -> None:
        """A plan knows its group."""
        parser.add_argument("group", nargs="?", help="the group's name; a plan knows its own")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The plan, or the facts."""
        parser.add_argument(
            "--plan",
            metavar="ID",
            help="a plan's id, as 'failover plan' shows it, or its first 8 digits",
        )
        add_facts(parser)

    def inputs(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Of a plan its id alone."""
        if parsed_args.plan:
            return {"plan": parsed_args.plan, "group": None}
        return given_facts(parsed_args)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Find out whose the plan is, then start and follow."""
        facts = given_facts(parsed_args)
        said = any(value is not None for value in facts.values())
        if parsed_args.plan and (parsed_args.group or said):
            raise connection.CommandLineWrong("A plan says everything: give --plan alone. [USAGE]")
        if parsed_args.plan:
            self.workflow = "failover.start_plan"
            # Its group, to tell the steps of; what became of it says whoever starts it.
            parsed_args.group = self.ask("failover.plan", plan=parsed_args.plan)["group"]
        elif not parsed_args.group:
            raise connection.CommandLineWrong("Give a group, or --plan with a plan's id. [USAGE]")
        else:
            if not said:
                self._goes_on(parsed_args.group)
            if facts["lost"] is None:
                parsed_args.lost = [""]  # nobody new, whatever the group has come to meanwhile
        return super().take_action(parsed_args)

    def _goes_on(self, group: str) -> None:
        """Check that there is a goal to go on to. Raises CommandFailed."""
        status = self.ask("failover.status", group=group)
        name = shlex.quote(group)
        if status["traversal"] is not None and not status["roles"]:
            raise connection.CommandFailed(
                f"{group} is out of service, or on its way there. To bring it up: failover group "
                f"activate {name}; to go on and forget it: failover group delete {name} [BAD_INPUT]"
            )
        if status["status"] == "COMPLETE":
            raise connection.CommandFailed(
                f"{group} has reached its goal, and nobody is taken for lost unless you say who. "
                f"Say it with --lost MEMBER or --fact \"MEMBER is down\" (--lost '' for nobody). "
                f"To move a role while everybody is well: failover switchover {name} [BAD_INPUT]"
            )


def add_facts(parser: argparse.ArgumentParser) -> None:
    """The options for what an operator knows."""
    parser.add_argument(
        "--to", metavar="MEMBER", help="who takes over (default: the group's choice)"
    )
    parser.add_argument(
        "--lost",
        metavar="MEMBER",
        action="append",
        help="a member that is lost; may be repeated; '' for nobody (default: nobody; of a plan: "
        "who holds a role)",
    )
    parser.add_argument(
        "--recovered",
        metavar="MEMBER",
        action="append",
        help="a lost member that you vouch for again; may be repeated",
    )
    parser.add_argument(
        "--fact",
        metavar="SENTENCE",
        action="append",
        help='the same as a sentence: "db_a is down", "db_b is well"; may be repeated',
    )


def given_facts(parsed_args: argparse.Namespace) -> dict[str, Any]:
    """The inputs ``to``, ``lost`` and ``recovered`` that the options of :func:`add_facts` say; None
    where they say nothing. Raises CommandLineWrong."""
    lost, recovered = facts_said(parsed_args.fact or ())
    lost += [name for name in parsed_args.lost or () if name]
    recovered += parsed_args.recovered or ()
    nobody = parsed_args.lost is not None or recovered
    return {
        "to": parsed_args.to,
        "lost": lost if lost or nobody else None,
        "recovered": recovered or None,
    }
