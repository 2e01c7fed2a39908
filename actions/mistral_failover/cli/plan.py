# SPDX-License-Identifier: Apache-2.0
"""``failover plan``: see what would happen before it does."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cliff.show import ShowOne

from mistral_failover.cli import base, connection
from mistral_failover.cli.arguments import argument
from mistral_failover.cli.base import for_people, lasted, when
from mistral_failover.model.verbs import (
    FAILOVER,
    Form,
    Input,
    plannable,
    plannable_inputs,
    takers,
    verb_kind,
)

if TYPE_CHECKING:  # a command starts without the code of the actions
    from mistral_failover.orders.plan.documents import (
        PlanDocument,
        PlannedDeletion,
        PlannedReturn,
        PlanStep,
        Risk,
    )

_LOST = ("down", "lost", "dead", "gone", "failed", "broken", "unreachable", "not responding")
_RECOVERED = ("recovered", "well", "back", "up", "repaired", "healthy")
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
        "steps": "\n".join(step_lines(plan["steps"])) or "none: everything is as the goal wants it",
        "in all": lasted(plan["seconds"]) or _unknown(plan["steps"]),
        "fences": "\n".join(fence["sentence"] for fence in plan["fences"]) or "no member is fenced",
        **_sentences("brought back", plan["ways_back"]),
        **_sentences("deleted", plan["deletes"]),
        "risks": "\n".join(_risk(risk) for risk in plan["risks"]) or "none found",
        "holds until": f"{when(plan['expires_at'])} UTC, if nothing changes before",
        "start it": f"failover start --plan {plan['plan']}",
    }
    if plan["changed"]:
        shown = {"no longer so": "\n".join(plan["changed"]), **shown}
    return shown


def _sentences(
    title: str, rows: Sequence[PlannedReturn] | Sequence[PlannedDeletion]
) -> dict[str, str]:
    """Return what a plan says of something that most plans do not have."""
    return {title: "\n".join(row["sentence"] for row in rows)} if rows else {}


def steps_of(plan: PlanDocument) -> str:
    """Return what a plan would do, and its risks, in lines."""
    risks = [f"risk: {_risk(risk)}" for risk in plan["risks"]]
    lines = [plan["sentence"], *step_lines(plan["steps"] if plan["plan"] else []), *risks]
    return "".join(f"{line}\n" for line in lines)


def step_lines(steps: list[PlanStep], *, interrupting: bool = False) -> list[str]:
    """Return a line for each step: number, what, expected seconds, what it waits for.
    ``interrupting``: say which of them interrupt the service."""
    width = max((len(step["what"]) for step in steps), default=0)
    return [
        f"{step['number']:>2}  {step['what']:<{width}}  {_expected(step):>8}  {_waits(step)}"
        f"{'  (interrupts the service)' if interrupting and step['interrupts'] else ''}"
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


def add_facts(parser: argparse.ArgumentParser) -> None:
    """Add the options for the facts that an operator knows."""
    for name, declared in verb_kind(FAILOVER).given.items():
        add_input(parser, name, declared)
    parser.add_argument(
        "--fact",
        metavar="SENTENCE",
        action="append",
        help='the same as a sentence: "db_a is down", "db_b is well"; may be repeated',
    )


def add_input(parser: argparse.ArgumentParser, name: str, declared: Input) -> None:
    """Add the argument or the option for an input of a verb."""
    if declared.positional:
        nargs = None if declared.required else "?"
        parser.add_argument(name, nargs=nargs, help=declared.words)
        return
    parser.add_argument(
        f"--{name.replace('_', '-')}",
        metavar=declared.metavar,
        required=declared.required,
        action="append" if declared.form is Form.NAMES else "store",
        help=declared.words,
    )


def _more_inputs() -> list[str]:
    """Return the inputs that verbs have besides those of a failover."""
    return [name for name in plannable_inputs() if name not in verb_kind(FAILOVER).given]


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


def _add_verb(parser: argparse.ArgumentParser) -> None:
    """Add the verb, of those that are installed."""
    words = "the order to plan (default failover)"
    parser.add_argument("--verb", choices=list(plannable()), help=words)


def _add_more_inputs(parser: argparse.ArgumentParser) -> None:
    for name in _more_inputs():
        (first, *others) = takers(name)
        words = f"for {first.name}: {first.given[name].words}"
        words += "".join(f"; for {each.name}: {each.given[name].words}" for each in others)
        declared = replace(first.given[name], words=words, positional=False, required=False)
        add_input(parser, name, declared)


class Plan(base.ActionCommand, ShowOne):
    """Show what would happen now, without changing anything.

    It shows each step, what the step waits for (steps that wait for the same run in parallel) and
    how long it took before; which members are fenced, and how; and the risks. Nothing is written to
    the cloud or to the group, so plan as often as you like. Start exactly this plan with the
    command shown at the end; it is refused if anything that the plan depends on has changed.

    Examples: failover plan payments --fact "db_a is down"; failover plan payments --verb switchover
    --to db_b.
    """

    arguments = (
        argument("group", nargs="?", help="the group's name"),
        argument(
            "--plan",
            metavar="ID",
            help=(
                "show an earlier plan again, and whether it is still valid; its id, or the first "
                "8 digits"
            ),
        ),
        _add_verb,
        add_facts,
        _add_more_inputs,
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Query and format."""
        if (parsed_args.group is None) == (parsed_args.plan is None):
            raise connection.CommandLineWrong("Give a group, or --plan with a plan's id. [USAGE]")
        names = ("group", "plan", "verb", *_more_inputs())
        inputs = {name: getattr(parsed_args, name) for name in names}
        return show_plan(self.app, parsed_args, **inputs, **given_facts(parsed_args))
