# SPDX-License-Identifier: Apache-2.0
"""``failover workflows ...``: the package's workflows in Mistral, and files of workflows."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from cliff.command import Command
from cliff.lister import Lister

from mistral_failover.cli import base, connection, registry
from mistral_failover.cli.base import ActionCommand
from mistral_failover.cli.connection import CommandFailed
from mistral_failover.cli.registry import Registry, WorkflowState


class Validate(Command):
    """Check workflow files offline: syntax, links, expressions, inputs.

    It also finds what Mistral itself finds only when a task runs: unknown actions, wrong inputs,
    missing sub-workflows.

    It prints a line per finding with its remedy; exit code 1 when there is an error.
    """

    auth_required = False

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the options of the command."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("files", nargs="+", metavar="FILE", help="workflow files (YAML)")
        parser.add_argument(
            "--strict", action="store_true", help="report violations of the style rules as errors"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Validate; the exit code."""
        from mistral_failover.embedded import validate

        return validate.main(parsed_args.files, strict=parsed_args.strict)


class _RegistryCommand(ActionCommand, Lister):
    """A command about the workflows in Mistral."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the options of the command."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            "--namespace",
            metavar="NAME",
            help=(
                "Mistral's namespace (default: that of --workflow-namespace, or none). A workflow "
                "looks for its sub-workflows in its own namespace, then in the one without a name"
            ),
        )
        self.add_arguments(parser)
        return parser

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's own arguments."""

    def namespace(self, parsed_args: argparse.Namespace) -> str:
        """Return the namespace to use."""
        given = parsed_args.namespace
        return connection.namespace(self.app) if given is None else str(given)


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="files of your own workflows, besides those of this package",
    )


class Install(_RegistryCommand):
    """Upload this package's workflows, and files of your own.

    It uploads only workflows that are missing in Mistral or have another text there. Repeat it
    after each upgrade.

    The workflows go into your project, with your token. If an administrator has installed the same
    text as public, that one is used.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the files, and their visibility."""
        _add_files(parser)
        parser.add_argument(
            "--public",
            choices=("yes", "no"),
            help=(
                "whether other projects may use them, which only an administrator may set "
                "(default: unchanged; new ones: no)"
            ),
        )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[str]]]:
        """Compare, and upload what differs."""
        definitions = registry.definitions(parsed_args.files)
        scope = {"yes": "public", "no": "private", None: None}[parsed_args.public]
        with connection.mistral(self.app) as client:
            known = Registry(client, self.namespace(parsed_args))
            made = {name: known.install(name, text, scope) for name, text in definitions.items()}
        if any(each.kept for each in made.values()):
            self.exit_code = base.FAILED
        return ["workflow", "done"], [[name, each.done] for name, each in made.items()]


class Diff(_RegistryCommand):
    """Show which workflows are missing in Mistral, or have another text there.

    It compares those of this package and of your files and shows the lines that differ. It also
    lists workflows named failover.* that do not belong to this package: those of another version or
    of other authors.

    Exit code 1 when anything differs.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the files, and the extent."""
        _add_files(parser)
        parser.add_argument("--brief", action="store_true", help="without the lines that differ")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[str]]]:
        """Compare."""
        definitions = registry.definitions(parsed_args.files)
        with connection.mistral(self.app) as client:
            standings = Registry(client, self.namespace(parsed_args)).compare(definitions)
        if any(each.state != registry.SAME for each in standings):
            self.exit_code = base.FAILED
        columns = ["workflow", "state", "scope"]
        if parsed_args.brief:
            return columns, [_row(each) for each in standings]
        return [*columns, "difference"], [[*_row(each), each.difference] for each in standings]


class Remove(_RegistryCommand):
    """Remove the package's workflows from Mistral.

    Other workflows stay, and so do actions and groups: no failover starts until the workflows are
    installed again.

    It asks for confirmation unless --yes is given.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add --yes."""
        parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[str]]]:
        """Ask, and remove."""
        definitions = registry.definitions([])
        with connection.mistral(self.app) as client:
            known = Registry(client, self.namespace(parsed_args))
            there = [name for name in definitions if known.mine(name)]
            if there:
                base.confirm(
                    f"Remove {len(there)} workflows: no alarm is handled after that",
                    yes=parsed_args.yes,
                )
            refused = {name: why for name in there if (why := known.remove(name)) is not None}
        if refused:
            lines = "\n".join(f"{name}: {why}" for name, why in refused.items())
            raise CommandFailed(f"{lines}\n{len(refused)} could not be removed. [MISTRAL_REFUSED]")
        return ["workflow", "done"], [[name, "removed"] for name in there]


def _row(each: WorkflowState) -> list[Any]:
    return [each.name, each.state, each.scope]
