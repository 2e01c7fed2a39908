# SPDX-License-Identifier: Apache-2.0
"""The commands of the verbs, each made from its verb's declaration when an entry point asks for it:
``Failback`` is the command of the verb whose class has this name."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, ClassVar

from mistral_failover.cli import base, order, plan
from mistral_failover.cli.arguments import GROUP, YES, Declared, argument, one_of
from mistral_failover.cli.connection import CommandLineWrong
from mistral_failover.model.text import clean
from mistral_failover.model.verbs import VerbKind, verb_kind, verb_kinds

if TYPE_CHECKING:  # a command starts without the code of the actions
    from mistral_failover.orders.evidence import Evidence


def __getattr__(name: str) -> Any:
    """Return the command of the verb whose class has this name."""
    for verb in verb_kinds().values():
        if type(verb).__name__ == name:
            own = {"__module__": __name__, "__doc__": verb.__doc__, "verb": verb}
            return type(name, (VerbCommand,), own)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class VerbCommand(order.Order):
    """Start ``verb``, with the options, the plan and the question that its declaration asks for."""

    verb: ClassVar[VerbKind]
    _plan: str | None = None  # the one to start, for a verb without a workflow

    arguments: Declared = (GROUP,)

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with what the verb declares, too: a verb without a reason of its own
        requires one."""
        parser, verb = super().get_parser(prog_name), self.verb
        for name, declared in verb.given.items():
            plan.add_input(parser, name, declared)
        parser.add_argument(
            "--because", required=not verb.because, metavar="TEXT", help=verb.because_words
        )
        if verb.asks:
            YES(parser)
        if verb.plannable:
            parser.add_argument(
                "--dry-run",
                action="store_true",
                help="only show what would happen, step by step; change nothing",
            )
        return parser

    def inputs(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Return the verb's inputs; for a plan, only its id."""
        if self._plan:
            return {"plan": self._plan, "group": None}
        return {name: getattr(parsed_args, name) for name in self.verb.given}

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Show the plan, or ask, start, follow and show."""
        self.workflow = self.workflow or self.verb.workflow
        asked = {"group": parsed_args.group, "verb": self.verb.name, **self.inputs(parsed_args)}
        if self.verb.plannable and parsed_args.dry_run:
            return plan.show_plan(self.app, parsed_args, **asked)
        if self.verb.asks and not parsed_args.yes:
            self.ask(parsed_args)
        if not self.workflow:
            self.workflow = "failover.start_plan"
            if self._plan is None:  # otherwise the one that was shown is started
                self._plan = self.run_action("failover.plan", **base.given(asked))["plan"]
            if self._plan is None:  # nothing to do, and the plan says why
                return plan.show_plan(self.app, parsed_args, **asked)
        return super().take_action(parsed_args)

    def ask(self, parsed_args: argparse.Namespace) -> None:
        """Show what would happen, and ask. Raises CommandFailed."""
        asked = {"group": parsed_args.group, "verb": self.verb.name, **self.inputs(parsed_args)}
        shown = self.run_action("failover.plan", **asked)
        sys.stderr.write(clean(plan.steps_of(shown)))
        base.confirm("Do that", yes=False)
        if not self.workflow:
            self._plan = shown["plan"]


class Replace(VerbCommand):
    """The command of ``replace``, and of a rolling replacement."""

    verb = verb_kind("replace")
    __doc__ = verb.__doc__

    arguments = (
        one_of(
            argument(
                "--oldest", action="store_true", help="the oldest member; a failed one before it"
            ),
            argument(
                "--newest", action="store_true", help="the newest member; a failed one before it"
            ),
            argument("--all", action="store_true", help="all members, one by one"),
        ),
        argument(
            "--pause",
            type=int,
            metavar="SECONDS",
            help="with --all: how long to wait between two members (default 0)",
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Show the plan, or start, follow and show."""
        among = parsed_args.oldest or parsed_args.newest or parsed_args.all
        if parsed_args.member and among:
            raise CommandLineWrong(
                f"{parsed_args.member} is named, so omit --oldest, --newest and --all. [USAGE]"
            )
        if parsed_args.pause is not None and not parsed_args.all:
            raise CommandLineWrong(
                "--pause needs --all: a single member has no successor to wait for. [USAGE]"
            )
        if parsed_args.all and (parsed_args.resource or parsed_args.dry_run):
            said = "--resource" if parsed_args.resource else "--dry-run"
            raise CommandLineWrong(
                f"{said} applies to one member: name the member instead of --all. [USAGE]"
            )
        if parsed_args.all:
            self.workflow = "failover.replace_members"
        return super().take_action(parsed_args)

    def ask(self, parsed_args: argparse.Namespace) -> None:
        """Ask, for all members without a plan. Raises CommandFailed."""
        if not parsed_args.all:
            return super().ask(parsed_args)
        return base.confirm(f"Replace every server of {parsed_args.group}, one by one", yes=False)

    def inputs(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Return the member, and the extent."""
        if parsed_args.all:
            return {"pause": parsed_args.pause}
        word = "oldest" if parsed_args.oldest else "newest" if parsed_args.newest else None
        return {"member": parsed_args.member or word, "resource": parsed_args.resource}


class ConfirmFenced(VerbCommand):
    """The command of ``confirm-fenced``."""

    verb = verb_kind("confirm-fenced")
    __doc__ = verb.__doc__

    def ask(self, parsed_args: argparse.Namespace) -> None:
        """Show what is known of the member, and ask. Raises CommandFailed."""
        group, member = parsed_args.group, parsed_args.member

        def look() -> Evidence:
            found: Evidence = self.run_action("failover.evidence", group=group, member=member)
            return found

        order.confirm_by_signs(look, f"Is {member} certainly off")
