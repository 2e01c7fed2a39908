# SPDX-License-Identifier: Apache-2.0
"""The command line that asks for a plan once more."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import join
from typing import Any

from mistral_failover.store.plans import KeptPlan


def planned_by(group: str, kept: KeptPlan) -> str:
    """What a person types to plan for a group again what a kept plan was made of."""
    verb = [] if kept.verb == "failover" else ["--verb", kept.verb]
    options = [word for name, value in kept.inputs.items() for word in _options(name, value)]
    return join(["failover", "plan", group, *verb, *options])


def _options(name: str, value: Any) -> Iterator[str]:
    # Where each role goes can not be typed; an empty list of the lost says that nobody is.
    values = [] if isinstance(value, dict) else value if isinstance(value, list) else [value]
    for each in values or ([""] if value == [] else []):
        yield from (f"--{name}", str(each))
