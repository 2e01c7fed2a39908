# SPDX-License-Identifier: Apache-2.0
"""``failover workflows validate``: check workflow files without a server."""

from __future__ import annotations

import argparse

from cliff.command import Command


class Validate(Command):
    """Check workflow files offline: syntax, links, expressions, and what Mistral itself finds out
    only when a task runs: unknown actions, wrong inputs, missing sub-workflows.

    Prints a line per finding with its remedy; exit code 1 when there is an error.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The options."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("files", nargs="+", metavar="FILE", help="workflow files (YAML)")
        parser.add_argument(
            "--strict", action="store_true", help="take breaches of the house rules as errors"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Validate; the exit code."""
        from mistral_failover.embedded import validate

        return validate.main(parsed_args.files, strict=parsed_args.strict)
