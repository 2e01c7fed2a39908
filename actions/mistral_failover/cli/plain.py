# SPDX-License-Identifier: Apache-2.0
"""Answers that people read as lines, without the frame of a table."""

from __future__ import annotations

import argparse
from typing import Any

from mistral_failover.cli import base, status_screen
from mistral_failover.cli.base import ActionCommand, for_people


class PlainFacts(ActionCommand):
    """A command that answers with facts, each a name and a text. ``screen``: what people read in
    their place, if it is set."""

    screen = ""

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Any, data: Any) -> int:
        """Without a frame for people: commands must be easy to copy."""
        if not for_people(parsed_args):
            return super().produce_output(parsed_args, column_names, data)
        facts = dict(zip(column_names, data, strict=True))
        self.app.stdout.write(self.screen or status_screen.aligned(facts, base.width()))
        return 0
