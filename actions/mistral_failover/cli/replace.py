# SPDX-License-Identifier: Apache-2.0
"""``failover replace``: another server for a member, or for all of them in turn."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from mistral_failover.cli import base, plan
from mistral_failover.cli.connection import CommandLineWrong
from mistral_failover.model.text import clean


class Replace(plan.PlannableOrder):
    """Have Heat make another server for a member, under the same name.

    Without a member it takes one that failed, if there is any, else as the group file chooses. A
    failed member is fenced first, and its roles move to another one; a healthy member gives them up
    by a planned move first. The active member is never replaced while no other can serve. The new
    server may take roles at once: a lost member is healthy again.

    --all replaces every member, one by one, those without a role first. It stops at the first
    failure, and leaves the group in service wherever it is stopped. Cancel it with
    'openstack workflow execution update EXECUTION -s CANCELLED'.

    Check first with --dry-run; see failover member list afterwards.
    """

    workflow = "failover.replace_member"
    verb = "replace"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the member, and the extent."""
        parser.add_argument("member", nargs="?", help="the member")
        which = parser.add_mutually_exclusive_group()
        which.add_argument(
            "--oldest", action="store_true", help="the oldest member; a failed one before it"
        )
        which.add_argument(
            "--newest", action="store_true", help="the newest member; a failed one before it"
        )
        which.add_argument("--all", action="store_true", help="all members, one by one")
        parser.add_argument(
            "--pause",
            type=int,
            metavar="SECONDS",
            help="with --all: how long to wait between two members (default 0)",
        )
        base.add_yes(parser)
        parser.add_argument(
            "--resource",
            metavar="NAME",
            help="only this resource of the member's own stack (default: the whole member)",
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
        if not (parsed_args.yes or parsed_args.dry_run):
            self._ask(parsed_args)
        return super().take_action(parsed_args)

    def _ask(self, parsed_args: argparse.Namespace) -> None:
        """Show what would happen, and ask. Raises CommandFailed."""
        group = parsed_args.group
        if parsed_args.all:
            base.confirm(f"Replace every server of {group}, one by one", yes=False)
            return
        asked = {"group": group, "verb": self.verb, **base.given(self.inputs(parsed_args))}
        sys.stderr.write(clean(plan.steps_of(self.run_action("failover.plan", **asked))))
        base.confirm("Do that", yes=False)

    def inputs(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Return the member, and the extent."""
        if parsed_args.all:
            return {"pause": parsed_args.pause}
        word = "oldest" if parsed_args.oldest else "newest" if parsed_args.newest else None
        return {"member": parsed_args.member or word, "resource": parsed_args.resource}
