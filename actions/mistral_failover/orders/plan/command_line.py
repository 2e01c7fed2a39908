# SPDX-License-Identifier: Apache-2.0
"""The command line that requests a plan again."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import join
from typing import Any

from mistral_failover.store.plans import KeptPlan
from mistral_failover.store.tables import OrderVerb


def planned_by(group: str, kept: KeptPlan) -> str:
    """Return the command that plans for a group again with the inputs of a kept plan."""
    verb = [] if kept.verb == OrderVerb.FAILOVER else ["--verb", kept.verb]
    options = [word for name, value in kept.inputs.items() for word in _options(name, value)]
    return join(["failover", "plan", group, *verb, *options])


def _options(name: str, value: Any) -> Iterator[str]:
    # A mapping of roles to members cannot be typed. An empty list of lost members means none.
    values = [] if isinstance(value, dict) else value if isinstance(value, list) else [value]
    for each in values or ([""] if value == [] else []):
        yield from (f"--{name}", str(each))
