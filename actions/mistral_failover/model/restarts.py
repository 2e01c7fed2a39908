# SPDX-License-Identifier: Apache-2.0
"""The ways to bring a lost member back, which a group file names in ``members.restart``.

A way is one class, and one entry point of the group ``mistral_failover.restarts`` that gives it its
name; ``resources.restart.way.Way`` has how it runs.
"""

from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.installed import installed
from mistral_failover.model.validation import did_you_mean

RESTARTS = "mistral_failover.restarts"
"""The group of the entry points."""

ANOTHER_SERVER = "replace"
"""The way that gives the member another server."""

USUAL = ("start", ANOTHER_SERVER)
"""The ways of a group that replaces who is lost and names none."""


def read_restart(stated: list[str], path: str) -> tuple[str, ...]:
    """Return the ways of a group file, in their order.

    :raises InvalidDocument: at ``path``, for a way that no installed package provides.
    """
    known = sorted(installed(RESTARTS))
    for index, name in enumerate(stated):
        if name not in known:
            raise InvalidDocument(
                f"{path}[{index}]",
                f'"{name}" is no way to bring a member back',
                did_you_mean(name, known),
            )
    return tuple(stated)
